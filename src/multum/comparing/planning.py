"""What a comparison runs: methods by label, each at its size, and the cells of one data set, network and recipe.

packed:members=4,alpha=2   a method with its fields
deep@1x                    a control: the method at the cost of one network, its members thinned
single@4x                  a control: one network widened to four times the mult-adds
single@cost                the same at the mult-adds of the costliest ensemble of the comparison
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..data.sources import Data
from ..errors import ConfigError, MultumError
from ..methods import METHODS, Method, parse
from ..parsing import named
from ..runs.cells import Cell, spec_of
from .budget import Budget, at_cost, changed_fields, cost_of, cost_of_network, fit_to_budget, label_of_size

CONTROLS = ("single@cost", "deep@1x")  # what a sceptic asks for, with methods="all"


@dataclass(frozen=True)
class Setting:
    """What all cells of a comparison have in common."""

    data: str
    fingerprint: str
    split: int  # the seed of the test and the validation part
    ood: tuple[str, ...]
    shift: tuple[str, ...]
    shift_examples: int | None
    recipe: Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """A row of the comparison: a method on a network, with what was tuned for it; or why there is none."""

    label: str
    method: Method
    model: str
    control: bool = False
    fixed: frozenset[str] = frozenset()  # fields that its text names, or that a budget set: these are not tuned
    tuned: Mapping[str, Any] | None = None  # the learning rate and the fields that tuning chose
    reason: str | None = None  # why it cannot be run

    def cell(self, seed: int, setting: Setting, **changes: Any) -> Cell:
        """This entry with one seed; `changes` are of the recipe."""
        rate = {} if not self.tuned else {"lr": self.tuned["lr"]}
        return Cell(
            *(self.label, seed, setting.data, self.model, self.method, {**setting.recipe, **rate, **changes}),
            *(setting.ood, setting.shift, setting.shift_examples, setting.fingerprint, setting.split),
        )

    def trial(self, seed: int, setting: Setting, lr: float, fields: Mapping[str, Any], epochs: int) -> Cell:
        """A short run of this entry that is measured on the validation part alone."""
        bare = dataclasses.replace(setting, ood=(), shift=(), shift_examples=None)
        changed = dataclasses.replace(self, method=dataclasses.replace(self.method, **fields))
        return dataclasses.replace(changed.cell(seed, bare, lr=lr, epochs=epochs), tuning=True)

    def with_tuned(self, lr: float, fields: Mapping[str, Any]) -> Entry:
        """The entry as tuning chose it."""
        method = dataclasses.replace(self.method, **fields)
        return dataclasses.replace(self, method=method, tuned={"lr": lr, **fields})


class Wanted(NamedTuple):
    """A method as it was asked for; `cost` is that of a control."""

    label: str
    method: Method
    cost: str | None


def chosen_methods(methods: str | Sequence[str | Method], *, controls: bool = True) -> list[Wanted]:
    """What "all", a list as the command line writes it, or names and configs ask for.

    Args:
        controls: whether "all" has the controls too.

    >>> [wanted.label for wanted in chosen_methods("single,packed:members=4,alpha=2,deep@1x")]
    ['single', 'packed:members=4,alpha=2', 'deep@1x']
    """
    parts = [*_in_reading_order(), *(CONTROLS if controls else ())] if methods == "all" else methods
    parts = _listed(parts) if isinstance(parts, str) else list(parts)
    if not parts:
        raise ConfigError("`methods` must name one method at least; got none. Use for example --methods single,packed")
    wanted: dict[str, Wanted] = {}
    for part in parts:
        text = (spec_of(part) if isinstance(part, Method) else part).strip().lower()
        name, at, cost = text.partition("@")
        if text in wanted:
            raise ConfigError(f"`methods` must name each method once; got {text} named twice. Leave one out")
        wanted[text] = Wanted(text, part if isinstance(part, Method) else parse(name), cost if at else None)
    return list(wanted.values())


def entries_of(wanted: Sequence[Wanted], model: str, data: Data, budget: Budget | None) -> list[Entry]:
    """The rows of a comparison, each as large as the budget allows; those that no size can serve have a reason."""
    plain = [_entry(w.label, w.method, model, data, budget) for w in wanted if w.cost is None]
    controls = [_control(w, model, data, plain) for w in wanted if w.cost is not None]
    entries = {entry.label: entry for entry in (*plain, *controls)}
    return list(entries.values())


def _entry(label: str, method: Method, model: str, data: Data, budget: Budget | None) -> Entry:
    fixed = frozenset(named(label)[1])
    if budget is None:
        return Entry(label, method, model, fixed=fixed)
    try:
        sized, thinned = fit_to_budget(method, model, data, budget)
    except MultumError as error:
        return Entry(label, method, model, reason=str(error))
    fixed |= changed_fields(method, sized).keys()
    return Entry(label_of_size(label, method, model, sized, thinned), sized, thinned, fixed=fixed)


def _control(wanted: Wanted, model: str, data: Data, plain: Sequence[Entry]) -> Entry:
    """A method at a stated cost; none of its fields is tuned, as they set that cost."""
    name, _, cost = wanted.label.partition("@")
    fields = frozenset(field.name for field in dataclasses.fields(wanted.method))
    network = cost_of_network(model, data)
    if cost == "cost":
        cost = f"{max([_mult_adds(entry, data) for entry in plain], default=network.macs) / network.macs:.3g}x"
    label, budget = f"{name}@{cost}", Budget.parse(cost, network)
    try:
        method, sized = at_cost(wanted.method, model, data, budget)
    except MultumError as error:
        return Entry(label, wanted.method, model, control=True, reason=str(error))
    return Entry(label, method, sized, control=True, fixed=fields)


def _mult_adds(entry: Entry, data: Data) -> int:
    try:
        return 0 if entry.reason else cost_of(entry.method, entry.model, data).macs
    except MultumError:  # its cells will say why it cannot be built
        return 0


def _listed(text: str) -> list[str]:
    """The methods of a list in which commas separate methods and fields alike: a field belongs to the method before."""
    methods: list[str] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name = part.partition("@")[0]
        if "=" in name and ":" not in name and methods:
            methods[-1] += f",{part}"
        else:
            methods.append(part)
    return methods


def _in_reading_order() -> list[str]:
    """The two ends of the scale first, then the rest by name."""
    first = ["single", "deep", "packed"]
    return [*first, *(name for name in sorted(METHODS) if name not in first)]
