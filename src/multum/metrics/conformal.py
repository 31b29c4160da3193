"""Prediction sets that hold the label with probability 1 - alpha, for any ensemble and any data that are exchangeable.

    LAC    s(x, y) = 1 - p_y                                                      smallest sets on average
    APS    s(x, y) = sum of p over classes ranked above y, + p_y (or + U p_y)     sets that adapt to hard items
    RAPS   s(x, y) = APS + penalty * max(0, rank(y) - rank)                       APS without its long tails

The threshold q is the ceil((n + 1)(1 - alpha))-th smallest score of n held-out items; a new item's set is every class
with s(x, y) <= q. Then 1 - alpha <= P(label in set) <= 1 - alpha + 1/(n + 1), the second where scores do not tie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import MetricError, did_you_mean
from .inputs import check_labels, check_probs, check_scores, check_share

__all__ = ["METHODS", "ConformalSets", "conformal_quantile", "fit_sets"]

METHODS = ("aps", "lac", "raps")


def conformal_quantile(scores: Tensor, alpha: float) -> float:
    """The ceil((n + 1)(1 - alpha))-th smallest score; infinite where n is too small for this alpha.

    **Shape**: scores ``[items]``.

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
    threshold: float  # q; inf: too few held-out items, every set is full
    randomised: bool = False
    penalty: float = 0.01  # RAPS: lambda
    rank: int = 5  # RAPS: k_reg, the ranks that cost nothing
    allow_empty: bool = True  # an empty set says "like nothing seen"; otherwise the likeliest class stays

    def __call__(self, probs: Tensor, *, seed: int = 1) -> Tensor:
        """Which classes are in each item's set, ``[batch, classes]``. Give each batch its own seed if randomised."""
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
        """The share of items whose set holds their label."""
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
    """Prediction sets from held-out items that hold the label with probability 1 - alpha.

    ``randomised`` (APS, RAPS) makes sets smaller and coverage exact by a uniform draw per item; without it they are
    conservative.

    **Shape**: probs ``[batch, classes]``; labels ``[batch]``.

    >>> probs = torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.625, 0.375]])
    >>> fit_sets(probs, torch.tensor([0, 0, 1]), alpha=0.25, method="lac").threshold  # the 3rd of 1/4, 1/2, 5/8
    0.625
    """
    if method not in METHODS:
        raise MetricError(
            f"method is one of {', '.join(METHODS)}, however: {method!r}. {did_you_mean(method, METHODS)}"
        )
    if randomised and method == "lac":
        raise MetricError("randomised is for aps and raps, however: method='lac' has no sum to draw from")
    if penalty < 0 or rank < 0:
        raise MetricError(f"penalty and rank are at least 0, however: penalty={penalty}, rank={rank}")
    probs = _check(probs)
    labels = check_labels(labels, probs)
    rule = ConformalSets(method, alpha, math.inf, randomised, penalty, rank, allow_empty)
    own = rule.scores(probs, seed=seed).gather(1, labels.unsqueeze(1)).squeeze(1)
    threshold = conformal_quantile(own, alpha)
    return ConformalSets(method, alpha, threshold, randomised, penalty, rank, allow_empty)


def _check(probs: Tensor) -> Tensor:
    if probs.ndim != 2:
        raise MetricError(f"probs are [batch, classes], however: shape {list(probs.shape)}. Flatten further axes first")
    return check_probs(probs)
