"""What is sure: the difference of each method to one network, with its interval and the margin of what is equal."""

from __future__ import annotations

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
from ...figures.palette import GRID, HUES, INK, MUTED
from ...figures.panels import canvas
from ...figures.scales import ROUND
from ..verdicts import BETTER, EQUAL, OPEN, WORSE, to_single, verdict
from ..view import View

__all__ = ["differences"]

NARROWEST = 600  # CSS pixels: below it, numbers are left out
BELOW = 44  # CSS pixels under the panel
FAR = 5  # times the typical reach of an interval, and the largest difference: what lies farther goes on as an arrow
COLOURS = {BETTER: HUES[2], EQUAL: HUES[0], OPEN: MUTED, WORSE: HUES[3]}


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
    far_right = "right of the grey band surely worse, inside it equal" if margin else "right of 0 surely worse"
    caption = (
        f"Left of 0 is better than {reference}. A line is the 95 % interval of a difference, for all methods at once: "
        f"where it lies left of 0 the method is surely better, {far_right}; otherwise it cannot be told."
    )
    if margin:
        caption += f" The grey band, {margin:.3g} to either side, is too small a difference to pay for."
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
        lambda width: _draw(width, marks, margin, reference),
        f"{words} of {len(numbers)} methods, each with its interval.",
    )


def _draw(width: float, marks: Sequence[Mark], margin: float, reference: str) -> Drawing:
    narrow = width < NARROWEST
    left, right, legend, high = name_room(marks, width), 14 if narrow else 210, 40 if narrow else 20, LINE * len(marks)
    height = high + BELOW + legend + 6
    figure = canvas(width, height)
    inside = (width - left - right) / width
    axes = figure.add_axes((left / width, (BELOW + legend) / height, inside, high / height))
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
    figure.text(left / width + inside / 2, (legend + 4) / height, f"{side}  ←  {what}  →  worse", **place)
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
