"""Uncertainty on the test data and on OOD data."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ...figures.figure import Figure
from ...figures.palette import INK, MUTED
from ...figures.panels import PERCENT, ends_inside, multiples
from ..view import View, over_seeds

BINS = 25
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
SHARES = (0, 0.01, 0.05, 0.2, 0.5, 1)


def ood(view: View) -> Figure | None:
    """Histograms of 1 - confidence, of the test data and of every OOD data set."""
    rows = view.having("histograms")
    if not rows:
        return None
    histograms = [
        (row.label, name, histogram)
        for row in rows
        for curve in view.curves(row, "histograms")
        for name, histogram in curve.items()
    ]
    low, high = _span(min(h["edges"][0] for *_, h in histograms), max(h["edges"][-1] for *_, h in histograms))
    edges = np.linspace(low, high, BINS + 1)
    bins = edges.round(4).tolist()
    numbers = over_seeds(
        [
            {"method": label, "set": name, "from": start, "to": end, "share": share}
            for label, name, histogram in histograms
            for start, end, share in zip(bins[:-1], bins[1:], _rebinned(histogram, edges), strict=True)
        ],
        ("set", "from", "to", "share"),
    )
    dashes = {n: DASHES[i % len(DASHES)] for i, n in enumerate(n for n in numbers["set"].unique() if n != "test")}

    def draw(width: float) -> Drawing:
        notes = [view.number(row, "auroc") for row in rows]
        narrow = width < 600  # there the legend needs the room
        x, y = _meaning(low, high), "share, √ scale" if narrow else "share of examples, square-root scale"
        figure, panels = multiples([row.label for row in rows], notes, width, x=x, y=y)
        for axes, row in zip(panels, rows, strict=True):
            for name, part in numbers[numbers["method"] == row.label].groupby("set", sort=False):
                if name == "test":
                    axes.stairs(part["share"], edges, fill=True, color=row.look.colour, alpha=0.45, lw=0, zorder=2)
                else:
                    axes.stairs(part["share"], edges, color=INK, ls=dashes[name], lw=1.1, zorder=3)
        first, highest = panels[0], float(numbers["share"].max()) * 1.1
        first.set_yscale("function", functions=(lambda s: np.sqrt(np.maximum(s, 0)), np.square))
        ticks = [low, (low + high) / 2, high]
        first.set(xlim=(low, high), ylim=(0, min(1.0, highest)), xticks=ticks, xticklabels=[f"{t:.3g}" for t in ticks])
        first.set_yticks([share for share in SHARES if share <= highest])
        first.yaxis.set_major_formatter(PERCENT)
        ends_inside(panels)
        keys: list[Artist] = [Patch(facecolor=MUTED, alpha=0.45, label="test")]
        keys += [Line2D([], [], color=INK, lw=1.1, ls=dash, label=name) for name, dash in dashes.items()]
        size = 9 if narrow else 10
        place: dict[str, Any] = {"loc": "upper right", "bbox_to_anchor": (1, 1), "borderaxespad": 0, "frameon": False}
        style: dict[str, Any] = {"fontsize": size, "labelcolor": MUTED, "handlelength": 1.8, "columnspacing": 1.2}
        figure.legend(handles=keys, ncols=len(keys), **place, **style)
        return figure

    return Figure(
        "Uncertainty on OOD data",
        "Filled: test data. Lines: OOD data, on which a method should be uncertain. "
        "The less the two overlap, the better a threshold on uncertainty separates them.",
        numbers,
        draw,
        "Histograms of uncertainty on test data and OOD data, one panel a method.",
    )


def _rebinned(histogram: dict, edges: np.ndarray) -> list[float]:
    """A histogram's shares in bins that span it: seeds have bins of their own, which span their scores."""
    below = np.concatenate([[0.0], np.cumsum(np.asarray(histogram["share"], dtype=float))])
    return np.diff(np.interp(edges, np.asarray(histogram["edges"], dtype=float), below)).tolist()


def _span(low: float, high: float) -> tuple[float, float]:
    """Round ends of an axis that holds all scores; 0 and 1 where the scores take up most of that."""
    if low >= 0 and high <= 1 and high - low > 0.5:
        return 0.0, 1.0
    step = 10.0 ** np.floor(np.log10(max(high - low, 1e-6))) / 2
    return float(np.floor(low / step) * step), float(np.ceil(high / step) * step)


def _meaning(low: float, high: float) -> str:
    """What the horizontal axis is: numbers outside of 0 to 1 are no 1 - confidence, and must not be called so."""
    return "uncertainty: 1 - confidence" if low >= 0 and high <= 1 else "uncertainty score"
