"""What a run would take: cells, mult-adds of all training, and hours on this machine and on a GPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from .base import Row, Run
from .counting import cost_of, training_macs

__all__ = ["A100_RATE", "CPU_RATE", "Plan", "PlannedRow", "plan"]

BACKWARD = 3  # forward, and a backward pass of about twice as much

# Sustained rates of training convolutions, in GMAC a second, forward and backward together.
CPU_RATE = 24.0  # two cores of a recent server, a cell on each: 18 to 32 for wrn-10-1, by method
A100_RATE = 30_000.0  # mixed precision: about 2,500 images a second of ResNet-50 at 224 pixels; an assumption


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

    def frame(self) -> pd.DataFrame:
        """One row a row."""
        return pd.DataFrame([asdict(row) for row in self.rows])


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
