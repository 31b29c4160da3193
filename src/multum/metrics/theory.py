"""Two formulas of the papers: error as bias and variance (MIMO, Figure 2), and what masks cost (Packed, C.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import MetricError
from .inputs import check_same_shape, check_scores

__all__ = ["BiasVariance", "bias_variance", "masking_kl", "masking_kl_bound"]


@dataclass(frozen=True)
class BiasVariance:
    """The mean squared error over training sets and its two parts, error = bias + variance."""

    error: float
    bias: float  # squared, and with the noise of the targets in it
    variance: float


def bias_variance(predictions: Tensor, targets: Tensor) -> BiasVariance:
    """The squared error of models trained on repeated training sets: E (f - y)^2 = E (fbar - y)^2 + E (f - fbar)^2.

    **Shape**: predictions ``[trainings, items, ...]``; targets ``[items, ...]``.

    >>> bias_variance(torch.tensor([[1.0], [3.0]]), torch.tensor([5.0]))
    BiasVariance(error=10.0, bias=9.0, variance=1.0)
    """
    if predictions.ndim < 2 or len(predictions) == 0:
        raise MetricError(f"predictions are [trainings, items, ...], however: shape {list(predictions.shape)}")
    check_same_shape(predictions[0], targets, "one training's predictions", "targets")
    check_scores(predictions, "predictions", finite=True)
    check_scores(targets, "targets", finite=True)
    f, y = predictions.double(), targets.double()
    mean = f.mean(0)
    squares = ((f - y).square(), (mean - y).square(), (f - mean).square())
    return BiasVariance(*(float(square.mean()) for square in squares))


def masking_kl(p: Tensor | float, weights: Tensor, means: Tensor, std: Tensor | float) -> Tensor:
    """The divergence KL(z, z~) of a neuron z = sum_k w_k h_k from z~, which keeps each weight with probability p: (17).

    With mu = sum_k w_k mu_k and s = sum_k w_k^2 mu_k^2, z ~ N(mu, sigma^2) and z~ ~ N(p mu, v):

        v  = p (sigma^2 + (1 - p) s)
        KL = 1/2 {log(v / sigma^2) + (sigma^2 + (1 - p)^2 mu^2) / v - 1}

    **Shape**: weights and means of the inputs ``[..., inputs]``; p and std (sigma, of z) broadcast against ``[...]``.

    >>> w = torch.full((100,), 0.1, dtype=torch.float64)
    >>> round(masking_kl(0.5, w, w, 0.5).item(), 6), masking_kl(1.0, w, w, 0.5).item()
    (1.124112, 0.0)
    """
    p, mu, s, variance = _neuron(p, weights, means, std)
    masked = p * (variance + (1 - p) * s)
    kl = 0.5 * ((masked / variance).log() + (variance + ((1 - p) * mu).square()) / masked - 1)
    return kl.clamp_min(0)  # rounding can make it negative near p = 1


def masking_kl_bound(p: Tensor | float, weights: Tensor, means: Tensor, std: Tensor | float) -> Tensor:
    """The upper bound of :func:`masking_kl`, Proposition C.1, (8).

        KL <= 1/2 {p + 1/p - 2 + p (1 - p) s / sigma^2 + ((1 - p) mu)^2 / (p sigma^2)}

    **Shape**: as in :func:`masking_kl`.

    >>> w = torch.full((100,), 0.1, dtype=torch.float64)
    >>> round(masking_kl_bound(0.5, w, w, 0.5).item(), 6), masking_kl_bound(1.0, w, w, 0.5).item()
    (1.255, 0.0)
    """
    p, mu, s, variance = _neuron(p, weights, means, std)
    spread = (1 - p).square() / p  # p + 1/p - 2, without its cancellation near p = 1
    return 0.5 * (spread + p * (1 - p) * s / variance + ((1 - p) * mu).square() / (p * variance))


def _neuron(
    p: Tensor | float, weights: Tensor, means: Tensor, std: Tensor | float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    p, std = (torch.as_tensor(value, dtype=torch.float64, device=weights.device) for value in (p, std))
    if not ((p > 0) & (p <= 1)).all():
        raise MetricError(f"p, the share of weights kept, is above 0 and at most 1, however: {p.tolist()}")
    if not ((std > 0) & std.isfinite()).all():
        raise MetricError(f"std, of the neuron, is positive, however: {std.tolist()}")
    products = weights.double() * means.double()
    return p, products.sum(-1), products.square().sum(-1), std.square()
