"""Subgroups of convolutions, the gamma of Packed-Ensembles: which convolutions get how many."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator

from torch import nn

from ..rewrite.walker import Edit
from .channels import Channels

__all__ = ["DENSE", "find_subgroups", "subgroups_that_fit"]

# "No subgroups on the first layer of ResNet's blocks" (Packed-Ensembles, appendix); WRN blocks do take them.
DENSE = ("BasicBlock.conv1", "Bottleneck.conv1")


def find_subgroups(
    network: nn.Module,
    channels: Channels,
    edits: dict[str, Edit],
    gamma: int,
    min_channels: int,
    dense: tuple[str, ...],
) -> dict[str, tuple[int, int]]:
    """Weight name -> (groups before, gamma) of the convolutions that get subgroups; their edits get the groups."""
    found = {}
    for path, module, parent, child in _with_parents(network):
        weight = channels.classes.get(f"{path}.weight" if path else "weight")
        if not isinstance(module, nn.modules.conv._ConvNd) or module.transposed or weight is None:
            continue
        named = any(p == f"{type(parent).__name__}.{child}" or fnmatch.fnmatchcase(path, p) for p in dense)
        if named or not weight[0].any() or not weight[1].any():  # the stem and the head have a fixed side
            continue
        attributes = edits[path].attributes if path in edits else {}
        inputs, outputs, groups = (
            attributes.get(a, getattr(module, a)) for a in ("in_channels", "out_channels", "groups")
        )
        fits = subgroups_that_fit(inputs // groups, outputs // groups, gamma, min_channels)
        if fits > 1:
            found[f"{path}.weight" if path else "weight"] = (groups, fits)
            edits[path] = Edit(path, {**attributes, "groups": groups * fits})
    return found


def subgroups_that_fit(inputs: int, outputs: int, gamma: int, min_channels: int) -> int:
    """gamma_j of Packed-Ensembles: lowered until it divides both sides and leaves `min_channels` inputs per group.

    >>> subgroups_that_fit(192, 192, 4, 64), subgroups_that_fit(32, 64, 2, 64)
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
