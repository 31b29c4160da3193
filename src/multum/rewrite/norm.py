"""Batch norm that knows two ways to meet several members, and is native batch norm for one.

    own statistics:     members are folded into the channels   [M, B, C, ...] -> [B, M*C, ...]
    shared statistics:  members are folded into the batch      [M, B, C, ...] -> [M*B, C, ...]

One functional operator carries both rules, so that vmap, autograd and torch.compile see a single kernel, and running
statistics are updated outside of it. A norm's statistics are shared exactly where its running mean is.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..network.copies import own_tensors
from .walker import MemberLayer, variant

LARGE = 2**15  # numbers: below, the calls themselves take the time


@torch.library.custom_op("multum::batch_norm", mutates_args=())
def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`normalised` as one operator; `running` only says whose the statistics are."""
    return normalised(x, weight, bias, eps)


def normalised(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    """Normalise by the batch: output, mean, unbiased variance, 1/std; for plain tensors, with torch's own gradient."""
    if in_two_passes(x):
        return _TwoPasses.apply(x, weight, bias, eps)
    mean, _ = _statistics(x, weight)
    var = torch.zeros_like(mean)
    # With momentum 1 the kernel writes the batch's own mean and unbiased variance, exactly.
    y, _, invstd = torch.native_batch_norm(x, weight, bias, mean, var, True, 1.0, eps)
    return y, mean, var, invstd


def in_two_passes(x: Tensor) -> bool:
    """Whether mean and variance are found by torch's sums, one after the other: on a CPU its kernel for batch norm
    reads channels that are not last number by number, and takes two to four times as long."""
    plain = x.dtype in (torch.float32, torch.float64) and x.device.type == "cpu" and x.is_contiguous()
    return plain and x.ndim > 2 and x.numel() >= LARGE


class _TwoPasses(torch.autograd.Function):
    """Mean first, then the variance around it, plane by plane."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
        planes, count = tuple(range(2, x.ndim)), x.numel() // x.shape[1]
        mean = x.sum(planes).sum(0) / count
        off = x - mean.view(-1, *(1 for _ in planes))
        squares = torch.linalg.vector_norm(off, 2, planes).square_().sum(0)
        var = squares / count
        y = torch.native_batch_norm(x, weight, bias, mean, var, False, 0.0, eps)[0]
        outputs = y, mean, squares / (count - 1), torch.rsqrt(var + eps)
        _save(ctx, (x, weight, bias, None, eps), outputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        gx, gw, gb, *_ = _backward(ctx, *grads)
        return gx, gw, gb, None


def _statistics(x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Zeros for mean (and variance) and for 1/std: under mixed precision these are wider than the input."""
    half = x.dtype in (torch.float16, torch.bfloat16)
    dtype = weight.dtype if weight is not None else torch.float32 if half else x.dtype
    mean = torch.zeros(x.shape[1], dtype=dtype, device=x.device)
    return mean, torch.zeros_like(mean, dtype=torch.float32 if half else x.dtype)


@batch_norm.register_fake
def _(x: Tensor, weight: Tensor | None, bias: Tensor | None, running: Tensor | None, eps: float) -> Any:
    mean, invstd = _statistics(x, weight)
    return torch.empty_like(x), mean, torch.empty_like(mean), invstd


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, _, eps = inputs
    _, mean, var, invstd = output
    ctx.save_for_backward(x, weight, mean, invstd)
    ctx.eps, ctx.has_bias = eps, bias is not None
    ctx.mark_non_differentiable(mean, var, invstd)


def _backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
    x, weight, mean, invstd = ctx.saved_tensors
    mask = [ctx.needs_input_grad[0], weight is not None, ctx.has_bias]
    gx, gw, gb = torch.ops.aten.native_batch_norm_backward(
        grad, x, weight, None, None, mean.to(invstd.dtype), invstd, True, ctx.eps, mask
    )
    return gx, gw, gb, None, None


batch_norm.register_autograd(_backward, setup_context=_save)


@batch_norm.register_vmap
def _(info: Any, in_dims: Any, x: Tensor, weight: Any, bias: Any, running: Any, eps: float) -> Any:
    x_dim, w_dim, b_dim, r_dim, _ = in_dims
    members = info.batch_size
    own = r_dim is not None if running is not None else w_dim is not None if weight is not None else True
    if x_dim is None:
        x, x_dim = x.unsqueeze(0).expand(members, *x.shape), 0

    def rows(t: Tensor | None, dim: int | None) -> Tensor | None:  # [M, C]
        if t is None:
            return None
        return t.expand(members, *t.shape) if dim is None else t.movedim(dim, 0)

    weight, bias = rows(weight, w_dim), rows(bias, b_dim)
    if own:
        x = x.movedim(x_dim, 1)
        batch, _, channels, *rest = x.shape
        flat = [None if t is None else t.reshape(-1) for t in (weight, bias)]
        y, *stats = batch_norm(x.reshape(batch, members * channels, *rest), *flat, None, eps)
        return (y.reshape(batch, members, channels, *rest), *(s.view(members, channels) for s in stats)), (1, 0, 0, 0)
    x = x.movedim(x_dim, 0)
    _, batch, channels, *rest = x.shape
    pooled = x.reshape(members * batch, channels, *rest)
    if w_dim is None and b_dim is None:
        y, *stats = batch_norm(
            pooled, None if weight is None else weight[0], None if bias is None else bias[0], None, eps
        )
        return (y.reshape(members, batch, channels, *rest), *stats), (0, None, None, None)
    y, *stats = batch_norm(pooled, None, None, None, eps)
    y = y.reshape(members, batch, channels, *rest)
    shape = (members, 1, channels, *(1 for _ in rest))
    y = y if weight is None else y * weight.reshape(shape)
    y = y if bias is None else y + bias.reshape(shape)
    return (y.to(x.dtype), *stats), (0, None, None, None)


class MemberNorm(MemberLayer, nn.modules.batchnorm._BatchNorm):
    """Native batch norm for one member; as one of several, see the top of this file."""

    def forward(self, x: Tensor) -> Tensor:
        self._check_input_dim(x)
        if not (self.training or self.running_mean is None):
            mean, var, weight, bias = self.running_mean, self.running_var, self.weight, self.bias
            if mean is not None and x.dtype.itemsize < mean.dtype.itemsize:
                # Mixed precision, which torch's kernel knows and vmap's rule for it does not.
                return F.batch_norm(x.to(mean.dtype), mean, var, weight, bias, False, 0.0, self.eps).to(x.dtype)
            return F.batch_norm(x, mean, var, weight, bias, False, 0.0, self.eps)
        if x.numel() == x.shape[1]:
            raise ValueError(f"batch norm must see more than one value per channel to train; got {tuple(x.shape)}")
        if x.numel() == 0:  # nothing to normalise; as torch does, the batch counts and leaves the statistics alone
            if self.training and self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        y, mean, var, _ = batch_norm(x, self.weight, self.bias, self.running_mean, self.eps)
        if self.training and self.track_running_stats:
            self.track(mean, var)
        return y

    @torch.no_grad()
    def track(self, mean: Tensor, var: Tensor) -> None:
        """Move the running statistics towards the batch's."""
        seen: Any = self.num_batches_tracked
        seen.add_(1)
        # momentum=None means the mean of all batches so far.
        step = self.momentum if self.momentum is not None else 1.0 / seen.to(mean.dtype)
        for running, batch in ((self.running_mean, mean), (self.running_var, var)):
            if running is not None:
                running.mul_(1 - step).add_(batch.to(running.dtype) * step)


_NATIVE: tuple[type[nn.Module], ...] = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
NORMS = {plain: variant(MemberNorm, plain) for plain in _NATIVE}


def is_norm(module: nn.Module) -> bool:
    """Whether a module normalises by statistics of its input: torch's own norms and subclasses of them, or a class that
    its author calls a norm and that has vectors alone (an RMSNorm; not a normalised linear layer).

    >>> is_norm(nn.GroupNorm(2, 8)), is_norm(nn.Linear(8, 8))
    (True, False)
    """
    called = "norm" in type(module).__name__.lower() and all(t.ndim < 2 for t in own_tensors(module).values())
    return isinstance(module, (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)) or called


def norm_tensors(network: nn.Module) -> set[str]:
    """Names of the affine parameters and statistics of every norm.

    >>> sorted(norm_tensors(nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8))))
    ['1.bias', '1.weight']
    """
    return {name for path, m in network.named_modules() if is_norm(m) for name in own_tensors(m, path)}
