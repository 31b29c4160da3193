"""How far a neuron with masked weights is from the whole one: Packed-Ensembles, appendix C."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ConfigError

__all__ = ["masking_kl", "masking_kl_bound"]


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
        raise ConfigError(f"p, the share of weights that stay, must satisfy 0 < p <= 1; got {p.tolist()}")
    if not ((std > 0) & std.isfinite()).all():
        raise ConfigError(f"std, of the neuron, must be positive; got {std.tolist()}")
    products = weights.double() * means.double()
    return p, products.sum(-1), products.square().sum(-1), std.square()
