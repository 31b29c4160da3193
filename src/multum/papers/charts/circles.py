"""Accuracy against images per second, a circle a method, its area the parameters (Packed-Ensembles, Figure 1)."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from ...figures.circles import Circle, circle_radii, draw_circles
from ...figures.formats import count
from ...figures.palette import MUTED, drawing, look
from ...figures.panels import canvas
from ...figures.scales import PERCENT, ROUND, log_axis
from .panels import WIDTH

__all__ = ["circles_chart"]

HEIGHT, LARGEST = 430, 34  # CSS pixels: of the drawing, and the largest circle's radius
LEFT, RIGHT, BELOW, ABOVE = 58, 16, 46, 44


@drawing()
def circles_chart(numbers: pd.DataFrame) -> Drawing:
    """A circle a row, at its accuracy and its images per second, as large as its parameters."""
    figure = canvas(WIDTH, HEIGHT)
    inside = WIDTH - LEFT - RIGHT, HEIGHT - BELOW - ABOVE
    axes = figure.add_axes((LEFT / WIDTH, BELOW / HEIGHT, inside[0] / WIDTH, inside[1] / HEIGHT))
    radii = circle_radii(numbers["params"], LARGEST)
    _limits(axes, numbers, inside)
    columns = (numbers[name] for name in ("row", "images per second", "accuracy", "accuracy error"))
    drawn = [
        Circle(name, x, y, radius, look(i), error)
        for i, (radius, name, x, y, error) in enumerate(zip(radii, *columns, strict=True))
    ]
    draw_circles(axes, drawn, above=15)
    figure.text(6 / WIDTH, 1 - 10 / HEIGHT, "accuracy", size=11, color=MUTED, va="center")
    middle = (LEFT + inside[0] / 2) / WIDTH
    figure.text(middle, 5 / HEIGHT, "images per second, log scale", size=11, color=MUTED, ha="center")
    most = numbers["params"].max()
    words = f"the largest circle: {count(most)} parameters"
    figure.text(1 - 8 / WIDTH, 1 - 10 / HEIGHT, words, size=10, color=MUTED, ha="right", va="center")
    return figure


def _limits(axes: Axes, numbers: pd.DataFrame, inside: tuple[float, float]) -> None:
    """Room for the largest circle, and for names."""
    low, high = numbers["images per second"].min(), numbers["images per second"].max()
    room = LARGEST + 24
    spread = max(high / low, 2.0) ** (room / (inside[0] - 2 * room))
    log_axis(axes, "x", low / spread, high * spread, lambda rate: f"{rate:,.0f}")
    error = numbers["accuracy error"].fillna(0)
    low, high = (numbers["accuracy"] - error).min(), (numbers["accuracy"] + error).max()
    margin = max(high - low, 0.004) * room / (inside[1] - 2 * room)
    axes.set_ylim(low - margin, high + margin)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=ROUND))
    axes.yaxis.set_major_formatter(PERCENT)
