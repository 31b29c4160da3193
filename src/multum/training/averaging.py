"""Averages of weights along training (SWA, Polyak), and batch norm statistics for weights that never saw data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..ensemble import Ensemble

__all__ = ["Average", "refresh_norms"]


class Average:
    """The running arithmetic mean of all trainable parameters, own and shared.

    Shape: each mean has its parameter's shape; after k calls of `add` it is the mean of k values.
    """

    def __init__(self) -> None:
        self.count = 0
        self.means: dict[str, Tensor] = {}

    def add(self, ensemble: Ensemble) -> None:
        self.count += 1
        for name, p in ensemble.named_parameters():
            if p.requires_grad:
                value = p.detach()
                mean = self.means.get(name)
                self.means[name] = value.clone() if mean is None else mean + (value - mean) / self.count

    @torch.no_grad()
    def install(self, ensemble: Ensemble) -> None:
        """Put the averages in the place of the weights."""
        parameters = dict(ensemble.named_parameters())
        for name, mean in self.means.items():
            parameters[name].copy_(mean)


@torch.no_grad()
def refresh_norms(ensemble: Ensemble, batches: Iterable[Any]) -> None:
    """Recompute every batch norm's statistics as the plain mean over the batches, per member where they are own.

    Other layers behave as in evaluation: no dropout.
    """
    norms = [
        m
        for m in ensemble.network.modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats and m.running_mean is not None
    ]
    if not norms:
        return
    modes = {m: m.training for m in ensemble.modules()} | {ensemble.network: ensemble.network.training}
    momenta = [m.momentum for m in norms]
    ensemble.eval()
    for norm in norms:
        # reset_running_stats would do for a plain norm, but these buffers may carry a member axis.
        for buffer, value in ((norm.running_mean, 0), (norm.running_var, 1), (norm.num_batches_tracked, 0)):
            if buffer is not None:
                buffer.fill_(value)
        norm.momentum = None
        norm.training = True
    for x in batches:
        ensemble(x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    for module, mode in modes.items():
        module.training = mode
