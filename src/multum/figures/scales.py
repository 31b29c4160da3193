"""Axes with a handful of round ticks: percentages, factors, and accuracies that crowd below 100 %."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from .palette import MUTED

__all__ = ["FLOOR", "PERCENT", "ROUND", "accuracy_axis", "ends_inside", "log_axis", "log_ticks", "unit_square"]

PERCENT = FuncFormatter(lambda share, _: f"{100 * share:.6g} %")
NEAR_ONE = (0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999, 1)
ROUND = [1, 2, 5, 10]  # ticks are these times a power of ten
FLOOR = 0.002  # keeps 100 % on an axis that stretches towards it


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
