"""Norms, ReLU and dropout of all members side by side."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ...rewrite.dropout import keep
from ...rewrite.norm import in_two_passes, normalised
from .layers import NotWide, WideLayer

__all__ = ["WideBatchNorm", "WideDropout", "WideGroupNorm", "WideLayerNorm", "WideReLU"]


class WideBatchNorm(WideLayer):
    """Own statistics are those of all channels side by side; shared ones those of all members' rows."""

    def check(self) -> None:
        module = self.module
        present = {name for name, t in (*module._parameters.items(), *module._buffers.items()) if t is not None}
        self.fresh = self.folded = bool(self.own)
        if self.own and self.own != present:
            raise NotWide("a batch norm must be each member's or all members'; got some of its tensors shared")
        if module.momentum is None:
            raise NotWide("a batch norm must have a momentum; got the mean of all batches")

    def scale_and_shift(self, like: Tensor) -> tuple[Tensor, Tensor] | None:
        """What the norm multiplies and adds, as vectors; None where it goes by the batch, or in another precision."""
        module = self.module
        mean, var, weight, bias = map(self.vector, ("running_mean", "running_var", "weight", "bias"))
        if module.training or mean is None or var is None or mean.dtype != like.dtype:
            return None
        scale = torch.rsqrt(var + module.eps)
        scale = scale if weight is None else scale * weight
        shift = -mean * scale
        return scale, shift if bias is None else shift + bias

    def forward(self, x: Tensor) -> Tensor:
        if self.done:
            self.done = False
            return x
        module = self.module
        by_batch = module.training or module.running_mean is None
        if x.ndim < 2 or (by_batch and x.numel() == x.shape[1]):
            raise NotWide("a batch norm must see more than one value per channel")
        wide = self.holds_members(x, module.num_features)
        if not self.own and module._parameters.get("weight") is None and module.running_mean is None:
            return self.normalise(x)  # every channel alone
        if not self.own:
            return self.as_rows(x, self.plain) if wide else self.plain(x)
        return self.normalise(x if wide else self.spread(x))

    def normalise(self, x: Tensor) -> Tensor:
        module = self.module
        mean, var = self.vector("running_mean"), self.vector("running_var")
        weight, bias = self.vector("weight"), self.vector("bias")
        by_batch = module.training or mean is None
        if module.training and mean is not None:
            module.num_batches_tracked.add_(1)
        if by_batch and in_two_passes(x):
            y, *statistics, _ = normalised(x, weight, bias, module.eps)
            for running, batch in zip((mean, var), statistics, strict=True):
                if module.training and running is not None:
                    running.mul_(1 - module.momentum).add_(batch, alpha=module.momentum)
            return y
        if mean is not None and not by_batch and x.dtype.itemsize < mean.dtype.itemsize:  # as for one member
            return F.batch_norm(x.to(mean.dtype), mean, var, weight, bias, False, 0.0, module.eps).to(x.dtype)
        if self.overwrites and not by_batch and not torch.is_grad_enabled() and x.is_contiguous():
            nothing = x.new_empty(0)
            out = (x, nothing, torch.empty_like(nothing))
            return torch.native_batch_norm(x, weight, bias, mean, var, False, 0.0, module.eps, out=out)[0]
        return F.batch_norm(x, mean, var, weight, bias, by_batch, module.momentum, module.eps)


class WideReLU(WideLayer):
    """In place where nobody else needs the input: memory that is new costs more than the operation."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x, inplace=self.overwrites or self.module.inplace)


class WideGroupNorm(WideLayer):
    def forward(self, x: Tensor) -> Tensor:
        module = self.module
        if not self.holds_members(x, module.num_channels):
            if not self.own:
                return self.plain(x)
            x = self.spread(x)
        return F.group_norm(x, self.members * module.num_groups, self.vector("weight"), self.vector("bias"), module.eps)


class WideLayerNorm(WideLayer):
    axis = -1

    def check(self) -> None:
        if len(self.module.normalized_shape) != 1:
            raise NotWide("a layer norm must be of the last dimension")

    def forward(self, x: Tensor) -> Tensor:
        module = self.module
        (channels,) = module.normalized_shape
        if not self.holds_members(x, channels):
            if not self.own:
                return self.plain(x)
            x = self.spread(x)
        y = F.layer_norm(x.unflatten(-1, (self.members, channels)), (channels,), None, None, module.eps).flatten(-2)
        weight, bias = self.vector("weight"), self.vector("bias")
        y = y if weight is None else y * weight
        return y if bias is None else y + bias


class WideDropout(WideLayer):
    """A mask from each member's generator, as one member after another would draw it."""

    @property
    def axis(self) -> int:  # type: ignore[override]
        return 1 if self.place is None else self.place

    def forward(self, x: Tensor) -> Tensor:
        module = self.module
        if not (module.training or module.always) or module.p == 0:
            return x
        if not self.own and self.place is None:
            return self.plain(x)
        if not self.own or (module.training and module.always):
            raise NotWide("members share a dropout mask although their inputs differ")
        if (x.ndim == 3 and self.place is None) or (module.channelwise and self.axis != 1):
            raise NotWide("dropout does not tell where the channels are")
        x = self.spread(x) if self.place is None else x
        one = x.detach().narrow(self.axis, 0, x.shape[self.axis] // self.members)
        how = module.randomness.handle, not module.training
        mask = torch.cat([keep(one, module.p, module.channelwise, i, *how) for i in module.member.unbind()], self.axis)
        return x * mask if module.p == 1 else module.combine(x, mask)
