"""Subgroups, the gamma of Packed-Ensembles: which layers get how many.

Convolutions, transposed ones and linear layers obey one rule: a linear layer is a convolution with a kernel of 1. A
linear layer stays dense where its weight is read by others (nn.MultiheadAttention, the fast path of
nn.TransformerEncoderLayer) or tied, and where its outputs belong together: in attention's projections and in gates,
which are several layers in one, a subgroup would give queries other inputs than values.
"""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..network.copies import name_in
from ..rewrite.walker import Edit, layer, names_of
from ..rewrite.weighted import is_called
from .channels import Channels

log = logging.getLogger("multum")

# "No subgroups on the first layer of ResNet's blocks" (Packed-Ensembles, appendix); WRN blocks do take them.
DENSE = ("BasicBlock.conv1", "Bottleneck.conv1")


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


def find_subgroups(
    network: nn.Module,
    channels: Channels,
    edits: dict[str, Edit],
    gamma: int,
    min_channels: int,
    dense: tuple[str, ...],
    calls: Collection[str],
) -> dict[str, tuple[int, int]]:
    """Weight name -> (groups before, gamma) of the layers that get subgroups; their edits get the groups.

    Args:
        calls: paths of the modules that run, and are not only read.
    """
    subgroups: dict[str, tuple[int, int]] = {}
    if gamma == 1:
        return subgroups
    left_dense: list[str] = []
    tied = {name for names in names_of(network).values() if len(names) > 1 for name in names}
    for path, module, parent, child in _with_parents(network):
        name = name_in(path, "weight")
        classes = channels.classes.get(name)
        linear = isinstance(module, nn.Linear)
        if classes is None or not (linear or isinstance(module, nn.modules.conv._ConvNd)):
            continue
        named = any(p == f"{type(parent).__name__}.{child}" or fnmatch.fnmatchcase(path, p) for p in dense)
        if named or not classes[0].any() or not classes[1].any():  # the stem and the head have a fixed side
            continue
        if linear and not (is_called(path, module, parent, calls) and name not in tied and _alone(classes[0])):
            left_dense.append(path)
            continue
        attributes = edits[path].attributes if path in edits else {}
        sides = ("in_features", "out_features") if linear else ("in_channels", "out_channels")
        inputs, outputs = (attributes.get(side, getattr(module, side)) for side in sides)
        groups = 1 if linear else attributes.get("groups", module.groups)
        fits = _subgroups_that_fit(inputs // groups, outputs // groups, gamma, min_channels)
        if fits > 1:
            subgroups[name] = (groups, fits)
            edits[path] = Edit(
                path, {**attributes, "groups": groups * fits}, GroupedLinear.__name__ if linear else None
            )
    if left_dense:
        log.info("gamma leaves %s dense: tied, read by another module, or several layers in one", ", ".join(left_dense))
    return subgroups


def _alone(outputs: np.ndarray) -> bool:
    """Whether every output may come or go on its own."""
    return len(np.unique(outputs)) == len(outputs)


def _subgroups_that_fit(inputs: int, outputs: int, gamma: int, min_channels: int) -> int:
    """gamma_j of Packed-Ensembles: lowered until it divides both sides and leaves `min_channels` inputs per group.

    >>> _subgroups_that_fit(192, 192, 4, 64), _subgroups_that_fit(32, 64, 2, 64)
    (3, 1)
    """
    while gamma > 1 and (inputs % gamma or outputs % gamma or inputs // gamma < min_channels):
        gamma -= 1
    return gamma


def _with_parents(network: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Module | None, str]]:
    modules = dict(network.named_modules())
    for path, module in modules.items():
        parent, _, child = path.rpartition(".")
        yield path, module, modules.get(parent) if path else None, child
