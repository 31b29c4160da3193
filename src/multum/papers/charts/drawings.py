"""Forests, a dot a line with its interval against 0, of orderings and regressions; and circles of methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from ..results import VERDICTS
from ..speed import RELATIVE
from .panels import WIDTH

HEAD, FOOT = 26, 44  # CSS pixels: the title of a panel; its ticks and what they count
COLOURS = {"holds": HUES[2], "open": MUTED, "reversed": HUES[3], "one seed": MUTED}
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
    along: str = ""  # under the axis

    def limit(self) -> float | None:
        """Where the axis ends on both sides, if one interval alone is so long that all others would be dots."""
        reach = sorted(
            max(abs(end) for end in (mark.low, mark.high, mark.value) if end is not None) for mark in self.marks
        )
        return 1.3 * reach[-2] if len(reach) > 3 and reach[-1] > 2 * reach[-2] else None


def ordering_chart(orderings: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """Our differences where the paper has an order, as in the table, coloured by whether it holds; None without any."""
    if not orderings:
        return None
    columns: dict[str, list[Mapping[str, Any]]] = {}
    for o in orderings:
        columns.setdefault(o["column"], []).append(o)
    groves = []
    for column, own in columns.items():
        marks = [
            Compared(
                f"{o['better']} - {o['worse']}",
                o["ours"],
                o["low"],
                o["high"],
                COLOURS[o["verdict"]],
                o["low"] is not None,
                o["paper"],
            )
            for o in own
        ]
        better = "less" if own[0]["lower"] else "more"
        groves.append(Grove(column, marks, along=f"difference of the two, {better} is better"))
    verdicts = [verdict for verdict in VERDICTS if any(o["verdict"] == verdict for o in orderings)]
    handles = [mark_handle(verdict, COLOURS[verdict], verdict != "one seed") for verdict in verdicts]
    if any(o["paper"] is not None for o in orderings):
        handles.append(mark_handle("the paper's", HUES[1], False, "D"))
    return _forest(groves, handles)


def regression_forest(numbers: pd.DataFrame) -> Drawing:
    """Differences of two methods, a panel a measure, a line a data set."""
    titles = {"rmse": "RMSE: (PE - DE) / DE", "nll": "negative log likelihood: PE - DE"}
    groves = []
    for measure, own in numbers.groupby("measure", sort=False):
        marks = []
        for line in own.itertuples():
            low, high, paper = map(finite, (line.low, line.high, line.paper))
            marks.append(Compared(str(line.data), line.difference, low, high, HUES[0], paper=paper))
        along = "difference, over DE's mean" if measure == "rmse" else "difference in nats"
        groves.append(
            Grove(titles[str(measure)], marks, share=measure == "rmse", along=f"{along}; less is better for PE")
        )
    handles = [mark_handle("ours, 95 % over splits", HUES[0], True), mark_handle("the paper's", HUES[1], False, "D")]
    return _forest(groves, handles)


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
            limit = grove.limit()
            if limit is not None:
                axes.set_xlim(-limit, limit)
                for y, mark in enumerate(grove.marks):
                    for end, arrow in ((mark.low, "<"), (mark.high, ">")):
                        if end is not None and abs(end) > limit:
                            edge = (-0.985 if arrow == "<" else 0.985) * limit
                            axes.plot(edge, y, arrow, color=mark.colour, ms=8, clip_on=False, zorder=4)
            axes.set_xlabel(grove.along, size=10, color=MUTED)
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
    columns = (numbers[name] for name in ("row", RELATIVE, "accuracy", "accuracy error"))
    drawn = [
        Circle(name, x, y, radius, look(i), error)
        for i, (radius, name, x, y, error) in enumerate(zip(radii, *columns, strict=True))
    ]
    draw_circles(axes, drawn, above=15)
    figure.text(6 / WIDTH, 1 - 10 / HEIGHT, "accuracy", size=11, color=MUTED, va="center")
    middle = (LEFT + inside[0] / 2) / WIDTH
    figure.text(middle, 5 / HEIGHT, "images per second, one network: 1; log scale", size=11, color=MUTED, ha="center")
    most = numbers["params"].max()
    words = f"the largest circle: {count(most)} parameters"
    figure.text(1 - 8 / WIDTH, 1 - 10 / HEIGHT, words, size=10, color=MUTED, ha="right", va="center")
    return figure


def _limits(axes: Axes, numbers: pd.DataFrame, inside: tuple[float, float]) -> None:
    """Room for the largest circle, and for names."""
    low, high = numbers[RELATIVE].min(), numbers[RELATIVE].max()
    room = LARGEST + 24
    spread = max(high / low, 2.0) ** (room / (inside[0] - 2 * room))
    log_axis(axes, "x", low / spread, high * spread, lambda rate: f"{rate:.2g}")
    error = numbers["accuracy error"].fillna(0)
    low, high = (numbers["accuracy"] - error).min(), (numbers["accuracy"] + error).max()
    margin = max(high - low, 0.004) * room / (inside[1] - 2 * room)
    axes.set_ylim(low - margin, high + margin)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=ROUND))
    axes.yaxis.set_major_formatter(PERCENT)
