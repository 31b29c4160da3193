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
from torch import Tensor

__all__ = ["NotWide", "WideLayer"]


class NotWide(Exception):
    """Why the members of a network cannot lie side by side in its channels."""


class WideLayer:
    """One module's layer for all members. Shape: `axis` is the dimension of the channels, 1 or -1."""

    axis: ClassVar[int] = 1
    place: int | None = None  # the dimension of the members in the input, where the channels do not tell
    overwrites: bool = False  # whether nobody but this layer needs its input
    fresh: bool = False  # whether the output is a tensor of its own, which no gradient needs
    folds: bool = False  # whether it can do the work of a norm behind it, by other weights
    folded: bool = False  # whether it is such a norm
    norm: Any = None  # the norm behind it, where nobody else needs its output
    done: bool = False  # whether the layer before has done this norm's work

    def __init__(self, module: Any, own: frozenset[str], members: int):
        self.module, self.own, self.members = module, own, members
        self.views: dict[str, tuple[Tensor, int, Tensor]] = {}
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

    def vector(self, name: str) -> Tensor | None:
        """Shape: [channels] of each member or of all -> [members * channels].

        A view that no gradient needs is kept, for as long as the tensor stays where it is.
        """
        module = self.module
        t: Tensor | None = module._parameters[name] if name in module._parameters else module._buffers[name]
        if t is None:
            return None
        if name not in self.own:
            return t.repeat(self.members)
        if t.requires_grad and torch.is_grad_enabled():
            return t.view(-1)
        known = self.views.get(name)
        if known is None or known[0] is not t or known[1] != t.data_ptr():
            known = self.views[name] = t, t.data_ptr(), t.detach().view(-1)
        return known[2]

    def spread(self, x: Tensor) -> Tensor:
        """What members have in common, once for each of them."""
        axis = self.axis % x.ndim
        return x.unsqueeze(axis).expand(*x.shape[:axis], self.members, *x.shape[axis:]).flatten(axis, axis + 1)

    def as_rows(self, x: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Members as rows of one plain layer, channels behind the batch. Shape: [B, M*C, ...] <-> [B*M, C, ...]."""
        batch, width, *rest = x.shape
        y = run(x.reshape(batch * self.members, width // self.members, *rest))
        return y.reshape(batch, self.members * y.shape[1], *y.shape[2:])
