"""Seconds of several calls, taken in turn within every round, and what is said of them: medians, quartiles, ratios.

Whatever slows the machine down for a while slows all of them: a ratio is the median over rounds of the ratios within
one round.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Spread:
    """A median with its first and third quartile."""

    median: float
    lower: float
    upper: float


def spread(values: Sequence[float]) -> Spread:
    """
    >>> spread([1.0, 10.0, 100.0])
    Spread(median=10.0, lower=5.5, upper=55.0)
    """
    lower, median, upper = np.quantile(np.asarray(values, dtype=float), (0.25, 0.5, 0.75)).tolist()
    return Spread(median, lower, upper)


def ratio(seconds: Sequence[float], unit: Sequence[float]) -> Spread:
    """Of the rounds that both were timed in; NaN where the unit took no time that a clock can see.

    >>> ratio([1.0, 50.0, 200.0], [1.0, 10.0, 100.0]).median  # the medians of both would give 5
    2.0
    """
    rounds = min(len(seconds), len(unit))
    below = np.asarray(unit[:rounds], dtype=float)
    return spread((np.asarray(seconds[:rounds]) / np.where(below > 0, below, np.nan)).tolist())


def in_turn(
    timed: Mapping[Name, Callable[[], float]],
    rounds: int,
    order: Callable[[int, list[Name]], Sequence[Name]],
    advance: Callable[[Name], None] = lambda name: None,
    times: dict[Name, list[float]] | None = None,
) -> dict[Name, list[float]]:
    """What each of these says that it took, once in every round.

    Args:
        order: the names in the order of a round 0, 1, ...
        times: where the seconds go as they come, so that an interrupted call leaves what it has.
    """
    times = {} if times is None else times
    for name in timed:
        times.setdefault(name, [])
    for number in range(rounds):
        for name in order(number, list(timed)):
            times[name].append(timed[name]())
            advance(name)
    return times
