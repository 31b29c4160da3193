"""Layers with factors on their channels: r_m on the inputs and, where there is one, s_m on the outputs.

layer_m(x) = layer(x * r_m) * s_m + b_m
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..network.copies import name_in
from .walker import Edit, layer
from .weighted import Read, Scaled, Weighted, scaled_weight, tensor_of, widths

FACTORS = ("r", "s")
ADDS = (*FACTORS, "factors", "chunks")
_DECONVOLVE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_STARTS = {
    "sign": lambda t: t.bernoulli_(0.5).mul_(2).sub_(1),
    "normal": lambda t: t.normal_(1.0, 0.5),
    "standard": lambda t: t.normal_(),
    "ones": lambda t: t.fill_(1.0),
}


class _Factors(Scaled):
    adds = ADDS
    factors: str | tuple[str, str | None]  # how r and s start, or both; None: there is no s
    chunks: tuple[int, ...]  # numbers of neighbouring inputs whose r start alike; none: each on its own
    r: Tensor
    s: Tensor | None

    def adopt(self: Any, network: nn.Module) -> None:
        like = tensor_of(self)
        starts = (self.factors,) * 2 if isinstance(self.factors, str) else self.factors
        for name, start, size in zip(FACTORS, starts, widths(self), strict=True):
            chunks = self.chunks if name == "r" else ()
            if start is None:
                self.register_parameter(name, None)
                continue
            values = _STARTS[start](torch.empty(len(chunks) or size, dtype=like.dtype, device=like.device))
            values = values.repeat_interleave(torch.tensor(chunks, device=like.device)) if chunks else values
            self.register_parameter(name, nn.Parameter(values))

    def generate(self, name: str, tensor: Tensor) -> Tensor:
        return tensor if name.endswith("bias") else scaled_weight(self, name, tensor, self.r, self.s)


@layer
class RankOne(_Factors):
    """A layer that is called. The weight stays shared, so all members are one batch for it under vmap."""

    def forward(self: Any, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        kernel = () if isinstance(self, nn.Linear) else self.kernel_size
        along = (-1, *(1 for _ in kernel))
        x = x * self.r.view(along)
        if not kernel:
            y = F.linear(x, self.weight)
        elif self.transposed:
            pads = (x, output_size, self.stride, self.padding, self.kernel_size, len(kernel), self.dilation)
            extra = self._output_padding(*pads)
            y = _DECONVOLVE[len(kernel)](
                x, self.weight, None, self.stride, self.padding, extra, self.groups, self.dilation
            )
        else:
            y = self._conv_forward(x, self.weight, None)
        y = y if self.s is None else y * self.s.view(along)
        return y if self.bias is None else y + self.bias.view(along)


@layer
class RankOneRead(Read, _Factors):
    """A layer whose weight is read: by attention, by a fast path, by a subclass's own forward."""


def rank_one(weighted: Weighted, factors: str | tuple[str, str | None], chunks: tuple[int, ...] = ()) -> Edit:
    """The edit that gives a layer its factors."""
    attributes = {"factors": factors, "chunks": chunks}
    return Edit(weighted.path, attributes, "RankOne" if weighted.called else "RankOneRead")


def tensors_beside(weighted: Weighted) -> set[str]:
    """Names of the factors and biases of a layer."""
    return {name_in(weighted.path, name) for name in (*FACTORS, "bias", "in_proj_bias")}
