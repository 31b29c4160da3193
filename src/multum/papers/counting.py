"""What a row costs: its ensemble built on the meta device, where nothing is computed and nothing stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from .. import models
from ..building import ensemble
from ..ensemble import Ensemble
from ..methods import Method, Single
from ..metrics.cost import Cost, cost
from .base import Row
from .facts import Facts, facts_of

__all__ = ["COLUMNS", "build", "cost_of", "training_macs"]

M_PASSES = ("batchensemble", "deep", "masksembles")  # as Packed-Ensembles counts them, whatever their members share


def build(row: Row) -> Ensemble:
    """The row's ensemble on the meta device; a hypernetwork's members are born."""
    return _build(row.model, row.method, facts_of(row.data).alike())


def _build(model: str, method: Method, facts: Facts) -> Ensemble:
    network, example = _network(model, facts)
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
