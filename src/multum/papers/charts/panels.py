"""Numbers of cells gathered over seeds, and panels of them side by side: curves, boxes, bars, training along epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from ...comparing.reading import value_of
from ...figures.formats import round_count
from ...figures.palette import HUES, INK, MUTED, PAPER, Look, drawing, look
from ...figures.panels import PERCENT, ROUND, heading, log_axis, side_by_side, text_width
from ...metrics.statistics import over_seeds
from ..measured import Trained

BARS = "A bar is one standard error over seeds."
TITLES = {
    "accuracy": "accuracy",
    "aupr": "AUPR of OOD data",
    "disagreement": "disagreement",
    "ece": "calibration error (ECE)",
    "kl": "KL divergence",
    "nll": "negative log likelihood",
}
SHARES = ("accuracy", "aupr", "disagreement", "ece")
WIDTH = 700  # CSS pixels
CURVE = 3  # points that make a curve: two are drawn without a line between them
ASIDE = 3  # CSS pixels between error bars at the same place

Measure = Callable[[Mapping[str, Any]], float | None]

# The same numbers as a comparison's columns; OOD detection is by the maximum probability, as in the papers on CIFAR.
MEASURES: dict[str, Measure] = {
    key: partial(value_of, key=key)
    for key in ("accuracy", "aupr", "disagreement", "ece", "kl", "member_accuracy", "member_nll", "nll", "params")
}


def measured(*names: str, of: str = "") -> dict[str, Measure]:
    """Measures by name; `of` is "member_" for those of members."""
    return {name: MEASURES[of + name] for name in names}


class Point(NamedTuple):
    """A point of a curve: the row that it is measured on, and what is measured."""

    row: str
    curve: str
    x: float
    measures: Mapping[str, Measure]


def gathered(trained: Trained, x: str, points: Iterable[Point]) -> pd.DataFrame:
    """One line a point that has been measured: means over seeds, standard errors (NaN for one seed), and the seeds."""
    lines = []
    for point in points:
        line: dict[str, Any] = {"row": point.row, "curve": point.curve, x: point.x, "seeds": 0}
        for name, measure in point.measures.items():
            values = list(trained.values(point.row, measure).values()) if point.row in trained.results else []
            mean = over_seeds(values) if values else None
            line["seeds"] = max(line["seeds"], len(values))
            line |= {name: mean.mean if mean else None, f"{name} error": mean.error if mean else None}
        if line["seeds"]:
            lines.append(line)
    frame = pd.DataFrame(lines)
    measured = [name for name in frame if name not in ("row", "curve", "seeds", x)]
    return frame.astype(dict.fromkeys(measured, float))


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
    steep: bool = False  # whether the vertical axis is logarithmic


def _drawable(panels: Sequence[Panel]) -> list[Panel]:
    """Those whose measure some row has."""
    return [panel for panel in panels if panel.y in panel.numbers and panel.numbers[panel.y].notna().any()]


def curves(panels: Sequence[Panel], *, looks: Mapping[str, tuple[str, bool]] | None = None) -> Drawing | None:
    """Panels side by side, a curve in the same colour in all of them; None where there is nothing to draw.

    Args:
        looks: by curve, what it has its colour in common with, and whether it is dashed; by default all differ.
    """
    panels = _drawable(panels)
    names = list(dict.fromkeys(name for panel in panels for name in panel.numbers["curve"]))
    if not names:
        return None
    looks = looks or {name: (name, False) for name in names}
    hues = {hue: look(i) for i, hue in enumerate(dict.fromkeys(looks[name][0] for name in names))}
    with drawing():
        figure, all_axes = _sheet(len(panels))
        for axes, panel in zip(all_axes, panels, strict=True):
            groups = list(panel.numbers.dropna(subset=[panel.y]).groupby("curve", sort=False))
            for i, (name, own) in enumerate(groups):
                own, error = own.sort_values(panel.x), own.sort_values(panel.x).get(f"{panel.y} error")
                hue, dashed = looks[str(name)]
                style: dict[str, Any] = {"label": name, **_marked(hues[hue]), **({"ls": (0, (4, 2))} if dashed else {})}
                if len(own) < CURVE:
                    style["lw"] = 0
                if error is not None:  # bars at the same place stand side by side
                    aside = (i - (len(groups) - 1) / 2) * ASIDE / 72
                    style["transform"] = axes.transData + ScaledTranslation(aside, 0, figure.dpi_scale_trans)
                axes.errorbar(own[panel.x], own[panel.y], error, **style)
            along(axes, panel)
            _upward(axes, panel)
        if names != [""]:
            _legend(figure, all_axes)
    return figure


def _marked(its: Look) -> dict[str, Any]:
    """How a curve with its dots and error bars is drawn."""
    filled = its.colour if its.fill == "full" else PAPER
    return {"color": its.colour, "marker": "o", "ms": 6, "mfc": filled, "lw": 1.8, "elinewidth": 1.4, "capsize": 3}


def _sheet(panels: int, *, height: float = 330, ratios: Sequence[float] | None = None) -> tuple[Drawing, list[Axes]]:
    """A drawing with panels side by side, and room for what is outside of them."""
    width = WIDTH if panels > 1 else 0.75 * WIDTH
    return side_by_side(panels, width, height, columns=panels, pads=(0.1, 0.1), ratios=ratios)


def _legend(figure: Drawing, panels: Sequence[Axes]) -> None:
    """All curves by name, under the panels."""
    entries = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    widest = max(text_width(label, 11) for label in entries) + 52
    columns = max(1, min(len(entries), int(72 * figure.get_figwidth() // widest)))
    figure.set_figheight(figure.get_figheight() + 18 / 72 * (math.ceil(len(entries) / columns) - 1))
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "frameon": False, "labelcolor": MUTED}
    figure.legend(list(entries.values()), list(entries), **place)


def along(axes: Axes, panel: Panel) -> None:
    """The horizontal axis of a panel."""
    values = sorted(panel.numbers[panel.x].unique())
    axes.set_xlabel(panel.along)
    # Limits are set by hand: curves that are moved aside have no part in matplotlib's own.
    room = 0.08 * (values[-1] - values[0]) or 0.5
    axes.set_xlim(values[0] - room, values[-1] + room)
    if panel.log:
        spread = max((values[-1] / values[0]) ** 0.08, 1.1)
        log_axis(axes, "x", values[0] / spread, values[-1] * spread, round_count if panel.counts else _short)
    if not panel.counts and len(values) <= 8:
        axes.set_xticks(values, [_short(value) for value in values])


def _short(value: float) -> str:
    """As short as can be: "5e-7".

    >>> _short(5e-7), _short(1e-12), _short(0.5)
    ('5e-7', '1e-12', '0.5')
    """
    return f"{value:.0e}".replace("e-0", "e-") if 0 < value < 0.01 else f"{value:g}"


def _upward(axes: Axes, panel: Panel) -> None:
    """The vertical axis of a panel, and its title."""
    heading(axes, panel.title or TITLES.get(panel.y, panel.y))
    error = panel.numbers[f"{panel.y} error"].fillna(0) if f"{panel.y} error" in panel.numbers else 0.0
    low, high = (panel.numbers[panel.y] - error).min(), (panel.numbers[panel.y] + error).max()
    room = 0.07 * (high - low) or max(0.05 * abs(high), 1e-3)
    if panel.steep:
        spread = (high / low) ** 0.07
        log_axis(axes, "y", low / spread, high * spread, _short)
        return
    axes.set_ylim(low - room, high + room)
    axes.yaxis.set_major_locator(MaxNLocator(7, steps=ROUND, min_n_ticks=4))
    if panel.y in SHARES:
        axes.yaxis.set_major_formatter(PERCENT)


def bars(numbers: pd.DataFrame, names: Sequence[str]) -> Drawing | None:
    """A panel for each measure, a bar for each row."""
    names = [name for name in names if name in numbers and numbers[name].notna().any()]
    if not names:
        return None
    with drawing():
        figure, panels = _sheet(len(names), height=110 + 34 * len(numbers))
        at = range(len(numbers))
        for axes, name in zip(panels, names, strict=True):
            colours = [look(i).colour for i in at]
            axes.barh(at, numbers[name], 0.62, color=colours, alpha=0.75, zorder=2)
            style: dict[str, Any] = {"fmt": "none", "ecolor": INK, "elinewidth": 1.4, "capsize": 3, "zorder": 3}
            axes.errorbar(numbers[name], at, xerr=numbers[f"{name} error"], **style)
            ends = numbers[name] + numbers[f"{name} error"].fillna(0)
            for y, (value, end) in enumerate(zip(numbers[name], ends, strict=True)):
                if pd.notna(value):
                    text = f"{100 * value:.1f} %" if name in SHARES else f"{value:.3g}"
                    shift: dict[str, Any] = {"textcoords": "offset points", "va": "center", "color": MUTED, "size": 10}
                    axes.annotate(text, (end, y), (6, 0), **shift)
            axes.set_yticks(at, numbers["row"] if axes is panels[0] else [""] * len(numbers))
            axes.tick_params("y", labelcolor=INK)
            axes.invert_yaxis()
            axes.set_xlim(0, 1.25 * ends.max() or 1)
            axes.grid(axis="y", visible=False)
            axes.xaxis.set_major_locator(MaxNLocator(4, steps=ROUND))
            if name in SHARES:
                axes.xaxis.set_major_formatter(PERCENT)
            heading(axes, TITLES[name])
    return figure


def boxes(panels: Sequence[Panel]) -> Drawing | None:
    """A box over all curves at each x: what is common to settings that differ in all else."""
    panels = _drawable(panels)
    if not panels:
        return None
    with drawing():
        figure, all_axes = _sheet(len(panels))
        for axes, panel in zip(all_axes, panels, strict=True):
            groups = panel.numbers.dropna(subset=[panel.y]).groupby(panel.x)[panel.y]
            at = [float(x) for x in groups.groups]
            line = {"color": HUES[0], "linewidth": 1.6}
            lines: dict[str, Any] = {f"{part}props": line for part in ("box", "whisker", "cap", "median")}
            axes.boxplot([own.to_list() for _, own in groups], positions=at, widths=0.5, showfliers=False, **lines)
            axes.plot(panel.numbers[panel.x], panel.numbers[panel.y], "o", color=HUES[0], alpha=0.45, ms=4, mew=0)
            along(axes, panel)
            _upward(axes, panel)
    return figure


def training_curves(numbers: pd.DataFrame, turns: Mapping[int, str]) -> Drawing:
    """Test and training accuracy along epochs, with lines where the training changes."""
    titles = {"test accuracy": "test accuracy of the ensemble", "training accuracy": "training accuracy of members"}
    names = [name for name in titles if name in numbers and numbers[name].notna().any()]
    with drawing():
        figure, every = _sheet(len(names))
        for axes, name in zip(every, names, strict=True):
            for i, (curve, own) in enumerate(numbers.dropna(subset=[name]).groupby("curve", sort=False)):
                crowded = {"marker": "", "errorevery": len(own) // 20} if len(own) > 40 else {}
                style = {**_marked(look(i)), **crowded}
                axes.errorbar(own["epoch"], own[name], own[f"{name} error"], label=curve, **style)
            for epoch, text in turns.items():
                axes.axvline(epoch + 0.5, color=MUTED, lw=1, ls=(0, (1, 2)), zorder=1)
                place: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "bottom", "size": 9, "color": MUTED}
                axes.text(epoch + 0.45, 0.03, text, transform=axes.get_xaxis_transform(), **place)
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=ROUND))
            axes.set_xlabel("epoch")
            heading(axes, titles[name])
            axes.yaxis.set_major_formatter(PERCENT)
        _legend(figure, every)
    return figure
