"""How many independent networks a method is worth, and what so many of them reach."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from ...figures.figure import Figure
from ...figures.forest import LINE, Mark, draw_forest, finite, name_room
from ...figures.palette import CONTEXT, INK, MUTED
from ...figures.panels import canvas
from ...figures.scales import ROUND
from ..table import EQUIVALENT
from ..view import Row, View, over_seeds

__all__ = ["equivalent"]

NARROWEST = 600  # CSS pixels: below it, panels stand one above the other
ABOVE, BELOW = 24, 44  # CSS pixels over and under a panel
MEMBERS = "by_members"  # the curve of a cell: calibrated NLL of so many of its members


def equivalent(view: View) -> Figure | None:
    """How many independent networks each method is worth, and what so many of them reach."""
    worth = {row: _worth(row) for row in view.rows}
    rows = sorted((row for row in view.rows if worth[row] is not None), key=lambda row: -(worth[row] or 0))
    if not rows:
        return None
    values = [row.values.get(EQUIVALENT) or {} for row in rows]
    numbers = pd.DataFrame(
        {
            "method": [row.label for row in rows],
            "networks": [worth[row] for row in rows],
            **{end: pd.Series([value.get(end) for value in values], dtype=float) for end in ("low", "high")},
            "words": [str(row.entry.get(EQUIVALENT) or f"{worth[row]:.1f}") for row in rows],
        }
    )
    deep = next((r for r in view.having(MEMBERS) if r.entry.get("name") == "deep" and not r.entry.get("control")), None)
    curve = None if deep is None else _curve(view, deep)
    caption = (
        "How many separately trained networks, averaged, are as good as the method by calibrated NLL: what the method "
        "saves. A line is the 95 % interval. An open dot lies beyond what the comparison measured."
    )
    if curve is not None:
        caption += f" Beside it: the calibrated NLL of 1 to {int(curve['members'].max())} such networks."
    return Figure(
        "Worth in independent networks",
        caption,
        numbers,
        lambda width: _draw(width, rows, numbers, curve),
        f"How many independent networks each of {len(rows)} methods is worth.",
    )


def _worth(row: Row) -> float | None:
    """The number, or that in the words of the row ("> 4")."""
    mean = row.mean(EQUIVALENT)
    if mean is not None:
        return float(mean)
    number = re.search(r"\d+(\.\d+)?", str(row.entry.get(EQUIVALENT) or ""))
    return float(number[0]) if number else None


def _curve(view: View, row: Row) -> pd.DataFrame:
    pairs = [pair for curve in view.curves(row, MEMBERS) for pair in zip(curve["members"], curve["nll"], strict=True)]
    entries = [{"method": row.label, "members": k, "nll": nll} for k, nll in pairs if nll is not None]
    return over_seeds(entries, ("members", "nll"))


def _draw(width: float, rows: Sequence[Row], numbers: pd.DataFrame, curve: pd.DataFrame | None) -> Drawing:
    narrow, both = width < NARROWEST, curve is not None
    marks = [
        Mark(row.label, at.networks, finite(at.low), finite(at.high), row.look.colour, at.words[0] not in "<>")
        for row, at in zip(rows, numbers.itertuples(), strict=True)
    ]
    left, side = name_room(marks, width), 250.0
    high = LINE * len(marks)
    tall = max(high, 150) if both and not narrow else high
    second = 130 + ABOVE + BELOW if both and narrow else 0
    height = tall + ABOVE + BELOW + second
    forest_width = width - left - 44 - (side + 60 if both and not narrow else 0)
    figure = canvas(width, height)
    top = height - ABOVE - high
    axes = figure.add_axes((left / width, top / height, forest_width / width, high / height))
    draw_forest(axes, marks, left - 12)
    most = max([v for mark in marks for v in (mark.value, mark.high) if v is not None])
    axes.set_xlim(min(0.5, *(m.low for m in marks if m.low is not None), *(m.value for m in marks)), most + 0.25)
    axes.axvline(1, color=MUTED, lw=1, zorder=1)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    for y, words in enumerate(numbers["words"]):
        at = axes.get_yaxis_transform()
        axes.text(1.02, y, words, transform=at, size=10, color=INK, va="center_baseline")
    _name(figure, axes, "independent networks")
    if curve is not None:
        box = (34, BELOW, width - 48, 130) if narrow else (width - side, height - ABOVE - 150, side - 10, 150)
        panel = figure.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height))
        _draw_curve(panel, curve)
        _name(figure, panel, "networks")
    return figure


def _draw_curve(axes: Axes, curve: pd.DataFrame) -> None:
    error, colour = curve["error"].fillna(0), INK
    if error.any():
        axes.fill_between(curve["members"], curve["nll"] - error, curve["nll"] + error, color=colour, alpha=0.22, lw=0)
    axes.plot(curve["members"], curve["nll"], color=colour, marker="o", ms=5)
    axes.set_title("calibrated NLL of so many networks", loc="left", size=10, color=MUTED, pad=6)
    axes.set_xticks(sorted(int(k) for k in curve["members"].unique()))
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=ROUND))
    axes.spines["bottom"].set_color(CONTEXT)


def _name(figure: Drawing, axes: Axes, words: str) -> None:
    box, height = axes.get_position(), figure.bbox.height
    figure.text((box.x0 + box.x1) / 2, box.y0 - 24 / height, words, size=10, color=MUTED, ha="center", va="top")
