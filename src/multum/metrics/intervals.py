"""Prediction intervals that hold the target with probability 1 - alpha, for any regression on exchangeable data.

    split        s = |y - mean|                       mean -+ q            one width for all items
    normalised   s = |y - mean| / std                 mean -+ q std        std of the mixture, aleatoric and epistemic
    cqr          s = max(low - y, y - high)           low - q, high + q    low and high the mixture's own quantiles

q is the ceil((n + 1)(1 - alpha))-th smallest score of n held-out items, as in conformal.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import MetricError, did_you_mean
from ..outputs.prediction import RegressionPrediction
from . import regression
from .conformal import conformal_quantile
from .inputs import check_share, check_targets

__all__ = ["METHODS", "ConformalIntervals", "fit_intervals"]

METHODS = ("cqr", "normalised", "split")


@dataclass(frozen=True)
class ConformalIntervals:
    """A fitted rule that maps a prediction to intervals.

    >>> rule = ConformalIntervals("split", alpha=0.1, threshold=0.5)
    >>> rule(RegressionPrediction(torch.tensor([[[3.0, 1.0]]])))
    (tensor([2.5000], dtype=torch.float64), tensor([3.5000], dtype=torch.float64))
    """

    method: str
    alpha: float
    threshold: float  # q; inf: too few held-out items, every interval is the whole line

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
    """Intervals from held-out items that hold the target with probability 1 - alpha.

    **Shape**: prediction of ``[members, batch, 2, ...]``; targets ``[batch, ...]``, in the prediction's units.

    >>> prediction = RegressionPrediction(torch.tensor([[[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]]))
    >>> fit_intervals(prediction, torch.tensor([1.0, -2.0, 3.0]), alpha=0.5, method="split").threshold
    2.0
    """
    if method not in METHODS:
        raise MetricError(
            f"method is one of {', '.join(METHODS)}, however: {method!r}. {did_you_mean(method, METHODS)}"
        )
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
