"""Reliability diagrams: accuracy against confidence."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Drawing

from ...figures.figure import Figure
from ...figures.panels import multiples
from ...figures.scales import unit_square
from ..view import Row, View

__all__ = ["reliability"]

FEW = 0.01  # a bin with a smaller share of the examples is drawn pale


def reliability(view: View) -> Figure | None:
    """Accuracy against confidence, with each bin's share of the examples."""
    rows = view.having("reliability")
    if not rows:
        return None
    numbers = pd.concat([_pooled_bins(view, row) for row in rows], ignore_index=True)

    def draw(width: float) -> Drawing:
        notes = [view.number(row, "ece") for row in rows]
        figure, panels = multiples([r.label for r in rows], notes, width, x="confidence", y="accuracy", ratio=0.9)
        for axes, row in zip(panels, rows, strict=True):
            bins = numbers[numbers["method"] == row.label].dropna(subset=["accuracy"])
            many, few = bins[bins["weight"] >= FEW], bins[bins["weight"] < FEW]
            x, y, colour = many["confidence"], many["accuracy"], row.look.colour
            axes.fill_between(x, x, y, color=colour, alpha=0.18, lw=0)
            axes.plot(x, y, color=colour, lw=1.5)
            axes.scatter(x, y, s=12 + 150 * many["weight"], color=colour, lw=0, zorder=3, clip_on=False)
            axes.scatter(few["confidence"], few["accuracy"], s=12, color=colour, alpha=0.35, lw=0, clip_on=False)
        unit_square(panels)
        return figure

    return Figure(
        "Reliability",
        "On the dotted line confidence equals accuracy; below it a method is overconfident. "
        "A dot's area is its share of the test examples; pale dots hold less than 1 % of them and say little.",
        numbers,
        draw,
        "Reliability diagrams: accuracy by confidence, one panel a method.",
    )


def _pooled_bins(view: View, row: Row) -> pd.DataFrame:
    """The bins of all seeds together: each bin's examples count alike, whichever seed they come from."""
    curves = view.curves(row, "reliability")
    edges = np.asarray(curves[0]["edges"], dtype=float)
    weight, confidence, accuracy = (
        np.array([curve[part] for curve in curves], dtype=float) for part in ("weight", "confidence", "accuracy")
    )
    total = weight.sum(0)
    with np.errstate(invalid="ignore"):
        pooled = [
            np.where(total > 0, np.nansum(weight * part, axis=0) / total, np.nan) for part in (confidence, accuracy)
        ]
    return pd.DataFrame(
        {
            "method": row.label,
            "from": edges[:-1],
            "to": edges[1:],
            "confidence": pooled[0],
            "accuracy": pooled[1],
            "error": pd.DataFrame(accuracy).sem().to_numpy(),
            "weight": total / len(curves),
        }
    )
