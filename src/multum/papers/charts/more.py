"""Charts that are no plain curves: bars of diversity, boxes over settings, and training at a constant rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from ...figures.palette import HUES, INK, MUTED, drawing, look
from ...figures.scales import PERCENT, ROUND
from ...training.recipe import Recipe
from ..base import Row
from ..results import Picture
from ..trained import Trained
from .curves import (
    BARS,
    MEASURES,
    SHARES,
    TITLES,
    Measure,
    Panel,
    Point,
    along,
    by_data,
    gathered,
    heading,
    legend,
    marked,
    pictures,
    sheet,
    upward,
)

__all__ = ["bars", "boxes", "constant_rate"]


def bars(numbers: pd.DataFrame, names: Sequence[str]) -> Drawing | None:
    """A panel for each measure, a bar for each row."""
    names = [name for name in names if name in numbers and numbers[name].notna().any()]
    if not names:
        return None
    with drawing():
        figure, panels = sheet(len(names), height=110 + 34 * len(numbers))
        at = range(len(numbers))
        for axes, name in zip(panels, names, strict=True):
            colours = [look(i).colour for i in at]
            axes.barh(at, numbers[name], 0.62, color=colours, alpha=0.75, zorder=2)
            style: dict[str, Any] = {"fmt": "none", "ecolor": INK, "elinewidth": 1.4, "capsize": 3, "zorder": 3}
            axes.errorbar(numbers[name], at, xerr=numbers[f"{name} error"], **style)
            ends = numbers[name] + numbers[f"{name} error"].fillna(0)
            for y, (value, end) in enumerate(zip(numbers[name], ends, strict=True)):
                if pd.notna(value):
                    told = f"{100 * value:.1f} %" if name in SHARES else f"{value:.3g}"
                    shift: dict[str, Any] = {"textcoords": "offset points", "va": "center", "color": MUTED, "size": 10}
                    axes.annotate(told, (end, y), (6, 0), **shift)
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
    panels = [panel for panel in panels if panel.y in panel.numbers and panel.numbers[panel.y].notna().any()]
    if not panels:
        return None
    with drawing():
        figure, all_axes = sheet(len(panels))
        for axes, panel in zip(all_axes, panels, strict=True):
            groups = panel.numbers.dropna(subset=[panel.y]).groupby(panel.x)[panel.y]
            at = [float(x) for x in groups.groups]
            line = {"color": HUES[0], "linewidth": 1.6}
            lines: dict[str, Any] = {f"{part}props": line for part in ("box", "whisker", "cap", "median")}
            axes.boxplot([own.to_list() for _, own in groups], positions=at, widths=0.5, showfliers=False, **lines)
            axes.plot(panel.numbers[panel.x], panel.numbers[panel.y], "o", color=HUES[0], alpha=0.45, ms=4, mew=0)
            along(axes, panel)
            upward(axes, panel)
    return figure


def constant_rate(trained: Trained) -> dict[str, Picture]:
    """Figure 2: training at a constant rate, nested or not."""
    found = {}
    for name, rows in by_data(trained).items():
        kept = [row for row in rows if "(constant LR)" in row.label]
        points = [
            Point(row.label, row.label.partition(" (")[0], epoch, {"training accuracy": _epoch(epoch), **last})
            for row in kept
            for epoch in range(1, row.epochs + 1)
            for last in [{"accuracy": MEASURES["accuracy"]} if epoch == row.epochs else {}]
        ]
        numbers = gathered(trained, "epoch", points)
        caption = (
            "Left: the share of right answers on the (augmented) training images, member by member, before averaging; "
            "the paper draws the ensemble's test accuracy, which is measured here at the end alone: right, with the "
            f"averaged weights. {BARS}"
        )
        title = ", ".join(filter(None, ("Nested (NASGD) against plain averaged SGD (ASGD) at a constant rate", name)))
        found[name] = (title, caption, None if numbers.empty else _training(numbers, kept[0]), numbers)
    return pictures(found)


def _epoch(epoch: int) -> Measure:
    """The accuracy in training at one epoch."""
    return lambda result: next((x["accuracy"] for x in result["curves"]["training"] if x["epoch"] == epoch), None)


def _training(numbers: pd.DataFrame, row: Row) -> Drawing:
    with drawing():
        figure, (left, right) = sheet(2, ratios=(3, 1))
        ends = numbers.dropna(subset=["accuracy"]) if "accuracy" in numbers else numbers[:0]
        for i, (name, own) in enumerate(numbers.groupby("curve", sort=False)):
            style = marked(look(i))
            crowded = {"marker": "", "errorevery": len(own) // 20} if len(own) > 40 else {}
            x, y, error = (own[column] for column in ("epoch", "training accuracy", "training accuracy error"))
            left.errorbar(x, y, error, label=name, **{**style, **crowded})
            end = ends[ends["curve"] == name]
            right.errorbar([i] * len(end), end["accuracy"], end.get("accuracy error"), **{**style, "lw": 0})
        for epoch, told in _turns(row).items():
            left.axvline(epoch + 0.5, color=MUTED, lw=1, ls=(0, (1, 2)), zorder=1)
            place: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "bottom", "size": 9, "color": MUTED}
            left.text(epoch + 0.45, 0.03, told, transform=left.get_xaxis_transform(), **place)
        left.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=ROUND))
        left.set_xlabel("epoch")
        names = list(numbers["curve"].unique())
        right.set_xticks(range(len(names)), names)
        right.set_xlim(-0.6, len(names) - 0.4)
        for axes, title in ((left, "training accuracy of members"), (right, "test accuracy")):
            heading(axes, title)
            axes.yaxis.set_major_formatter(PERCENT)
        legend(figure, [left])
    return figure


def _turns(row: Row) -> dict[int, str]:
    """The epochs after which members are born, and weights averaged."""
    recipe = Recipe().with_overrides(row.recipe)
    found: dict[int, str] = {}
    born = row.method.birth_after(recipe.epochs)
    if born:
        found[born] = "members are born"
    if recipe.average_from is not None:
        found[round(recipe.average_from * recipe.epochs)] = "averaging begins"
    return found
