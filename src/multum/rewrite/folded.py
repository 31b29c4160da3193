"""The two ends of a network that takes all members at once: MIMO's first and last layer, M times as wide as plain ones.

[M*B, C, ...]  stem: -> [B, M*C, ...] -> body [B, ...] -> head: [B, M*K] -> [M*B, K]
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..network.attributes import attributes_for
from .walker import layer

KINDS = (nn.modules.conv._ConvNd, nn.Linear)


class _Wide:
    """A layer M times as wide on one side. Shape: that side's channels are M blocks, member 0's first."""

    members: int
    plain: type[nn.Module]
    weight: nn.Parameter
    bias: nn.Parameter | None
    side: int  # the dimension of the weight that is wide, where the layer is not a transposed convolution
    wide: tuple[str, ...]  # the tensors that are M times as large

    def adopt(self, network: nn.Module) -> None:
        self.change(lambda t, side: torch.cat([t] * self.members, side))

    def change(self, new: Callable[[Tensor, int], Tensor]) -> None:
        """New tensors in place of the wide ones, and the widths that follow from them."""
        for name in self.wide:
            old = getattr(self, name)
            if old is not None:
                side = 0 if name == "bias" else self.side ^ getattr(self, "transposed", False)
                setattr(self, name, nn.Parameter(new(old.detach(), side).clone(), requires_grad=old.requires_grad))
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

    side, wide = 1, ("weight",)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unflatten(0, (self.members, -1))  # [M, B, ...]
        if isinstance(self, nn.Linear):
            return super().forward(x.movedim(0, -2).flatten(-2))  # [B, ..., M*C]
        return super().forward(x.movedim(0, 1).flatten(1, 2))  # type: ignore[misc]  # [B, M*C, ...]

    def fold(self) -> None:
        """Where all members see one input, their kernels add up."""
        self.change(lambda t, side: torch.stack(t.chunk(self.members, side)).sum(0))
        self.become_plain()


@layer
class MimoHead(_Wide):
    """The last layer: all members' outputs, then one row for each member."""

    side, wide = 0, ("weight", "bias")
    row = 0  # the member that is left when the layer is folded

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)  # type: ignore[misc]
        channel = x.ndim - 1 if isinstance(self, nn.Linear) else 1
        return x.unflatten(channel, (self.members, -1)).movedim(channel, 0).flatten(0, 1)

    def fold(self) -> None:
        self.change(lambda t, side: t.chunk(self.members, side)[self.row])
        self.become_plain()
