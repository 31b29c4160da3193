"""What a table or figure of a paper is here: an Item, and the Run that it becomes at the paper's scale or at a CPU's.

A Run is data: rows to train (each one network, one method, one recipe, some seeds), what the paper printed for them,
and in plain sentences where the Run is smaller than the paper's, or departs from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import ConfigError, did_you_mean
from ..methods import Method
from ..runs.cells import Cell, spec_of
from ..training.recipe import Recipe
from .facts import facts_of

__all__ = ["PAPERS", "SCALES", "STATUSES", "Item", "Printed", "Row", "Run", "item", "table"]

SCALES = ("paper", "cpu")
PAPERS = {
    "hypernet": "Economical ensembles with hypernetworks",
    "mimo": "Training independent subnetworks for robust prediction",
    "mixture": "MixtureEnsembles",
    "packed": "Packed-Ensembles for efficient uncertainty estimation",
}
STATUSES = {
    "exact": "nothing to train: computed to the last digit",
    "full": "two cores run it as the paper did",
    "reduced": "two cores run it smaller; the orderings are what is compared",
    "needs a GPU and ImageNet": "shown as a plan",
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

    def agrees(self, ours: float) -> bool:
        """Whether ours, rounded or cut off at the printed digits, is the printed number."""
        unit = 10.0**-self.digits
        return abs(round(ours, self.digits) - self.value) < unit / 4 or -1e-9 <= ours - self.value < unit


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table, or one point of a figure: what is trained, and with which seeds."""

    label: str  # as the paper names it
    data: str
    model: str
    method: Method
    recipe: Mapping[str, Any]
    seeds: tuple[int, ...]
    items: int | None = None  # the first items of the training part; None: all
    ood: tuple[str, ...] = ()
    shift: tuple[str, ...] = ()
    shift_items: int | None = None

    @property
    def source(self) -> str:
        """The data with the choice of its items, as `multum.load_data` reads it."""
        return self.data if self.items is None else f"{self.data}#first={self.items}"

    @property
    def epochs(self) -> int:
        return Recipe().with_overrides(self.recipe).epochs

    @property
    def trained_on(self) -> int:
        """Items of one epoch."""
        return min(facts_of(self.data).train, self.items or facts_of(self.data).train)

    def cells(self) -> list[Cell]:
        """One cell a seed, as a comparison runs them; named by the method, so that items share what is the same."""
        rest = (self.source, self.model, self.method, dict(self.recipe), self.ood, self.shift, self.shift_items)
        return [Cell(spec_of(self.method), seed, *rest) for seed in self.seeds]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything about one item at one scale."""

    rows: tuple[Row, ...]
    printed: Mapping[str, Mapping[str, Printed]] = field(default_factory=dict)  # by row, then by column
    remarks: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (row, column): why a printed cell is off
    columns: tuple[str, ...] = ()  # measured beyond the printed ones; see `measured.COLUMNS`
    claims: tuple[tuple[str, str, str], ...] = ()  # (column, better row, worse row), said without numbers
    rivals: tuple[str, ...] = ()  # measures whose columns, "AUC MSP" and "AUC MI", the paper compares within a row
    reduced: tuple[str, ...] = ()  # what is smaller than in the paper
    departs: tuple[str, ...] = ()  # what is not as in the paper at any scale, and why
    item: str = ""
    scale: str = "paper"

    def __post_init__(self) -> None:
        labels = [row.label for row in self.rows]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ConfigError(f"the rows of a run have different labels, however: {', '.join(twice)} in {self.item}")
        unknown = sorted({row for _, *pair in self.claims for row in pair} - set(labels))
        if unknown:
            raise ConfigError(f"a claim is about rows, however: {', '.join(unknown)} is none of {self.item}'s")
        astray = sorted({row for row, column in self.remarks if column not in self.printed.get(row, {})})
        if astray:
            raise ConfigError(f"a remark is on a printed cell, however: {', '.join(astray)} has none in {self.item}")

    def cells(self) -> list[Cell]:
        """Every cell once, seed after seed, so that a stopped run has whole comparisons."""
        cells = {cell.name: cell for row in self.rows for cell in row.cells()}
        return sorted(cells.values(), key=lambda cell: cell.seed)

    def row(self, label: str) -> Row:
        found = {row.label: row for row in self.rows}
        if label not in found:
            raise ConfigError(
                f"a run has rows, however: {label!r} is none of {self.item}'s. {did_you_mean(label, found)}"
            )
        return found[label]


@dataclass(frozen=True, kw_only=True)
class Item:
    """A table or figure of a paper."""

    id: str  # "packed/table1-cost"
    number: str  # as printed: "Table 1, efficiency"
    shows: str
    needs: str
    status: str
    make: Callable[[str], Run]

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ConfigError(f"a status is one of {', '.join(STATUSES)}, however: {self.status!r} for {self.id}")
        if self.paper not in PAPERS:
            raise ConfigError(f"an item's name begins with one of {', '.join(PAPERS)}, however: {self.id!r}")

    @property
    def paper(self) -> str:
        return self.id.partition("/")[0]

    @property
    def title(self) -> str:
        return PAPERS[self.paper]

    def run(self, scale: str = "cpu") -> Run:
        """The Run at "paper" or "cpu" scale; what a CPU's is short of is told by comparing the two."""
        if scale not in SCALES:
            raise ConfigError(f"scale is one of {', '.join(SCALES)}, however: {scale!r}. {did_you_mean(scale, SCALES)}")
        found = replace(self.make(scale), item=self.id, scale=scale)
        if scale == "paper":
            return found
        return replace(found, reduced=(*_reductions(self.make("paper").rows, found.rows), *found.reduced))

    __call__ = run


def item(id: str, number: str, *, shows: str, needs: str, status: str) -> Callable[[Callable[[str], Run]], Item]:
    """A function scale -> Run as an Item."""

    def made(make: Callable[[str], Run]) -> Item:
        return Item(id=id, number=number, shows=shows, needs=needs, status=status, make=make)

    return made


def table(columns: str, text: str) -> dict[str, dict[str, Printed]]:
    """A table as printed: columns apart by commas, then lines `row | number number ...`, with - where there is none.

    >>> table("Acc, NLL", "MIMO | 96.4 0.123")["MIMO"]["NLL"].value
    0.123
    """
    names = [name.strip() for name in columns.split(",")]
    found: dict[str, dict[str, Printed]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        label, _, rest = line.rpartition("|")
        numbers = rest.split()
        if len(numbers) != len(names) or not label:
            raise ConfigError(f"a row has {len(names)} numbers, however: {line!r} has {len(numbers)}")
        found[label.strip()] = {n: Printed(x) for n, x in zip(names, numbers, strict=True) if x != "-"}
    return found


def _reductions(paper: Sequence[Row], here: Sequence[Row]) -> tuple[str, ...]:
    """What is less here than in the paper, a sentence each."""
    if not here:
        return ()
    found = []
    counted: dict[str, Callable[[Row], int]] = {
        "training items": lambda row: row.trained_on,
        "epochs": lambda row: row.epochs,
        "seeds": lambda row: len(row.seeds),
    }
    named: dict[str, Callable[[Row], Iterable[str]]] = {
        "data": lambda row: [row.data],
        "networks": lambda row: [re.sub(r"[:,].*", "", row.model)],
        "foreign data": lambda row: row.ood,
        "corruptions": lambda row: row.shift,
    }
    for what, names in named.items():
        was, now = (list(dict.fromkeys(name for row in rows for name in names(row))) for rows in (paper, here))
        if not set(was) <= set(now):
            found.append(f"{what}: {', '.join(now) or 'none'} here, {', '.join(was)} in the paper")
    for what, number in counted.items():
        least, most = (sorted({number(row) for row in rows}) for rows in (here, paper))
        if least[0] < most[0] or least[-1] < most[-1]:
            told = (" or ".join(f"{n:,}" for n in numbers) for numbers in (least, most))
            found.append(f"{what}: {next(told)} here, {next(told)} in the paper")
    if len(here) < len(paper):
        found.append(f"rows: {len(here)} here, {len(paper)} in the paper")
    return tuple(found)
