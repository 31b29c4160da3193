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
FAR = 5  # times the typical end of an interval: what lies farther is an arrow at the side, or nothing else can be seen
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
    words = f"Difference to {reference} in calibrated NLL"
    return Figure(
        words,
        caption,
        numbers,
        lambda width: _draw(width, numbers, margin, reference),
        f"{words} of {len(numbers)} methods, each with its interval.",
    )


def _draw(width: float, numbers: pd.DataFrame, margin: float, reference: str) -> Drawing:
    narrow = width < NARROWEST
    marks = [
        Mark(line.method, line.mean, finite(line.low), finite(line.high), COLOURS[line.verdict], line.verdict != OPEN)
        for line in numbers.itertuples()
    ]
    left, right = name_room(marks, width), 14 if narrow else 210
    legend = 40 if narrow else 20
    high = LINE * len(marks)
    height = high + BELOW + legend + 6
    figure = canvas(width, height)
    place = left / width, (BELOW + legend) / height, (width - left - right) / width, high / height
    axes = figure.add_axes(place)
    low_end, high_end = _ends(marks, margin)
    inside = [mark for mark in marks if low_end <= mark.value <= high_end]
    draw_forest(axes, marks, left - 12)
    axes.set_xlim(low_end, high_end)
    axes.axvline(0, color=MUTED, lw=1, zorder=1)
    if margin:
        axes.axvspan(-margin, margin, color=GRID, lw=0, zorder=0)
    axes.xaxis.set_major_locator(MaxNLocator(4 if narrow else 7, steps=ROUND))
    for y, mark in enumerate(marks):
        if mark not in inside:
            _arrow(axes, mark, y, low_end, high_end)
        if not narrow:
            ends = "" if mark.low is None or mark.high is None else f" ({mark.low:+.4f} to {mark.high:+.4f})"
            at = axes.get_yaxis_transform()
            axes.text(1.02, y, f"{mark.value:+.4f}{ends}", transform=at, size=10, color=MUTED, va="center_baseline")
    side, what = ("better", "difference") if narrow else (f"better than {reference}", "difference in calibrated NLL")
    words = f"{side}  ←  {what}  →  worse"
    middle = (left + (width - left - right) / 2) / width
    figure.text(middle, (legend + 4) / height, words, size=10, color=MUTED, ha="center", va="bottom")
    used = [name for name in COLOURS if name in set(numbers["verdict"])]
    handles: list[Any] = [mark_handle(name, COLOURS[name], name != OPEN) for name in used]
    handles += [Patch(color=GRID, label="margin")] if margin else []
    columns = 2 if narrow else len(handles)
    style: dict[str, Any] = {
        "ncols": columns,
        "frameon": False,
        "labelcolor": MUTED,
        "fontsize": 10,
        "borderaxespad": 0.1,
    }
    figure.legend(handles=handles, loc="lower center", columnspacing=1.2, handletextpad=0.3, **style)
    return figure


def _ends(marks: Sequence[Mark], margin: float) -> tuple[float, float]:
    """The ends of the axis, without those few marks that lie so far out that they would squeeze all others."""
    reach = {mark: max(abs(v) for v in (mark.value, mark.low, mark.high) if v is not None) for mark in marks}
    typical = FAR * max(median(reach.values()), margin)
    near = [mark for mark in marks if abs(mark.value) <= typical] or list(marks)
    values = [v for mark in near for v in (mark.value, mark.low, mark.high) if v is not None and abs(v) <= typical]
    low, high = min([*values, -margin, 0.0]), max([*values, margin, 0.0])
    room = 0.06 * ((high - low) or 1.0)
    return low - room, high + room


def _arrow(axes: Axes, mark: Mark, y: int, low: float, high: float) -> None:
    """A mark beyond the axis: at its end, with its number."""
    right = mark.value > high
    at, sign = (high, -1) if right else (low, 1)
    axes.plot(at + sign * 0.012 * (high - low), y, ">" if right else "<", color=mark.colour, ms=8, zorder=3)
    words: dict[str, Any] = {"size": 10, "color": INK, "va": "center_baseline", "ha": "right" if right else "left"}
    axes.text(at + sign * 0.03 * (high - low), y, f"{mark.value:+.3f}", **words)
