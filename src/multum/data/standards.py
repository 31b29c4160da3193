"""What standardises examples and targets, taken from a training part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .scaling import fit_scaling

if TYPE_CHECKING:
    from .parts import Part
    from .tables import Table

__all__ = ["standards"]

LOOKED_AT = 1024  # images of a folder whose mean and spread stand for all


def standards(train: Part, task: str, table: Table | None = None) -> dict[str, Any]:
    """Mean and spread of each channel or column, as `Data.prepare` takes them, and of a regression's targets.

    Numbers of a table are scaled by their quantiles where it has rows enough to tell them.
    """
    x = train.x
    if train.lazy and x.sampled:
        x = x[torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:LOOKED_AT]]
    mean, std = _moments(x)
    scaling = None
    if table is None:
        mean, std = mean.float(), std.float()
    else:
        scaling = fit_scaling(x, [place for place, indicator in enumerate(table.indicators) if not indicator])
        # Columns of zeros and ones stay: a rare category would become a huge number.
        stays = torch.tensor(table.indicators) if scaling is None else torch.ones_like(mean, dtype=torch.bool)
        mean, std = torch.where(stays, 0.0, mean), torch.where(stays, 1.0, std)
    std = torch.where(std > 0, std, torch.ones_like(std))  # a constant column carries nothing and stays 0
    inputs = {"mean": mean, "std": std, "scaling": scaling}
    if task == "classification":
        return inputs
    if train.y.ndim > 1:
        spreads = train.y.std(0) if len(train) > 1 else torch.zeros_like(train.y[0])
        target_std = torch.where(spreads > 0, spreads, torch.ones_like(spreads))
        return {**inputs, "target_mean": train.y.mean(0), "target_std": target_std}
    spread = float(train.y.std()) if len(train) > 1 else 0.0
    return {**inputs, "target_mean": float(train.y.mean()), "target_std": spread if spread > 0 else 1.0}


def _moments(x: Any, rows: int = 4096) -> tuple[Tensor, Tensor]:
    """In float64, piece by piece: it takes eight times the bytes of an image."""
    dims = (0, 2, 3) if x.ndim == 4 else (0,)
    scale = 255.0 if x.dtype == torch.uint8 else 1.0
    count = x.shape[0] * (x.shape[2] * x.shape[3] if x.ndim == 4 else 1)
    mean = sum(part.double().sum(dims, keepdim=True) for part in x.split(rows)) / count
    square = sum((part.double() - mean).square().sum(dims, keepdim=True) for part in x.split(rows))
    std = (square / max(count - 1, 1)).sqrt()
    return (mean / scale)[0], (std / scale)[0]
