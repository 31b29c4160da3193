"""Averages of weights along training (SWA, Polyak), and batch norm statistics for weights that never saw data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..ensemble import Ensemble
from ..executors import EXECUTORS

__all__ = ["Average", "refresh_norms"]


class Average:
    """The running arithmetic mean of named tensors: mean_k = mean_{k-1} + (value_k - mean_{k-1}) / k.

    >>> average, weight = Average(), torch.zeros(2)
    >>> for value in (1.0, 2.0, 6.0):
    ...     average.add({"w": weight.fill_(value)})
    >>> average.means["w"]
    tensor([3., 3.])
    """

    def __init__(self, count: int = 0, means: dict[str, Tensor] | None = None):
        self.count, self.means = count, means or {}

    def add(self, weights: Mapping[str, Tensor]) -> None:
        self.count += 1
        for name, value in weights.items():
            mean = self.means.get(name)
            value = value.detach()
            self.means[name] = value.clone() if mean is None else mean + (value - mean) / self.count

    @torch.no_grad()
    def install(self, weights: Mapping[str, Tensor]) -> None:
        """Put the averages in the place of the weights."""
        for name, mean in self.means.items():
            weights[name].copy_(mean)

    @contextmanager
    def installed(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """The averages in the place of the weights for a while."""
        before = Average(1, {name: weights[name].detach().clone() for name in self.means})
        self.install(weights)
        yield
        before.install(weights)


@torch.no_grad()
def refresh_norms(ensemble: Ensemble, batches: Iterable[Any]) -> None:
    """Compute every batch norm's statistics anew from these batches, per member where they are own.

    The mean is that of all rows. The variance is that of all rows too, by the law of total variance: the mean of the
    batches' variances plus the variance of their means. Layers behind a norm see it normalise by its batch, as in
    training; other layers behave as in evaluation (no dropout).
    """
    norms = [
        m
        for m in ensemble.network.modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats and m.running_mean is not None
    ]
    if not norms:
        return
    modes = {m: m.training for m in (ensemble, *ensemble.network.modules())}
    momenta, chosen = [m.momentum for m in norms], ensemble.chosen
    ensemble.eval()
    if ensemble.pooled:
        ensemble.executor = next((name for name in ensemble.executors if EXECUTORS[name].pools), chosen)
    paths = {m: path for path, m in ensemble.network.named_modules()}
    pools = EXECUTORS[ensemble.executor].pools
    totals = [_Moments(m, ensemble.members if pools and paths[m] in ensemble.pooled else 1) for m in norms]
    for norm in norms:
        norm.training, norm.momentum = True, 1.0  # so that the buffers hold the last batch's own statistics
    for x in batches:
        ensemble(x)
        for total in totals:
            total.add()
    for total, norm, momentum in zip(totals, norms, momenta, strict=True):
        total.finish()
        norm.momentum = momentum
    ensemble.executor = chosen
    for module, mode in modes.items():
        module.training = mode


class _Moments:
    """Sums of one norm's statistics over batches. Shape: those of its buffers, perhaps with a member axis.

    Args:
        members: whose rows the norm sees at once.
    """

    def __init__(self, norm: Any, members: int):
        self.norm, self.members = norm, members
        self.values = self.batches = self.latest = 0  # values per channel: in all, and in the last batch
        self.mean, self.square, self.spread = (torch.zeros_like(norm.running_mean, dtype=torch.float64) for _ in "msv")
        self.hook = norm.register_forward_pre_hook(self._count)

    def _count(self, norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.latest = self.members * inputs[0].numel() // inputs[0].shape[1]

    def add(self) -> None:
        n, mean, var = self.latest, self.norm.running_mean.double(), self.norm.running_var.double()
        self.values += n
        self.batches += 1
        self.mean += n * mean
        self.square += n * mean.square()
        self.spread += (n - 1) * var  # running variances are unbiased

    def finish(self) -> None:
        self.hook.remove()
        if self.values:
            mean = self.mean / self.values
            between = (self.square - self.values * mean.square()).clamp_min(0)
            self.norm.running_mean.copy_(mean)
            self.norm.running_var.copy_((self.spread + between) / max(self.values - 1, 1))
        if self.norm.num_batches_tracked is not None:
            self.norm.num_batches_tracked.fill_(self.batches)
