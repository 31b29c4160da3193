"""Members gathered along one training run: remembered in the ensemble's state, released as members at its end."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..ensemble import Ensemble
from ..errors import ConfigError
from .base import Builder, Remake

__all__ = ["OneRun", "collected", "epochs_before", "release", "remember"]

PREFIX = "collected."


class OneRun(Remake):
    """One network is trained; the members come from its path."""

    born = 1

    def __init__(self, network: nn.Module, builder: Builder | None):
        super().__init__(network, "pretrained", builder)


def remember(ensemble: Ensemble) -> None:
    """Add the network as it is now to what was gathered. Shape: each tensor of the state [gathered, ...]."""
    for name, tensor in ensemble.tensors(ensemble.own).items():
        before = ensemble.state.get(PREFIX + name)
        now = tensor.detach()[:1].clone()
        ensemble.state[PREFIX + name] = now if before is None else torch.cat([before, now])


def collected(ensemble: Ensemble) -> int:
    """How many were gathered so far."""
    first: Tensor | None = next((t for n, t in ensemble.state.items() if n.startswith(PREFIX)), None)
    return 0 if first is None else first.shape[0]


def release(ensemble: Ensemble, members: int) -> None:
    """The last `members` that were gathered become the members."""
    gathered = collected(ensemble)
    if gathered < members:
        raise ConfigError(
            f"training must gather {members} members; got {gathered}. Train longer, start gathering earlier, "
            f"or ask for members={max(gathered, 1)}"
        )
    ensemble.regrow({name: ensemble.state.pop(PREFIX + name)[-members:] for name in ensemble.own})


def epochs_before(start: float, epochs: int) -> int:
    """The whole epochs in this share of all of them.

    >>> epochs_before(0.29, 100)  # where 0.29 * 100 is 28.999999999999996
    29
    """
    return math.floor(start * epochs + 1e-9)
