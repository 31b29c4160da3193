"""Forests, a dot a line with its interval against 0, of orderings and regressions; and circles of methods."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ...figures.circles import Circle, circle_radii, draw_circles
from ...figures.forest import LINE, Mark, draw_forest, finite, mark_handle
from ...figures.formats import count
from ...figures.palette import HUES, MUTED, PAPER, drawing, look
from ...figures.panels import PERCENT, ROUND, axes_at, canvas, heading, log_axis, text_width
from ..results import VERDICTS, Ordering, Picture, Result
from .panels import WIDTH

MOST = 24  # lines that one figure takes
HEAD, FOOT = 26, 26  # CSS pixels: the title of a panel, its ticks
COLOURS = {"holds": HUES[2], "open": MUTED, "reversed": HUES[3], "one seed": MUTED}
ORDERED = ("paper", "ours", "low", "high")  # numbers of an ordering
HEIGHT, LARGEST = 430, 34  # CSS pixels of circles: the drawing, and the largest one's radius
LEFT, RIGHT, BELOW, ABOVE = 58, 16, 46, 44


@dataclass(frozen=True)
class Compared(Mark):
    """A mark, and perhaps the paper's value."""

    paper: float | None = None


@dataclass(frozen=True)
class Grove:
    """Lines on one axis."""

    title: str
    marks: Sequence[Compared]
    share: bool = False


def ordering_chart(result: Result) -> Picture | None:
    """Our differences where the paper's numbers have an order, coloured by whether it holds; None without any."""
    shown = _spread(result.orderings)
    if not shown:
        return None
    groves = []
    for column, own in _by_column(shown).items():
        marks = []
        for o in own:
            sign = -1.0 if o.lower else 1.0
            ends = sorted(sign * end for end in (o.low, o.high) if end is not None)
            low, high = ends if len(ends) == 2 else (None, None)
            single = o.verdict == "one seed"
            label = f"{o.better} over {o.worse}"
            marks.append(Compared(label, sign * o.ours, low, high, COLOURS[o.verdict], filled=not single))
        groves.append(Grove(column, marks))
    verdicts = [verdict for verdict in VERDICTS if any(o.verdict == verdict for o in shown)]
    handles = [mark_handle(verdict, COLOURS[verdict], verdict != "one seed") for verdict in verdicts]
    caption = (
        "Each line is a pair of which the paper says that the first is better: our difference, paired by seed, with "
        "its 95 % interval, drawn so that right of the line at 0 is the paper's order, and left of it the other."
    )
    if len(shown) < len(result.orderings):
        caption += f" Shown are {len(shown)} of {len(result.orderings)} pairs: those farthest apart in the paper."
    numbers = pd.DataFrame(
        {
            **{name: [getattr(o, name) for o in shown] for name in ("column", "better", "worse")},
            **{name: pd.Series([getattr(o, name) for o in shown], dtype=float) for name in ORDERED},
            "verdict": [o.verdict for o in shown],
        }
    )
    title = (
        f"Orderings of the paper: {sum(o.verdict == 'holds' for o in result.orderings)} of {len(result.orderings)} hold"
    )
    return Picture(title, caption, _forest(groves, handles), numbers)


def regression_forest(numbers: pd.DataFrame) -> Drawing:
    """Differences of two methods, a panel a measure, a line a data set."""
    titles = {"rmse": "RMSE: (PE - DE) / DE", "nll": "negative log likelihood: PE - DE"}
    groves = []
    for measure, own in numbers.groupby("measure", sort=False):
        marks = []
        for line in own.itertuples():
            low, high, paper = map(finite, (line.low, line.high, line.paper))
            marks.append(Compared(str(line.data), line.difference, low, high, HUES[0], paper=paper))
        groves.append(Grove(titles[str(measure)], marks, share=measure == "rmse"))
    handles = [mark_handle("ours, 95 % over splits", HUES[0], True), mark_handle("the paper's", HUES[1], False, "D")]
    return _forest(groves, handles)


def _spread(orderings: Sequence[Ordering]) -> list[Ordering]:
    """So many as fit, each column in its turn: what is said in words, then the farthest apart; in their order."""

    def apart(o: Ordering) -> float:
        return math.inf if o.paper is None else abs(o.paper)

    ranked = [sorted(own, key=apart, reverse=True) for own in _by_column(orderings).values()]
    chosen = [o for turn in itertools.zip_longest(*ranked) for o in turn if o is not None][:MOST]
    return [o for o in orderings if any(o is other for other in chosen)]


def _by_column(orderings: Sequence[Ordering]) -> dict[str, list[Ordering]]:
    columns: dict[str, list[Ordering]] = {}
    for o in orderings:
        columns.setdefault(o.column, []).append(o)
    return columns


def _forest(groves: Sequence[Grove], handles: Sequence[Line2D]) -> Drawing:
    """Panels one above the other, each with its own axis."""
    with drawing():
        words = [mark.label for grove in groves for mark in grove.marks]
        left = min(max(text_width(word, 10) for word in words), 0.52 * WIDTH) + 12
        height = sum(HEAD + FOOT + LINE * len(grove.marks) for grove in groves) + 26
        figure = canvas(WIDTH, height)
        top = float(height)
        for grove in groves:
            high = LINE * len(grove.marks)
            top -= HEAD + high
            axes = axes_at(figure, left, top, WIDTH - left - 16, high)
            draw_forest(axes, grove.marks, left - 12)
            for y, mark in enumerate(grove.marks):
                if mark.paper is not None:
                    axes.plot(mark.paper, y, "D", color=HUES[1], mfc=PAPER, ms=6, mew=1.4, zorder=2.5)
            axes.axvline(0, color=MUTED, lw=1, zorder=1)
            axes.margins(x=0.06)
            axes.xaxis.set_major_locator(MaxNLocator(7, steps=ROUND))
            if grove.share:
                axes.xaxis.set_major_formatter(PERCENT)
            heading(axes, grove.title, pad=7)
            top -= FOOT
        place: dict[str, Any] = {"loc": "lower center", "ncols": len(handles), "frameon": False, "labelcolor": MUTED}
        figure.legend(handles=list(handles), borderaxespad=0.1, **place)
    return figure


@drawing()
def circles_chart(numbers: pd.DataFrame) -> Drawing:
    """A circle a row, at its accuracy and its images per second, as large as its parameters."""
    figure = canvas(WIDTH, HEIGHT)
    inside = WIDTH - LEFT - RIGHT, HEIGHT - BELOW - ABOVE
    axes = axes_at(figure, LEFT, BELOW, *inside)
    radii = circle_radii(numbers["params"], LARGEST)
    _limits(axes, numbers, inside)
    columns = (numbers[name] for name in ("row", "images per second", "accuracy", "accuracy error"))
    drawn = [
        Circle(name, x, y, radius, look(i), error)
        for i, (radius, name, x, y, error) in enumerate(zip(radii, *columns, strict=True))
    ]
    draw_circles(axes, drawn, above=15)
    figure.text(6 / WIDTH, 1 - 10 / HEIGHT, "accuracy", size=11, color=MUTED, va="center")
    middle = (LEFT + inside[0] / 2) / WIDTH
    figure.text(middle, 5 / HEIGHT, "images per second, log scale", size=11, color=MUTED, ha="center")
    most = numbers["params"].max()
    words = f"the largest circle: {count(most)} parameters"
    figure.text(1 - 8 / WIDTH, 1 - 10 / HEIGHT, words, size=10, color=MUTED, ha="right", va="center")
    return figure


def _limits(axes: Axes, numbers: pd.DataFrame, inside: tuple[float, float]) -> None:
    """Room for the largest circle, and for names."""
    low, high = numbers["images per second"].min(), numbers["images per second"].max()
    room = LARGEST + 24
    spread = max(high / low, 2.0) ** (room / (inside[0] - 2 * room))
    log_axis(axes, "x", low / spread, high * spread, lambda rate: f"{rate:,.0f}")
    error = numbers["accuracy error"].fillna(0)
    low, high = (numbers["accuracy"] - error).min(), (numbers["accuracy"] + error).max()
    margin = max(high - low, 0.004) * room / (inside[1] - 2 * room)
    axes.set_ylim(low - margin, high + margin)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=ROUND))
    axes.yaxis.set_major_formatter(PERCENT)
