"""The shape law of an ensemble's outputs, [members, batch, outputs, ...], and the precision they are read in."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import ConfigError

__all__ = ["at_least_float32", "check_stacked"]


def at_least_float32(tensor: Tensor) -> Tensor:
    """float16 and bfloat16 as float32, which logarithms and sums over members need; all others as they are.

    >>> at_least_float32(torch.zeros(2, dtype=torch.float16)).dtype
    torch.float32
    """
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def check_stacked(outputs: Tensor, law: str) -> None:
    """Refuse outputs without members, of too few axes, or that are no floating point numbers."""
    if outputs.ndim < 3 or outputs.shape[0] == 0:
        raise ConfigError(
            f"an ensemble's outputs must be {law} with at least one member; got shape {list(outputs.shape)}. "
            "For one network's outputs use outputs.unsqueeze(0)"
        )
    if not outputs.is_floating_point():
        raise ConfigError(
            f"an ensemble's outputs must be floating point; got {outputs.dtype}. Pass the network's outputs, not labels"
        )
