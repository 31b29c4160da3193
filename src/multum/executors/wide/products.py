"""Convolutions and linear layers of all members side by side: as they are, or scaled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from .layers import NotWide, WideLayer

__all__ = [
    "WideConvolution",
    "WideGroupedLinear",
    "WideLinear",
    "WideMasked",
    "WideProduct",
    "WideRankOne",
    "WideTransposed",
]

LAST = 2**22  # numbers of an input: from here on, training holds images with their channels last
PLACES = 256  # of an image: kernels of one pixel are matrices from here on
FOLDED = 2  # times the numbers of a weight: an output of so many is worth a weight that does the norm's work
MANY = 2**16  # numbers of an input: below, the calls that fill channels take the time
PER_PLACE = 2048  # input times output channels for each place of a single image: kernels are matrices from here on


def lanes(dtype: torch.dtype) -> int:
    """The numbers that oneDNN handles at a time: other widths of a group take its kernels twice as long."""
    return 16 if dtype is torch.float32 and torch.backends.cpu.get_cpu_capability() == "AVX512" else 1


class WideProduct(WideLayer):
    """A convolution or a linear layer."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.own:
            return self.as_rows(x, self.plain) if self.holds_members(x, self.inputs) else self.plain(x)
        weight = self.own_weight()
        if weight is not None:
            return self.multiply(x, weight, self.vector("bias"))
        y = self.shared(x if self.holds_members(x, self.inputs) else self.spread(x))
        return self.biased(y)

    @property
    def inputs(self) -> int:
        """Input channels of one member."""
        raise NotImplementedError

    def own_weight(self) -> Tensor | None:
        """Each member's weight [members, ...]; None where they share one."""
        return self.module._parameters["weight"] if "weight" in self.own else None

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """By each member's weight; x holds all members or is common to them."""
        raise NotImplementedError

    def shared(self, x: Tensor) -> Tensor:
        """By the weight that members share, without the bias; x holds all members."""
        raise NotImplementedError

    def biased(self, y: Tensor) -> Tensor:
        bias = self.vector("bias")
        return y if bias is None else y + self.along(bias, y)

    def along(self, vector: Tensor, x: Tensor) -> Tensor:
        """A vector of all members' channels, to multiply or add to x."""
        return vector if self.axis == -1 else vector.view(-1, *(1 for _ in x.shape[2:]))

    def scaled(self, x: Tensor, name: str, channels: int) -> Tensor:
        """Every member's channels times its own vector; x holds all members or is common to them."""
        vector = self.vector(name)
        assert vector is not None
        if self.holds_members(x, channels):
            return x * self.along(vector, x)
        axis = self.axis % x.ndim
        each = vector.view(self.members, channels, *(1 for _ in x.shape[axis + 1 :]))
        return (x.unsqueeze(axis) * each).flatten(axis, axis + 1)


class WideConvolution(WideProduct):
    RUN: ClassVar[dict[int, Any]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}

    def check(self) -> None:
        self.run = self.RUN[len(self.module.kernel_size)]
        self.fresh = "weight" in self.own
        self.folds = True

    @property
    def inputs(self) -> int:
        return self.module.in_channels

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Tensor:
        module = self.module
        padding = module.padding
        if module.padding_mode != "zeros":
            x = F.pad(x, module._reversed_padding_repeated_twice, mode=module.padding_mode)
            padding = 0
        trained = torch.is_grad_enabled() and weight.requires_grad and weight.is_contiguous()
        if trained and x.ndim == 4 and x.device.type == "cpu":
            layout = torch.channels_last if x.numel() >= LAST else torch.contiguous_format
            x, weight = x.contiguous(memory_format=layout), weight.contiguous(memory_format=layout)
        return self.run(x, weight, bias, module.stride, padding, module.dilation, groups)

    def all_outputs(self, weight: Tensor) -> Tensor:
        """The kernels of all members as those of one layer in one group."""
        return weight.flatten(0, 1)

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if x.ndim != weight.ndim - 1:
            raise NotWide("a convolution must get a batch")
        weight, bias = self.normed(x, weight, bias)
        groups = self.module.groups
        wide = self.holds_members(x, self.module.in_channels)
        if not wide and groups == 1:
            return self.convolve(x, self.all_outputs(weight), bias, 1)
        x = x if wide else self.spread(x)
        if self.as_matrices(x, weight):
            return self.matrices(x, weight, bias)
        if groups == 1 and x.device.type == "cpu" and x.numel() >= MANY and self.worth_filling(weight, lanes(x.dtype)):
            return self.filled(x, weight, bias, lanes(x.dtype))
        return self.convolve(x, weight.flatten(0, 1), bias, self.members * groups)

    def worth_filling(self, weight: Tensor, block: int) -> bool:
        """Whether channels of zeros, which make a member's channels whole blocks, save more than they cost."""
        outputs, inputs = weight.shape[1:3]
        more = (outputs + -outputs % block) * (inputs + -inputs % block)
        return outputs * inputs < more < 2 * outputs * inputs

    def filled(self, x: Tensor, weight: Tensor, bias: Tensor | None, block: int) -> Tensor:
        """With as many channels of zeros beside each member's own as its inputs and outputs lack."""
        outputs, inputs = weight.shape[1:3]
        after, before, still = -outputs % block, -inputs % block, (0, 0) * (weight.ndim - 3)
        x = F.pad(x.unflatten(1, (self.members, inputs)), (*still, 0, before)).flatten(1, 2) if before else x
        weight = F.pad(weight, (*still, 0, before, 0, after)).flatten(0, 1)
        bias = None if bias is None else F.pad(bias.view(-1, outputs), (0, after)).flatten()
        y = self.convolve(x, weight, bias, self.members)
        return y.unflatten(1, (self.members, -1))[:, :, :outputs].flatten(1, 2)

    def normed(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """With the norm behind in weight and bias, where no gradient is needed and there is less weight than output."""
        places = len(x) * math.prod(x.shape[2:]) // math.prod(self.module.stride)
        rare = self.norm is None or torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type)
        if rare or places * weight.shape[0] * weight.shape[1] < FOLDED * weight.numel() or x.dtype != weight.dtype:
            return weight, bias
        vectors = self.norm.scale_and_shift(x)
        if vectors is None:
            return weight, bias
        self.norm.done = True
        scale, shift = vectors
        each = scale.view(*weight.shape[:2], *(1 for _ in weight.shape[2:]))
        return weight * each, shift if bias is None else torch.addcmul(shift, bias, scale)

    def as_matrices(self, x: Tensor, weight: Tensor) -> bool:
        """Whether a batched product beats a convolution in groups: for which oneDNN puts every kernel into an order of
        its own at each call, and copies images for kernels of one pixel."""
        module = self.module
        fits = x.device.type == "cpu" and weight.ndim == 5 and module.groups == 1 and module.padding_mode == "zeros"
        if not fits or isinstance(module.padding, str) or not x.is_contiguous():
            return False
        places = x.shape[2] * x.shape[3] // math.prod(module.stride)
        one_pixel = weight.shape[3:] == (1, 1) and not any(module.padding)
        if one_pixel and (len(x) == 1 or places >= PLACES):
            return True
        return len(x) == 1 and weight.shape[1] * weight.shape[2] >= PER_PLACE * places

    def matrices(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """[M, O, I*h*w] @ [B, M, I*h*w, H'*W']. Shape: x [B, M*I, H, W], weight [M, O, I, h, w] -> [B, M*O, H', W']."""
        module = self.module
        (up, across), sizes = module.stride, weight.shape[3:]
        if sizes == (1, 1) and not any(module.padding):
            columns = x[:, :, ::up, ::across]
            height, width = columns.shape[2:]
        else:
            columns = F.unfold(x, sizes, module.dilation, module.padding, module.stride)
            height, width = (
                (n + 2 * p - d * (k - 1) - 1) // s + 1
                for n, p, d, k, s in zip(
                    x.shape[2:], module.padding, module.dilation, sizes, module.stride, strict=True
                )
            )
        columns = columns.reshape(len(x), self.members, -1, height * width)
        y = torch.matmul(weight.flatten(2), columns).view(len(x), -1, height, width)
        return y if bias is None else y + self.along(bias, y)

    def shared(self, x: Tensor) -> Tensor:
        weight = self.module.weight
        return self.as_rows(x, lambda rows: self.convolve(rows, weight, None, self.module.groups))


class WideTransposed(WideConvolution):
    RUN: ClassVar[dict[int, Any]] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

    def check(self) -> None:
        super().check()
        self.folds = False  # its weight has the outputs elsewhere

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> Tensor:
        module = self.module
        return self.run(x, weight, bias, module.stride, module.padding, module.output_padding, groups, module.dilation)

    def all_outputs(self, weight: Tensor) -> Tensor:
        return weight.movedim(0, 1).flatten(1, 2)

    def as_matrices(self, x: Tensor, weight: Tensor) -> bool:
        return False

    def worth_filling(self, weight: Tensor, block: int) -> bool:
        return False


class WideLinear(WideProduct):
    axis = -1

    @property
    def inputs(self) -> int:
        return self.module.in_features

    def as_rows(self, x: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        return run(x.unflatten(-1, (self.members, -1))).flatten(-2)

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if x.ndim < 2:
            raise NotWide("a linear layer must get a batch")
        if self.holds_members(x, self.inputs):
            return self.batched(x, weight, bias)
        return F.linear(x, weight.flatten(0, 1), bias)

    def batched(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """One batched product. Shape: weight [groups, outputs, inputs], x [..., groups * inputs]."""
        groups, _, inputs = weight.shape
        factors = x.reshape(-1, groups, inputs).transpose(0, 1), weight.transpose(1, 2)
        y = torch.bmm(*factors) if bias is None else torch.baddbmm(bias.view(groups, 1, -1), *factors)
        return y.transpose(0, 1).reshape(*x.shape[:-1], -1)

    def shared(self, x: Tensor) -> Tensor:
        weight = self.module.weight
        return self.as_rows(x, lambda rows: F.linear(rows, weight))


# -- layers of multum's methods: each goes before the layer that it changes ------------------------------------------


class WideGroupedLinear(WideLinear):
    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x = x if self.holds_members(x, self.inputs) else self.spread(x)
        return self.batched(x, weight.reshape(self.members * self.module.groups, -1, weight.shape[2]), bias)

    def shared(self, x: Tensor) -> Tensor:
        raise NotWide("a linear layer in groups must be each member's")


class WideRankOne(WideProduct):
    """Input and, where there is an s, output channels are scaled, and the weight is all members'."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.shared(self.scaled(x, "r", self.inputs))
        y = y if self.module.s is None else self.scaled(y, "s", y.shape[self.axis] // self.members)
        return self.biased(y)


class WideMasked(WideProduct):
    """Channels are masked, and weight and bias are all members'."""

    def forward(self, x: Tensor) -> Tensor:
        module = self.module
        if module.side == "inputs":
            return self.as_rows(self.scaled(x, "mask", self.inputs), self.unmasked)
        wide = self.holds_members(x, self.inputs)
        y = self.as_rows(x, self.unmasked) if wide else self.unmasked(x)
        return self.scaled(y, "mask", y.shape[self.axis] // self.members if wide else y.shape[self.axis])

    def unmasked(self, x: Tensor) -> Tensor:
        return self.module.plain.forward(self.module, x)
