"""Methods as a forest: the difference of each to one network, and how many independent networks it is worth."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ...figures.figure import Figure
from ...figures.forest import LINE, Mark, draw_forest, finite, mark_handle, name_room
from ...figures.palette import CONTEXT, GRID, HUES, INK, MUTED
from ...figures.panels import ROUND, axes_at, canvas
from ..table import BETTER, EQUAL, EQUIVALENT, OPEN, WORSE, to_single, verdict
from ..view import Row, View, over_seeds

NARROWEST = 600  # CSS pixels: below it, numbers are left out, and panels stand one above the other
ABOVE, BELOW = 24, 44  # CSS pixels over and under a panel
FAR = 5  # times the typical reach of an interval, and the largest difference: what lies farther goes on as an arrow
COLOURS = {BETTER: HUES[2], EQUAL: HUES[0], OPEN: MUTED, WORSE: HUES[3]}
MEMBERS = "by_members"  # the curve of a cell: calibrated NLL of so many of its members


def differences(view: View) -> Figure | None:
    """The difference of every method to the single network in calibrated NLL."""
    compared = [(row, gap) for row in view.rows if (gap := to_single(row.entry)) is not None]
    if not compared:
        return None
    compared.sort(key=lambda pair: pair[1]["mean"])
    margin = float(view.document.get("margin") or 0.0)
    numbers = pd.DataFrame(
        {
            "method": [row.label for row, _ in compared],
            **{
                part: pd.Series([gap.get(part) for _, gap in compared], dtype=float) for part in ("mean", "low", "high")
            },
            "verdict": [verdict(gap, margin) for _, gap in compared],
        }
    )
    reference = compared[0][1].get("label", "one network")
    far_right = "worse if right of the grey band, equal if inside it" if margin else "worse if right of 0"
    caption = (
        f"Left of 0 is better than {reference}. A line is the simultaneous 95 % interval of a difference: "
        f"the method is better if the line lies left of 0, {far_right}; otherwise it cannot be told."
    )
    if margin:
        caption += (
            f" The grey band, {margin:.3g} to either side, is the margin: a difference that is too small to pay for."
        )
    marks = [
        Mark(line.method, line.mean, finite(line.low), finite(line.high), COLOURS[line.verdict], line.verdict != OPEN)
        for line in numbers.itertuples()
    ]
    low, high = _ends(marks, margin)
    if any(not low <= v <= high for mark in marks for v in (mark.value, mark.low, mark.high) if v is not None):
        caption += " What goes on beyond the figure ends in an arrowhead."
    words = f"Difference to {reference} in calibrated NLL"
    return Figure(
        words,
        caption,
        numbers,
        lambda width: _draw_differences(width, marks, margin, reference),
        f"{words} of {len(numbers)} methods, each with its interval.",
    )


def _draw_differences(width: float, marks: Sequence[Mark], margin: float, reference: str) -> Drawing:
    narrow = width < NARROWEST
    left, right, legend, high = name_room(marks, width), 14 if narrow else 210, 40 if narrow else 20, LINE * len(marks)
    height = high + BELOW + legend + 6
    figure = canvas(width, height)
    inside = width - left - right
    axes = axes_at(figure, left, BELOW + legend, inside, high)
    draw_forest(axes, marks, left - 12)
    axes.set_xlim(*_ends(marks, margin))
    axes.axvline(0, color=MUTED, lw=1, zorder=1)
    if margin:
        axes.axvspan(-margin, margin, color=GRID, lw=0, zorder=0)
    axes.xaxis.set_major_locator(MaxNLocator(4 if narrow else 7, steps=ROUND))
    for y, mark in enumerate(marks):
        _beyond(axes, mark, y)
        if not narrow:
            at = axes.get_yaxis_transform()
            axes.text(1.02, y, _words(mark), transform=at, size=10, color=MUTED, va="center_baseline")
    side, what = ("better", "difference") if narrow else (f"better than {reference}", "difference in calibrated NLL")
    place: dict[str, Any] = {"size": 10, "color": MUTED, "ha": "center", "va": "bottom"}
    figure.text((left + inside / 2) / width, (legend + 4) / height, f"{side}  ←  {what}  →  worse", **place)
    used = [name for name, colour in COLOURS.items() if any(mark.colour == colour for mark in marks)]
    handles: list[Any] = [mark_handle(name, COLOURS[name], name != OPEN) for name in used]
    handles += [Patch(color=GRID, label="margin")] if margin else []
    style: dict[str, Any] = {"frameon": False, "labelcolor": MUTED, "fontsize": 10, "borderaxespad": 0.1}
    style |= {"ncols": 2 if narrow else len(handles), "columnspacing": 1.2, "handletextpad": 0.3}
    figure.legend(handles=handles, loc="lower center", **style)
    return figure


def _words(mark: Mark) -> str:
    ends = "" if mark.low is None or mark.high is None else f" ({mark.low:+.4f} to {mark.high:+.4f})"
    return f"{mark.value:+.4f}{ends}"


def _ends(marks: Sequence[Mark], margin: float) -> tuple[float, float]:
    """The ends of the axis: neither a method far off nor intervals that are very wide hide where the others are."""
    reach = [max(abs(v) for v in (mark.value, mark.low, mark.high) if v is not None) for mark in marks]
    most = min(FAR * median(reach), FAR * max(abs(mark.value) for mark in marks))
    most = max(most, FAR * margin) or 1.0
    near = [mark for mark in marks if abs(mark.value) <= most]
    values = [min(max(v, -most), most) for m in near for v in (m.value, m.low, m.high) if v is not None]
    low, high = min([*values, -margin, 0.0]), max([*values, margin, 0.0])
    room = 0.06 * ((high - low) or 1.0)
    return low - room, high + room


def _beyond(axes: Axes, mark: Mark, y: int) -> None:
    """Arrowheads where the interval goes on beyond the axis; a mark that is all beyond it is one, with its number."""
    low, high = axes.get_xlim()
    inset = 0.012 * (high - low)
    if mark.value > high or (mark.high is not None and mark.high > high):
        axes.plot(high - inset, y, ">", color=mark.colour, ms=6, zorder=3)
    if mark.value < low or (mark.low is not None and mark.low < low):
        axes.plot(low + inset, y, "<", color=mark.colour, ms=6, zorder=3)
    if not low <= mark.value <= high:
        side, at = ("right", high - 3 * inset) if mark.value > high else ("left", low + 3 * inset)
        axes.text(at, y, f"{mark.value:+.3f}", size=10, color=INK, va="center_baseline", ha=side)


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
        lambda width: _draw_worth(width, rows, numbers, curve),
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


def _draw_worth(width: float, rows: Sequence[Row], numbers: pd.DataFrame, curve: pd.DataFrame | None) -> Drawing:
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
    axes = axes_at(figure, left, height - ABOVE - high, forest_width, high)
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
        panel = axes_at(figure, *box)
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
