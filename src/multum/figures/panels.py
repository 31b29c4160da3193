"""Small multiples: one panel a method, all on the same axes, as many columns as the width takes."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing
from matplotlib.font_manager import FontProperties

from .palette import INK, MUTED

__all__ = ["canvas", "fitted", "multiples", "text_width", "wrapped"]

TITLE, NOTE = 11, 10  # sizes of type
LINE = 14
GAP = 18


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
    heads = [wrapped(title, panel, TITLE, "bold") for title in titles]
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
        axes = figure.add_axes(
            (corner[0] / width, corner[1] / height, panel / width, high / height),
            sharex=drawn[0] if drawn and shared else None,
            sharey=drawn[0] if drawn and shared else None,
        )
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


def canvas(width: float, height: float) -> Drawing:
    """An empty drawing of so many CSS pixels, with no state outside of it."""
    figure = Drawing(figsize=(width / 72, height / 72), dpi=72)
    FigureCanvasAgg(figure)
    return figure


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


def wrapped(text: str, width: float, size: float, weight: str = "normal") -> list[str]:
    """The text in one line, or in two that break behind a mark, the second shortened where it must be.

    >>> wrapped("packed:members=4,alpha=2", 110, 10)
    ['packed:members=4,', 'alpha=2']
    """
    if text_width(text, size, weight) <= width:
        return [text]
    for mark in reversed(list(re.finditer(r"[:,;/_\-\s]+", text))):
        head, rest = text[: mark.end()].rstrip(), text[mark.end() :]
        if rest and text_width(head, size, weight) <= width:
            return [head, fitted(rest, width, size, weight)]
    return [fitted(text, width, size, weight)]
