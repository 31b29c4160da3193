"""SWAG: a Gaussian around the average of one training run's last weights; the members are samples of it.

Maddox, Izmailov, Garipov, Vetrov, Wilson: A Simple Baseline for Bayesian Uncertainty in Deep Learning, NeurIPS 2019.

    mean   = average of theta_1 .. theta_n                    diag = max(average of theta^2 - mean^2, 1e-30)
    D      = the last K columns theta_i - mean_i              (mean_i already includes theta_i)
    theta  = mean + diag^(1/2) z_1 / sqrt(2) + D z_2 / sqrt(2 (K - 1)),        z ~ N(0, I)

so that the covariance is diag/2 + D D^T / (2 (K - 1)). `scale` multiplies it; scale = 0 is the average itself (SWA).
Batch norm statistics are computed anew for every sample. The learning rate stays up while weights are collected:

    lr = lr_0 (1 - (1 - final) clamp((t - .5) / .4, 0, 1)),        t = epoch / (start * epochs + 1)

Shape: x [batch, ...] -> [1, batch, outputs] while training, [members, batch, outputs] once sampled. Cost: K + 2 times
one network in memory while training, M times at prediction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..ensemble import Ensemble
from ..errors import ConfigError
from .base import setting
from .collect import SHARE, OneRun, epochs_before


@dataclass(frozen=True, kw_only=True)
class Swag(OneRun):
    """Samples of a Gaussian fitted to one training run."""

    renews_norms = True
    variants = ({"scale": 0.5},)

    members: int = setting(4, "N: samples")
    start: float = setting(0.8, "the share of the epochs before the first weights are collected", **SHARE)
    rank: int = setting(20, "K: columns of the low-rank part; the divisor is K - 1 even if fewer exist", least=2)
    scale: float = setting(1.0, "multiplies the covariance; 0 gives the average (SWA)", least=0)
    final: float | None = setting(
        0.5, "the rate while collecting, as a share of the recipe's lr; None: the recipe's schedule", above=0, most=1
    )

    def rate(self, epoch: float, epochs: int, lr: float) -> float:
        """The learning rate after `epoch` epochs, a real number.

        >>> [round(Swag().rate(e, 200, 0.1), 6) for e in (80, 81, 100, 120, 144, 145)]
        [0.1, 0.099612, 0.08486, 0.069332, 0.050699, 0.05]
        """
        final = 1.0 if self.final is None else self.final
        t = epoch / (epochs_before(self.start, epochs) + 1)
        return lr * (1.0 - (1.0 - final) * min(max((t - 0.5) / 0.4, 0.0), 1.0))

    def learning_rate(self, default: float, step: int, steps: int, per_epoch: int, lr: float) -> float:
        return default if self.final is None else self.rate(step / per_epoch, steps // per_epoch, lr)

    def collects(self, epoch: int, epochs: int) -> bool:
        """Whether weights are collected at the end of this epoch (1, 2, ... epochs).

        >>> [e for e in range(1, 201) if Swag().collects(e, 200)][:2]
        [161, 162]
        """
        return epoch > epochs_before(self.start, epochs)

    def collect(self, ensemble: Ensemble) -> None:
        """Move the moments by the network's present weights."""
        state = ensemble.state
        n = int(state.setdefault("swag.count", torch.zeros((), dtype=torch.int64)))
        for name, theta in _weights(ensemble).items():
            for moment, value in (("mean", theta), ("square", theta**2)):
                before = state.get(f"swag.{moment}.{name}")
                state[f"swag.{moment}.{name}"] = value.clone() if before is None else (before * n + value) / (n + 1)
            column = (theta - state[f"swag.mean.{name}"]).unsqueeze(0)
            columns = state.get(f"swag.columns.{name}")
            state[f"swag.columns.{name}"] = column if columns is None else torch.cat([columns, column])[-self.rank :]
        state["swag.count"] = state["swag.count"] + 1

    def conclude(self, ensemble: Ensemble) -> None:
        """Sample the members; batch norm statistics are the run's last ones until they are computed anew."""
        if int(ensemble.state.get("swag.count", torch.zeros(()))) < 1:
            raise ConfigError(
                "members must be sampled around collected weights; got none. "
                f"Train past {self.start:.0%} of the epochs, or lower start"
            )
        samples = [self.sample(ensemble, seed) for seed in ensemble.randomness.seeds[: self.members]]
        present = ensemble.tensors(ensemble.own).items()
        ensemble.regrow({name: torch.stack([s.get(name, t.detach()[0]) for s in samples]) for name, t in present})

    def sample(self, ensemble: Ensemble, seed: int) -> dict[str, Tensor]:
        """One draw of all weights."""
        state = ensemble.state
        generator = torch.Generator().manual_seed(seed)
        # Sorted: a state that was saved and read back may come in another order, and must give the same draws.
        names = sorted(name.removeprefix("swag.mean.") for name in state if name.startswith("swag.mean."))
        columns = state[f"swag.columns.{names[0]}"].shape[0]
        z2 = torch.randn(columns, generator=generator, dtype=torch.float64)
        drawn = {}
        for name in names:
            mean, deviations = state[f"swag.mean.{name}"], state[f"swag.columns.{name}"]
            diag = (state[f"swag.square.{name}"] - mean**2).clamp_min(1e-30)
            z1 = torch.randn(mean.shape, generator=generator, dtype=torch.float64).to(mean)
            low = torch.tensordot(z2.to(mean), deviations, dims=1) / math.sqrt(2 * (self.rank - 1))
            drawn[name] = mean + math.sqrt(self.scale) * (diag.sqrt() * z1 / math.sqrt(2) + low)
        return drawn


def _weights(ensemble: Ensemble) -> dict[str, Tensor]:
    trainable = {name for name, p in ensemble.named_parameters() if p.requires_grad}
    return {n: t.detach()[0].clone() for n, t in ensemble.tensors(ensemble.own).items() if n in trainable}
