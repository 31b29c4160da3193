"""Where the names of circles go, so that they cover neither each other nor the circles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Place", "placed"]

DIRECTIONS = np.arange(20) * 2 * np.pi / 20
DISTANCES = np.array([2.0, 8.0, 16.0, 26.0, 40.0, 56.0, 74.0, 94.0, 116.0])
SWEEPS = 8


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
