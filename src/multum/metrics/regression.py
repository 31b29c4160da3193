"""What a regression's mixture of Gaussians is worth, in the units of the target.

    rmse   sqrt(1/n sum_i (y_i - mean_i)^2)
    nll    -1/n sum_i log 1/M sum_m N(y_i; mu_im, sigma_im^2)        of the mixture; nll_moments of one Gaussian
    pit    F_i(y_i), F_i the mixture's distribution function         uniform where quantiles are calibrated

A network trained on standardised targets predicts standardised numbers: :func:`in_units` undoes that, and adds log std
to the NLL and multiplies the RMSE by std thereby.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import MetricError
from ..outputs.prediction import RegressionPrediction
from .inputs import check_choice, check_same_shape, check_scores, check_targets


def in_units(
    prediction: RegressionPrediction, *, mean: float | Tensor = 0.0, std: float | Tensor = 1.0
) -> RegressionPrediction:
    """A prediction of (y - mean) / std as one of y, in float64: mu std + mean, sigma^2 std^2.

    **Shape**: prediction of ``[members, batch, 2, ...]``; mean and std of the training targets, or ``[targets]``.

    >>> standardised = RegressionPrediction(torch.tensor([[[1.0, 0.25]]]))
    >>> in_units(standardised, mean=20.0, std=4.0).members
    tensor([[[24.,  4.]]], dtype=torch.float64)
    """
    means, variances = _moments(prediction)
    mean, std = (value.to(means) if isinstance(value, Tensor) else value for value in (mean, std))
    if not torch.compiler.is_exporting() and not all(  # a graph has no values yet
        math.isfinite(m) and 0 < s < math.inf for m, s in zip(_numbers(mean), _numbers(std), strict=True)
    ):
        raise MetricError(f"mean must be finite and std positive; got mean={mean}, std={std}")
    return RegressionPrediction(torch.stack([means * std + mean, variances * std**2], dim=2))


def rmse(predicted: Tensor, targets: Tensor) -> float:
    """The root of the mean squared error, sqrt(1/n sum_i (y_i - f_i)^2).

    **Shape**: predicted and targets ``[batch, ...]``.

    >>> rmse(torch.tensor([1.0, 5.0]), torch.tensor([4.0, 1.0]))  # sqrt((9 + 16) / 2)
    3.5355339059327378
    """
    check_targets(targets, predicted)
    return float((targets.double() - predicted.double()).square().mean().sqrt())


def example_nll(prediction: RegressionPrediction, targets: Tensor, *, of: str = "mixture") -> Tensor:
    """Each example's -log p(y): p the "mixture" 1/M sum_m N(mu_m, sigma_m^2), or one Gaussian with its "moments".

    **Shape**: targets ``[batch, ...]``, in the prediction's units; returns ``[batch, ...]``, float64.

    >>> prediction = RegressionPrediction(torch.tensor([[[0.0, 1.0]], [[0.0, 1.0]]]))
    >>> example_nll(prediction, torch.tensor([0.0]))  # log sqrt(2 pi)
    tensor([0.9189], dtype=torch.float64)
    """
    check_choice(of, "of", ("mixture", "moments"))
    means, variances = _moments(prediction)
    targets = check_targets(targets, means[0]).double()
    if of == "moments":
        return -_log_gaussian(targets, prediction.mean.double(), prediction.variance.double())
    return math.log(len(means)) - _log_gaussian(targets, means, variances).logsumexp(0)


def coverage(low: Tensor, high: Tensor, targets: Tensor) -> float:
    """The share of targets inside [low, high]; for intervals of level .9 it should be .9.

    **Shape**: all ``[batch, ...]``.

    >>> coverage(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0]), torch.tensor([0.5, 2.0]))
    0.5
    """
    check_same_shape(low, high, "low", "high")
    check_same_shape(low, targets, "low", "targets")
    check_scores(targets, "targets", finite=True)
    return float(((low <= targets) & (targets <= high)).double().mean())


def mean_width(low: Tensor, high: Tensor) -> float:
    """The mean of high - low.

    **Shape**: both ``[batch, ...]``.

    >>> mean_width(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 4.0]))
    2.0
    """
    check_same_shape(low, high, "low", "high")
    return float((high.double() - low.double()).mean())


@dataclass(frozen=True, eq=False)
class QuantileCurve:
    """How often targets fall below each predicted quantile.

    **Shape**: expected and observed ``[levels]``, float64.
    """

    expected: Tensor  # q
    observed: Tensor  # the share of targets below the predicted q-quantile

    @property
    def error(self) -> float:
        """The mean of |observed - expected|."""
        return float((self.observed - self.expected).abs().mean())


def pit(prediction: RegressionPrediction, targets: Tensor) -> Tensor:
    """The probability integral transform F(y) = 1/M sum_m Phi((y - mu_m) / sigma_m), float64.

    **Shape**: targets ``[batch, ...]``, in the prediction's units; returns ``[batch, ...]``.

    >>> pit(RegressionPrediction(torch.tensor([[[3.0, 4.0]]])), torch.tensor([3.0]))
    tensor([0.5000], dtype=torch.float64)
    """
    means, variances = _moments(prediction)
    targets = check_targets(targets, means[0]).double()
    return torch.special.ndtr((targets - means) / variances.sqrt()).mean(0)


def quantile_curve(prediction: RegressionPrediction, targets: Tensor, *, levels: int = 19) -> QuantileCurve:
    """How often targets are below the mixture's q-quantile, 1/n sum_i 1[F_i(y_i) <= q], q = k / (levels + 1).

    **Shape**: targets ``[batch, ...]``; the curve has ``[levels]`` points.

    >>> sure = RegressionPrediction(torch.tensor([[[0.0, 1.0], [0.0, 1.0]]]))
    >>> quantile_curve(sure, torch.tensor([-0.1, 0.1]), levels=3).observed
    tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64)
    """
    if levels < 1:
        raise MetricError(f"levels must be at least 1; got levels={levels}")
    values = pit(prediction, targets).flatten().sort().values
    expected = torch.arange(1, levels + 1, dtype=torch.float64, device=values.device) / (levels + 1)
    return QuantileCurve(expected, torch.searchsorted(values, expected, right=True).double() / len(values))


def _numbers(value: float | Tensor) -> list[float]:
    return value.flatten().tolist() if isinstance(value, Tensor) else [value]


def _moments(prediction: RegressionPrediction) -> tuple[Tensor, Tensor]:
    """mu and sigma^2, each ``[members, batch, ...]``, float64, checked."""
    means, variances = prediction.members.double().unbind(2)
    if torch.compiler.is_exporting():
        return means, variances
    check_scores(means, "predicted means", finite=True)
    if not (check_scores(variances, "predicted variances", finite=True) > 0).all():
        raise MetricError("predicted variances must be positive; got 0 or less. Use RegressionPrediction.from_outputs")
    return means, variances


def _log_gaussian(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return -0.5 * (math.log(2 * math.pi) + variance.log() + (y - mean).square() / variance)
