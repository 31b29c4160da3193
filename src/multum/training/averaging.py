"""The weights that remain: their average along training (SWA, Polyak), or those that did best on held-out examples.

Also batch norm statistics for weights that never saw data. Whatever happens inside, the ensemble comes back as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from ..data.sources import Data, Part
from ..ensemble import Ensemble
from ..executors import EXECUTORS
from ..outputs.prediction import Prediction, eval_mode
from ..outputs.regression import RegressionPrediction, fit_noise
from .batches import stream

AT_ONCE = 512  # held-out examples in one pass


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

    def install(self, weights: Mapping[str, Tensor]) -> None:
        """Put the averages in the place of the weights."""
        _write(self.means, weights)

    @contextmanager
    def installed(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """The averages in the place of the weights for a while."""
        before = {name: weights[name].detach().clone() for name in self.means}
        try:
            self.install(weights)
            yield
        finally:
            _write(before, weights)


class Best:
    """The best score so far, lower is better, and the tensors it belongs to."""

    def __init__(self, score: float = math.inf, tensors: dict[str, Tensor] | None = None):
        self.score, self.tensors = score, tensors or {}

    def consider(self, score: float, tensors: Mapping[str, Tensor]) -> None:
        if score < self.score or not self.tensors:
            self.score, self.tensors = score, {name: t.detach().clone() for name, t in tensors.items()}

    def install(self, tensors: Mapping[str, Tensor]) -> None:
        _write(self.tensors, tensors)


@torch.no_grad()
def _write(values: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        tensors[name].copy_(value)


@torch.no_grad()
def held_out_score(
    ensemble: Ensemble,
    data: Data,
    by: str,
    place: Callable[[Tensor], Tensor],
    member: int | None = None,
    size: int = AT_ONCE,
) -> float:
    """NLL or accuracy of the mixture of all members, or of one, on the validation part, in standardised units; the
    mean by the examples' weights, where they have some.

    Args:
        by: "nll" or "accuracy".
        place: what brings a tensor to the ensemble's device and dtype.
    """
    assert data.validation is not None
    part, total, mass = data.validation, 0.0, 0.0
    if by == "nll" and "noise" in ensemble.state:  # with the constant noise that suits these members best
        means, wanted = members_means(ensemble, data, part, place, member, size)
        wanted_each = wanted.squeeze(1) if wanted.shape[1] == 1 else wanted
        return _mean(_nll(means, wanted_each, data.task, fit_noise(means, wanted)), part.weights)[0]
    with eval_mode(ensemble):
        for start in range(0, len(part), size):
            rows = slice(start, start + size)
            outputs = ensemble(place(data.prepare(part.x[rows])), member=member)
            y = data.targets(part.y[rows]).to(outputs.device)
            measure = _nll if by == "nll" else _accuracy
            each = measure(outputs if member is None else outputs.unsqueeze(0), y, data.task)
            value, weight = _mean(each, None if part.weights is None else part.weights[rows])
            total, mass = total + value * weight, mass + weight
    return total / mass


def _mean(each: Tensor, weights: Tensor | None) -> tuple[float, float]:
    """The mean over examples by their weights, and what these weigh together. Shape: [examples, ...], [examples]."""
    if weights is None:
        return float(each.mean()), len(each)
    mass = float(weights.sum())
    each = each.double().reshape(len(each), -1).mean(1)
    return (float(each @ weights.to(each)) / mass if mass else 0.0), mass


def _accuracy(outputs: Tensor, y: Tensor, task: str) -> Tensor:
    return (Prediction.from_logits(outputs).labels == y).double()


def _nll(outputs: Tensor, y: Tensor, task: str, noise: Tensor | None = None) -> Tensor:
    if task == "classification":
        return -Prediction.from_logits(outputs).log_probs.gather(1, y[:, None])
    mean, variance = RegressionPrediction.from_outputs(outputs, noise).members.unbind(2)
    log = torch.distributions.Normal(mean, variance.sqrt()).log_prob(y)
    return math.log(len(mean)) - log.logsumexp(0)


@torch.no_grad()
def members_means(
    ensemble: Ensemble,
    data: Data,
    part: Part,
    place: Callable[[Tensor], Tensor],
    member: int | None = None,
    size: int = AT_ONCE,
) -> tuple[Tensor, Tensor]:
    """What members of one output per target say of a part, and its targets, standardised as the loss takes them.

    Shape: [members or 1, examples, targets] and [examples, targets], on the CPU.
    """
    parts = []
    with eval_mode(ensemble):
        for start in range(0, len(part), size):
            outputs = ensemble(place(data.prepare(part.x[start : start + size])), member=member)
            parts.append((outputs if member is None else outputs.unsqueeze(0)).double().cpu())
    means, y = torch.cat(parts, dim=1), data.targets(part.y).double()
    return means, y.reshape(len(y), -1)


def set_noise(ensemble: Ensemble, data: Data, place: Callable[[Tensor], Tensor]) -> None:
    """Fit the constant noise of members of one output per target: to held-out residuals, or to those of training."""
    part = data.train if data.validation is None else data.validation
    ensemble.state["noise"] = fit_noise(*members_means(ensemble, data, part, place))


@torch.no_grad()
def refresh_norms(ensemble: Ensemble, batches: Iterable[Any], seed: int = 0) -> None:
    """Compute every batch norm's statistics anew from these batches, per member where they are own.

    The mean is that of all rows. The variance is that of all rows too, by the law of total variance: the mean of the
    batches' variances plus the variance of their means. Members see what they see in training (a method that mixes
    rows mixes them here, by the seed), and layers behind a norm see it normalise by its batch; other layers behave as
    in evaluation (no dropout).
    """
    norms = norms_of(ensemble)
    if not norms:
        return
    with eval_mode(ensemble), _measuring(ensemble, norms) as totals:
        for i, x in enumerate(batches):
            rows = torch.arange(next(len(t) for t in tree_flatten(x)[0] if isinstance(t, Tensor)))
            seen = ensemble.method.batch(x, rows, stream(seed, "norms", i))
            ensemble(seen.x, per_member=seen.per_member)
            for total in totals:
                total.add()
        for total in totals:
            total.finish()


def norms_of(ensemble: Ensemble) -> dict[str, Any]:
    """Path -> batch norm, of those that keep statistics of what they see."""
    return {
        path: m
        for path, m in ensemble.network.named_modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats and m.running_mean is not None
    }


@contextmanager
def _measuring(ensemble: Ensemble, norms: Mapping[str, Any]) -> Iterator[list[_Moments]]:
    """Norms whose buffers hold the last batch's own statistics; after a failure they hold what they held before."""
    momenta, chosen = [norm.momentum for norm in norms.values()], ensemble.chosen
    buffers = {b: b.clone() for norm in norms.values() for b in norm.buffers()}
    totals: list[_Moments] = []
    try:
        if ensemble.pooled:
            ensemble.executor = next((name for name in ensemble.executors if EXECUTORS[name].pools), chosen)
        pools = EXECUTORS[ensemble.executor].pools
        for path, norm in norms.items():
            totals.append(_Moments(norm, ensemble.members if pools and path in ensemble.pooled else 1))
            norm.training, norm.momentum = True, 1.0
        yield totals
    except BaseException:
        for buffer, value in buffers.items():
            buffer.copy_(value)
        raise
    finally:
        for total in totals:
            total.hook.remove()
        for norm, momentum in zip(norms.values(), momenta, strict=True):
            norm.momentum = momentum
        ensemble.executor = chosen


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
        if self.values:
            mean = self.mean / self.values
            between = (self.square - self.values * mean.square()).clamp_min(0)
            self.norm.running_mean.copy_(mean)
            self.norm.running_var.copy_((self.spread + between) / max(self.values - 1, 1))
        if self.norm.num_batches_tracked is not None:
            self.norm.num_batches_tracked.fill_(self.batches)
