"""Learning rates as arithmetic on the step: nothing to save, nothing to restore.

A schedule is a factor of the base rate at progress p = epochs done so far, a real number.

    constant    1
    multistep   factor ** (number of milestones <= floor(p))
    cosine      final + (1 - final) * (1 + cos(pi * p / epochs)) / 2
    linear      1 until `anneal_from`, then straight to `final` at `anneal_to`, then `final`
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["SCHEDULES", "constant", "cosine", "linear", "multistep", "warmed"]

SCHEDULES = ("constant", "multistep", "cosine", "linear")


def constant(progress: float) -> float:
    return 1.0


def multistep(progress: float, milestones: Sequence[float], factor: float) -> float:
    """
    >>> [multistep(p, (60, 120), 0.2) for p in (0, 59.9, 60, 119, 120)]
    [1.0, 1.0, 0.2, 0.2, 0.04000000000000001]
    """
    done = math.floor(progress + 1e-9)
    return float(factor ** sum(m <= done for m in milestones))


def cosine(progress: float, epochs: float, final: float = 0.0) -> float:
    """
    >>> [round(cosine(p, 10), 4) for p in (0, 5, 10)]
    [1.0, 0.5, 0.0]
    """
    return final + (1 - final) * (1 + math.cos(math.pi * min(progress / epochs, 1.0))) / 2


def linear(progress: float, start: float, end: float, final: float) -> float:
    """
    >>> [round(0.1 * linear(p, 80, 160, 0.5), 6) for p in (80, 100, 120, 160, 161)]
    [0.1, 0.0875, 0.075, 0.05, 0.05]
    """
    if progress <= start:
        return 1.0
    if progress >= end:
        return final
    return 1.0 + (final - 1.0) * (progress - start) / (end - start)


def warmed(progress: float, warmup: float) -> float:
    """The factor of a linear warm-up that ends after `warmup` epochs; the first step is not at rate 0.

    >>> [warmed(p, 2) for p in (0.5, 1, 2, 3)]
    [0.25, 0.5, 1.0, 1.0]
    """
    return 1.0 if warmup <= 0 else min(1.0, progress / warmup)
