"""MIMO's Figure 2: a regression with the members' predictions, and bias, variance and error by number of members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from ...figures.palette import INK, MUTED, drawing, look
from .panels import heading

__all__ = ["draw_bias"]

SIDE = 300  # CSS pixels: the width of a panel


@drawing()
def draw_bias(numbers: pd.DataFrame, columns: Sequence[str], title: str) -> Drawing:
    """Four panels of numbers with the columns panel, series, x, y, error.

    Args:
        columns: the panels' names: test error, the members', bias, variance.
        title: of the example.
    """
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
    figure = Drawing(figsize=((2 * SIDE + 120) / 72, 560 / 72), layout=layout)
    panels = figure.subplots(2, 2).flatten().tolist()
    _draw_example(panels[0], numbers[numbers["panel"] == "example"], title)
    for axes, column in zip(panels[1:3], columns[2:4], strict=True):
        _draw_curve(axes, numbers, column, 0)
        heading(axes, column.replace("^2", "²"))
        axes.set_ylim(bottom=0)
    for i, label in enumerate(("ensemble", "its members, one by one")):
        _draw_curve(panels[3], numbers, columns[i], i, label)
    heading(panels[3], "error on the test set")
    panels[3].legend(frameon=False, labelcolor=MUTED, fontsize=10)
    return figure


def _draw_example(axes: Axes, numbers: pd.DataFrame, title: str) -> None:
    data, function, *members = (own for _, own in numbers.groupby("series", sort=False))
    axes.scatter(data["x"], data["y"], s=12, color=MUTED, lw=0, alpha=0.7, label="training data", zorder=2)
    axes.plot(function["x"], function["y"], color=INK, lw=1.5, ls=(0, (4, 2)), label="without noise", zorder=4)
    for i, own in enumerate(members):
        axes.plot(own["x"], own["y"], color=look(i).colour, lw=1.8, label=own["series"].iloc[0], zorder=3)
    heading(axes, title)
    axes.set_xlabel("x")
    axes.legend(frameon=False, labelcolor=MUTED, fontsize=9)


def _draw_curve(axes: Axes, numbers: pd.DataFrame, column: str, index: int, label: str | None = None) -> None:
    own = numbers[numbers["panel"] == column]
    style: dict[str, Any] = {"color": look(index).colour, "marker": "o", "markersize": 5, "capsize": 3, "label": label}
    axes.errorbar(own["x"], own["y"], yerr=own["error"].fillna(0), elinewidth=1.2, **style)
    axes.set_xlabel("members")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
