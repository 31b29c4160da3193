"""A circle for each method, its area the parameters, with an error bar and its name where it covers nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from .palette import INK, MUTED, Look
from .panels import fitted, text_width

SMALLEST = 3  # CSS pixels: no radius is smaller
APART = 0.75  # of the sum of two radii: circles that are nearer sit on top of each other
PUSHES = 400
OPACITY = {"full": 0.5, "half": 0.2, "empty": 0.0}
# Where names are tried, around their circle; how often all are placed anew.
DIRECTIONS = np.arange(20) * 2 * np.pi / 20
DISTANCES = np.array([2.0, 8.0, 16.0, 26.0, 40.0, 56.0, 74.0, 94.0, 116.0])
SWEEPS = 8


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


@dataclass(frozen=True)
class Place:
    """The middle of a name, and the ends of a line to it where it is not beside its circle."""

    middle: tuple[float, float]
    leader: tuple[tuple[float, float], tuple[float, float]] | None


def placed(
    circles: np.ndarray, sizes: np.ndarray, bounds: Sequence[float], obstacles: np.ndarray | None = None
) -> list[Place]:
    """A place for each circle's name.

    Every name has the same candidates around its circle. Names take their cheapest one in turn, the most crowded
    circle first, and then again with all others in place, until nothing moves.

    **Shape**: circles ``[n, 3]`` (x, y, radius), sizes ``[n, 2]`` (width, height), bounds (left, bottom, right, top),
    obstacles ``[k, 4]`` boxes that names should not cover; all in pixels.

    >>> close = np.array([[50.0, 50.0, 5.0], [50.0, 52.0, 5.0]])
    >>> a, b = placed(close, np.array([[40.0, 10.0], [40.0, 10.0]]), (0, 0, 200, 100))
    >>> abs(a.middle[0] - b.middle[0]) >= 40 or abs(a.middle[1] - b.middle[1]) >= 10
    True
    """
    n = len(circles)
    obstacles = np.zeros((0, 4)) if obstacles is None else obstacles
    boxes, own = zip(*(_candidates(circles[i], sizes[i], circles, bounds, obstacles) for i in range(n)), strict=True)
    gaps = np.linalg.norm(circles[:, None, :2] - circles[None, :, :2], axis=-1) + 1e9 * np.eye(n)
    order = np.argsort(np.sort(gaps, axis=1)[:, : min(3, n)].mean(1), kind="stable")
    chosen: dict[int, int] = {}
    for _ in range(SWEEPS):
        before = dict(chosen)
        for i in order:
            cost, ends = own[i].copy(), _leaders(circles[i], boxes[i])
            for j, pick in chosen.items():
                if j != i:
                    cost += 12 * _overlap(boxes[i], boxes[j][pick][None], margin=2.0)[:, 0]
                    theirs = _leaders(circles[j], boxes[j][pick][None])
                    cost += 90 * _cross(ends, theirs)
                    cost += 60 * (_through(ends, boxes[j][pick][None])[:, 0] + _through(theirs, boxes[i])[0])
            chosen[int(i)] = int(cost.argmin())
        if chosen == before:
            break
    return [_place(circles[i], boxes[i][chosen[i]]) for i in range(n)]


def _candidates(
    circle: np.ndarray, size: np.ndarray, circles: np.ndarray, bounds: Sequence[float], obstacles: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Boxes around a circle ``[k, 4]``, and what each costs whatever the other names do ``[k]``."""
    angle, distance = (a.ravel() for a in np.meshgrid(DIRECTIONS, DISTANCES, indexing="ij"))
    toward = np.stack([np.cos(angle), np.sin(angle)], 1)
    edge = circle[:2] + toward * (circle[2] + distance)[:, None]
    middle = edge + np.clip(toward * 1.5, -1, 1) * size / 2
    boxes = np.concatenate([middle - size / 2, middle + size / 2], 1)
    left, bottom, right, top = bounds
    outside = np.stack([left - boxes[:, 0], bottom - boxes[:, 1], boxes[:, 2] - right, boxes[:, 3] - top], 1)
    discs = np.concatenate([circles[:, :2] - circles[:, 2:] * 0.85, circles[:, :2] + circles[:, 2:] * 0.85], 1)
    cores = np.concatenate([circles[:, :2] - 5, circles[:, :2] + 5], 1)
    cost = distance * 0.9 + 400 * np.maximum(outside, 0).sum(1)
    cost += 0.35 * _overlap(boxes, discs).sum(1) + 3 * _overlap(boxes, cores).sum(1)
    cost += 0.5 * _overlap(boxes, obstacles).sum(1)
    cost += 2.5 * (1 - toward[:, 0]) + 1.0 * np.abs(toward[:, 1])  # to the right, all else being equal
    others = np.delete(circles, np.flatnonzero((circles == circle).all(1))[:1], axis=0)
    ends = _leaders(circle, boxes)
    for other in others:
        cost += 25 * (_distance(other[:2], ends) < 4) * (distance > 8)
    return boxes, cost


def _overlap(a: np.ndarray, b: np.ndarray, margin: float = 0.0) -> np.ndarray:
    """The areas that boxes share, ``[a, 4]`` and ``[b, 4]`` to ``[a, b]``."""
    low = np.maximum(a[:, None, :2], b[None, :, :2]) - margin
    high = np.minimum(a[:, None, 2:], b[None, :, 2:]) + margin
    return np.maximum(high - low, 0).prod(-1)


def _leaders(circle: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """From the circle's middle to the nearest point of each box ``[k, 2, 2]``."""
    nearest = np.clip(circle[:2], boxes[:, :2], boxes[:, 2:])
    return np.stack([np.broadcast_to(circle[:2], nearest.shape), nearest], 1)


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Whether segments ``[a, 2, 2]`` cross the one segment ``[1, 2, 2]``."""

    def side(p: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
        return (q[..., 0] - p[..., 0]) * (r[..., 1] - p[..., 1]) - (q[..., 1] - p[..., 1]) * (r[..., 0] - p[..., 0])

    p, q, r, s = a[:, 0], a[:, 1], b[:, 0], b[:, 1]
    return (side(p, q, r) * side(p, q, s) < 0) & (side(r, s, p) * side(r, s, q) < 0)


def _through(segments: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Whether segments run through boxes, at a few points on each: ``[s, 2, 2]`` and ``[b, 4]`` to ``[s, b]``."""
    at = np.linspace(0, 1, 9)[None, :, None]
    points = (segments[:, :1] * (1 - at) + segments[:, 1:] * at)[:, None]
    within = np.asarray((points > boxes[:, None, :2]) & (points < boxes[:, None, 2:]))
    return np.asarray(within.all(-1).any(-1))


def _distance(point: np.ndarray, segments: np.ndarray) -> np.ndarray:
    start, along = segments[:, 0], segments[:, 1] - segments[:, 0]
    length = np.maximum((along**2).sum(1), 1e-12)
    at = np.clip(((point - start) * along).sum(1) / length, 0, 1)
    return np.linalg.norm(start + along * at[:, None] - point, axis=1)


def _place(circle: np.ndarray, box: np.ndarray) -> Place:
    middle = (float(box[0] + box[2]) / 2, float(box[1] + box[3]) / 2)
    (_, end) = _leaders(circle, box[None])[0]
    gap = end - circle[:2]
    length = float(np.linalg.norm(gap))
    if length < circle[2] + 9:
        return Place(middle, None)
    start = circle[:2] + gap / length * (circle[2] + 1)
    stop = circle[:2] + gap / length * (length - 2)
    return Place(middle, ((float(start[0]), float(start[1])), (float(stop[0]), float(stop[1]))))
