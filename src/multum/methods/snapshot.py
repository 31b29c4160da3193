"""Snapshot ensembles: one training run that visits M minima, each kept as a member.

Huang, Li, Pleiss, Liu, Hopcroft, Weinberger: Snapshot Ensembles: Train 1, get M for free, ICLR 2017.

    lr(t) = lr_0 / 2 * (cos(pi * mod(t - 1, ceil(T/M)) / ceil(T/M)) + 1)        t = 1 .. T

A snapshot is taken at the end of each of the M cycles; the optimizer is not reset. If M does not divide the epochs,
cycles are a whole number of epochs long and differ by one epoch. With `cycles=False` the learning rate is the recipe's
and the snapshots are spread evenly over the end of training; if the recipe averages weights, snapshots are taken of the
running average, with their own batch norm statistics (the SE baseline of the hypernetwork paper).

Shape: x [batch, ...] -> [1, batch, outputs] while training, [members, batch, outputs] once collected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..errors import ConfigError
from .base import setting
from .collect import SHARE, OneRun, epochs_before


@dataclass(frozen=True, kw_only=True)
class Snapshot(OneRun):
    """Members along one training run with a cyclic learning rate."""

    members: int = setting(5, "M: cycles, hence snapshots")
    cycles: bool = setting(True, "cosine cycles; False: the recipe's schedule, snapshots after `start`")
    start: float = setting(0.8, "without cycles: the share of the epochs before the first snapshot", **SHARE)

    def rate(self, step: int, steps: int, lr: float) -> float:
        """The learning rate of step t = 1 .. T.

        >>> [round(Snapshot(members=5).rate(t, 200, 0.2), 6) for t in (1, 11, 21, 40, 41)]
        [0.2, 0.170711, 0.1, 0.000308, 0.2]
        """
        length = math.ceil(steps / self.members)
        return lr / 2 * (math.cos(math.pi * ((step - 1) % length) / length) + 1)

    def learning_rate(self, default: float, step: int, steps: int, per_epoch: int, lr: float) -> float:
        if not self.cycles:
            return default
        ends = [0, *self._ends(steps // per_epoch)]
        k = next((k for k, end in enumerate(ends[1:]) if step < end * per_epoch), self.members - 1)
        length = (ends[k + 1] - ends[k]) * per_epoch
        return replace(self, members=1).rate(step - ends[k] * per_epoch + 1, length, lr)

    def check_epochs(self, epochs: int) -> None:
        room = epochs - self._first(epochs)
        if room < self.members:
            needed = self.members if self.cycles else math.ceil(self.members / (1 - self.start))
            raise ConfigError(
                f"every snapshot must have an epoch of its own; got {self.members} members in {room} of {epochs} epochs"
                f". Train for {needed} epochs, ask for members={max(room, 1)}"
                + ("" if self.cycles else ", or lower start")
            )

    def collects_average(self) -> bool:
        return not self.cycles

    def collects(self, epoch: int, epochs: int) -> bool:
        """Whether a snapshot is taken at the end of this epoch (1, 2, ... epochs).

        >>> [e for e in range(1, 201) if Snapshot(members=10, cycles=False).collects(e, 200)]
        [164, 168, 172, 176, 180, 184, 188, 192, 196, 200]
        """
        return epoch in self._ends(epochs)

    def _first(self, epochs: int) -> int:
        return 0 if self.cycles else epochs_before(self.start, epochs)

    def _ends(self, epochs: int) -> list[int]:
        """The epochs after which snapshots are taken."""
        first = self._first(epochs)
        return [first + math.ceil((epochs - first) * k / self.members) for k in range(1, self.members + 1)]
