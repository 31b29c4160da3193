"""A forest: a dot a line with its interval, its name to the left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from .palette import CONTEXT, INK, PAPER
from .panels import fitted, text_width

LINE = 21  # CSS pixels of a line


@dataclass(frozen=True)
class Mark:
    """One line: a value, and its interval where there is one."""

    label: str
    value: float
    low: float | None
    high: float | None
    colour: str
    filled: bool = True


def draw_forest(axes: Axes, marks: Sequence[Mark], room: float) -> None:
    """Draw the marks from the top, names in so many CSS pixels to the left of the axes."""
    for y, mark in enumerate(marks):
        if mark.low is not None and mark.high is not None:
            axes.plot([mark.low, mark.high], [y, y], color=mark.colour, lw=2, zorder=2)
        axes.plot(mark.value, y, "o", color=mark.colour, mfc=mark.colour if mark.filled else PAPER, ms=7, zorder=3)
    axes.set_ylim(len(marks) - 0.4, -0.6)
    names = [fitted(mark.label, room, 10) for mark in marks]
    axes.set_yticks(range(len(names)), names)
    axes.tick_params("y", labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_color(CONTEXT)


def name_room(marks: Sequence[Mark], width: float) -> float:
    """CSS pixels to the left of the axes of a drawing of this width, which names and the gap behind them need."""
    return min(max(text_width(mark.label, 10) for mark in marks), 0.36 * width) + 14


def mark_handle(label: str, colour: str, filled: bool = True, marker: str = "o") -> Line2D:
    """What a legend shows of a kind of mark."""
    style: dict[str, Any] = {"color": colour, "mfc": colour if filled else PAPER, "ms": 7, "mew": 1.4, "ls": "none"}
    return Line2D([], [], marker=marker, label=label, **style)


def finite(value: float) -> float | None:
    """An end of an interval, None where a frame has none."""
    return float(value) if math.isfinite(value) else None
