"""Differences between methods that were trained with several seeds and measured on the same test examples.

The value y_ms(i) of method m with seed s on example i has three sources of chance: another training (seeds), another
test part (examples), and both at once. A difference of two methods' means is given with the variance

    V = v_m / S_m + v_r / S_r      v: variance over seeds of a method's mean; trainings of two methods are independent
      + Var_i(d_i) / n             d_i: the difference on example i, of means over seeds: paired
      - w_m / (S_m n) - w_r / (S_r n)    w: variance of seed and example together, which both terms above contain

never below the larger of the first two terms, and with Student's t of Welch-Satterthwaite's degrees of freedom: a
variance of three seeds is hardly known, and a bootstrap of three seeds does not say so. Many methods know more than
one: with three seeds or more, variances over seeds are raised to what all of them tell, and count for more degrees of
freedom, by as much as they are alike (after the moderated t of Smyth 2004: an inverse chi-square law of the true
variances, whose degrees of freedom d0 the observed ones tell). Half of d0 is added to S - 1, as it is an estimate, and
no variance is lowered: methods may differ more than that law allows. Intervals and p-values are simultaneous over a
family of comparisons by Sidak's correction. tests/metrics/test_differences.py simulates what that is worth.

Where each seed has a test part of its own, examples belong to seeds: the means of seeds are compared, paired, with
S - 1 degrees of freedom, and a variance that is at least that of the examples. With one seed, only examples speak.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import MetricError
from .inputs import check_share

FEWEST_TO_MODERATE = 4  # methods whose variances tell a common one

Values = Mapping[str, Mapping[int, Tensor]]  # method -> seed -> a value per test example


@dataclass(frozen=True)
class Estimate:
    """A mean, its standard error, Student's degrees of freedom, and the share of the variance that seeds make."""

    mean: float
    error: float
    freedom: float
    of_seeds: float

    def interval(self, level: float = 0.95, family: int = 1) -> tuple[float, float]:
        """mean -+ t error, simultaneous with the others of a family."""
        from scipy.special import stdtrit  # slow to import

        check_share(level, "level")
        tail = -math.expm1(math.log(level) / family) / 2  # (1 - level^(1/family)) / 2
        reach = -float(stdtrit(self.freedom, tail)) * self.error
        return self.mean - reach, self.mean + reach

    def p_value(self, family: int = 1) -> float:
        """Of a mean of 0, two-sided, adjusted for the family."""
        from scipy.special import stdtr  # slow to import

        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        alone = 2 * float(stdtr(self.freedom, -abs(self.mean) / self.error))
        return -math.expm1(family * math.log1p(-alone)) if alone < 1 else 1.0


@dataclass(frozen=True)
class Difference:
    """A mean difference of two methods, with an interval and a p-value that are simultaneous over a family."""

    mean: float
    low: float
    high: float
    p: float
    estimate: Estimate


@dataclass(frozen=True, eq=False)
class _Method:
    """What is needed of one method's values ``[seeds, examples]``."""

    by_example: Tensor  # mean over seeds
    by_seed: Tensor  # mean over examples
    both: float  # w, 0 where there is one seed

    @classmethod
    def of(cls, values: Tensor) -> _Method:
        by_example, by_seed = values.mean(0), values.mean(1)
        seeds, examples = values.shape
        both = 0.0
        if seeds > 1 and examples > 1:
            rest = values - by_example - by_seed.unsqueeze(1) + values.mean()
            both = float(rest.square().sum()) / ((seeds - 1) * (examples - 1))
        return cls(by_example, by_seed, both)

    @property
    def seeds(self) -> int:
        return len(self.by_seed)


class Differences:
    """All methods of a comparison, by one metric's values per example.

    >>> values = {name: {seed: torch.arange(50.0) + shift for seed in range(3)} for name, shift in (("a", 0), ("b", 2))}
    >>> Differences(values).between("b", "a").mean
    2.0
    """

    def __init__(self, values: Values, *, same_examples: bool = True):
        """Args: same_examples: whether example i is the same for all seeds, as it is for all methods of a seed."""
        self._values = {label: {s: v.double().flatten() for s, v in seeds.items()} for label, seeds in values.items()}
        self.same_examples = same_examples
        sizes = {len(v) for seeds in self._values.values() for v in seeds.values()}
        if same_examples and len(sizes) > 1:
            raise MetricError(f"methods must be measured on the same examples; got {sorted(sizes)} examples")
        self._methods: dict[str, _Method] = {}
        if same_examples:
            stacked = {label: torch.stack(list(seeds.values())) for label, seeds in self._values.items()}
            self._methods = {label: _Method.of(values) for label, values in stacked.items()}
        self._seed_variances = _moderated(self._methods)

    @property
    def pairs(self) -> int:
        """Of all methods: the family of comparisons with a method that is only chosen by these values, as the best."""
        return math.comb(len(self._values), 2)

    def mean(self, label: str) -> Estimate:
        """A method's own mean over seeds and examples."""
        if not self.same_examples:
            return _nested(list(self._values[label].values()))
        method = self._methods[label]
        own, freedom = self._seed_variances[label]
        seeds = [(own / method.seeds, freedom)]
        return _combined(float(method.by_example.mean()), seeds, _spread(method.by_example), _both(method))

    def between(self, label: str, reference: str, *, family: int = 1, level: float = 0.95) -> Difference:
        """A method minus another: negative where the method's values are the lower ones."""
        estimate = self._between(label, reference)
        low, high = estimate.interval(level, family)
        return Difference(estimate.mean, low, high, estimate.p_value(family), estimate)

    def _between(self, label: str, reference: str) -> Estimate:
        if not self.same_examples:
            ours, theirs = self._values[label], self._values[reference]
            common = [s for s in ours if s in theirs]
            if not common:
                raise MetricError(f"{label} and {reference} must have a seed in common; got none")
            return _nested([ours[s] - theirs[s] for s in common])
        pair = [self._methods[name] for name in (label, reference)]
        variances = [self._seed_variances[name] for name in (label, reference)]
        seeds = [(v / method.seeds, freedom) for (v, freedom), method in zip(variances, pair, strict=True)]
        paired = pair[0].by_example - pair[1].by_example
        return _combined(float(paired.mean()), seeds, _spread(paired), sum(map(_both, pair)))


def _moderated(methods: Mapping[str, _Method]) -> dict[str, tuple[float, float]]:
    """v of every method and its degrees of freedom; of a single seed where others have more, the mean of theirs."""
    known = {label: (float(m.by_seed.var()), m.seeds - 1.0) for label, m in methods.items() if m.seeds > 1}
    alone = (0.0, 1.0)
    if known:
        alone = (sum(v for v, _ in known.values()) / len(known), min(f for _, f in known.values()))
    common = _common_variance([(v, f) for v, f in known.values() if v > 0 and f > 1])
    if common is not None:
        v0, d0 = common
        known = {label: (max(v, (d0 * v0 + f * v) / (d0 + f)), d0 + f) for label, (v, f) in known.items()}
    return {label: known.get(label, alone) for label in methods}


def _common_variance(variances: list[tuple[float, float]]) -> tuple[float, float] | None:
    """v0 and half of d0, from observed variances with their degrees of freedom; None for too few.

    By the mean and the variance of their logarithms, whose chance part is known: digamma and trigamma of f / 2.
    """
    if len(variances) < FEWEST_TO_MODERATE:
        return None
    from scipy.special import digamma, polygamma  # slow to import

    logs = torch.tensor([math.log(v) - float(digamma(f / 2)) + math.log(f / 2) for v, f in variances])
    chance = sum(float(polygamma(1, f / 2)) for _, f in variances) / len(variances)
    most = sum(f for _, f in variances)  # no more is known than all of them together tell
    d0 = min(most, 2 * _inverse_trigamma(float(logs.var()) - chance))
    return math.exp(float(logs.mean()) + float(digamma(d0 / 2)) - math.log(d0 / 2)), d0 / 2


def _inverse_trigamma(value: float) -> float:
    """x > 0 where trigamma(x) is `value`; infinity where that is not positive."""
    from scipy.optimize import brentq  # slow to import
    from scipy.special import polygamma

    low, high = 1e-3, 1e6
    if value <= float(polygamma(1, high)):
        return math.inf
    return float(brentq(lambda x: float(polygamma(1, x)) - value, low, high)) if value < 1e6 else low


def _combined(mean: float, seeds: list[tuple[float, float]], examples: tuple[float, float], both: float) -> Estimate:
    """The estimate from variances with their degrees of freedom; `both` is contained in the seeds' and examples'."""
    of_seeds = sum(v for v, _ in seeds)
    variance = max(of_seeds + examples[0] - both, of_seeds, examples[0])
    if variance == 0:
        return Estimate(mean, 0.0, math.inf, 0.0)
    doubt = sum(v**2 / freedom for v, freedom in (*seeds, examples))
    freedom = variance**2 / doubt
    if of_seeds > 0:
        fewest = min(f for _, f in seeds)
        freedom = max(fewest, freedom * fewest / (fewest + 1))  # itself estimated, and too high for few seeds
    share = max(0.0, of_seeds - both) / variance
    return Estimate(mean, math.sqrt(variance), freedom, min(share, 1.0))


def _spread(values: Tensor) -> tuple[float, float]:
    """The variance of a mean over examples, and its degrees of freedom."""
    return (float(values.var()) / len(values), float(len(values) - 1)) if len(values) > 1 else (0.0, 1.0)


def _both(method: _Method) -> float:
    return method.both / (method.seeds * len(method.by_example))


def _nested(by_seed: list[Tensor]) -> Estimate:
    """The mean of seeds that each have examples of their own."""
    means = torch.stack([values.mean() for values in by_seed])
    count = len(by_seed)
    examples = sum(_spread(values)[0] for values in by_seed) / count**2
    freedom = float(sum(len(values) - 1 for values in by_seed)) or 1.0
    if count == 1:
        return _combined(float(means[0]), [], (examples, freedom), 0.0)
    variance = max(float(means.var()) / count, examples)
    if variance == 0:
        return Estimate(float(means.mean()), 0.0, math.inf, 0.0)
    return Estimate(float(means.mean()), math.sqrt(variance), count - 1.0, 1 - examples / variance)
