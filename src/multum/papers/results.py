"""Numbers as the papers print them, and what an item gave: lines beside these, orderings that hold or not, figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import torch
from matplotlib.figure import Figure as Drawing

from ..errors import ConfigError, DataError
from ..metrics.statistics import over_seeds, paired_t

FOLDER = Path(__file__).with_name("printed")
FORMAT = 1  # of the documents
DIGITS = 5  # of a picture's numbers
CUT = "cut off, not rounded"
# Columns where less is better.
LOWER = {
    "NLL",
    "NLL of members",
    "ECE",
    "ECE (%)",
    "FPR95",
    "cNLL",
    "cECE",
    "cECE (%)",
    "RMSE",
    "calibrated NLL",
    "calibrated ECE (%)",
}
VERDICTS = {
    "holds": "holds: the interval of our difference has the paper's sign",
    "open": "open: the interval of our difference contains 0",
    "reversed": "reversed: the interval of our difference has the other sign",
    "one seed": "one seed: a difference without an interval",
}


@dataclass(frozen=True)
class Printed:
    """A number as a paper prints it, with its spread where it has one.

    >>> Printed("96.79±0.07").value, Printed("36.492").agrees(36.4928)
    (96.79, True)
    """

    text: str

    @property
    def value(self) -> float:
        return float(self.text.partition("±")[0])

    @property
    def spread(self) -> float | None:
        return float(self.text.partition("±")[2]) if "±" in self.text else None

    @property
    def digits(self) -> int:
        return len(self.text.partition("±")[0].partition(".")[2])

    def agreement(self, ours: float) -> str:
        """How ours becomes the printed number, "rounded" or "cut off" at its digits; "" where it does not.

        >>> Printed("36.492").agreement(36.4918), Printed("36.492").agreement(36.4928), Printed("1.5").agreement(1.4)
        ('rounded', 'cut off', '')
        """
        unit = 10.0**-self.digits
        if abs(round(ours, self.digits) - self.value) < unit / 4:
            return "rounded"
        return "cut off" if -1e-9 <= ours - self.value < unit else ""

    def agrees(self, ours: float) -> bool:
        """Whether ours, rounded or cut off at the printed digits, is the printed number."""
        return bool(self.agreement(ours))


Table: TypeAlias = Mapping[str, Mapping[str, Printed]]  # by row, then by column
Remarks: TypeAlias = Mapping[tuple[str, str], str]  # (row, column): why the cell is off


def table(columns: str, lines: Iterable[str]) -> dict[str, dict[str, Printed]]:
    """Rows of a table.

    >>> table("Acc, NLL", ["MIMO | 96.4 0.123"])["MIMO"]["NLL"].value
    0.123
    """
    names = columns.split(", ")
    rows: dict[str, dict[str, Printed]] = {}
    for line in lines:
        label, _, rest = line.rpartition("|")
        numbers = rest.split()
        if len(numbers) != len(names) or not label:
            raise ConfigError(f"a row must have {len(names)} numbers; got {len(numbers)} in {line!r}")
        rows[label.strip()] = {n: Printed(x) for n, x in zip(names, numbers, strict=True) if x != "-"}
    return rows


def read(paper: str) -> tuple[dict[str, Table], dict[str, Remarks], dict[str, tuple[str, ...]]]:
    """The tables of a paper, remarks on their cells, and departures from them, all by the table's or figure's name.

    They are in printed/PAPER.txt. A table is `# name`, its columns apart by commas, and its rows, `row | number number
    ...`, with - where there is none. A name that comes again adds rows with other columns. `! row | column | remark`
    says why a printed cell is off, where {ours} and {off}, the difference, stand for computed numbers, and `~ sentence`
    what is not done as in the paper, and why.

    >>> read("mimo")[0]["Footnote 2"]["ResNet28-10"]["Params (M)"].text
    '36.479'
    """
    tables: dict[str, Table] = {}
    remarks: dict[str, Remarks] = {}
    departs: dict[str, tuple[str, ...]] = {}
    file = FOLDER / f"{paper}.txt"
    if not file.exists():
        raise DataError(
            f"the papers' printed numbers must lie in {FOLDER}; got none: an installed multum leaves them out. Use a "
            "clone of the repository: pip install -e . there, then `multum reproduce`"
        )
    for section in f"\n{file.read_text('utf-8')}".split("\n# ")[1:]:
        name, *lines = section.strip().splitlines()
        printed = [line for line in lines if line[0] not in "!~"]
        if printed:
            tables[name] = {**tables.get(name, {}), **table(printed[0], printed[1:])}
        about = [line[2:].split(" | ", 2) for line in lines if line[0] == "!"]
        remarks[name] = {**remarks.get(name, {}), **{(row, column): remark for row, column, remark in about}}
        departs[name] = (*departs.get(name, ()), *(line[2:] for line in lines if line[0] == "~"))
    return tables, remarks, departs


@dataclass(frozen=True)
class Line:
    """One cell of a table: ours, what the paper printed, and whether they are the same at the printed digits."""

    row: str
    column: str
    ours: float
    printed: str | None = None
    agrees: bool | None = None  # None: nothing to compare with, or another setting than the paper's
    remark: str = ""
    error: float | None = None  # standard error over seeds
    seeds: int | None = None  # how many; None: nothing was trained
    values: Sequence[float] | None = None  # of every seed
    left_out: Sequence[float] | None = None  # with each seed left out, where the error is a jackknife's

    @property
    def difference(self) -> float | None:
        return None if self.printed is None else self.ours - Printed(self.printed).value


def _written(line: Line) -> dict[str, Any]:
    fields = asdict(line)
    return fields if line.left_out else {name: value for name, value in fields.items() if name != "left_out"}


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean over seeds and its standard error, which one seed does not have.

    >>> mean_and_error([1.0, 3.0]), mean_and_error([2.0])
    ((2.0, 1.0), (2.0, None))
    """
    seeds = over_seeds(values)
    return seeds.mean, seeds.error if seeds.n > 1 else None


def line_over_seeds(
    row: str, column: str, values: Sequence[float], printed: str | None = None, remark: str = ""
) -> Line:
    """The mean of a number of every seed, with its error."""
    mean, error = mean_and_error(values)
    return Line(row, column, mean, printed, remark=remark, error=error, seeds=len(values), values=list(values))


@dataclass(frozen=True)
class Ordering:
    """Two rows of which the paper says that one is better, and what our seeds say."""

    column: str
    better: str  # in the paper
    worse: str
    paper: float | None  # the paper's difference, better minus worse, in the column's unit; None: said in words
    ours: float
    low: float | None  # 95 % interval of ours over seeds, paired
    high: float | None
    lower: bool = False  # whether less is better
    differences: Sequence[float] | None = None  # of every seed, which the interval comes from

    @property
    def verdict(self) -> str:
        if self.low is None or self.high is None:
            return "one seed"
        if self.low <= 0 <= self.high:
            return "open"
        return "holds" if (self.ours < 0) == self.lower else "reversed"


def ordered(numbers: Mapping[str, float], lower: bool = False) -> Iterator[tuple[str, str, float]]:
    """All pairs that numbers order: better, worse, and the difference of the two; `lower` where less is better.

    >>> list(ordered({"one": 0.5, "two": 0.25, "three": 0.25}, lower=True))
    [('two', 'one', -0.25), ('three', 'one', -0.25)]
    """
    for pair in combinations(numbers, 2):
        worse, better = sorted(pair, key=numbers.__getitem__, reverse=lower)
        if numbers[better] != numbers[worse]:
            yield better, worse, numbers[better] - numbers[worse]


def compared(
    column: str,
    better: str,
    worse: str,
    values: Sequence[Mapping[int, float]],
    paper: float | None = None,
    lower: bool | None = None,
) -> list[Ordering]:
    """The ordering of two things over the seeds that both have, if any; `values` are theirs by seed.

    >>> compared("Accuracy", "two", "one", ({0: 2.0, 1: 3.0}, {0: 1.0, 1: 2.5, 2: 9.0}))[0].verdict
    'open'
    """
    lower = column in LOWER if lower is None else lower
    seeds = sorted(values[0].keys() & values[1].keys())
    a, b = (torch.tensor([own[seed] for seed in seeds], dtype=torch.float64) for own in values)
    differences = (a - b).tolist()
    if len(seeds) < 2:
        return [Ordering(column, better, worse, paper, differences[0], None, None, lower, differences)] if seeds else []
    test = paired_t(a, b)
    mean = round(test.difference, 12)  # equal means differ by the rounding of their sums
    return [Ordering(column, better, worse, paper, mean, test.low, test.high, lower, differences)]


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure drawn like the paper's, and its numbers."""

    title: str
    caption: str  # how to read it, a sentence or two
    drawing: Drawing
    numbers: pd.DataFrame


@dataclass
class Extra:
    """What an item measures inside its trained networks, as it comes."""

    lines: list[Line] = field(default_factory=list)
    pictures: dict[str, Picture] = field(default_factory=dict)
    orderings: list[Ordering] = field(default_factory=list)


@dataclass(frozen=True)
class Result:
    """What an item gave."""

    item: str
    lines: tuple[Line, ...]
    exact: tuple[Line, ...] = ()  # of an item that trains: what needs no training, in the paper's setting
    departs: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    scale: str = "paper"
    orderings: tuple[Ordering, ...] = ()
    pictures: Mapping[str, Picture] = field(default_factory=dict)  # by the end of its file's name, "" for the first
    cells: Sequence[Mapping[str, Any]] = ()  # what was trained: row, seed, folder, status, reason, seconds, examples
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the whole settings of each row's cells
    headline: Sequence[Sequence[str]] = ()  # the pairs of rows that the paper is about

    @property
    def unexplained(self) -> tuple[Line, ...]:
        """Lines that disagree with the paper and say no reason."""
        return tuple(line for line in (*self.lines, *self.exact) if line.agrees is False and not line.remark)

    def document(self) -> dict[str, Any]:
        """All of it in plain values, for JSON."""
        return {
            "format": FORMAT,
            "item": self.item,
            "scale": self.scale,
            "reduced": list(self.reduced),
            "departs": list(self.departs),
            **{
                name: [{**_written(line), "difference": line.difference} for line in lines]
                for name, lines in (("lines", self.lines), ("exact", self.exact))
            },
            "orderings": [{**asdict(o), "verdict": o.verdict} for o in self.orderings],
            "pictures": {
                name: {"title": p.title, "caption": p.caption, "numbers": p.numbers.to_dict("list")}
                for name, p in self.pictures.items()
            },
            "headline": [list(pair) for pair in self.headline],
            "rows": {label: dict(settings) for label, settings in self.rows.items()},
            "cells": [dict(cell) for cell in self.cells],
        }
