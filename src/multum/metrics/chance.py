"""What a network that has learned nothing would have: the test part's own frequencies, or mean and spread."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["chance"]


def chance(targets: Tensor, task: str) -> dict[str, float]:
    """NLL, and accuracy or RMSE, of always predicting the frequencies of the classes or one Gaussian of the targets.

    **Shape**: targets ``[examples, ...]``.

    >>> {name: round(value, 4) for name, value in chance(torch.tensor([0, 0, 0, 1]), "classification").items()}
    {'chance_nll': 0.5623, 'chance_accuracy': 0.75}
    >>> chance(torch.tensor([1.0, 3.0]), "regression")["chance_rmse"]
    1.0
    """
    if task == "classification":
        shares = torch.bincount(targets.flatten().long()).double() / targets.numel()
        return {"chance_nll": float(torch.special.entr(shares).sum()), "chance_accuracy": float(shares.max())}
    columns = targets.double().reshape(len(targets), -1)
    variances = columns.var(0, correction=0).clamp_min(1e-12)
    return {
        "chance_nll": float((0.5 * (variances * 2 * math.pi).log() + 0.5).mean()),
        "chance_rmse": float(variances.sqrt().mean()),
    }
