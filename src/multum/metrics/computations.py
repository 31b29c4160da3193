"""How a metric is computed, which says what a stream must hold on to:

Mean        the mean of a value per example               a sum
Sums        a function of sums over examples              these sums
Whole       of all examples at once (rankings, say)       a confidence and a hit per example
Pairs       of sums over pairs of members                 `PairSums`
Counts      of right, true and predicted per class        these counts
Ranks       of how each class's probability ranks         a probability per example and class
Detection   of the ranking of test and OOD examples       one score per example
Shifted     another metric on corrupted examples          nothing of its own
Calibrated  another metric at the fitted temperature      what that metric needs
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

from .diversity import PairSums


@dataclass(frozen=True)
class Mean:
    """The mean over examples of `values`: of a `Classified`, or of a regression's prediction and targets."""

    values: Callable[..., Tensor]  # [batch, ...]
    then: Callable[[float], float] = float  # from the mean to the metric

    def of(self, *examples: Any) -> float:
        """The metric of some examples, all at once."""
        return self.then(float(self.values(*examples).double().mean()))


@dataclass(frozen=True)
class Sums:
    """`then` of sums over examples: `sums` takes confidences, hits and the number of bins."""

    sums: Callable[[Tensor, Tensor, int], Tensor]
    then: Callable[[Tensor], float]


@dataclass(frozen=True)
class Whole:
    """Of all examples at once: confidences, hits and the number of bins; or a regression's prediction and targets."""

    of: Callable[..., float]


@dataclass(frozen=True)
class Pairs:
    """Of the sums over pairs of members."""

    of: Callable[[PairSums], float]
    labels: bool = False  # whether it needs labels


@dataclass(frozen=True)
class Counts:
    """Of the counts of every class, `per_class.class_counts`, and the positive class of two."""

    of: Callable[[Tensor, int], float]


@dataclass(frozen=True)
class Ranks:
    """How well the probability of a class ranks its examples above the others, from `ood.hits`; of the ensemble."""

    of: Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Detection:
    """How well a score ranks OOD examples above test examples, from `ood.hits`."""

    of: Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Shifted:
    """The mean of another metric over corruptions and severities."""

    of: str


@dataclass(frozen=True)
class Calibrated:
    """Another metric, a Mean or Sums, of the ensemble at its fitted temperature: see calibrated.py."""

    of: str


Computation: TypeAlias = Mean | Sums | Whole | Pairs | Counts | Ranks | Detection | Shifted | Calibrated
