"""How sure the numbers are: intervals over test items, over seeds, and tests of two methods on the same items.

    bootstrap       resample the items with replacement, take the percentiles of the metric
    over seeds      mean and standard error std / sqrt(n), std with n - 1
    paired tests    on each item's difference: bootstrap, t test; McNemar on right and wrong

A bootstrap over test items says how another test set would differ, not how another training would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import special  # scipy.stats has the same functions, and takes seconds to import
from torch import Tensor

from ..errors import MetricError
from .inputs import check_same_shape, check_scores, check_share

__all__ = [
    "Comparison",
    "Estimate",
    "Seeds",
    "bootstrap",
    "bootstrap_metric",
    "mcnemar",
    "over_seeds",
    "paired_bootstrap",
    "paired_t",
    "signed_rank",
]

DRAWS = 2**22  # indices drawn at once: 32 MB
MANY = 100_000  # items above which a mean's bootstrap is the normal distribution, to less than its own noise


@dataclass(frozen=True)
class Estimate:
    """A metric with its interval."""

    value: float
    low: float
    high: float
    error: float  # the standard deviation of the resampled metric
    level: float
    items: int
    method: str  # "bootstrap", "binomial" or "normal"

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class Seeds:
    """A metric over repeated runs; with one run, std and error are NaN."""

    mean: float
    error: float  # std / sqrt(n)
    std: float
    n: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """mean -+ t error, Student's t with n - 1 degrees of freedom."""
        check_share(level, "level")
        reach = float(special.stdtrit(self.n - 1, (1 + level) / 2)) * self.error if self.n > 1 else math.nan
        return self.mean - reach, self.mean + reach

    def __str__(self) -> str:
        return f"{self.mean:.4g} +- {self.error:.2g} (n={self.n})"


@dataclass(frozen=True)
class Comparison:
    """The difference a - b of two methods on the same items, its interval, and the p-value of there being none."""

    test: str
    difference: float
    low: float
    high: float
    p_value: float
    level: float
    items: int


def bootstrap(values: Tensor, *, level: float = 0.95, samples: int = 1000, seed: int = 0) -> Estimate:
    """The interval of a metric that is a mean of values per item (accuracy, NLL, Brier), by the percentile bootstrap.

    Zeros and ones need no resampling, their resampled sum is binomial; nor do more than 100 000 items, whose resampled
    mean is normal.

    **Shape**: values ``[items]``, as item_correct, item_nll and item_brier give them.

    >>> found = bootstrap(torch.tensor([1.0] * 90 + [0.0] * 10))
    >>> found.value, round(found.low, 2), round(found.high, 2), found.method
    (0.9, 0.84, 0.96, 'binomial')
    """
    values = check_scores(values, "values", finite=True).double().cpu()
    _check_samples(samples, level)
    return _estimate(float(values.mean()), *_resampled_means(values, samples, seed), level, len(values))


def bootstrap_metric(
    metric: Callable[..., float],
    *tensors: Tensor,
    level: float = 0.95,
    samples: int = 1000,
    seed: int = 0,
    together: bool = True,
) -> Estimate:
    """The interval of any metric (ECE, AURC, AUROC), called again on every resample of the tensors' items.

    ``together`` draws the same items of all tensors, which then speak about the same items (confidence and correct);
    without it each tensor is resampled by itself (the scores of known and of foreign items).

    **Shape**: tensors ``[items, ...]``.

    >>> from multum.metrics.ood import auroc
    >>> found = bootstrap_metric(auroc, torch.tensor([0.1, 0.2]), torch.tensor([0.8, 0.9]), samples=20, together=False)
    >>> found.value, found.low, found.high
    (1.0, 1.0, 1.0)
    """
    _check_samples(samples, level)
    if not tensors or any(len(tensor) == 0 for tensor in tensors):
        raise MetricError("a bootstrap resamples at least one item, however: none were given")
    sizes = {len(tensor) for tensor in tensors}
    if together and len(sizes) > 1:
        raise MetricError(
            f"tensors about the same items have one length, however: {sorted(sizes)}. "
            "To resample each by itself use together=False"
        )
    generator = torch.Generator().manual_seed(seed)
    resampled = torch.empty(samples, dtype=torch.float64)
    for k in range(samples):
        drawn = [torch.randint(len(t), (len(t),), generator=generator) for t in tensors[: 1 if together else None]]
        drawn = drawn * len(tensors) if together else drawn
        resampled[k] = metric(*(t[rows.to(t.device)] for t, rows in zip(tensors, drawn, strict=True)))
    items = len(tensors[0]) if together else sum(len(t) for t in tensors)
    return _estimate(float(metric(*tensors)), resampled, "bootstrap", level, items)


def over_seeds(values: Sequence[float] | Tensor) -> Seeds:
    """The mean over repeated runs and its standard error, std / sqrt(n) with std over n - 1.

    **Shape**: values ``[runs]``.

    >>> over_seeds([4.0, 0.0, 0.0, 0.0])
    Seeds(mean=1.0, error=1.0, std=2.0, n=4)
    """
    runs = check_scores(torch.as_tensor(values, dtype=torch.float64), "the runs' values", finite=True)
    std = float(runs.std()) if len(runs) > 1 else math.nan
    return Seeds(mean=float(runs.mean()), error=std / math.sqrt(len(runs)), std=std, n=len(runs))


def paired_bootstrap(a: Tensor, b: Tensor, *, level: float = 0.95, samples: int = 1000, seed: int = 0) -> Comparison:
    """The mean of a - b over the same items, with p = 2 min(P(d* <= 0), P(d* >= 0)) over resampled means d*.

    **Shape**: a and b ``[items]``: two methods' values per item, in one order.

    >>> paired_bootstrap(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.0])).p_value
    1.0
    """
    _check_samples(samples, level)
    d = _differences(a, b)
    resampled, _ = _resampled_means(d, samples, seed)
    tail = min(int((resampled <= 0).sum()), int((resampled >= 0).sum()))
    low, high = _percentiles(resampled, level)
    return Comparison(
        "paired bootstrap", float(d.mean()), low, high, min(1.0, 2 * (tail + 1) / (samples + 1)), level, len(d)
    )


def paired_t(a: Tensor, b: Tensor, *, level: float = 0.95) -> Comparison:
    """The t test of the mean of a - b over the same items: t = mean(d) sqrt(n) / std(d), n - 1 degrees of freedom.

    **Shape**: a and b ``[items]``: two methods' NLL per item, say.

    >>> found = paired_t(torch.tensor([3.0, 5.0, 4.0, 6.0]), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    >>> found.difference, round(found.p_value, 4)
    (2.0, 0.0163)
    """
    check_share(level, "level")
    d = _differences(a, b)
    if len(d) < 2:
        raise MetricError("a paired t test needs at least 2 items, however: 1")
    mean, error = float(d.mean()), float(d.std()) / math.sqrt(len(d))
    p_value = 1.0 if mean == 0 else 0.0  # of differences that are all the same
    if error > 0:
        p_value = float(2 * special.stdtr(len(d) - 1, -abs(mean) / error))
    reach = float(special.stdtrit(len(d) - 1, (1 + level) / 2)) * error
    return Comparison("paired t", mean, mean - reach, mean + reach, p_value, level, len(d))


def signed_rank(a: Tensor, b: Tensor) -> float:
    """The p-value of Wilcoxon's signed-rank test: a - b over the same items is as often and as far above 0 as below.

    Ranks do not care how far a few items are off, where a mean and its t test see nothing else. Ties do not count.

    **Shape**: a and b ``[items]``.

    >>> round(signed_rank(torch.arange(8.0) + 1, torch.zeros(8)), 4)
    0.0078
    """
    from scipy.stats import wilcoxon  # takes seconds to import

    d = _differences(a, b)
    return float(wilcoxon(d.cpu().numpy()).pvalue) if bool((d != 0).any()) else 1.0


def mcnemar(correct_a: Tensor, correct_b: Tensor, *, level: float = 0.95) -> Comparison:
    """McNemar's exact test: of the items only one of two methods gets right, is it either of them half the time?

    The difference is that of accuracies; its interval is Wald's for paired shares.

    **Shape**: correct_a and correct_b ``[items]``, of 0 and 1.

    >>> a, b = torch.tensor([1, 1, 1, 1, 1, 1, 0, 1]), torch.tensor([0, 0, 0, 0, 0, 0, 0, 1])
    >>> mcnemar(a, b).p_value  # 2 * (1/2)^6
    0.03125
    """
    check_share(level, "level")
    d = _differences(correct_a, correct_b)
    if not ((d == 0) | (d.abs() == 1)).all():
        raise MetricError("McNemar's test is on right (1) and wrong (0), however: other numbers. Use item_correct")
    n, only_a, only_b = len(d), int((d > 0).sum()), int((d < 0).sum())
    p_value = min(1.0, 2 * float(special.bdtr(min(only_a, only_b), only_a + only_b, 0.5)))
    mean = (only_a - only_b) / n
    reach = float(special.ndtri((1 + level) / 2)) * math.sqrt(max(0.0, (only_a + only_b) / n - mean**2) / n)
    return Comparison("McNemar", mean, mean - reach, mean + reach, p_value, level, n)


def _resampled_means(values: Tensor, samples: int, seed: int) -> tuple[Tensor, str]:
    """The means of resamples, ``[samples]``, and how they were drawn."""
    n, mean = len(values), float(values.mean())
    if ((values == 0) | (values == 1)).all():
        sums = np.random.default_rng(seed).binomial(n, min(1.0, mean), samples)
        return torch.from_numpy(sums / n), "binomial"
    generator = torch.Generator().manual_seed(seed)
    if n > MANY:
        noise = torch.randn(samples, generator=generator, dtype=torch.float64)
        return mean + float(values.std(correction=0)) / math.sqrt(n) * noise, "normal"
    return torch.cat([values[rows].mean(1) for rows in _draws(n, samples, generator)]), "bootstrap"


def _draws(items: int, samples: int, generator: torch.Generator) -> Iterator[Tensor]:
    step = max(1, DRAWS // items)
    for start in range(0, samples, step):
        yield torch.randint(items, (min(step, samples - start), items), generator=generator)


def _estimate(value: float, resampled: Tensor, method: str, level: float, items: int) -> Estimate:
    low, high = _percentiles(resampled, level)
    return Estimate(value, low, high, float(resampled.std()), level, items, method)


def _percentiles(resampled: Tensor, level: float) -> tuple[float, float]:
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = resampled.quantile(ends).tolist()
    return low, high


def _differences(a: Tensor, b: Tensor) -> Tensor:
    check_same_shape(a, b, "the values of both methods", "each other")
    a, b = (check_scores(values, "values", finite=True).double().cpu() for values in (a, b))
    return a - b


def _check_samples(samples: int, level: float) -> None:
    check_share(level, "level")
    if samples < 2:
        raise MetricError(f"samples is at least 2, however: samples={samples}. 1000 is common")
