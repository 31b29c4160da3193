"""A circle for each method, its area the number of parameters, with an error bar and its name beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from .labels import placed
from .palette import INK, MUTED, Look
from .panels import fitted, text_width

__all__ = ["Circle", "circle_radii", "draw_circles", "front", "spread"]

SMALLEST = 3  # CSS pixels: no radius is smaller
APART = 0.75  # of the sum of two radii: circles that are nearer sit on top of each other
PUSHES = 400
OPACITY = {"full": 0.5, "half": 0.2, "empty": 0.0}


@dataclass(frozen=True)
class Circle:
    """What is drawn of one method."""

    name: str
    x: float
    y: float
    radius: float  # CSS pixels
    look: Look
    error: float = math.nan  # of y
    bold: bool = False
    key: str | None = None  # makes point-KEY the id of the circle, and name-KEY that of its name
    true_x: float | None = None  # where it belongs, if it was moved aside: a dot marks the place


def circle_radii(areas: Sequence[float], largest: float) -> np.ndarray:
    """Radii of circles with areas in these proportions, the largest of them given.

    >>> circle_radii([1e6, 4e6], 30).tolist()
    [15.0, 30.0]
    """
    numbers = np.asarray(areas, dtype=float)
    return np.maximum(largest * np.sqrt(numbers / numbers.max()), SMALLEST)


def front(cost: Sequence[float], quality: Sequence[float], better: str) -> list[int]:
    """The Pareto front: no other point costs no more and is no worse, and is better in one of both.

    >>> front([1, 2, 3, 2], [0.90, 0.95, 0.93, 0.95], "higher")
    [0, 1, 3]
    """
    sign = 1 if better == "higher" else -1
    points = [(c, -sign * q) for c, q in zip(cost, quality, strict=True)]
    best = [i for i, p in enumerate(points) if not any(o[0] <= p[0] and o[1] <= p[1] and o != p for o in points)]
    return sorted(best, key=lambda i: (points[i], i))


def spread(circles: np.ndarray, left: float, right: float) -> np.ndarray:
    """Horizontal places at which no circle sits on top of another: those that would are pushed aside.

    **Shape**: circles ``[n, 3]`` (x, y, radius) in pixels; the result ``[n]``.

    >>> spread(np.array([[50.0, 20.0, 8.0], [50.0, 20.0, 8.0], [90.0, 20.0, 8.0]]), 0, 200).tolist()
    [44.0, 56.0, 90.0]
    """
    x, y, radius = circles[:, 0].copy(), circles[:, 1], circles[:, 2]
    needed = APART * (radius[:, None] + radius[None])
    gaps = np.sqrt(np.maximum(needed**2 - (y[:, None] - y[None]) ** 2, 0)) * (1 - np.eye(len(x)))
    rank = np.lexsort((y, x)).argsort()
    order = np.sign(np.subtract.outer(rank, rank))
    for _ in range(PUSHES):
        lacking = np.where(gaps > 0, np.maximum(gaps - order * np.subtract.outer(x, x), 0), 0)
        if lacking.max(initial=0) < 0.1:
            break
        x = np.clip(x + 0.5 * (order * lacking).sum(1) / np.maximum((lacking > 0).sum(1), 1), left, right)
    return np.round(x, 1)


def draw_circles(
    axes: Axes,
    circles: Sequence[Circle],
    *,
    size: float = 11,
    longest: float = 190,
    above: float = 0,
    obstacles: Sequence[Sequence[float]] = (),
) -> None:
    """Draw circles and error bars, and names where they cover neither each other nor anything else.

    Limits and scales of the axes must be set before.

    Args:
        size: of the names.
        longest: CSS pixels; longer names are shortened.
        above: CSS pixels over the axes that names may use.
        obstacles: boxes (left, bottom, right, top) in pixels that names should not cover.
    """
    middles = axes.transData.transform([(c.x, c.y) for c in circles])
    boxes = [*obstacles]
    for i in sorted(range(len(circles)), key=lambda i: -circles[i].radius):  # the small ones on top of the large ones
        circle, colour = circles[i], circles[i].look.colour
        if circle.error > 0:
            axes.errorbar(circle.x, circle.y, circle.error, color=colour, elinewidth=1.4, capsize=3, zorder=2)
            ends = [(circle.x, circle.y + sign * circle.error) for sign in (-1, 1)]
            low, high = axes.transData.transform(ends)[:, 1]
            boxes.append((middles[i][0] - 3, low, middles[i][0] + 3, high))
        axes.scatter(
            [circle.x],
            [circle.y],
            s=(2 * circle.radius) ** 2,
            facecolor=to_rgba(colour, OPACITY[circle.look.fill]),
            edgecolor=colour,
            linewidth=1.8,
            zorder=4 - circle.radius / 100,
            gid=None if circle.key is None else f"point-{circle.key}",
        )
        if circle.true_x is not None:
            axes.plot([circle.true_x, circle.x], [circle.y] * 2, color=colour, lw=0.8, zorder=4.5)
            axes.plot(circle.true_x, circle.y, "o", color=colour, ms=3.5, zorder=4.6)
    weights = ["bold" if c.bold else "normal" for c in circles]
    names = [fitted(c.name, longest, size, w) for c, w in zip(circles, weights, strict=True)]
    sizes = np.array([(text_width(n, size, w) + 3, size + 3) for n, w in zip(names, weights, strict=True)])
    (left, bottom), (right, top) = axes.transAxes.transform([(0, 0), (1, 1)])
    discs = np.column_stack([middles, [c.radius for c in circles]])
    bounds = (left + 3, bottom + 3, right - 1, top - 1 + above)
    places = placed(discs, sizes, bounds, np.array(boxes).reshape(-1, 4))
    for circle, name, weight, place in zip(circles, names, weights, places, strict=True):
        x, y = axes.transAxes.inverted().transform(place.middle)
        text = axes.text(x, y, name, transform=axes.transAxes, size=size, weight=weight, color=INK, zorder=6)
        text.set(ha="center", va="center_baseline", gid=None if circle.key is None else f"name-{circle.key}")
        if place.leader:
            line = axes.transAxes.inverted().transform(place.leader)
            axes.plot(line[:, 0], line[:, 1], transform=axes.transAxes, color=MUTED, lw=0.7, zorder=5)
