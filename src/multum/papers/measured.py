"""The cells of a run that are done: their numbers under the papers' own column names, and the papers' orderings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from ..comparing.reading import value_of
from ..data.names import selection
from ..data.sources import Data, load_data
from ..ensemble import Ensemble
from ..errors import TrainingError
from ..metrics.statistics import over_seeds
from ..runs.cells import Cell, Outcome, finished
from ..runs.folder import RunFolder
from .base import Row, Run
from .results import LOWER, Line, Ordering, compared, line_over_seeds, ordered

Cells: TypeAlias = Mapping[str, Any]
CRITERIA = {"MSP": "msp", "ML": "max_logit", "Ent.": "entropy", "MI": "mutual_information", "v": "variation_ratio"}
OOD: dict[str, tuple[str, ...]] = {
    "SVHN": ("svhn",),
    "LSUN": ("lsun",),
    "TIN": ("tiny_imagenet",),
    "CIFAR": ("cifar10", "cifar100"),
    "MNIST": ("mnist",),
    "KMNIST": ("kmnist",),
    "EMNIST": ("emnist_letters",),
}
DEFAULT = ("Accuracy", "NLL", "ECE")


@dataclass(frozen=True)
class Trained:
    """A run whose cells lie in a folder.

    `results` has, by row and by seed, what `result.json` of the cell holds; cells that are not done are not there.
    """

    run: Run
    folder: Path  # of all cells
    results: Mapping[str, Mapping[int, Mapping[str, Any]]]
    failed: Mapping[str, str]  # reasons, by a cell's name
    kept: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # numbers of pictures, where cells are gone

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


def _number(key: str, scale: float = 1.0) -> Callable[[Cells], float | None]:
    def number(result: Cells) -> float | None:
        value = value_of(result, key)
        return None if value is None else scale * value

    return number


def _ood(score: str, metric: str, scale: float, only: tuple[str, ...] = ()) -> Callable[[Cells], float | None]:
    """A measure of detection, the mean over OOD sets, or of some of them."""

    def measure(result: Cells) -> float | None:
        sets = result["numbers"].get("ood", {})
        values = [cell[score][metric] for name, cell in sets.items() if not only or selection(name)[0] in only]
        return scale * sum(values) / len(values) if values else None

    return measure


def _ood_information(result: Cells) -> float | None:
    values = list(result["numbers"].get("ood_mutual_information", {}).values())
    return sum(values) / len(values) if values else None


def _trained_accuracy(result: Cells) -> float | None:
    share = result["curves"]["training"][-1].get("accuracy")
    return None if share is None else 100 * share


# Of one cell's result; in the papers' units.
COLUMNS: dict[str, Callable[[Cells], float | None]] = {
    **dict.fromkeys(("Acc", "Accuracy", "Top-1"), _number("accuracy", 100)),
    "Acc (share)": _number("accuracy"),
    "Accuracy of members": _number("member_accuracy", 100),
    "NLL": _number("nll"),
    "NLL of members": _number("member_nll"),
    "ECE": _number("ece"),
    "ECE (%)": _number("ece", 100),
    "calibrated NLL": _number("calibrated_nll"),
    "calibrated ECE (%)": _number("calibrated_ece", 100),
    "Trained accuracy": _trained_accuracy,
    "AUPR": _ood("msp", "aupr", 100),
    "AUPR (share)": _ood("msp", "aupr", 1),
    "AUC": _ood("msp", "auroc", 100),
    "FPR95": _ood("msp", "fpr95", 100),
    **dict.fromkeys(("cAcc", "Corrupt"), _number("cacc", 100)),
    "cNLL": _number("cnll"),
    "cECE": _number("cece"),
    "cECE (%)": _number("cece", 100),
    "Diversity": _number("normalised_disagreement"),
    "Disagreement": _number("disagreement"),
    "KL": _number("kl"),
    "IDMI": _number("mutual_information"),
    "OODMI": _ood_information,
    "RMSE": _number("rmse"),
    **{f"AUPR {name}": _ood(score, "aupr", 1) for name, score in CRITERIA.items()},
    **{f"AUC {name}": _ood(score, "auroc", 1) for name, score in CRITERIA.items()},
    # The hypernetwork paper's score is the entropy.
    **{name: _ood("entropy", "auroc", 100, data) for name, data in OOD.items()},
}
# Of all seeds of a row together.
SPREADS = {"Std of Acc": COLUMNS["Acc"]}


def settings_of(row: Row) -> dict[str, Any]:
    """The settings of a row's cells, without the seed: what their names are made of."""
    return {name: value for name, value in row.cells()[0].settings().items() if name != "seed"}


def columns_of(run: Run) -> list[str]:
    """The columns of a run: the printed ones that training gives, then its own; the usual ones where there are none."""
    printed = [column for cells in run.printed.values() for column in cells if column in COLUMNS]
    return list(dict.fromkeys([*printed, *run.columns])) or list(DEFAULT)


def lines(trained: Trained) -> Iterator[Line]:
    """Mean and standard error over seeds of every row and column, beside the printed number."""
    run = trained.run
    for row in run.rows:
        for column in columns_of(run):
            values = trained.values(row.label, COLUMNS[column])
            if not values:
                continue
            printed = run.printed.get(row.label, {}).get(column)
            yield line_over_seeds(
                row.label,
                column,
                [*values.values()],
                None if printed is None else printed.text,
                remark=run.remarks.get((row.label, column), ""),
            )
        for column in SPREADS.keys() & run.printed.get(row.label, {}).keys():
            values = trained.values(row.label, SPREADS[column])
            if len(values) > 1:
                spread = over_seeds(list(values.values())).std
                yield Line(row.label, column, spread, run.printed[row.label][column].text, seeds=len(values))


def orderings(trained: Trained) -> Iterator[Ordering]:
    """What the paper's numbers order, in all pairs of rows on the same data and all columns, and what it says in words.

    Columns that are rivals are ordered too, within each row. Equal printed numbers order nothing. Pairs are compared
    over the seeds that both have.
    """
    run = trained.run
    for column in dict.fromkeys(c for cells in run.printed.values() for c in cells if c in COLUMNS):
        labels = [row.label for row in run.rows if column in run.printed.get(row.label, {})]
        printed = {label: run.printed[label][column].value for label in labels}
        for better, worse, paper in ordered(printed, column in LOWER):
            if run.row(better).data == run.row(worse).data:
                yield from _rows(trained, column, better, worse, paper)
    for column, better, worse in run.claims:
        yield from _rows(trained, column, better, worse, None)
    for measure in run.rivals:
        for label, cells in run.printed.items():
            columns = {name: f"{measure} {name}" for name in CRITERIA}
            numbers = {name: cells[column].value for name, column in columns.items() if column in cells}
            for better, worse, paper in ordered(numbers):
                values = [trained.values(label, COLUMNS[columns[name]]) for name in (better, worse)]
                yield from compared(f"{measure}, {label}", better, worse, values, paper)


def _rows(trained: Trained, column: str, better: str, worse: str, paper: float | None) -> Iterator[Ordering]:
    values = [trained.values(label, COLUMNS[column]) for label in (better, worse)]
    yield from compared(column, better, worse, values, paper)
