"""A benchmark as a figure: a panel for each mode and batch size, a line for each row, in units of one network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Drawing

from ..figures.figure import Figure
from ..figures.forest import LINE, Mark, draw_forest, name_room
from ..figures.palette import HUES, INK, MUTED
from ..figures.panels import canvas, log_axis
from .tables import groups, label

__all__ = ["chart"]

HEAD, FOOT = 26, 30  # CSS pixels: the title of a panel, its ticks


def chart(document: Mapping[str, Any]) -> Figure:
    """The figure of a document that has rows."""
    panels = {
        f"{mode}, batch {batch}": [row for row in rows if row["ratio"] and row["ratio"]["median"]]
        for (mode, batch), rows in groups(document).items()
    }
    numbers = pd.DataFrame(
        {"panel": title, "row": label(row), **row["ratio"]} for title, rows in panels.items() for row in rows
    )
    return Figure(
        title=f"{document['title']}: time in units of one network",
        caption="Medians over rounds with their quartiles; the line at 1 is one network by plain torch.",
        numbers=numbers,
        draw=lambda width: _drawn(panels, width),
        name="bench",
    )


def _drawn(panels: Mapping[str, list[Mapping[str, Any]]], width: float) -> Drawing:
    marks = {title: [_mark(row) for row in rows] for title, rows in panels.items()}
    every = [mark for own in marks.values() for mark in own]
    left = name_room(every, width)
    heights = {title: HEAD + LINE * len(own) + FOOT for title, own in marks.items()}
    height = sum(heights.values())
    figure = canvas(width, height)
    low = min(0.9, *(mark.low or mark.value for mark in every)) / 1.05
    high = max(1.1, *(mark.high or mark.value for mark in every)) * 1.05
    top = height
    for title, own in marks.items():
        bottom = top - heights[title] + FOOT
        shape = (left / width, bottom / height, (width - left - 14) / width, LINE * len(own) / height)
        axes = figure.add_axes(shape)
        draw_forest(axes, own, left - 12)
        log_axis(axes, "x", low, high)
        axes.axvline(1, color=MUTED, lw=1, ls=(0, (1, 2)), zorder=1)
        figure.text(0, (top - 8) / height, title, size=11, weight="bold", color=INK, va="top")
        top -= heights[title]
    return figure


def _mark(row: Mapping[str, Any]) -> Mark:
    colour = HUES[0] if row["library"] == "multum" else HUES[1]
    ratio = row["ratio"]
    return Mark(label(row), ratio["median"], ratio["lower"], ratio["upper"], colour, filled=row["members"] > 1)
