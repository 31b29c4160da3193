"""The two ends of a network that takes all members at once: MIMO's first and last layer, M times as wide as plain ones.

[M*B, C, ...]  stem: -> [B, M*C, ...] -> body [B, ...] -> head: [B, M*K] -> [M*B, K]
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..network.attributes import attributes_for
from .walker import layer

__all__ = ["KINDS", "MimoHead", "MimoStem"]

KINDS = (nn.modules.conv._ConvNd, nn.Linear)


class _Wide:
    """A layer M times as wide on one side. Shape: that side's channels are M blocks, member 0's first."""

    members: int
    plain: type[nn.Module]
    weight: nn.Parameter
    bias: nn.Parameter | None

    def put(self, **tensors: Tensor | None) -> None:
        """These tensors in place of the old ones, and the widths that follow from them."""
        for name, new in tensors.items():
            if new is not None:
                old = getattr(self, name)
                setattr(self, name, nn.Parameter(new.detach().clone(), requires_grad=old.requires_grad))
        shape = tuple(self.weight.shape)
        for name, width in attributes_for(self, {"weight": shape}).items():  # type: ignore[arg-type]
            setattr(self, name, width)

    def become_plain(self) -> None:
        self.__class__ = self.plain  # type: ignore[assignment]
        for name in ("members", "row"):
            self.__dict__.pop(name, None)


@layer
class MimoStem(_Wide):
    """The first layer: every row sees the inputs of all members."""

    def adopt(self, network: nn.Module) -> None:
        self.put(weight=torch.cat([self.weight] * self.members, self.side))

    @property
    def side(self) -> int:
        return 0 if getattr(self, "transposed", False) else 1

    def forward(self, x: Tensor) -> Tensor:
        x = x.unflatten(0, (self.members, -1))  # [M, B, ...]
        if isinstance(self, nn.Linear):
            return super().forward(x.movedim(0, -2).flatten(-2))  # [B, ..., M*C]
        return super().forward(x.movedim(0, 1).flatten(1, 2))  # type: ignore[misc]  # [B, M*C, ...]

    def fold(self) -> None:
        """Where all members see one input, their kernels add up."""
        self.put(weight=torch.stack(self.weight.chunk(self.members, self.side)).sum(0))
        self.become_plain()


@layer
class MimoHead(_Wide):
    """The last layer: all members' outputs, then one row for each member."""

    row = 0  # the member that is left when the layer is folded

    def adopt(self, network: nn.Module) -> None:
        weight, bias = self.weight, self.bias
        self.put(
            weight=torch.cat([weight] * self.members, self.side),
            bias=None if bias is None else torch.cat([bias] * self.members),
        )

    @property
    def side(self) -> int:
        return 1 if getattr(self, "transposed", False) else 0

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)  # type: ignore[misc]
        channel = x.ndim - 1 if isinstance(self, nn.Linear) else 1
        return x.unflatten(channel, (self.members, -1)).movedim(channel, 0).flatten(0, 1)

    def fold(self) -> None:
        weight, bias = self.weight, self.bias
        self.put(
            weight=weight.chunk(self.members, self.side)[self.row],
            bias=None if bias is None else bias.chunk(self.members)[self.row],
        )
        self.become_plain()
