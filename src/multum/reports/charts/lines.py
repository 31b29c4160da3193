"""One panel a method: its own line in its colour, those of the others in grey behind it; and reliability diagrams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from ...figures.figure import Figure
from ...figures.palette import CONTEXT
from ...figures.panels import PERCENT, ROUND, ends_inside, log_axis, multiples, unit_square
from ..view import Row, View, over_seeds

BEHIND = 25  # points of a grey line are enough
FEW = 0.01  # a bin with a smaller share of the examples is drawn pale

Points = Iterable[tuple[float, float]]


def quantiles(view: View) -> Figure | None:
    """Observed against expected share of targets below each quantile."""
    return _lines(
        view,
        "quantiles",
        ("expected", "observed"),
        lambda curves: [pair for c in curves for pair in zip(c["expected"], c["observed"], strict=True)],
        lambda panels, _: unit_square(panels),
        title="Quantile calibration",
        caption="On the dotted line a predicted quantile is right: the expected share of targets lies below it. "
        "A curve flatter than the line is overconfident, a steeper one underconfident.",
        axes=("predicted quantile", "share of targets below it"),
        note=next((key for key in ("quantile_error", "coverage_95", "coverage") if key in view.columns), ""),
        ratio=0.9,
    )


def risk_coverage(view: View) -> Figure | None:
    """The share of errors among the answered examples, against the share that is answered."""

    def points(curves: list[Any]) -> Points:
        grid = np.asarray(curves[0]["coverage"], dtype=float)
        for curve in curves:
            yield from zip(grid.tolist(), np.interp(grid, curve["coverage"], curve["risk"]).tolist(), strict=True)

    def finish(panels: Sequence[Axes], numbers: pd.DataFrame) -> None:
        # The first few answers make a risk of 0 or 1 of little meaning, which must not set the scale.
        later = numbers[numbers["coverage"] >= 0.05]["risk"]
        highest = float(later.max() if len(later) else numbers["risk"].max())
        panels[0].set(xlim=(0, 1), ylim=(0, max(highest * 1.08, 1e-3)), xticks=[0, 0.5, 1])
        panels[0].xaxis.set_major_formatter(PERCENT)
        _percent_axis(panels[0])
        ends_inside(panels)

    return _lines(
        view,
        "risk_coverage",
        ("coverage", "risk"),
        points,
        finish,
        title="Risk against coverage",
        caption="A method that may abstain on the examples it is least confident about makes fewer errors on the rest: "
        "the lower the curve the better. At its right end all examples are answered.",
        axes=("coverage: share of examples answered, most confident first", "risk: share of errors among them"),
        note="aurc",
    )


def severity(view: View) -> Figure | None:
    """Accuracy by the severity of a corruption."""

    def finish(panels: Sequence[Axes], numbers: pd.DataFrame) -> None:
        panels[0].set_xticks(sorted(numbers["severity"].unique()))
        _percent_axis(panels[0])

    return _lines(
        view,
        "severity",
        ("severity", "accuracy"),
        lambda curves: [(int(level), accuracy) for curve in curves for level, accuracy in curve.items()],
        finish,
        title="Accuracy under distribution shift",
        caption="The flatter a curve, the more robust the method is to corrupted inputs. Mean over corruptions; "
        "the band is one standard error over seeds.",
        axes=("severity of the corruption (0: none)", "accuracy"),
        note="cacc",
        note_title="mean",
        marker="o",
    )


def training(view: View) -> Figure | None:
    """The loss of each epoch."""

    def points(curves: list[Any]) -> Points:
        return [(e["epoch"], e["loss"]) for curve in curves for e in curve if e.get("loss") is not None]

    losses = [loss for row in view.having("training") for _, loss in points(view.curves(row, "training"))]
    low, high = min(losses, default=0), max(losses, default=0)
    by_factors = low > 0 and high / low > 5

    def finish(panels: Sequence[Axes], numbers: pd.DataFrame) -> None:
        if by_factors:
            log_axis(panels[0], "y", numbers["loss"].min() / 1.15, numbers["loss"].max() * 1.15)
        panels[0].xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=ROUND))

    return _lines(
        view,
        "training",
        ("epoch", "loss"),
        points,
        finish,
        title="Training",
        caption="The training loss by epoch. Methods train on different losses, so levels need not be comparable.",
        axes=("epoch", "training loss" + (", log scale" if by_factors else "")),
        note="train_seconds",
    )


def _lines(
    view: View,
    kind: str,
    names: tuple[str, str],
    points: Callable[[list[Any]], Points],
    finish: Callable[[Sequence[Axes], pd.DataFrame], None],
    *,
    title: str,
    caption: str,
    axes: tuple[str, str],
    note: str,
    note_title: str = "",
    ratio: float = 0.78,
    marker: str = "",
) -> Figure | None:
    """Lines of every method that has such curves, mean over seeds with a band of one standard error.

    Args:
        kind: of the curves in the document.
        names: of x and y in the figure's frame.
        points: x and y of a method, from its curves of all seeds.
        finish: sets limits and ticks; the panels share them.
        axes: what is written at the axes.
        note: the column whose number is written over each panel.
        note_title: its name there, where it is not the column's title.
    """
    x, y = names
    pairs = {row: [*points(view.curves(row, kind))] for row in view.having(kind)}
    rows = [row for row, its_points in pairs.items() if its_points]
    if not rows:
        return None
    numbers = over_seeds([{"method": row.label, x: at, y: value} for row in rows for at, value in pairs[row]], names)

    def draw(width: float) -> Drawing:
        notes = [view.number(row, note, note_title) for row in rows]
        figure, panels = multiples([r.label for r in rows], notes, width, x=axes[0], y=axes[1], ratio=ratio)
        frames = dict(iter(numbers.groupby("method", sort=False)))
        for panel, row in zip(panels, rows, strict=True):
            others = [_thinned(frame)[[x, y]].to_numpy() for label, frame in frames.items() if label != row.label]
            panel.add_collection(LineCollection(others, colors=CONTEXT, lw=0.8, zorder=1), autolim=False)
            _line(panel, row, frames[row.label], names, marker or ("o" if numbers[x].nunique() == 1 else ""))
        finish(panels, numbers)
        return figure

    return Figure(title, caption, numbers, draw, f"{title}: {axes[1]} by {axes[0]}, one panel a method.")


def _line(axes: Axes, row: Row, frame: pd.DataFrame, names: tuple[str, str], marker: str) -> None:
    x, y, error, colour = frame[names[0]], frame[names[1]], frame["error"].fillna(0), row.look.colour
    if error.any():
        axes.fill_between(x, y - error, y + error, color=colour, alpha=0.22, lw=0, zorder=2)
    axes.plot(x, y, color=colour, marker=marker, ms=4, zorder=3)


def _thinned(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.iloc[np.unique(np.linspace(0, len(frame) - 1, min(BEHIND, len(frame))).round().astype(int))]


def _percent_axis(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(PERCENT)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))


def reliability(view: View) -> Figure | None:
    """Accuracy against confidence, with each bin's share of the examples."""
    rows = view.having("reliability")
    if not rows:
        return None
    numbers = pd.concat([_pooled_bins(view, row) for row in rows], ignore_index=True)

    def draw(width: float) -> Drawing:
        notes = [view.number(row, "ece") for row in rows]
        figure, panels = multiples([r.label for r in rows], notes, width, x="confidence", y="accuracy", ratio=0.9)
        for axes, row in zip(panels, rows, strict=True):
            bins = numbers[numbers["method"] == row.label].dropna(subset=["accuracy"])
            many, few = bins[bins["weight"] >= FEW], bins[bins["weight"] < FEW]
            x, y, colour = many["confidence"], many["accuracy"], row.look.colour
            axes.fill_between(x, x, y, color=colour, alpha=0.18, lw=0)
            axes.plot(x, y, color=colour, lw=1.5)
            axes.scatter(x, y, s=12 + 150 * many["weight"], color=colour, lw=0, zorder=3, clip_on=False)
            axes.scatter(few["confidence"], few["accuracy"], s=12, color=colour, alpha=0.35, lw=0, clip_on=False)
        unit_square(panels)
        return figure

    return Figure(
        "Reliability",
        "On the dotted line confidence equals accuracy; below it a method is overconfident. "
        "A dot's area is its share of the test examples; pale dots hold less than 1 % of them and say little.",
        numbers,
        draw,
        "Reliability diagrams: accuracy by confidence, one panel a method.",
    )


def _pooled_bins(view: View, row: Row) -> pd.DataFrame:
    """The bins of all seeds together: each bin's examples count alike, whichever seed they come from."""
    curves = view.curves(row, "reliability")
    edges = np.asarray(curves[0]["edges"], dtype=float)
    weight, confidence, accuracy = (
        np.array([curve[part] for curve in curves], dtype=float) for part in ("weight", "confidence", "accuracy")
    )
    total = weight.sum(0)
    with np.errstate(invalid="ignore"):
        pooled = [
            np.where(total > 0, np.nansum(weight * part, axis=0) / total, np.nan) for part in (confidence, accuracy)
        ]
    return pd.DataFrame(
        {
            "method": row.label,
            "from": edges[:-1],
            "to": edges[1:],
            "confidence": pooled[0],
            "accuracy": pooled[1],
            "error": pd.DataFrame(accuracy).sem().to_numpy(),
            "weight": total / len(curves),
        }
    )
