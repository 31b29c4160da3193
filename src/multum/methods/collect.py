"""Members gathered along one training run: remembered in the ensemble's state, released as members at its end."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..ensemble import Ensemble
from ..errors import ConfigError
from .base import Builder, Method, Remake

PREFIX = "collected."
SHARE = {"least": 0, "below": 1, "fix": "It is a share of the epochs, such as start=0.8"}


class OneRun(Method):
    """One network is trained; the members come from its path, as it is where it is collected."""

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Remake:
        birth = Remake(network, "pretrained", builder)
        birth.born = 1
        return birth

    def alone(self) -> OneRun:
        return self

    def collect(self, ensemble: Ensemble) -> None:
        """Add the network as it is now to what was gathered. Shape: each tensor of the state [gathered, ...]."""
        for name, tensor in ensemble.tensors(ensemble.own).items():
            before = ensemble.state.get(PREFIX + name)
            now = tensor.detach()[:1].clone()
            ensemble.state[PREFIX + name] = now if before is None else torch.cat([before, now])

    def conclude(self, ensemble: Ensemble) -> None:
        """The last `members` that were gathered become the members."""
        gathered = collected(ensemble)
        if gathered < self.members:
            raise ConfigError(
                f"training must gather {self.members} members; got {gathered}. Train longer, start gathering earlier, "
                f"or ask for members={max(gathered, 1)}"
            )
        ensemble.regrow({name: ensemble.state.pop(PREFIX + name)[-self.members :] for name in ensemble.own})


def collected(ensemble: Ensemble) -> int:
    """How many were gathered so far."""
    first: Tensor | None = next((t for n, t in ensemble.state.items() if n.startswith(PREFIX)), None)
    return 0 if first is None else first.shape[0]


def epochs_before(start: float, epochs: int) -> int:
    """The whole epochs in this share of all of them.

    >>> epochs_before(0.29, 100)  # where 0.29 * 100 is 28.999999999999996
    29
    """
    return math.floor(start * epochs + 1e-9)
