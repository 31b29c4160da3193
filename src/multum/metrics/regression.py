"""What a regression's mixture of Gaussians is worth, in the units of the target.

    rmse   sqrt(1/n sum_i (y_i - mean_i)^2)
    nll    -1/n sum_i log 1/M sum_m N(y_i; mu_im, sigma_im^2)        of the mixture; nll_moments of one Gaussian
    pit    F_i(y_i), F_i the mixture's distribution function         uniform where quantiles are calibrated

A network trained on standardised targets predicts standardised numbers: :func:`in_units` undoes that, and adds log std
to the NLL and multiplies the RMSE by std thereby.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import MetricError
from ..outputs.prediction import RegressionPrediction
from .inputs import check_same_shape, check_scores, check_share, check_targets

__all__ = [
    "LEVELS",
    "QuantileCurve",
    "coverage",
    "in_units",
    "item_nll",
    "mean_width",
    "pit",
    "quantile_curve",
    "regression",
    "rmse",
]

LEVELS = (0.5, 0.9, 0.95)


def in_units(prediction: RegressionPrediction, *, mean: float = 0.0, std: float = 1.0) -> RegressionPrediction:
    """A prediction of (y - mean) / std as one of y, in float64: mu std + mean, sigma^2 std^2.

    **Shape**: prediction of ``[members, batch, 2, ...]``; mean and std of the training targets.

    >>> standardised = RegressionPrediction(torch.tensor([[[1.0, 0.25]]]))
    >>> in_units(standardised, mean=20.0, std=4.0).members
    tensor([[[24.,  4.]]], dtype=torch.float64)
    """
    if not (0 < std < math.inf and math.isfinite(mean)):
        raise MetricError(f"the target's mean is finite and its std positive, however: mean={mean}, std={std}")
    means, variances = _moments(prediction)
    return RegressionPrediction(torch.stack([means * std + mean, variances * std**2], dim=2))


def rmse(predicted: Tensor, targets: Tensor) -> float:
    """The root of the mean squared error, sqrt(1/n sum_i (y_i - f_i)^2).

    **Shape**: predicted and targets ``[batch, ...]``.

    >>> rmse(torch.tensor([1.0, 5.0]), torch.tensor([4.0, 1.0]))  # sqrt((9 + 16) / 2)
    3.5355339059327378
    """
    check_targets(targets, predicted)
    return float((targets.double() - predicted.double()).square().mean().sqrt())


def item_nll(prediction: RegressionPrediction, targets: Tensor, *, of: str = "mixture") -> Tensor:
    """Each item's -log p(y): p the "mixture" 1/M sum_m N(mu_m, sigma_m^2), or one Gaussian with its "moments".

    **Shape**: targets ``[batch, ...]``, in the prediction's units; returns ``[batch, ...]``, float64.

    >>> prediction = RegressionPrediction(torch.tensor([[[0.0, 1.0]], [[0.0, 1.0]]]))
    >>> item_nll(prediction, torch.tensor([0.0]))  # log sqrt(2 pi)
    tensor([0.9189], dtype=torch.float64)
    """
    if of not in ("mixture", "moments"):
        raise MetricError(f"of is mixture or moments, however: {of!r}")
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
        raise MetricError(f"levels is at least 1, however: levels={levels}")
    values = pit(prediction, targets).flatten().sort().values
    expected = torch.arange(1, levels + 1, dtype=torch.float64, device=values.device) / (levels + 1)
    return QuantileCurve(expected, torch.searchsorted(values, expected, right=True).double() / len(values))


def regression(
    prediction: RegressionPrediction,
    targets: Tensor,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    levels: Sequence[float] = LEVELS,
) -> dict[str, float]:
    """Every metric in the units of the targets; the network's own were standardised by ``mean`` and ``std``.

    ``member_NAME`` is the mean over members alone and ``gain_NAME`` the ensemble minus it; ``aleatoric`` and
    ``epistemic`` are mean variances; ``coverage_90`` and ``width_90`` those of the mixture's central 90 % interval.

    **Shape**: prediction of ``[members, batch, 2, ...]``; targets ``[batch, ...]``, in their original units.

    >>> standardised = RegressionPrediction(torch.tensor([[[1.0, 0.5]], [[3.0, 1.5]]]))
    >>> found = regression(standardised, torch.tensor([26.0]), mean=10.0, std=10.0)
    >>> round(found["rmse"], 6), round(found["aleatoric"], 6), round(found["epistemic"], 6)
    (4.0, 100.0, 100.0)
    """
    prediction = in_units(prediction, mean=mean, std=std)
    curve = quantile_curve(prediction, targets)
    found = {
        "rmse": rmse(prediction.mean, targets),
        "nll": float(item_nll(prediction, targets).mean()),
        "nll_moments": float(item_nll(prediction, targets, of="moments").mean()),
        "aleatoric": float(prediction.aleatoric.mean()),
        "epistemic": float(prediction.epistemic.mean()),
        "quantile_error": curve.error,
    }
    for level in levels:
        low, high = prediction.interval(check_share(level, "level"))
        found[f"coverage_{100 * level:g}"] = coverage(low, high, targets)
        found[f"width_{100 * level:g}"] = mean_width(low, high)
    alone = [RegressionPrediction(member.unsqueeze(0)) for member in prediction.members]
    found["member_rmse"] = sum(rmse(one.mean, targets) for one in alone) / len(alone)
    found["member_nll"] = sum(float(item_nll(one, targets).mean()) for one in alone) / len(alone)
    found["gain_rmse"] = found["rmse"] - found["member_rmse"]
    found["gain_nll"] = found["nll"] - found["member_nll"]
    return found


def _moments(prediction: RegressionPrediction) -> tuple[Tensor, Tensor]:
    """mu and sigma^2, each ``[members, batch, ...]``, float64, checked."""
    means, variances = prediction.members.double().unbind(2)
    check_scores(means, "predicted means", finite=True)
    if not (check_scores(variances, "predicted variances", finite=True) > 0).all():
        raise MetricError(
            "predicted variances are positive, however: 0 or less is among them. Use RegressionPrediction.from_outputs"
        )
    return means, variances


def _log_gaussian(y: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return -0.5 * (math.log(2 * math.pi) + variance.log() + (y - mean).square() / variance)
