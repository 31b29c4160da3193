"""The cells of a run that are done: their results, and the networks they left."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.sources import Data, load_data
from ..ensemble import Ensemble
from ..errors import TrainingError
from ..runs.cells import Cell
from ..runs.folder import RunFolder
from ..runs.work import Outcome, finished
from .base import Run

__all__ = ["Trained"]


@dataclass(frozen=True)
class Trained:
    """A run whose cells lie in a folder.

    `results` has, by row and by seed, what `result.json` of the cell holds; cells that are not done are not there.
    """

    run: Run
    folder: Path  # of all cells
    results: Mapping[str, Mapping[int, Mapping[str, Any]]]
    failed: Mapping[str, str]  # reasons, by a cell's name

    @classmethod
    def read(cls, run: Run, folder: Path, outcomes: Mapping[str, Outcome] | None = None) -> Trained:
        """What is done of a run."""
        reasons = {name: o.reason for name, o in (outcomes or {}).items() if o.reason is not None}
        results: dict[str, dict[int, Any]] = {}
        for row in run.rows:
            every = {cell.seed: finished(cell, folder) for cell in row.cells()}
            results[row.label] = {seed: done.result for seed, done in every.items() if done is not None}
        return cls(run, folder, results, reasons)

    def cell(self, label: str, seed: int) -> Cell:
        return next(cell for cell in self.run.row(label).cells() if cell.seed == seed)

    def seeds(self, label: str) -> list[int]:
        """The seeds of a row that are done, in order."""
        return sorted(self.results[label])

    def named(self) -> list[tuple[str, str]]:
        """Names for the rows' pictures, "" for the first row, and the rows' labels."""
        labels = [row.label for row in self.run.rows]
        plain = ["".join(c if c.isascii() and c.isalnum() else " " for c in label.lower()) for label in labels]
        return [("-".join(words.split()) if i else "", labels[i]) for i, words in enumerate(plain)]

    def values(self, label: str, value: Callable[[Mapping[str, Any]], float | None]) -> dict[int, float]:
        """A number of every seed that has it."""
        every = {seed: value(self.results[label][seed]) for seed in self.seeds(label)}
        return {seed: float(x) for seed, x in every.items() if x is not None and math.isfinite(x)}

    def path(self, label: str, seed: int) -> Path:
        """The run folder of a cell."""
        return self.folder / self.cell(label, seed).name

    def open(self, label: str, seed: int | None = None) -> tuple[Ensemble, Data]:
        """The trained ensemble of a row, and its data; of the first seed that is done."""
        seeds = self.seeds(label)
        if not seeds or (seed is not None and seed not in seeds):
            missing = f"seed {seed}" if seed is not None else "any seed"
            raise TrainingError(f"a row must be trained to be opened; got {label} of {self.run.item} without {missing}")
        folder = RunFolder(self.path(label, seeds[0] if seed is None else seed))
        run = folder.read()
        data = load_data(run["data"], seed=run["recipe"]["seed"])
        return folder.open(data), data
