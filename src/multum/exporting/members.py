"""The members of an ensemble as plain networks, in one module.

Members that are samples under dropout are fixed: each keeps one mask per dropout,
drawn from the ensemble's own seed for that member, the same for all examples. An example then gets the same answer in
every batch and at every call, as a served model should give; over members the masks are as independent as before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..cascades.cascade import Cascade
from ..ensemble import Ensemble
from ..errors import ConfigError, ExportError
from ..network.copies import run, skeleton
from ..optimizing.members import Members, is_sampled
from ..rewrite.dropout import Drawing
from .cascaded import CascadedMembers

__all__ = ["members_of"]


def members_of(ensemble: Ensemble, count: int | None, x: Any, cascade: Cascade | None = None) -> Members:
    """The first `count` members, all where it is None, in eval mode and on the CPU.

    Args:
        x: an input, for masks of its shape.
    """
    count = ensemble.members if count is None else count
    if not 1 <= count <= ensemble.members:
        raise ConfigError(
            f"`members` must satisfy 1 <= members <= {ensemble.members}, which the ensemble has; got members={count}. "
            "Leave it out for all of them"
        )
    if is_sampled(ensemble):
        return Members([_sample(ensemble, i, x) for i in range(count)]).eval()
    networks = [ensemble.member(i).cpu() for i in range(count)]
    return (Members(networks) if cascade is None else CascadedMembers(networks, cascade)).eval()


def _sample(ensemble: Ensemble, index: int, x: Any) -> nn.Module:
    """One sample under dropout, with masks that stay."""
    own = {id(t) for t in ensemble.tensors(ensemble.layout.stacked).values()}
    network = skeleton(ensemble.network, lambda t: (t[index] if id(t) in own else t).detach().clone()).cpu().eval()
    generator = torch.Generator().manual_seed(ensemble.randomness.seeds[index])
    masks = [_FixedMask(module, generator) for module in network.modules() if isinstance(module, Drawing)]
    with torch.no_grad():
        run(network, x)  # masks are drawn in the order in which layers run
    for mask in masks:
        mask.generator = None
    return network


class _FixedMask:
    """Takes the place of `Drawing.draw`: a mask is drawn once for each shape, and kept as a buffer of its module."""

    generator: torch.Generator | None  # None: no further mask is drawn

    def __init__(self, module: Any, generator: torch.Generator):
        self.module, self.generator = module, generator
        module.__dict__["draw"] = self

    def __call__(self, x: Tensor, p: float, channelwise: bool) -> Tensor | None:
        if not self.module.always or p == 0:
            return None
        shape = [1, *x.shape[1:2], *(1 if channelwise else size for size in x.shape[2:])]
        name = "mask_" + "_".join(map(str, shape))
        if name not in self.module._buffers:
            if self.generator is None:
                raise ExportError(f"a fixed mask must have the shape that it was drawn with; got {shape}")
            mask = torch.empty(shape, dtype=x.dtype).bernoulli_(1 - p, generator=self.generator)
            self.module.register_buffer(name, mask)
        return self.module._buffers[name]
