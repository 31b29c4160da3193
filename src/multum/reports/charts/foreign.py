"""How uncertain a method is on test items, and on items that are none of its business."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ...figures.figure import Figure
from ...figures.palette import INK, MUTED
from ...figures.panels import multiples
from ...figures.scales import PERCENT, ends_inside
from ..view import View, over_seeds

__all__ = ["foreign"]

BINS = 25
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
SHARES = (0, 0.01, 0.05, 0.2, 0.5, 1)


def foreign(view: View) -> Figure | None:
    """Histograms of 1 - confidence, of the test set and of every foreign set."""
    methods = view.having("histograms")
    if not methods:
        return None
    ends = [
        one["edges"][end]
        for m in methods
        for c in view.curves(m, "histograms")
        for one in c.values()
        for end in (0, -1)
    ]
    low, high = _span(min(ends), max(ends))
    edges = np.linspace(low, high, BINS + 1)
    rows = [
        {"method": m.label, "set": name, "from": low, "to": high, "share": share}
        for m in methods
        for curve in view.curves(m, "histograms")
        for name, one in curve.items()
        for low, high, share in zip(
            edges[:-1].round(4).tolist(), edges[1:].round(4).tolist(), _rebinned(one, edges), strict=True
        )
    ]
    numbers = over_seeds(rows, ["method", "set", "from", "to"], "share")
    sets = [name for name in numbers["set"].unique() if name != "test"]

    def draw(width: float) -> Drawing:
        notes = [view.number(m, "auroc") for m in methods]
        x, y = _meaning(low, high), "share of items, square-root scale"
        figure, panels = multiples([m.label for m in methods], notes, width, x=x, y=y)
        for axes, method in zip(panels, methods, strict=True):
            for name, shares in _by_set(numbers, method.label):
                if name == "test":
                    axes.stairs(shares, edges, fill=True, color=method.look.colour, alpha=0.45, lw=0, zorder=2)
                else:
                    dash = DASHES[sets.index(name) % len(DASHES)]
                    axes.stairs(shares, edges, color=INK, ls=dash, lw=1.1, zorder=3)
        first = panels[0]
        first.set_yscale("function", functions=(lambda s: np.sqrt(np.maximum(s, 0)), np.square))
        most = float(numbers["share"].max())
        ticks = [low, (low + high) / 2, high]
        first.set(
            xlim=(low, high), ylim=(0, min(1.0, most * 1.1)), xticks=ticks, xticklabels=[f"{t:.3g}" for t in ticks]
        )
        first.set_yticks([s for s in SHARES if s <= most * 1.1])
        first.yaxis.set_major_formatter(PERCENT)
        ends_inside(panels)
        keys: list[Artist] = [Patch(facecolor=MUTED, alpha=0.45, label="test")]
        keys += [Line2D([], [], color=INK, lw=1.1, ls=DASHES[i % len(DASHES)], label=s) for i, s in enumerate(sets)]
        narrow = width < 600
        legend = figure.legend(
            handles=keys,
            loc="upper right",
            bbox_to_anchor=(1, 1),
            ncols=len(keys),
            frameon=False,
            fontsize=9 if narrow else 10,
            handlelength=1.8,
            columnspacing=1.2,
            borderaxespad=0,
        )
        for text in legend.get_texts():
            text.set_color(MUTED)
        return figure

    return Figure(
        "foreign",
        "Uncertainty on foreign items",
        "Filled: test items. Lines: items from other data sets, which a method should be unsure of. "
        "The less the two overlap, the better a threshold tells them apart.",
        numbers,
        draw,
        "Histograms of uncertainty on test and foreign items, one panel a method.",
    )


def _rebinned(one: dict, edges: np.ndarray) -> list[float]:
    """A histogram's shares in bins that span it: seeds have bins of their own, which span their scores."""
    below = np.concatenate([[0.0], np.cumsum(np.asarray(one["share"], dtype=float))])
    return np.diff(np.interp(edges, np.asarray(one["edges"], dtype=float), below)).tolist()


def _span(low: float, high: float) -> tuple[float, float]:
    """Round ends of an axis that holds all scores; 0 and 1 where the scores take up most of that."""
    if low >= 0 and high <= 1 and high - low > 0.5:
        return 0.0, 1.0
    step = 10.0 ** np.floor(np.log10(max(high - low, 1e-6))) / 2
    return float(np.floor(low / step) * step), float(np.ceil(high / step) * step)


def _meaning(low: float, high: float) -> str:
    """What the horizontal axis is: numbers outside of 0 to 1 are no 1 - confidence, and must not be called so."""
    return "uncertainty: 1 - confidence" if low >= 0 and high <= 1 else "uncertainty score"


def _by_set(numbers: pd.DataFrame, label: str) -> list[tuple[str, np.ndarray]]:
    own = numbers[numbers["method"] == label]
    return [(str(name), part["share"].to_numpy()) for name, part in own.groupby("set", sort=False)]
