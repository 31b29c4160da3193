"""Forests: a dot a line with its interval, against 0. Orderings of an item, and regressions of two methods."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ...figures.forest import LINE, Mark, draw_forest, finite, mark_handle
from ...figures.palette import HUES, INK, MUTED, PAPER, drawing
from ...figures.panels import canvas, text_width
from ...figures.scales import PERCENT, ROUND
from ..results import VERDICTS, Ordering, Picture, Result
from .panels import WIDTH

__all__ = ["COLOURS", "MOST", "ordering_chart", "regression_forest"]

MOST = 24  # lines that one figure takes
HEAD, FOOT = 26, 26  # CSS pixels: the title of a panel, its ticks
COLOURS = {"holds": HUES[2], "open": MUTED, "reversed": HUES[3], "one seed": MUTED}


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


ORDERED = ("paper", "ours", "low", "high")


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
            axes = figure.add_axes((left / WIDTH, top / height, (WIDTH - left - 16) / WIDTH, high / height))
            draw_forest(axes, grove.marks, left - 12)
            for y, mark in enumerate(grove.marks):
                if mark.paper is not None:
                    axes.plot(mark.paper, y, "D", color=HUES[1], mfc=PAPER, ms=6, mew=1.4, zorder=2.5)
            axes.axvline(0, color=MUTED, lw=1, zorder=1)
            axes.margins(x=0.06)
            axes.xaxis.set_major_locator(MaxNLocator(7, steps=ROUND))
            if grove.share:
                axes.xaxis.set_major_formatter(PERCENT)
            axes.set_title(grove.title, loc="left", color=INK, size=11, weight="bold", pad=7)
            top -= FOOT
        place: dict[str, Any] = {"loc": "lower center", "ncols": len(handles), "frameon": False, "labelcolor": MUTED}
        figure.legend(handles=list(handles), borderaxespad=0.1, **place)
    return figure
