"""What a table or figure of a paper is here: an Item, and the Run that it becomes at the paper's scale or at a CPU's.

A Run is data: rows to train (each one network, one method, one recipe, some seeds), what the paper printed for them,
and in plain sentences where the Run is smaller than the paper's, or departs from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..data.names import selection
from ..errors import ConfigError, DataError, check_known
from ..methods import Method
from ..parsing import named
from ..runs.cells import Cell, spec_of
from ..training.recipe import Recipe
from .results import Remarks, Table

if TYPE_CHECKING:
    from .measured import Trained
    from .results import Extra, Line, Picture


SCALES = ("paper", "cpu")
PAPERS = {
    "hypernet": "Economical ensembles with hypernetworks",
    "mimo": "Training independent subnetworks for robust prediction",
    "mixture": "MixtureEnsembles",
    "packed": "Packed-Ensembles for efficient uncertainty estimation",
}
NEEDS_IMAGENET = "needs a GPU and ImageNet"
STATUSES = {
    "exact": "nothing to train: computed to the last digit",
    "full": "two cores run it as the paper did",
    "reduced": "two cores run it smaller; the orderings are what is compared",
    NEEDS_IMAGENET: "shown as a plan",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a table, or one point of a figure: what is trained, and with which seeds."""

    label: str  # as the paper names it
    data: str
    model: str
    method: Method
    recipe: Mapping[str, Any]
    seeds: tuple[int, ...]
    examples: int | None = None  # the first ones of the training part; None: all
    ood: tuple[str, ...] = ()
    shift: tuple[str, ...] = ()
    shift_examples: int | None = None
    varied: Mapping[str, float | str] = field(default_factory=dict)  # what the item varies, and its value here

    @property
    def source(self) -> str:
        """The data with the choice of its examples, as `multum.load_data` reads it."""
        return self.data if self.examples is None else f"{self.data}#first={self.examples}"

    @property
    def epochs(self) -> int:
        return Recipe().with_overrides(self.recipe).epochs

    @property
    def trained_on(self) -> int:
        """Examples of one epoch."""
        return min(facts_of(self.data).train, self.examples or facts_of(self.data).train)

    def cells(self) -> list[Cell]:
        """One cell a seed, as a comparison runs them; named by the method, so that items share what is the same."""
        rest = (self.source, self.model, self.method, dict(self.recipe), self.ood, self.shift, self.shift_examples)
        return [Cell(spec_of(self.method), seed, *rest) for seed in self.seeds]


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything about one item at one scale."""

    rows: tuple[Row, ...]
    printed: Table = field(default_factory=dict)
    remarks: Remarks = field(default_factory=dict)
    columns: tuple[str, ...] = ()  # measured beyond the printed ones; see `measured.COLUMNS`
    claims: tuple[tuple[str, str, str], ...] = ()  # (column, better row, worse row), said without numbers
    headline: tuple[tuple[str, str], ...] = ()  # pairs of rows (or of rivals) that the paper is about; none: all
    rivals: tuple[str, ...] = ()  # measures whose columns, "AUC MSP" and "AUC MI", the paper compares within a row
    reduced: tuple[str, ...] = ()  # what is smaller than in the paper
    departs: tuple[str, ...] = ()  # what is not as in the paper at any scale, and why
    item: str = ""
    scale: str = "paper"

    def __post_init__(self) -> None:
        labels = [row.label for row in self.rows]
        wrong = {
            "rows must have different labels": {label for label in labels if labels.count(label) > 1},
            "claims must be about rows of the run": {row for _, *pair in self.claims for row in pair} - set(labels),
            "remarks must be on printed cells": {
                r for r, column in self.remarks if column not in self.printed.get(r, {})
            },
        }
        for rule, names in wrong.items():
            if names:
                raise ConfigError(f"{rule}; got {', '.join(sorted(names))} in {self.item or 'a run'}")

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of rows that the paper is about: the headline's, or those that it says in words."""
        return self.headline or tuple(dict.fromkeys((better, worse) for _, better, worse in self.claims))

    def cells(self) -> list[Cell]:
        """Every cell once, seed after seed, so that a stopped run has whole comparisons."""
        cells = {cell.name: cell for row in self.rows for cell in row.cells()}
        return sorted(cells.values(), key=lambda cell: cell.seed)

    def row(self, label: str) -> Row:
        rows = {row.label: row for row in self.rows}
        check_known(label, rows, f"a row must be one of {self.item}'s")
        return rows[label]


@dataclass(frozen=True, kw_only=True)
class Item:
    """A table or figure of a paper: its runs, and what is computed and drawn beyond the columns of its rows."""

    id: str  # "packed/table1-cost"
    number: str  # as printed: "Table 1, efficiency"
    shows: str
    needs: str
    status: str
    make: Callable[[str], Run]
    exact: Callable[[Run], Iterable[Line]] | None = None  # without training, beyond the costs that are printed
    extra: Callable[[Trained], Extra] | None = None  # measured inside the trained networks
    chart: Callable[[Trained], dict[str, Picture]] | None = None  # drawn from the cells' numbers

    def __post_init__(self) -> None:
        check_known(self.status, STATUSES, f"the status of {self.id} must be one of {', '.join(STATUSES)}")
        check_known(self.paper, PAPERS, f"an item's name must begin with one of {', '.join(PAPERS)}", got=repr(self.id))

    @property
    def paper(self) -> str:
        return self.id.partition("/")[0]

    @property
    def title(self) -> str:
        return PAPERS[self.paper]

    def run(self, scale: str = "cpu") -> Run:
        """The Run at "paper" or "cpu" scale; what a CPU's is short of comes from comparing the two."""
        check_known(scale, SCALES, f"scale must be one of {', '.join(SCALES)}")
        run = replace(self.make(scale), item=self.id, scale=scale)
        if scale == "paper":
            return run
        return replace(run, reduced=(*_reductions(self.make("paper").rows, run.rows), *run.reduced))

    __call__ = run


def item(
    id: str, number: str, needs: str = "nothing", *, status: str = "reduced", **beyond: Any
) -> Callable[[Callable[[str], Run]], Item]:
    """A function scale -> Run as an Item; its docstring begins with what the item shows."""

    def made(make: Callable[[str], Run]) -> Item:
        shows = (inspect.getdoc(make) or "").partition("\n")[0].removesuffix(".")
        return Item(id=id, number=number, shows=shows, needs=needs, status=status, make=make, **beyond)

    return made


NAMED: dict[str, Callable[[Row], Iterable[str]]] = {
    "data": lambda row: [row.data],
    "networks": lambda row: [named(row.model)[0]],
    "OOD data": lambda row: [selection(name)[0] for name in row.ood],
    "corruptions": lambda row: row.shift,
}
COUNTED: dict[str, Callable[[Row], int | None]] = {
    "training examples": lambda row: row.trained_on,
    "epochs": lambda row: row.epochs,
    "seeds": lambda row: len(row.seeds),
    "examples of each corruption": lambda row: _corrupted(row),
}
SET: dict[str, Callable[[Row], float | str]] = {
    "optimizer": lambda row: Recipe().with_overrides(row.recipe).optimizer,
    "batch size": lambda row: Recipe().with_overrides(row.recipe).batch_size,
    "learning rate": lambda row: Recipe().with_overrides(row.recipe).lr,
}


def _corrupted(row: Row) -> int | None:
    test = facts_of(row.data).test
    return min(test, row.shift_examples or test) if row.shift else None


def _reductions(paper: Sequence[Row], here: Sequence[Row]) -> tuple[str, ...]:
    """What is less here than in the paper, a sentence each."""
    if not here:
        return ()
    sentences = []
    for what, names in NAMED.items():
        was, now = (list(dict.fromkeys(name for row in rows for name in names(row))) for rows in (paper, here))
        if not set(was) <= set(now):
            sentences.append(f"{what}: {', '.join(now) or 'none'} here, {', '.join(was)} in the paper")
    for what, number in COUNTED.items():
        ours, theirs = (sorted({n for row in rows if (n := number(row)) is not None}) for rows in (here, paper))
        if ours and theirs and (ours[0] < theirs[0] or ours[-1] < theirs[-1]):
            texts = [" or ".join(f"{n:,}" for n in numbers) for numbers in (ours, theirs)]
            sentences.append(f"{what}: {texts[0]} here, {texts[1]} in the paper")
    for what, value in SET.items():
        ours_set, theirs_set = (sorted({value(row) for row in rows}, key=str) for rows in (here, paper))
        if ours_set != theirs_set:
            words = [
                " or ".join(v if isinstance(v, str) else f"{v:g}" for v in values) for values in (ours_set, theirs_set)
            ]
            sentences.append(f"{what}: {words[0]} here, {words[1]} in the paper")
    for name in dict.fromkeys(name for row in here for name in row.ood):
        data, choice, count = selection(name)
        if choice == "test":
            sentences.append(f"OOD examples: the first {int(count[0]):,} of {data} here, all of it in the paper")
    if len(here) < len(paper):
        sentences.append(f"rows: {len(here)} here, {len(paper)} in the paper")
    return tuple(sentences)


# Sizes of the papers' data sets, so that a Run can be built and priced where the data is not.


@dataclass(frozen=True)
class Facts:
    """Shape of one example, outputs of a network for it, and examples to train on."""

    shape: tuple[int, ...]
    outputs: int
    train: int
    test: int

    def alike(self) -> Facts:
        """The same for all data that networks cannot tell apart by its shape."""
        return replace(self, train=0, test=0)

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3


# name: columns, training and test rows of a split, splits
UCI = {
    "boston": (13, 455, 51, 20),
    "concrete": (8, 927, 103, 20),
    "energy": (8, 691, 77, 20),
    "kin8nm": (8, 7373, 819, 20),
    "naval": (16, 10741, 1193, 20),
    "power": (4, 8611, 957, 20),
    "protein": (9, 41157, 4573, 5),
    "wine_red": (11, 1439, 160, 20),
    "yacht": (6, 277, 31, 20),
}

FACTS = {
    "adult": Facts((108,), 2, 32_561, 16_281),
    "california_housing": Facts((8,), 2, 16_512, 4_128),
    "cifar10": Facts((3, 32, 32), 10, 50_000, 10_000),
    "cifar100": Facts((3, 32, 32), 100, 50_000, 10_000),
    "digits": Facts((1, 8, 8), 10, 1258, 539),  # for trials
    "fashion_mnist": Facts((1, 28, 28), 10, 60_000, 10_000),
    "imagenet": Facts((3, 224, 224), 1000, 1_281_167, 50_000),
    "sines": Facts((1,), 2, 64, 3000),
    **{f"uci_{name}": Facts((columns,), 2, train, test) for name, (columns, train, test, _) in UCI.items()},
}


def facts_of(data: str) -> Facts:
    """The sizes of a data set by name.

    >>> facts_of("cifar100").outputs
    100
    """
    name = selection(data)[0]
    check_known(name, FACTS, "an item's data must have known sizes", DataError, got=repr(data))
    return FACTS[name]
