"""What a row costs, and what training a whole run would take: cells, mult-adds, hours here and on a GPU.

Ensembles are built on the meta device, where nothing is computed and nothing stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from .. import models
from ..building import ensemble, without_remarks
from ..ensemble import Ensemble
from ..methods import Method, Single
from ..metrics.cost import Cost, cost
from .base import Facts, Row, Run, facts_of

M_PASSES = ("batchensemble", "deep", "masksembles")  # as Packed-Ensembles counts them, whatever their members share
BACKWARD = 3  # forward, and a backward pass of about twice as much

# Sustained rates of training convolutions, in GMAC a second, forward and backward together.
CPU_RATE = 24.0  # two cores of a recent server, a cell on each: 18 to 32 for wrn-10-1, by method
A100_RATE = 30_000.0  # mixed precision: about 2,500 images a second of ResNet-50 at 224 pixels; an assumption


def build(row: Row) -> Ensemble:
    """The row's ensemble on the meta device; a hypernetwork's members are born."""
    return _build(row.model, row.method, facts_of(row.data).alike())


def _build(model: str, method: Method, facts: Facts) -> Ensemble:
    network, example = _network(model, facts)
    with without_remarks():
        built = ensemble(network, method, example=example, task="classification" if facts.is_image else "regression")
    if built.members < method.members:
        method.give_birth(built)
    return built


@cache
def _network(model: str, facts: Facts) -> tuple[nn.Module, Tensor]:
    """The base network, which no ensemble changes, and a batch of one example."""
    with torch.device("meta"):
        return models.builder(model, facts.shape, facts.outputs)(), torch.zeros(1, *facts.shape)


def cost_of(row: Row) -> Cost:
    """Parameters and mult-adds of one prediction, counted once for equal networks, methods and shapes."""
    return _cost(row.model, _alike(row.method), facts_of(row.data).alike())


def _alike(method: Method) -> Method:
    """The method without what changes its training alone: ensembles that cost the same are counted once."""
    defaults: dict[str, Any] = {f.name: f.default for f in fields(method) if f.name in method.training_only}
    return replace(method, **defaults)


@cache
def _cost(model: str, method: Method, facts: Facts) -> Cost:
    return cost(_build(model, method, facts), example=_network(model, facts)[1])


def training_macs(row: Row) -> int:
    """Mult-adds of one training example forward, by all that is trained on it."""
    counted = cost_of(row)
    return row.method.training_macs(counted.macs, counted.members)


def _one_network(row: Row) -> Cost:
    return _cost(row.model, Single(), facts_of(row.data).alike())


def _passes(row: Row, mimo: int) -> int:
    """Packed-Ensembles' counting: methods of M passes cost M times one network, whatever their members share."""
    if row.method.name in M_PASSES:
        return row.method.members * _one_network(row).torchinfo
    return cost_of(row).torchinfo * (mimo if row.method.name == "mimo" else 1)


# Columns that need no training: of a row, and of the first row of its table where they are relative to that.
COLUMNS: dict[str, Callable[[Row, Row], float]] = {
    "Params": lambda row, first: cost_of(row).params,
    "Params (M)": lambda row, first: cost_of(row).params / 1e6,
    "Mult-Adds (G)": lambda row, first: _passes(row, mimo=1) / 1e9,
    "Mult-Adds in M passes (G)": lambda row, first: _passes(row, mimo=row.method.members) / 1e9,
    "FLOPs (G)": lambda row, first: cost_of(row).flops / 1e9,
    "FLOPS (x)": lambda row, first: cost_of(row).macs / cost_of(first).macs,
}


@dataclass(frozen=True)
class PlannedRow:
    """One row's share."""

    label: str
    cells: int
    params: int
    macs: int  # of one prediction
    training: float  # mult-adds of training all its cells


@dataclass(frozen=True)
class Plan:
    """What a run would take; rates are in GMAC a second."""

    item: str
    scale: str
    rows: tuple[PlannedRow, ...]
    cells: int  # equal ones counted once
    training: float  # mult-adds of all cells
    rate: float
    gpu_rate: float

    @property
    def hours(self) -> float:
        """On this machine."""
        return self.training / (self.rate * 1e9) / 3600

    @property
    def gpu_hours(self) -> float:
        """On one A100."""
        return self.training / (self.gpu_rate * 1e9) / 3600

    def document(self) -> dict[str, Any]:
        """All of it in plain values, for JSON."""
        return {**asdict(self), "hours": self.hours, "gpu_hours": self.gpu_hours}


def plan(run: Run, rate: float = CPU_RATE, gpu_rate: float = A100_RATE) -> Plan:
    """Mult-adds of a run's training, 3 x forward x examples x epochs, and the hours that follow.

    Args:
        rate: of this machine, in GMAC a second.
        gpu_rate: of one A100.

    >>> from multum.papers import find
    >>> planned = plan(find("mimo/figure3").run("cpu"), rate=10)
    >>> planned.cells, round(planned.hours, 2)
    (2, 0.44)
    """
    rows, training = [], 0.0
    seen: set[str] = set()
    for row in run.rows:
        names = {cell.name for cell in row.cells()}
        each = _training(row)
        rows.append(PlannedRow(row.label, len(names), cost_of(row).params, cost_of(row).macs, each * len(names)))
        training += each * len(names - seen)
        seen |= names
    return Plan(run.item, run.scale, tuple(rows), len(seen), training, rate, gpu_rate)


def _training(row: Row) -> float:
    return float(BACKWARD * training_macs(row) * row.trained_on * row.epochs)
