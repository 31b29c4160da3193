"""Panels: small multiples on the same axes, texts that fit, and axes with a handful of round ticks."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from .palette import INK, MUTED

TITLE, NOTE = 11, 10  # sizes of type
LINE = 14
GAP = 18
PERCENT = FuncFormatter(lambda share, _: f"{100 * share:.6g} %")
NEAR_ONE = (0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999, 1)
ROUND = [1, 2, 5, 10]  # ticks are these times a power of ten
FLOOR = 0.002  # keeps 100 % on an axis that stretches towards it


def multiples(
    titles: Sequence[str],
    notes: Sequence[str],
    width: float,
    *,
    x: str,
    y: str,
    ratio: float = 0.78,
    left: float = 40,
    least: float = 168,
    most: float = 300,
    shared: bool = True,
) -> tuple[Drawing, list[Axes]]:
    """A drawing with a panel for each title, the axes the same; only the outer panels carry tick labels.

    Args:
        titles: of the panels, written in two lines where they are long.
        notes: a number under each title, or "".
        width: CSS pixels; two columns at least, even where panels become narrower than `least`.
        ratio: a panel's height over its width.
        left: room for the labels of the vertical axis.
        least: the width below which a panel goes to the next row.
        most: no panel becomes wider.
        shared: whether all panels have the same axes.
    """
    n, right = len(titles), 10
    fitting = max(2, int((width - left - right + GAP) // (least + GAP)))
    rows = math.ceil(n / fitting)
    columns = math.ceil(n / rows)
    panel = min(most, (width - left - right - GAP * (columns - 1)) / columns)
    width = left + right + panel * columns + GAP * (columns - 1)
    heads = [_wrapped(title, panel, TITLE, "bold") for title in titles]
    lines = max(len(head) for head in heads)
    top = LINE * (lines + any(notes)) + 7  # of the words over a panel
    high = panel * ratio
    above, below = (20 if y else 0), (36 if x else 22)
    step = top + high + GAP + 4
    height = above + rows * step - GAP + below
    figure = canvas(width, height)
    drawn: list[Axes] = []
    for i, (head, note) in enumerate(zip(heads, notes, strict=True)):
        row, column = divmod(i, columns)
        corner = left + column * (panel + GAP), height - above - row * step - top - high
        first = drawn[0] if drawn and shared else None
        axes = axes_at(figure, *corner, panel, high, sharex=first, sharey=first)
        axes.tick_params(labelleft=column == 0, labelbottom=i + columns >= n)
        place: dict[str, Any] = {"xycoords": "axes points", "textcoords": "axes points", "annotation_clip": False}
        for k, line in enumerate(head):
            at = (0, high + top - LINE * (k + 1) + 1)
            axes.annotate(line, at, at, size=TITLE, weight="bold", color=INK, **place)
        if note:
            at = (0, high + top - LINE * (len(head) + 1) + 2)
            axes.annotate(note, at, at, size=NOTE, color=MUTED, **place)
        drawn.append(axes)
    if y:
        figure.text(0, 1 - 9 / height, y, size=NOTE, color=MUTED, va="center")
    if x:
        middle = left + (panel * columns + GAP * (columns - 1)) / 2
        figure.text(middle / width, 3 / height, x, size=NOTE, color=MUTED, ha="center", va="bottom")
    return figure, drawn


def heading(axes: Axes, title: str, **place: Any) -> None:
    """A panel's title, to the left."""
    axes.set_title(title, loc="left", color=INK, size=TITLE, weight="bold", **place)


def canvas(width: float, height: float) -> Drawing:
    """An empty drawing of so many CSS pixels, with no state outside of it."""
    figure = Drawing(figsize=(width / 72, height / 72), dpi=72)
    FigureCanvasAgg(figure)
    return figure


def axes_at(figure: Drawing, left: float, bottom: float, width: float, height: float, **options: Any) -> Axes:
    """Axes at a place of a drawing, all in CSS pixels."""
    whole, high = figure.get_size_inches() * 72
    return figure.add_axes((left / whole, bottom / high, width / whole, height / high), **options)


def side_by_side(
    panels: int,
    width: float,
    height: float,
    *,
    columns: int,
    pads: tuple[float, float] = (0.12, 0.12),
    ratios: Sequence[float] | None = None,
) -> tuple[Drawing, list[Axes]]:
    """A drawing of so many CSS pixels with panels in rows; `pads`, in inches, is what is left free around them."""
    layout = ConstrainedLayoutEngine(w_pad=pads[0], h_pad=pads[1])
    figure = Drawing(figsize=(width / 72, height / 72), layout=layout)
    grid = figure.add_gridspec(math.ceil(panels / columns), columns, width_ratios=ratios)
    return figure, [figure.add_subplot(grid[divmod(i, columns)]) for i in range(panels)]


@functools.lru_cache(maxsize=4096)
def text_width(text: str, size: float, weight: str = "normal") -> float:
    """The width of a line of text in CSS pixels."""
    font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    return _renderer().get_text_width_height_descent(text, font, False)[0]


@functools.lru_cache(maxsize=1)
def _renderer() -> Any:
    return FigureCanvasAgg(Drawing(dpi=72)).get_renderer()


def fitted(text: str, width: float, size: float, weight: str = "normal") -> str:
    """The text, or so much of its beginning and end as fit the width.

    >>> fitted("packed:members=4,alpha=2", 100, 10)
    'packed:me…lpha=2'
    """
    if text_width(text, size, weight) <= width:
        return text
    for length in range(len(text) - 1, 1, -1):
        shorter = text[: math.ceil(length * 0.6)] + "…" + text[len(text) - length // 5 * 2 :]
        if text_width(shorter, size, weight) <= width:
            return shorter
    return "…"


def _wrapped(text: str, width: float, size: float, weight: str = "normal") -> list[str]:
    """The text in one line, or in two that break behind a mark, the second shortened where it must be.

    >>> _wrapped("packed:members=4,alpha=2", 110, 10)
    ['packed:members=4,', 'alpha=2']
    """
    if text_width(text, size, weight) <= width:
        return [text]
    for mark in reversed(list(re.finditer(r"[:,;/_\-\s]+", text))):
        head, rest = text[: mark.end()].rstrip(), text[mark.end() :]
        if rest and text_width(head, size, weight) <= width:
            return [head, fitted(rest, width, size, weight)]
    return [fitted(text, width, size, weight)]


def log_axis(axes: Axes, side: str, low: float, high: float, name: Callable[[float], str] = "{:g}".format) -> None:
    """A logarithmic axis, "x" or "y", between two values."""
    ticks = log_ticks(low, high)
    axes.set(**{f"{side}scale": "log", f"{side}lim": (low, high)})
    axis = axes.xaxis if side == "x" else axes.yaxis
    axis.set_minor_locator(NullLocator())
    axis.set_ticks(ticks, [name(tick) for tick in ticks])


def ends_inside(panels: Iterable[Axes]) -> None:
    """Labels of the first and the last horizontal tick stay under their panel, away from its neighbour's."""
    for axes in panels:
        ticks = axes.xaxis.get_major_ticks()
        ticks[0].label1.set_horizontalalignment("left")
        ticks[-1].label1.set_horizontalalignment("right")


def unit_square(panels: Sequence[Axes]) -> None:
    """Shares against shares, with the diagonal on which both are the same; the panels share their axes."""
    for axes in panels:
        axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls=(0, (1, 2)), zorder=1)
    panels[0].set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.25, 0.5, 0.75, 1])
    panels[0].xaxis.set_major_formatter(PERCENT)
    panels[0].yaxis.set_major_formatter(PERCENT)
    ends_inside(panels)


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round values between two positive ones, four to `most` of them where there are as many.

    >>> log_ticks(0.05, 800), log_ticks(2.1, 2.9)
    ([0.1, 1.0, 10.0, 100.0], [2.2, 2.4, 2.6, 2.8])
    >>> log_ticks(4e6, 5e7)
    [5000000.0, 10000000.0, 20000000.0, 50000000.0]
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    chosen: list[float] = []
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [float(f"{step}e{decade}") for decade in decades for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) > most:
            break
        chosen = ticks
        if len(chosen) >= 4:
            break
    if len(chosen) < 3:
        between = MaxNLocator(5, steps=ROUND).tick_values(low, high)
        chosen = [float(tick) for tick in np.round(between, 12) if low <= tick <= high]
    return chosen


def accuracy_axis(axes: Axes, low: float, high: float, stretched: bool) -> None:
    """A vertical axis of accuracies; where stretched, by factors of the share of errors."""
    if not stretched:
        axes.set_ylim(low, high)
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=ROUND))
    else:
        axes.set_yscale(
            "function", functions=(lambda a: -np.log(np.maximum(1 - a, 0) + FLOOR), lambda y: 1 + FLOOR - np.exp(-y))
        )
        axes.set_ylim(low, high)
        ends = axes.transAxes.transform([(0, 0), (0, 1)])[:, 1]
        ticks: list[float] = []
        for tick in (t for t in NEAR_ONE if low <= t <= high):
            heights = axes.transData.transform([(1, t) for t in [*ticks[-1:], tick]])[:, 1]
            if not ticks or heights[1] - heights[0] > (ends[1] - ends[0]) / 12:
                ticks.append(tick)
        axes.set_yticks(ticks)
    axes.yaxis.set_major_formatter(PERCENT)
