"""How sure the numbers are: means over seeds, and the paired t test of two methods.

    over seeds      mean and standard error std / sqrt(n), std with n - 1
    paired test     Student's t of the mean of differences, over seeds or over examples

Test examples say how another test set would differ, seeds how another training would; differences.py takes both.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import MetricError
from .inputs import check_same_shape, check_scores, check_share


@dataclass(frozen=True)
class Seeds:
    """A metric over repeated runs; with one run, std and error are NaN."""

    mean: float
    error: float  # std / sqrt(n)
    std: float
    n: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """mean -+ t error, Student's t with n - 1 degrees of freedom."""
        from scipy.special import stdtrit  # slow to import

        check_share(level, "level")
        reach = float(stdtrit(self.n - 1, (1 + level) / 2)) * self.error if self.n > 1 else math.nan
        return self.mean - reach, self.mean + reach

    def __str__(self) -> str:
        return f"{self.mean:.4g} +- {self.error:.2g} (n={self.n})"


@dataclass(frozen=True)
class Comparison:
    """The mean of a - b over the same examples, its interval, and the p-value of there being no difference."""

    difference: float
    low: float
    high: float
    p_value: float


def over_seeds(values: Sequence[float] | Tensor) -> Seeds:
    """The mean over repeated runs and its standard error, std / sqrt(n) with std over n - 1.

    **Shape**: values ``[runs]``.

    >>> over_seeds([4.0, 0.0, 0.0, 0.0])
    Seeds(mean=1.0, error=1.0, std=2.0, n=4)
    """
    runs = check_scores(torch.as_tensor(values, dtype=torch.float64), "values of runs", finite=True)
    std = float(runs.std()) if len(runs) > 1 else math.nan
    return Seeds(mean=float(runs.mean()), error=std / math.sqrt(len(runs)), std=std, n=len(runs))


def paired_t(a: Tensor, b: Tensor, *, level: float = 0.95) -> Comparison:
    """The t test of the mean of a - b over the same examples, n - 1 degrees of freedom.

    **Shape**: a and b ``[examples]``: two methods' NLL per example, say.

    >>> test = paired_t(torch.tensor([3.0, 5.0, 4.0, 6.0]), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    >>> test.difference, round(test.p_value, 4)
    (2.0, 0.0163)
    """
    check_share(level, "level")
    d = _differences(a, b)
    if len(d) < 2:
        raise MetricError("a paired t test needs at least 2 examples; got 1")
    mean = float(d.mean())
    if bool((d == d[0]).all()):  # no spread: scipy divides by 0
        return Comparison(mean, mean, mean, 1.0 if mean == 0 else 0.0)
    from scipy.stats import ttest_1samp  # takes seconds to import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of differences that are the same but for rounding
        test = ttest_1samp(d.numpy(), 0.0)
    low, high = test.confidence_interval(level)
    return Comparison(mean, float(low), float(high), float(test.pvalue))


def _differences(a: Tensor, b: Tensor) -> Tensor:
    check_same_shape(a, b, "values of one method", "of the other")
    a, b = (check_scores(values, "values", finite=True).double().cpu() for values in (a, b))
    return a - b
