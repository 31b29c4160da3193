"""Prediction sets and intervals that hold the truth with probability 1 - alpha, on any data that are exchangeable.

Sets of classes, from scores s(x, y) of every class:

    LAC    s(x, y) = 1 - p_y                                                      smallest sets on average
    APS    s(x, y) = sum of p over classes ranked above y, + p_y (or + U p_y)     sets that adapt to hard examples
    RAPS   s(x, y) = APS + penalty * max(0, rank(y) - rank)                       APS without its long tails

Intervals of a regression:

    split        s = |y - mean|                  mean -+ q            one width for all examples
    normalised   s = |y - mean| / std            mean -+ q std        std of the mixture, aleatoric and epistemic
    cqr          s = max(low - y, y - high)      low - q, high + q    low and high the mixture's own quantiles

The threshold q is the ceil((n + 1)(1 - alpha))-th smallest score of n held-out examples; a new example's set is every
class with s(x, y) <= q. Then 1 - alpha <= P(label in set) <= 1 - alpha + 1/(n + 1), the second where scores do not tie.

    multum.metrics.fit_sets(held_out.probs, labels, alpha=0.1)(multum.predict(ens, x).probs)
    multum.metrics.fit_intervals(held_out, targets, alpha=0.1)(multum.predict(ens, x))
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import MetricError
from ..outputs.prediction import RegressionPrediction
from . import regression
from .inputs import check_choice, check_labels, check_probs, check_scores, check_share, check_targets

SETS = ("aps", "lac", "raps")
INTERVALS = ("cqr", "normalised", "split")


def conformal_quantile(scores: Tensor, alpha: float) -> float:
    """The ceil((n + 1)(1 - alpha))-th smallest score; infinite where n is too small for this alpha.

    **Shape**: scores ``[examples]``.

    >>> conformal_quantile(torch.arange(1.0, 10.0), 0.1), conformal_quantile(torch.arange(1.0, 9.0), 0.1)
    (9.0, inf)
    """
    check_share(alpha, "alpha")
    scores = check_scores(scores).double()
    rank = math.ceil((len(scores) + 1) * (1 - alpha) - 1e-9)  # 1 - alpha is rounded, and ceil would see it
    return float(scores.kthvalue(rank).values) if rank <= len(scores) else math.inf


@dataclass(frozen=True)
class ConformalSets:
    """A fitted rule that maps probabilities to sets of classes.

    >>> ConformalSets("lac", alpha=0.1, threshold=0.5)(torch.tensor([[0.6, 0.4], [0.5, 0.5]]))
    tensor([[ True, False],
            [ True,  True]])
    """

    method: str
    alpha: float
    threshold: float  # q; inf: too few held-out examples, every set is full
    randomised: bool = False
    penalty: float = 0.01  # RAPS: lambda
    rank: int = 5  # RAPS: k_reg, the ranks that cost nothing
    allow_empty: bool = True  # an empty set says "like nothing seen"; otherwise the likeliest class stays

    def __call__(self, probs: Tensor, *, seed: int = 1) -> Tensor:
        """Which classes are in each example's set, ``[batch, classes]``. Give each batch its own seed if randomised."""
        probs = _check(probs)
        sets = self.scores(probs, seed=seed) <= self.threshold
        if not self.allow_empty:
            sets.scatter_(1, probs.argmax(1, keepdim=True), True)
        return sets

    def scores(self, probs: Tensor, *, seed: int = 1) -> Tensor:
        """s(x, y) of every class, ``[batch, classes]``, float64."""
        probs = probs.double()
        if self.method == "lac":
            return 1 - probs
        ordered, order = probs.sort(dim=1, descending=True, stable=True)
        scores = ordered.cumsum(1)
        if self.randomised:
            draws = torch.rand(len(probs), 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            scores = scores - (1 - draws.to(probs.device)) * ordered
        if self.method == "raps":
            ranks = torch.arange(1, probs.shape[1] + 1, dtype=torch.float64, device=probs.device)
            scores = scores + self.penalty * (ranks - self.rank).clamp_min(0)
        return torch.empty_like(scores).scatter_(1, order, scores)

    def coverage(self, probs: Tensor, labels: Tensor, *, seed: int = 1) -> float:
        """The share of examples whose set holds their label."""
        labels = check_labels(labels, _check(probs))
        return float(self(probs, seed=seed).gather(1, labels.unsqueeze(1)).double().mean())

    def mean_size(self, probs: Tensor, *, seed: int = 1) -> float:
        """The mean number of classes in a set."""
        return float(self(probs, seed=seed).sum(1).double().mean())


def fit_sets(
    probs: Tensor,
    labels: Tensor,
    *,
    alpha: float = 0.1,
    method: str = "aps",
    randomised: bool = False,
    penalty: float = 0.01,
    rank: int = 5,
    allow_empty: bool = True,
    seed: int = 0,
) -> ConformalSets:
    """Prediction sets from held-out examples that hold the label with probability 1 - alpha.

    ``randomised`` (APS, RAPS) makes sets smaller and coverage exact by a uniform draw per example; without it they are
    conservative.

    **Shape**: probs ``[batch, classes]``; labels ``[batch]``.

    >>> probs = torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]])
    >>> fit_sets(probs, torch.tensor([0, 0, 1]), alpha=0.25, method="lac").threshold  # the 3rd of 1/4, 1/2, 5/8
    0.625
    """
    check_choice(method, "method", SETS)
    if randomised and method == "lac":
        raise MetricError("method must be aps or raps where randomised=True; got 'lac', which has no sum to draw from")
    if penalty < 0 or rank < 0:
        raise MetricError(f"penalty and rank must be at least 0; got penalty={penalty}, rank={rank}")
    probs = _check(probs)
    labels = check_labels(labels, probs)
    rule = ConformalSets(method, alpha, math.inf, randomised, penalty, rank, allow_empty)
    own = rule.scores(probs, seed=seed).gather(1, labels.unsqueeze(1)).squeeze(1)
    return replace(rule, threshold=conformal_quantile(own, alpha))


def _check(probs: Tensor) -> Tensor:
    if probs.ndim != 2:
        raise MetricError(f"probs must be [batch, classes]; got shape {list(probs.shape)}. Flatten further axes first")
    return check_probs(probs)


@dataclass(frozen=True)
class ConformalIntervals:
    """A fitted rule that maps a prediction to intervals.

    >>> rule = ConformalIntervals("split", alpha=0.1, threshold=0.5)
    >>> rule(RegressionPrediction(torch.tensor([[[3.0, 1.0]]])))
    (tensor([2.5000], dtype=torch.float64), tensor([3.5000], dtype=torch.float64))
    """

    method: str
    alpha: float
    threshold: float  # q; inf: too few held-out examples, every interval is the whole line

    def __call__(self, prediction: RegressionPrediction) -> tuple[Tensor, Tensor]:
        """(low, high), each ``[batch, ...]``, float64."""
        low, high, scale = _base(prediction, self.method, self.alpha)
        low, high = low - self.threshold * scale, high + self.threshold * scale
        # CQR shrinks where q < 0; an interval turned inside out is its middle, which only adds coverage.
        crossed = low > high
        return torch.where(crossed, (low + high) / 2, low), torch.where(crossed, (low + high) / 2, high)

    def coverage(self, prediction: RegressionPrediction, targets: Tensor) -> float:
        """The share of targets inside their interval."""
        return regression.coverage(*self(prediction), targets)

    def mean_width(self, prediction: RegressionPrediction) -> float:
        """The mean of high - low."""
        return regression.mean_width(*self(prediction))


def fit_intervals(
    prediction: RegressionPrediction, targets: Tensor, *, alpha: float = 0.1, method: str = "cqr"
) -> ConformalIntervals:
    """Intervals from held-out examples that hold the target with probability 1 - alpha.

    **Shape**: prediction of ``[members, batch, 2, ...]``; targets ``[batch, ...]``, in the prediction's units.

    >>> prediction = RegressionPrediction(torch.tensor([[[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]]))
    >>> fit_intervals(prediction, torch.tensor([1.0, -2.0, 3.0]), alpha=0.5, method="split").threshold
    2.0
    """
    check_choice(method, "method", INTERVALS)
    check_share(alpha, "alpha")
    y = check_targets(targets, prediction.mean).double()
    low, high, scale = _base(prediction, method, alpha)
    scores = torch.maximum(low - y, y - high) / scale
    return ConformalIntervals(method, alpha, conformal_quantile(scores, alpha))


def _base(prediction: RegressionPrediction, method: str, alpha: float) -> tuple[Tensor, Tensor, Tensor]:
    """The interval before conformal correction, and the unit of that correction: for split, the mean twice and 1."""
    mean = prediction.mean.double()
    if method == "cqr":
        return *prediction.interval(1 - alpha), torch.ones_like(mean)
    scale = prediction.variance.double().sqrt() if method == "normalised" else torch.ones_like(mean)
    return mean, mean, scale
