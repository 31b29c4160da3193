"""A linear layer in groups, as a grouped convolution with a kernel of 1: each group of outputs has its own inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .walker import layer

__all__ = ["GroupedLinear"]


@layer
class GroupedLinear:
    """y_g = W_g x_g. Shape: x [..., inputs] -> [..., outputs]; weight [outputs, inputs / groups]."""

    groups: int
    plain: type[nn.Module]

    def adopt(self, network: nn.Module) -> None:
        """The weight comes with the plan that chose the groups."""

    def forward(self: Any, x: Tensor) -> Tensor:
        weight = self.weight.view(self.groups, -1, self.weight.shape[1])  # [groups, outputs, inputs] of one group
        y = torch.einsum("...gi,goi->...go", x.unflatten(-1, (self.groups, -1)), weight).flatten(-2)
        return y if self.bias is None else y + self.bias

    def fold(self: Any) -> None:
        """A plain layer has a weight of full size, with zeros between the groups."""
        weight = torch.block_diag(*self.weight.detach().chunk(self.groups))
        del self.__dict__["groups"]
        self.__class__ = self.plain
        self.weight = nn.Parameter(weight, requires_grad=self.weight.requires_grad)
