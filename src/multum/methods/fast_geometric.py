"""Fast geometric ensembling: short learning-rate cycles around a trained network, a member at each minimum.

Garipov, Izmailov, Podoprikhin, Vetrov, Wilson: Loss Surfaces, Mode Connectivity, and Fast Ensembling of DNNs,
NeurIPS 2018.

    t  = (epoch mod c + iteration / iterations) / c
    lr = (1 - 2t) a_1 + 2t a_2        for t < 1/2,        (2t - 1) a_1 + (2 - 2t) a_2        otherwise

The cycles begin after the share `start` of the epochs, or earlier where M members would not fit behind it.

Shape: x [batch, ...] -> [1, batch, outputs] while training, [members, batch, outputs] once collected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..checks import number
from ..errors import ConfigError
from .base import setting
from .collect import SHARE, OneRun, epochs_before


def _even(name: str, value: object) -> None:
    if not isinstance(value, int) or value < 2 or value % 2:
        raise ConfigError(f"{name} must be an even number of epochs >= 2; got {name}={value!r}. Use {name}=2")


@dataclass(frozen=True, kw_only=True)
class FastGeometric(OneRun):
    """Members along the end of one training run."""

    members: int = setting(4, "M: the last members that were collected")
    start: float = setting(0.8, "the share of the epochs before the cycles begin", **SHARE)
    cycle: int = setting(2, "c: epochs of one cycle, an even number", check=_even)
    high: float = setting(
        0.5, "a_1: the rate at the ends of a cycle, as a share of the recipe's lr (the paper's .05 of .1)", above=0
    )
    low: float = setting(0.1, "a_2: the rate in the middle, where a member is collected, as a share too (.01 of .1)")

    def __post_init__(self) -> None:
        super().__post_init__()
        number("low", self.low, above=0, most=self.high, fix=f"Here high={self.high!r}; use low <= high")

    def rate(self, epoch: int, fraction: float) -> float:
        """The share of the recipe's lr inside the cycles: whole epochs since `start`, and the share of the present one.

        >>> fge = FastGeometric(cycle=4, high=0.05, low=0.0001)
        >>> [round(fge.rate(e, f), 6) for e, f in ((0, 0), (0, 0.5), (1, 0), (2, 0), (3, 0.5))]
        [0.05, 0.037525, 0.02505, 0.0001, 0.037525]
        """
        t = (epoch % self.cycle + fraction) / self.cycle
        weight = 1 - 2 * t if t < 0.5 else 2 * t - 1
        return weight * self.high + (1 - weight) * self.low

    def learning_rate(self, default: float, step: int, steps: int, per_epoch: int, lr: float) -> float:
        since = step / per_epoch - self.first(steps // per_epoch)
        return default if since < 0 else lr * self.rate(math.floor(since), since - math.floor(since))

    def first(self, epochs: int) -> int:
        """Epochs before the cycles begin: `start`, or fewer where the last of M members would come too late.

        >>> FastGeometric(members=4, cycle=2).first(30), FastGeometric(members=4, cycle=2).first(10)
        (23, 3)
        """
        return max(0, min(epochs_before(self.start, epochs), epochs - self._needed()))

    def check_epochs(self, epochs: int) -> None:
        if epochs < self._needed():
            fitting = max((epochs - self.cycle // 2) // self.cycle + 1, 0)
            raise ConfigError(
                f"{self.members} members in cycles of {self.cycle} epochs must have {self._needed()} epochs; got "
                f"{epochs}. Train for {self._needed()} epochs or more, or "
                + (f"ask for members={fitting}" if fitting else "take a shorter cycle")
            )

    def _needed(self) -> int:
        """Epochs up to the middle of cycle M, where the last member is collected."""
        return (self.members - 1) * self.cycle + self.cycle // 2

    def collects(self, epoch: int, epochs: int) -> bool:
        """Whether a member is collected at the end of this epoch (1, 2, ... epochs): where the rate is lowest."""
        since = epoch - 1 - self.first(epochs)
        return since >= 0 and since % self.cycle + 1 == self.cycle // 2
