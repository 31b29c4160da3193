"""Forests: a dot a line with its interval, against 0. Orderings of an item, and regressions of two methods."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ...figures.palette import CONTEXT, HUES, INK, MUTED, PAPER, drawing
from ...figures.panels import canvas, fitted, text_width
from ...figures.scales import PERCENT, ROUND
from ...metrics.statistics import over_seeds
from ..results import LOWER, VERDICTS, Ordering, Picture, Result
from ..trained import Trained
from .curves import WIDTH

__all__ = ["MOST", "ordering_chart", "regressions"]

MOST = 24  # lines that one figure takes
LINE, HEAD, FOOT = 21, 26, 26  # CSS pixels: a line, the title of a panel, its ticks
COLOURS = {"holds": HUES[2], "open": MUTED, "reversed": HUES[3], "one seed": MUTED}


@dataclass(frozen=True)
class Mark:
    """One line: a value with its interval, and perhaps the paper's value."""

    label: str
    value: float
    low: float | None
    high: float | None
    colour: str
    filled: bool = True
    paper: float | None = None


@dataclass(frozen=True)
class Grove:
    """Lines on one axis."""

    title: str
    marks: Sequence[Mark]
    share: bool = False


def ordering_chart(result: Result) -> Picture | None:
    """Our differences where the paper's numbers have an order, coloured by whether it holds; None without any."""
    shown = _spread(result.orderings)
    if not shown:
        return None
    groves = []
    for column, own in _by_column(shown).items():
        marks = []
        for o in own:
            sign = -1.0 if o.column.startswith(LOWER) else 1.0
            ends = sorted(sign * end for end in (o.low, o.high) if end is not None)
            low, high = ends if len(ends) == 2 else (None, None)
            single = o.verdict == "one seed"
            label = f"{o.better} over {o.worse}"
            marks.append(Mark(label, sign * o.ours, low, high, COLOURS[o.verdict], filled=not single))
        groves.append(Grove(column, marks))
    verdicts = [verdict for verdict in VERDICTS if any(o.verdict == verdict for o in shown)]
    handles = [_handle(verdict, COLOURS[verdict], verdict != "one seed") for verdict in verdicts]
    caption = (
        "Each line is a pair of which the paper says that the first is better: our difference, paired by seed, with "
        "its 95 % interval, drawn so that right of the line at 0 is the paper's order, and left of it the other."
    )
    if len(shown) < len(result.orderings):
        caption += f" Shown are {len(shown)} of {len(result.orderings)} pairs: those farthest apart in the paper."
    numbers = pd.DataFrame(
        {
            **{name: [getattr(o, name) for o in shown] for name in ("column", "better", "worse")},
            **{name: pd.Series([getattr(o, name) for o in shown], dtype=float) for name in ORDERED},
            "verdict": [o.verdict for o in shown],
        }
    )
    title = (
        f"Orderings of the paper: {sum(o.verdict == 'holds' for o in result.orderings)} of {len(result.orderings)} hold"
    )
    return Picture(title, caption, _forest(groves, handles), numbers)


ORDERED = ("paper", "ours", "low", "high")


def regressions(trained: Trained) -> dict[str, Picture]:
    """Packed-Ensembles against Deep Ensembles, data set by data set, over the same splits."""
    lines = []
    for measure in ("rmse", "nll"):
        for name in dict.fromkeys(row.label.partition(", ")[2] for row in trained.run.rows):
            lines += _difference(trained, name, measure)
    if not lines:
        return {}
    numbers = pd.DataFrame(lines)
    numbers = numbers.astype(dict.fromkeys(["difference", "low", "high", "paper"], float))
    titles = {"rmse": "RMSE: (PE - DE) / DE", "nll": "negative log likelihood: PE - DE"}
    groves = []
    for measure, own in numbers.groupby("measure", sort=False):
        marks = []
        for line in own.itertuples():
            high = line.high if math.isfinite(line.high) else None
            low = line.low if math.isfinite(line.low) else None
            paper = line.paper if math.isfinite(line.paper) else None
            marks.append(Mark(str(line.data), line.difference, low, high, HUES[0], paper=paper))
        groves.append(Grove(titles[str(measure)], marks, share=measure == "rmse"))
    handles = [_handle("ours, 95 % over splits", HUES[0], True), _handle("the paper's", HUES[1], False, "D")]
    caption = (
        "Left of the line Packed-Ensembles (PE) are better, right of it Deep Ensembles (DE). A dot is the mean over "
        "splits of the data, its bar the 95 % interval of the paired difference; a bar across the line: no difference."
    )
    title = "Packed-Ensembles against Deep Ensembles on regressions"
    return {"": Picture(title, caption, _forest(groves, handles), numbers)}


def _difference(trained: Trained, name: str, measure: str) -> list[dict[str, Any]]:
    """PE minus DE over the splits that both have, as one line of numbers; an RMSE's over DE's mean."""
    rows = {method: f"{method}, {name}" for method in ("PE", "DE")}
    if not all(row in trained.results for row in rows.values()):
        return []
    found = {m: trained.values(row, lambda r: r["numbers"].get(measure)) for m, row in rows.items()}
    splits = sorted(found["PE"].keys() & found["DE"].keys())
    if not splits:
        return []
    means = {m: sum(values[s] for s in splits) / len(splits) for m, values in found.items()}
    unit = means["DE"] if measure == "rmse" else 1.0
    seeds = over_seeds([(found["PE"][s] - found["DE"][s]) / unit for s in splits])
    low, high = seeds.interval()
    printed = [trained.run.printed.get(row, {}).get(measure.upper()) for row in rows.values()]
    paper = None
    if printed[0] is not None and printed[1] is not None:
        paper = printed[0].value - printed[1].value
        paper /= printed[1].value if measure == "rmse" else 1.0
    line = {"data": name, "measure": measure, **means, "difference": seeds.mean, "low": low, "high": high}
    return [{**line, "splits": len(splits), "paper": paper}]


def _spread(orderings: Sequence[Ordering]) -> list[Ordering]:
    """So many as fit, each column in its turn: what is said in words, then the farthest apart; in their order."""

    def apart(o: Ordering) -> float:
        return math.inf if o.paper is None else abs(o.paper)

    ranked = [sorted(own, key=apart, reverse=True) for own in _by_column(orderings).values()]
    kept = [o for turn in itertools.zip_longest(*ranked) for o in turn if o is not None][:MOST]
    return [o for o in orderings if any(o is other for other in kept)]


def _by_column(orderings: Sequence[Ordering]) -> dict[str, list[Ordering]]:
    found: dict[str, list[Ordering]] = {}
    for o in orderings:
        found.setdefault(o.column, []).append(o)
    return found


def _handle(label: str, colour: str, filled: bool, marker: str = "o") -> Line2D:
    style: dict[str, Any] = {"color": colour, "mfc": colour if filled else PAPER, "ms": 7, "mew": 1.4, "ls": "none"}
    return Line2D([], [], marker=marker, label=label, **style)


def _forest(groves: Sequence[Grove], handles: Sequence[Line2D]) -> Drawing:
    """Panels one above the other, each with its own axis."""
    with drawing():
        words = [mark.label for grove in groves for mark in grove.marks]
        left = min(max(text_width(word, 10) for word in words), 0.52 * WIDTH) + 12
        height = sum(HEAD + FOOT + LINE * len(grove.marks) for grove in groves) + 26
        figure = canvas(WIDTH, height)
        top = float(height)
        for grove in groves:
            high = LINE * len(grove.marks)
            top -= HEAD + high
            axes = figure.add_axes((left / WIDTH, top / height, (WIDTH - left - 16) / WIDTH, high / height))
            for y, mark in enumerate(grove.marks):
                if mark.low is not None and mark.high is not None:
                    axes.plot([mark.low, mark.high], [y, y], color=mark.colour, lw=2, zorder=2)
                axes.plot(
                    mark.value, y, "o", color=mark.colour, mfc=mark.colour if mark.filled else PAPER, ms=7, zorder=3
                )
                if mark.paper is not None:
                    axes.plot(mark.paper, y, "D", color=HUES[1], mfc=PAPER, ms=6, mew=1.4, zorder=2.5)
            axes.axvline(0, color=MUTED, lw=1, zorder=1)
            axes.set_ylim(len(grove.marks) - 0.4, -0.6)
            names = [fitted(mark.label, left - 12, 10) for mark in grove.marks]
            axes.set_yticks(range(len(names)), names)
            axes.tick_params("y", labelcolor=INK)
            axes.grid(axis="y", visible=False)
            axes.spines["left"].set_visible(False)
            axes.spines["bottom"].set_color(CONTEXT)
            axes.margins(x=0.06)
            axes.xaxis.set_major_locator(MaxNLocator(7, steps=ROUND))
            if grove.share:
                axes.xaxis.set_major_formatter(PERCENT)
            axes.set_title(grove.title, loc="left", color=INK, size=11, weight="bold", pad=7)
            top -= FOOT
        place: dict[str, Any] = {"loc": "lower center", "ncols": len(handles), "frameon": False, "labelcolor": MUTED}
        figure.legend(handles=list(handles), borderaxespad=0.1, **place)
    return figure
