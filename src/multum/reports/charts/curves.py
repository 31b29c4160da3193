"""Curves of each method: one panel a method, its own curve in its colour, those of the others in grey behind it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from ...figures.figure import Figure
from ...figures.palette import CONTEXT, MUTED
from ...figures.panels import multiples
from ...figures.scales import PERCENT, ROUND, ends_inside, log_axis
from ..view import Method, View, over_seeds

__all__ = ["quantiles", "reliability", "risk_coverage", "severity", "training"]

FEW = 0.01  # a bin with a smaller share of the items is drawn pale
BEHIND = 25  # points of a grey curve are enough


def reliability(view: View) -> Figure | None:
    """Accuracy against confidence."""
    methods = view.having("reliability")
    if not methods:
        return None
    numbers = pd.concat([_pooled_bins(view, method) for method in methods], ignore_index=True)

    def draw(width: float) -> Drawing:
        figure, panels = _panels(view, methods, "ece", width, "confidence", "share of right predictions", ratio=0.9)
        for axes, method, own in zip(panels, methods, _each(numbers, methods), strict=True):
            own = own.dropna(subset=["accuracy"])
            many, few = own[own["weight"] >= FEW], own[own["weight"] < FEW]
            x, y, colour = many["confidence"], many["accuracy"], method.look.colour
            _diagonal(axes)
            axes.fill_between(x, x, y, color=colour, alpha=0.18, lw=0)
            axes.plot(x, y, color=colour, lw=1.5)
            axes.scatter(x, y, s=12 + 150 * many["weight"], color=colour, lw=0, zorder=3, clip_on=False)
            axes.scatter(few["confidence"], few["accuracy"], s=12, color=colour, alpha=0.35, lw=0, clip_on=False)
        _square(panels)
        return figure

    return Figure(
        "reliability",
        "Reliability",
        "On the dotted line a method is right as often as it says; below it, it is too sure of itself. "
        "A dot's area is its share of the test items; pale dots, with less than 1 % of them, say little.",
        numbers,
        draw,
        "Reliability diagrams, one panel a method.",
    )


def quantiles(view: View) -> Figure | None:
    """Observed against expected share of targets below each quantile."""
    methods = view.having("quantiles")
    if not methods:
        return None
    rows = [
        {"method": m.label, "expected": expected, "observed": observed}
        for m in methods
        for curve in view.curves(m, "quantiles")
        for expected, observed in zip(curve["expected"], curve["observed"], strict=True)
    ]
    numbers = over_seeds(rows, ["method", "expected"], "observed")

    def draw(width: float) -> Drawing:
        x, y = "predicted quantile", "share of targets below it"
        key = next((k for k in ("quantile_error", "coverage_95", "coverage") if k in view.columns), "")
        figure, panels = _panels(view, methods, key, width, x, y, ratio=0.9)
        for axes, method in zip(panels, methods, strict=True):
            _diagonal(axes)
            _lines(axes, numbers, methods, method, "expected", "observed")
        _square(panels)
        return figure

    return Figure(
        "quantiles",
        "Quantile calibration",
        "On the dotted line a predicted quantile holds what it says: below it fall as many targets as should. "
        "A curve flatter than the line is too sure of itself, a steeper one too cautious.",
        numbers,
        draw,
        "Quantile calibration, one panel a method.",
    )


def risk_coverage(view: View) -> Figure | None:
    """Errors among the answered items, against the share that is answered."""
    methods = view.having("risk_coverage")
    if not methods:
        return None
    rows = []
    for method in methods:
        curves = view.curves(method, "risk_coverage")
        grid = np.asarray(curves[0]["coverage"], dtype=float)
        for curve in curves:
            risk = np.interp(grid, curve["coverage"], curve["risk"])
            rows += [
                {"method": method.label, "coverage": c, "risk": r}
                for c, r in zip(grid.tolist(), risk.tolist(), strict=True)
            ]
    numbers = over_seeds(rows, ["method", "coverage"], "risk")

    def draw(width: float) -> Drawing:
        x, y = "coverage: share of items answered, the surest first", "risk: share of wrong answers among them"
        figure, panels = _panels(view, methods, "aurc", width, x, y)
        for axes, method in zip(panels, methods, strict=True):
            _lines(axes, numbers, methods, method, "coverage", "risk")
        first = panels[0]
        first.set_xlim(0, 1)
        # The first few answers make a risk of 0 or 1 of little meaning, which must not set the scale.
        later = numbers[numbers["coverage"] >= 0.05]["risk"]
        first.set_ylim(0, max(float(later.max() if len(later) else numbers["risk"].max()) * 1.08, 1e-3))
        first.set_xticks([0, 0.5, 1])
        first.xaxis.set_major_formatter(PERCENT)
        first.yaxis.set_major_formatter(PERCENT)
        first.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        ends_inside(panels)
        return figure

    return Figure(
        "risk-coverage",
        "Risk against coverage",
        "A method that may decline the items it is least sure of makes fewer errors on the rest: "
        "the lower the curve the better, at its right end all items are answered.",
        numbers,
        draw,
        "Risk-coverage curves, one panel a method, the others in grey.",
    )


def severity(view: View) -> Figure | None:
    """Accuracy by the severity of a corruption."""
    methods = view.having("severity")
    if not methods:
        return None
    rows = [
        {"method": m.label, "severity": int(level), "accuracy": accuracy}
        for m in methods
        for curve in view.curves(m, "severity")
        for level, accuracy in curve.items()
    ]
    numbers = over_seeds(rows, ["method", "severity"], "accuracy")

    def draw(width: float) -> Drawing:
        figure, panels = _panels(
            view, methods, "cacc", width, "severity of the corruption (0: none)", "accuracy", name="mean"
        )
        for axes, method in zip(panels, methods, strict=True):
            _lines(axes, numbers, methods, method, "severity", "accuracy", marker="o")
        panels[0].set_xticks(sorted(numbers["severity"].unique()))
        panels[0].yaxis.set_major_formatter(PERCENT)
        panels[0].yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        return figure

    return Figure(
        "shift",
        "Accuracy under shift",
        "The flatter a curve, the less a method suffers from corrupted inputs; "
        "mean over corruptions, the band is one standard error over seeds.",
        numbers,
        draw,
        "Accuracy by severity of corruption, one panel a method, the others in grey.",
    )


def training(view: View) -> Figure | None:
    """The loss of each epoch."""
    methods = [
        m for m in view.having("training") if any("loss" in row for c in view.curves(m, "training") for row in c)
    ]
    if not methods:
        return None
    rows = [
        {"method": m.label, "epoch": row["epoch"], "loss": row["loss"]}
        for m in methods
        for curve in view.curves(m, "training")
        for row in curve
        if row.get("loss") is not None
    ]
    numbers = over_seeds(rows, ["method", "epoch"], "loss")
    low, high = float(numbers["loss"].min()), float(numbers["loss"].max())
    by_factors = low > 0 and high / low > 5

    def draw(width: float) -> Drawing:
        y = "training loss" + (", log scale" if by_factors else "")
        figure, panels = _panels(view, methods, "train_seconds", width, "epoch", y)
        marker = "o" if numbers["epoch"].nunique() == 1 else ""
        for axes, method in zip(panels, methods, strict=True):
            _lines(axes, numbers, methods, method, "epoch", "loss", marker=marker)
        first = panels[0]
        if by_factors:
            log_axis(first, "y", low / 1.15, high * 1.15)
        first.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=ROUND))
        return figure

    return Figure(
        "training",
        "Training",
        "The loss that each method trains on, epoch by epoch; losses of different methods need not mean the same.",
        numbers,
        draw,
        "Training loss by epoch, one panel a method, the others in grey.",
    )


def _pooled_bins(view: View, method: Method) -> pd.DataFrame:
    """The bins of all seeds together: each bin's items count alike, whichever seed they come from."""
    curves = view.curves(method, "reliability")
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
            "method": method.label,
            "from": edges[:-1],
            "to": edges[1:],
            "confidence": pooled[0],
            "accuracy": pooled[1],
            "error": pd.DataFrame(accuracy).sem().to_numpy(),
            "weight": total / len(curves),
        }
    )


def _panels(
    view: View, methods: Sequence[Method], key: str, width: float, x: str, y: str, ratio: float = 0.78, name: str = ""
) -> tuple[Drawing, list[Axes]]:
    notes = [view.number(method, key, name) for method in methods]
    return multiples([method.label for method in methods], notes, width, x=x, y=y, ratio=ratio)


def _each(numbers: pd.DataFrame, methods: Sequence[Method]) -> list[pd.DataFrame]:
    return [numbers[numbers["method"] == method.label] for method in methods]


def _lines(
    axes: Axes, numbers: pd.DataFrame, methods: Sequence[Method], method: Method, x: str, y: str, marker: str = ""
) -> None:
    """One method's curve with a band of one standard error, and those of the others behind it."""
    others = [
        frame.iloc[np.unique(np.linspace(0, len(frame) - 1, min(BEHIND, len(frame))).round().astype(int))][[x, y]]
        for other, frame in zip(methods, _each(numbers, methods), strict=True)
        if other is not method
    ]
    axes.add_collection(LineCollection([o.to_numpy() for o in others], colors=CONTEXT, lw=0.8, zorder=1), autolim=False)
    own = numbers[numbers["method"] == method.label]
    error = own["error"].fillna(0)
    if error.any():
        axes.fill_between(own[x], own[y] - error, own[y] + error, color=method.look.colour, alpha=0.22, lw=0, zorder=2)
    axes.plot(own[x], own[y], color=method.look.colour, marker=marker, ms=4, zorder=3)


def _diagonal(axes: Axes) -> None:
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls=(0, (1, 2)), zorder=1)


def _square(panels: Sequence[Axes]) -> None:
    first = panels[0]
    first.set(xlim=(0, 1), ylim=(0, 1), xticks=[0, 0.5, 1], yticks=[0, 0.25, 0.5, 0.75, 1])
    first.xaxis.set_major_formatter(PERCENT)
    first.yaxis.set_major_formatter(PERCENT)
    ends_inside(panels)
