"""What the charts of items share: numbers over seeds, what a row's label says, and panels of curves."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from ...comparing.columns import value_of
from ...figures.formats import count
from ...figures.palette import INK, MUTED, PAPER, Look, drawing, look
from ...figures.panels import text_width
from ...figures.scales import PERCENT, ROUND, log_axis
from ...metrics.statistics import over_seeds
from ..base import Row
from ..results import Picture
from ..trained import Trained

__all__ = [
    *("BARS", "MEASURES", "SHARES", "TITLES", "WIDTH", "Measure", "Panel", "Point", "along", "by_data", "curves"),
    *("gathered", "heading", "legend", "marked", "parted", "pictures", "sheet", "upward"),
]

WIDTH = 700  # CSS pixels
ASIDE = 3  # CSS pixels between error bars at the same place
BARS = "A bar is one standard error over seeds."
TITLES = {
    "accuracy": "accuracy",
    "aupr": "AUPR of foreign items",
    "disagreement": "disagreement",
    "ece": "calibration error (ECE)",
    "kl": "KL divergence",
    "nll": "negative log likelihood",
}
SHARES = ("accuracy", "aupr", "disagreement", "ece")
TRIPLE = re.compile(r"PE-\((\d+),(\d+),(\d+)\)")

Measure = Callable[[Mapping[str, Any]], float | None]


# The same numbers as a comparison's columns; OOD detection is by the maximum probability, as in the papers on CIFAR.
MEASURES: dict[str, Measure] = {
    key: partial(value_of, key=key)
    for key in ("accuracy", "aupr", "disagreement", "ece", "kl", "member_accuracy", "member_nll", "nll", "params")
}


class Point(NamedTuple):
    """A point of a curve: the row that it is measured on, and what is measured."""

    row: str
    curve: str
    x: float
    measures: Mapping[str, Measure]


class Parted(NamedTuple):
    value: float
    rest: str


@dataclass(frozen=True)
class Panel:
    """One panel: the columns x and y of the numbers, a curve for each value of the column "curve"."""

    numbers: pd.DataFrame
    x: str
    y: str
    along: str  # under the horizontal axis
    log: bool = False
    counts: bool = False  # whether the horizontal axis counts things, with round ticks
    title: str = ""


def parted(label: str, name: str) -> Parted | None:
    """The number that a label gives to a name, and the label without it.

    >>> parted("L1 = 1e-05, M = 3", "L1"), parted("R18, width 0.25", "width")
    (Parted(value=1e-05, rest='M = 3'), Parted(value=0.25, rest='R18'))
    >>> parted("PE-(2,4,1)", "gamma")
    Parted(value=1.0, rest='alpha = 2, M = 4')
    """
    label = TRIPLE.sub(r"alpha = \1, M = \2, gamma = \3", label)
    parts = label.split(", ")
    for part in parts:
        found = re.fullmatch(rf"{re.escape(name)}(?: =)? (\d[\d.]*(?:e[+-]?\d+)?)", part)
        if found:
            return Parted(float(found[1]), ", ".join(other for other in parts if other is not part))
    return None


def gathered(trained: Trained, x: str, points: Iterable[Point]) -> pd.DataFrame:
    """One line a point that has been measured: means over seeds, standard errors (NaN for one seed), and the seeds."""
    lines = []
    for point in points:
        line: dict[str, Any] = {"row": point.row, "curve": point.curve, x: point.x, "seeds": 0}
        for name, measure in point.measures.items():
            values = list(trained.values(point.row, measure).values()) if point.row in trained.results else []
            found = over_seeds(values) if values else None
            line["seeds"] = max(line["seeds"], len(values))
            line |= {name: found.mean if found else None, f"{name} error": found.error if found else None}
        if line["seeds"]:
            lines.append(line)
    frame = pd.DataFrame(lines)
    numbers = [name for name in frame if name not in ("row", "curve", "seeds", x)]
    return frame.astype(dict.fromkeys(numbers, float))


def curves(panels: Sequence[Panel], *, pairs: bool = False) -> Drawing | None:
    """Panels side by side, a curve in the same colour in all of them; None where there is nothing to draw.

    Args:
        pairs: whether curves "a, x" and "b, x" have the colour of x in common, and b is dashed.
    """
    panels = [panel for panel in panels if panel.y in panel.numbers and panel.numbers[panel.y].notna().any()]
    names = list(dict.fromkeys(name for panel in panels for name in panel.numbers["curve"]))
    if not names:
        return None
    hues = {name: name.partition(", ")[2] if pairs else name for name in names}
    looks = {hue: look(i) for i, hue in enumerate(dict.fromkeys(hues.values()))}
    first = names[0].partition(", ")[0]
    with drawing():
        figure, all_axes = sheet(len(panels))
        for axes, panel in zip(all_axes, panels, strict=True):
            groups = list(panel.numbers.dropna(subset=[panel.y]).groupby("curve", sort=False))
            for i, (name, own) in enumerate(groups):
                own, error = own.sort_values(panel.x), own.sort_values(panel.x).get(f"{panel.y} error")
                style: dict[str, Any] = {"label": name, **marked(looks[hues[str(name)]])}
                if pairs and not str(name).startswith(first):
                    style["ls"] = (0, (4, 2))
                if error is not None:  # bars at the same place stand side by side
                    aside = (i - (len(groups) - 1) / 2) * ASIDE / 72
                    style["transform"] = axes.transData + ScaledTranslation(aside, 0, figure.dpi_scale_trans)
                axes.errorbar(own[panel.x], own[panel.y], error, **style)
            along(axes, panel)
            upward(axes, panel)
        if names != [""]:
            legend(figure, all_axes)
    return figure


def marked(its: Look) -> dict[str, Any]:
    """How a curve with its dots and error bars is drawn."""
    filled = its.colour if its.fill == "full" else PAPER
    return {"color": its.colour, "marker": "o", "ms": 6, "mfc": filled, "lw": 1.8, "elinewidth": 1.4, "capsize": 3}


def sheet(panels: int, *, height: float = 330, ratios: Sequence[float] | None = None) -> tuple[Drawing, list[Axes]]:
    """A drawing with panels side by side, and room for what is outside of them."""
    width = WIDTH if panels > 1 else 0.75 * WIDTH
    figure = Drawing(figsize=(width / 72, height / 72), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    grid = figure.add_gridspec(1, panels, width_ratios=ratios)
    return figure, [figure.add_subplot(grid[0, i]) for i in range(panels)]


def legend(figure: Drawing, panels: Sequence[Axes]) -> None:
    """All curves by name, under the panels."""
    entries = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    widest = max(text_width(label, 11) for label in entries) + 52
    columns = max(1, min(len(entries), int(72 * figure.get_figwidth() // widest)))
    figure.set_figheight(figure.get_figheight() + 18 / 72 * (math.ceil(len(entries) / columns) - 1))
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "frameon": False, "labelcolor": MUTED}
    figure.legend(list(entries.values()), list(entries), **place)


def heading(axes: Axes, title: str) -> None:
    """A panel's title."""
    axes.set_title(title, loc="left", color=INK, size=11, weight="bold")


def along(axes: Axes, panel: Panel) -> None:
    """The horizontal axis of a panel."""
    values = sorted(panel.numbers[panel.x].unique())
    axes.set_xlabel(panel.along)
    # Limits are set by hand: curves that are moved aside have no part in matplotlib's own.
    room = 0.08 * (values[-1] - values[0]) or 0.5
    axes.set_xlim(values[0] - room, values[-1] + room)
    if panel.log:
        spread = max((values[-1] / values[0]) ** 0.08, 1.1)
        log_axis(axes, "x", values[0] / spread, values[-1] * spread, _count if panel.counts else _short)
    if not panel.counts and len(values) <= 8:
        axes.set_xticks(values, [_short(value) for value in values])


def _count(value: float) -> str:
    """A round number of things: "50 k"."""
    number, _, power = count(value).partition(" ")
    return f"{float(number):g} {power}".strip()


def _short(value: float) -> str:
    return re.sub(r"e-0*", "e-", f"{value:.0e}") if 0 < value < 0.01 else f"{value:g}"


def upward(axes: Axes, panel: Panel) -> None:
    """The vertical axis of a panel, and its title."""
    heading(axes, panel.title or TITLES.get(panel.y, panel.y))
    error = panel.numbers[f"{panel.y} error"].fillna(0) if f"{panel.y} error" in panel.numbers else 0.0
    low, high = (panel.numbers[panel.y] - error).min(), (panel.numbers[panel.y] + error).max()
    room = 0.07 * (high - low) or max(0.05 * abs(high), 1e-3)
    axes.set_ylim(low - room, high + room)
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=ROUND, min_n_ticks=4))
    if panel.y in SHARES:
        axes.yaxis.set_major_formatter(PERCENT)


def by_data(trained: Trained) -> dict[str, list[Row]]:
    """Rows by their data; the first one's name is "", as its picture's is."""
    data = list(dict.fromkeys(row.data for row in trained.run.rows))
    return {"" if i == 0 else name: [r for r in trained.run.rows if r.data == name] for i, name in enumerate(data)}


def pictures(found: Mapping[str, tuple[str, str, Drawing | None, pd.DataFrame]]) -> dict[str, Picture]:
    """Those that could be drawn."""
    return {
        name: Picture(title, caption, drawn, numbers)
        for name, (title, caption, drawn, numbers) in found.items()
        if drawn is not None
    }
