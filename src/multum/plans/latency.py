"""The latency of candidates: measured, or predicted from those that were.

measured     in small groups, each timed in turn with the one network: a latency is the median ratio to it within a
             round, times what it took when it was timed alone, so that whatever slows the machine down slows both
predicted    seconds = a * operations + b * mult-adds + c * bytes, with an a and a b of their own where all members run
             at once, fitted to what was measured (non-negative, by relative errors); then the power of it that the
             measured candidates of the same method follow, as the executor that is fastest differs among them
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..metrics.speed import back_and_forth
from ..metrics.timing import in_turn
from .counting import Counts, Work

__all__ = ["Latency", "Predictor", "seconds_of"]

SECONDS = 0.4  # that one candidate is timed for, within the rounds below
ROUNDS = (3, 30)
SPREAD = 0.2  # of the logs of costs, from which two candidates of a method tell how its latency grows


@dataclass(frozen=True)
class Latency:
    """Seconds of one pass, and the quartiles where it was measured."""

    seconds: float
    measured: bool
    lower: float | None = None
    upper: float | None = None


def seconds_of(passes: Mapping[str, Callable[[], float]]) -> Mapping[str, Sequence[float]]:
    """Seconds of every round, all in turn: fewer rounds of what takes long."""
    slowest = max(min(once(), once()) for once in passes.values())  # the first pass prepares kernels
    rounds = min(max(int(SECONDS / max(slowest, 1e-6)), ROUNDS[0]), ROUNDS[1])
    seconds = in_turn(passes, 1 + rounds, partial(back_and_forth, 1))
    return {name: each[1:] for name, each in seconds.items()}


class Predictor:
    """Latencies of candidates that were not measured, by those that were."""

    def __init__(self, measured: Sequence[tuple[str, Counts | None, float]]):
        """`measured`: the name of the method, its counts, and its seconds."""
        from scipy.optimize import nnls  # slow to import

        works = [_work(counts) for _, counts, _ in measured]
        # What was never measured has no price of its own, and is taken to cost what was.
        self.together, self.grouped = any(w.together for w in works), any(w.grouped_macs for w in works)
        rows = np.array([self._features(work) for work in works], dtype=float)
        seconds = np.array([each for _, _, each in measured])
        scale = rows.max(0)
        scale[scale == 0] = 1
        self.prices = nnls(rows / scale / seconds[:, None], np.ones(len(seconds)))[0] / scale
        points: dict[str, list[tuple[float, float]]] = {}
        for (name, _, took), by_prices in zip(measured, rows @ self.prices, strict=True):
            if by_prices > 0:
                points.setdefault(name, []).append((math.log(by_prices), math.log(took)))
        self.lines = {name: _line(each) for name, each in points.items()}

    def seconds(self, name: str, counts: Counts | None) -> float:
        """The predicted latency of a candidate of this method."""
        by_prices = float(np.dot(self._features(_work(counts)), self.prices))
        slope, offset = self.lines.get(name, (1.0, 0.0))
        return math.exp(offset + slope * math.log(by_prices)) if by_prices > 0 else 0.0

    def _features(self, work: Work) -> tuple[float, ...]:
        together = float(work.together and self.together)
        macs, grouped = (work.macs, work.grouped_macs) if self.grouped else (work.macs + work.grouped_macs, 0)
        split = (work.operations * (1 - together), work.operations * together, together)
        return (*split, macs * (1 - together), macs * together, grouped, work.bytes)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and offset of what a method took over what its operations cost, in logs: at most proportional.

    >>> [round(each, 6) for each in _line([(0.0, 1.0), (2.0, 2.0)])]
    [0.5, 1.0]
    """
    x, y = np.array(points).T
    wide = float(np.ptp(x)) > SPREAD
    slope = min(max(float(np.polyfit(x, y, 1)[0]), 0.0), 1.0) if wide else 1.0
    return slope, float(y.mean() - slope * x.mean())


def _work(counts: Counts | None) -> Work:
    assert counts is not None and counts.work is not None, "what is timed has passed the exact limits"
    return counts.work
