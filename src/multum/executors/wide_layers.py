"""Layers for all members side by side in the channels: [batch, members * channels, ...], member 0's channels first.

A layer tells by the number of channels whether its input holds all members or is common to them. Its tensors are read
when it runs, and reshaped without a copy: what trains, moves or loads the ensemble's tensors needs to know nothing.

    own weights      on all members     one convolution in members * groups groups; one batched product
                     on a common input  one dense convolution or product with all members' outputs
    shared weights   on all members     members are rows of one plain layer
                     on a common input  the layer itself, once
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..rewrite.dropout import DROPOUTS, keep
from ..rewrite.norm import NORMS

__all__ = ["NotWide", "WideLayer", "wide_layer"]


class NotWide(Exception):
    """Why the members of a network cannot lie side by side in its channels."""


class WideLayer:
    """One module's layer for all members. Shape: `axis` is the dimension of the channels, 1 or -1."""

    axis: ClassVar[int] = 1
    place: int | None = None  # the dimension of the members in the input, where the channels do not tell

    def __init__(self, module: Any, own: frozenset[str], members: int):
        self.module, self.own, self.members = module, own, members
        self.check()

    def check(self) -> None:
        """Raise NotWide where the module, as it is set up, has no wide form."""

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def plain(self, x: Tensor) -> Tensor:
        """The module itself, for one member or for what members have in common."""
        return type(self.module).forward(self.module, x)

    def holds_members(self, x: Tensor, channels: int) -> bool:
        """Whether the input holds all members, or is common to them."""
        width = x.shape[self.axis]
        if width != channels and width != self.members * channels:
            raise NotWide(f"{type(self.module).__name__} must get {channels} channels per member; got {width} in all")
        return width != channels

    def tensor(self, name: str) -> Tensor | None:
        module = self.module
        return module._parameters[name] if name in module._parameters else module._buffers[name]

    def vector(self, name: str) -> Tensor | None:
        """Shape: [channels] of each member or of all -> [members * channels]."""
        t = self.tensor(name)
        if t is None:
            return None
        return t.flatten() if name in self.own else t.repeat(self.members)

    def spread(self, x: Tensor) -> Tensor:
        """What members have in common, once for each of them."""
        axis = self.axis % x.ndim
        return x.unsqueeze(axis).expand(*x.shape[:axis], self.members, *x.shape[axis:]).flatten(axis, axis + 1)

    def as_rows(self, x: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Members as rows of one plain layer, channels behind the batch. Shape: [B, M*C, ...] <-> [B*M, C, ...]."""
        batch, width, *rest = x.shape
        y = run(x.reshape(batch * self.members, width // self.members, *rest))
        return y.reshape(batch, self.members * y.shape[1], *y.shape[2:])


# -- products ----------------------------------------------------------------------------------------------------------


class _Product(WideLayer):
    """A convolution or a linear layer."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.own:
            return self.as_rows(x, self.plain) if self.holds_members(x, self.inputs) else self.plain(x)
        if "weight" in self.own:
            return self.own_weight(x, self.vector("bias"))
        y = self.shared_weight(x if self.holds_members(x, self.inputs) else self.spread(x))
        bias = self.vector("bias")
        return y if bias is None else y + self.along(bias, y)

    @property
    def inputs(self) -> int:
        """Input channels of one member."""
        raise NotImplementedError

    def along(self, vector: Tensor, x: Tensor) -> Tensor:
        """A vector of all members' channels, to multiply or add to x."""
        return vector if self.axis == -1 else vector.view(-1, *(1 for _ in x.shape[2:]))

    def own_weight(self, x: Tensor, bias: Tensor | None) -> Tensor:
        raise NotImplementedError

    def shared_weight(self, x: Tensor) -> Tensor:
        """Without the bias; x holds all members."""
        raise NotImplementedError


class _Convolution(_Product):
    RUN: ClassVar[dict[int, Any]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}

    def check(self) -> None:
        self.run = self.RUN[len(self.module.kernel_size)]

    @property
    def inputs(self) -> int:
        return self.module.in_channels

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Tensor:
        module = self.module
        padding = module.padding
        if module.padding_mode != "zeros":
            x = F.pad(x, module._reversed_padding_repeated_twice, mode=module.padding_mode)
            padding = 0
        return self.run(x, weight, bias, module.stride, padding, module.dilation, groups)

    def all_outputs(self, weight: Tensor) -> Tensor:
        """The kernels of all members as those of one layer in one group."""
        return weight.flatten(0, 1)

    def own_weight(self, x: Tensor, bias: Tensor | None) -> Tensor:
        module, weight = self.module, self.module.weight
        if x.ndim != weight.ndim - 1:
            raise NotWide("a convolution must get a batch")
        wide = self.holds_members(x, module.in_channels)
        if not wide and module.groups == 1:
            return self.convolve(x, self.all_outputs(weight), bias, 1)
        return self.convolve(x if wide else self.spread(x), weight.flatten(0, 1), bias, self.members * module.groups)

    def shared_weight(self, x: Tensor) -> Tensor:
        return self.as_rows(x, lambda rows: self.convolve(rows, self.module.weight, None, self.module.groups))


class _Transposed(_Convolution):
    RUN: ClassVar[dict[int, Any]] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Tensor:
        module = self.module
        return self.run(x, weight, bias, module.stride, module.padding, module.output_padding, groups, module.dilation)

    def all_outputs(self, weight: Tensor) -> Tensor:
        return weight.movedim(0, 1).flatten(1, 2)


class _Linear(_Product):
    axis = -1

    @property
    def inputs(self) -> int:
        return self.module.in_features

    def as_rows(self, x: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        return run(x.unflatten(-1, (self.members, -1))).flatten(-2)

    def own_weight(self, x: Tensor, bias: Tensor | None) -> Tensor:
        weight = self.module.weight
        if x.ndim < 2:
            raise NotWide("a linear layer must get a batch")
        if not self.holds_members(x, self.inputs):
            return F.linear(x, weight.flatten(0, 1), bias)
        factors = x.reshape(-1, self.members, weight.shape[2]).transpose(0, 1), weight.transpose(1, 2)
        y = torch.bmm(*factors) if bias is None else torch.baddbmm(bias.view(self.members, 1, -1), *factors)
        return y.transpose(0, 1).reshape(*x.shape[:-1], -1)

    def shared_weight(self, x: Tensor) -> Tensor:
        return self.as_rows(x, lambda rows: F.linear(rows, self.module.weight))


# -- norms -------------------------------------------------------------------------------------------------------------


class _BatchNorm(WideLayer):
    """Own statistics are those of all channels side by side; shared ones those of all members' rows."""

    def check(self) -> None:
        module = self.module
        present = {name for name, t in (*module._parameters.items(), *module._buffers.items()) if t is not None}
        if self.own and self.own != present:
            raise NotWide("a batch norm must be each member's or all members'; got some of its tensors shared")
        if module.momentum is None:
            raise NotWide("a batch norm must have a momentum; got the mean of all batches")

    def forward(self, x: Tensor) -> Tensor:
        module = self.module
        if x.ndim < 2 or x.numel() == 0 or x.numel() == x.shape[1]:
            raise NotWide("a batch norm must see more than one value per channel")
        wide = self.holds_members(x, module.num_features)
        if not self.own and module._parameters.get("weight") is None and module.running_mean is None:
            return self.normalise(x)  # every channel alone
        if not self.own:
            return self.as_rows(x, self.plain) if wide else self.plain(x)
        return self.normalise(x if wide else self.spread(x))

    def normalise(self, x: Tensor) -> Tensor:
        module = self.module
        mean, var = (self.vector(name) for name in ("running_mean", "running_var"))
        weight, bias = (self.vector(name) for name in ("weight", "bias"))
        by_batch = module.training or mean is None
        if module.training and mean is not None:
            module.num_batches_tracked.add_(1)
        if not by_batch and x.dtype.itemsize < mean.dtype.itemsize:  # as one member's layer does it
            return F.batch_norm(x.to(mean.dtype), mean, var, weight, bias, False, 0.0, module.eps).to(x.dtype)
        return F.batch_norm(x, mean, var, weight, bias, by_batch, module.momentum, module.eps)


class _GroupNorm(WideLayer):
    def forward(self, x: Tensor) -> Tensor:
        module = self.module
        if not self.holds_members(x, module.num_channels):
            if not self.own:
                return self.plain(x)
            x = self.spread(x)
        return F.group_norm(x, self.members * module.num_groups, self.vector("weight"), self.vector("bias"), module.eps)


class _LayerNorm(WideLayer):
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


class _Dropout(WideLayer):
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
        draws = [keep(one, module.p, module.channelwise, i, module.randomness.handle) for i in module.member.unbind()]
        mask = torch.cat(draws, self.axis)
        return x * mask if module.p == 1 else module.combine(x, mask)


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_BACK = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
WIDE: dict[type, type[WideLayer]] = {
    **dict.fromkeys(_CONVOLUTIONS, _Convolution),
    **dict.fromkeys(_BACK, _Transposed),
    nn.Linear: _Linear,
    **dict.fromkeys(NORMS.values(), _BatchNorm),
    nn.GroupNorm: _GroupNorm,
    nn.LayerNorm: _LayerNorm,
    **dict.fromkeys(DROPOUTS.values(), _Dropout),
}


def wide_layer(module: nn.Module, own: frozenset[str], members: int) -> WideLayer | None:
    """The module's form for all members; None where members own none of its tensors, and it runs as it is."""
    kind = WIDE.get(type(module))
    if kind is not None:
        return kind(module, own, members)
    if own:
        raise NotWide(f"{type(module).__name__} has no form for all members at once")
    return None
