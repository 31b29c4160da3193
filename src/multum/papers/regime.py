"""A regime of the headlines: one data set, one network, one recipe, and the rows that are run in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..methods import Method
from .base import Row
from .settings import CPU_SHIFT

AGAIN = "ten new seeds"
CORRUPTED: dict[str, Any] = {"shift": CPU_SHIFT, "shift_examples": 500}


@dataclass(frozen=True, kw_only=True)
class Regime:
    """One data set, one network, one recipe; `single` and `half` are the rows that tell whether it has capacity."""

    name: str
    title: str
    why: str
    rate: float  # GMAC a second of training on one core, measured on a few epochs: what the hours are priced by
    rows: tuple[Row, ...]
    sweeps: tuple[Row, ...] = ()  # no claim is about them: they are points of the papers' curves, beside `rows`
    trials: tuple[Row, ...] = ()  # nor about these: planned after rows had been seen, or of an earlier plan
    single: str = "one network"
    half: str = ""
    spare: bool = True  # whether it is made to have capacity to spare, and is checked for it

    @property
    def every(self) -> tuple[Row, ...]:
        return (*self.rows, *self.sweeps, *self.trials)

    def points(
        self,
        labels: Mapping[str, str],
        by: Mapping[str, str] | None = None,
        corrupted: bool = False,
        **varied: Mapping[str, Any],
    ) -> tuple[Row, ...]:
        """Rows of this regime as rows of an item, on the seeds that all of them have.

        Args:
            labels: the item's labels, and the regime's.
            by: what methods vary, by name: the field that has its value.
            corrupted: measured on corrupted images too, which makes them other cells than the regime's.
            varied: what else the item varies, by name: its values by the item's labels.
        """
        by_label = {row.label: row for row in self.every}
        chosen = {label: by_label[theirs] for label, theirs in labels.items()}
        seeds = tuple(sorted(set.intersection(*({*row.seeds} for row in chosen.values()))))
        points: list[Row] = []
        shift = CORRUPTED if corrupted else {}
        for label, row in chosen.items():
            fields = {x: row.method.as_dict()[field] for x, field in (by or {}).items()}
            fields |= {x: values[label] for x, values in varied.items() if label in values}
            points.append(replace(row, label=label, seeds=seeds, varied=fields, **shift))
        return tuple(points)


def rows_of(
    methods: Mapping[str, tuple[Method, str] | tuple[Method, str, Mapping[str, Any]]],
    recipe: Mapping[str, Any],
    **common: Any,
) -> tuple[Row, ...]:
    """One row a method: (method, network) or (method, network, what its recipe has of its own)."""
    return tuple(
        Row(label=label, method=method, model=model, recipe={**recipe, **(own[0] if own else {})}, **common)
        for label, (method, model, *own) in methods.items()
    )


def again(methods: Mapping[str, Any]) -> dict[str, Any]:
    """Rows that were seen, under another name: they are run with seeds of their own, for a test of their own."""
    return {f"{label}, {AGAIN}": chosen for label, chosen in methods.items()}
