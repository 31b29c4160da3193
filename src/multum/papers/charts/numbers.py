"""The numbers behind charts: what is measured of cells, gathered over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from ...comparing.columns import value_of
from ...metrics.statistics import over_seeds
from ..measured import Trained

__all__ = ["BARS", "MEASURES", "SHARES", "TITLES", "Measure", "Point", "gathered", "measured"]

BARS = "A bar is one standard error over seeds."
TITLES = {
    "accuracy": "accuracy",
    "aupr": "AUPR of OOD data",
    "disagreement": "disagreement",
    "ece": "calibration error (ECE)",
    "kl": "KL divergence",
    "nll": "negative log likelihood",
}
SHARES = ("accuracy", "aupr", "disagreement", "ece")

Measure = Callable[[Mapping[str, Any]], float | None]

# The same numbers as a comparison's columns; OOD detection is by the maximum probability, as in the papers on CIFAR.
MEASURES: dict[str, Measure] = {
    key: partial(value_of, key=key)
    for key in ("accuracy", "aupr", "disagreement", "ece", "kl", "member_accuracy", "member_nll", "nll", "params")
}


def measured(*names: str, of: str = "") -> dict[str, Measure]:
    """Measures by name; `of` is "member_" for those of members."""
    return {name: MEASURES[of + name] for name in names}


class Point(NamedTuple):
    """A point of a curve: the row that it is measured on, and what is measured."""

    row: str
    curve: str
    x: float
    measures: Mapping[str, Measure]


def gathered(trained: Trained, x: str, points: Iterable[Point]) -> pd.DataFrame:
    """One line a point that has been measured: means over seeds, standard errors (NaN for one seed), and the seeds."""
    lines = []
    for point in points:
        line: dict[str, Any] = {"row": point.row, "curve": point.curve, x: point.x, "seeds": 0}
        for name, measure in point.measures.items():
            values = list(trained.values(point.row, measure).values()) if point.row in trained.results else []
            mean = over_seeds(values) if values else None
            line["seeds"] = max(line["seeds"], len(values))
            line |= {name: mean.mean if mean else None, f"{name} error": mean.error if mean else None}
        if line["seeds"]:
            lines.append(line)
    frame = pd.DataFrame(lines)
    measured = [name for name in frame if name not in ("row", "curve", "seeds", x)]
    return frame.astype(dict.fromkeys(measured, float))
