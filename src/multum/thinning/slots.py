"""Slots: the numbers of the channels that a tensor's elements belong to.

Shape: the note of a tensor is a list of slots. A slot is an int64 tensor of the tensor's shape (stored once where it
does not vary); its value is the number of the index that the element belongs to, and 0 means "never changes". An
activation has one slot, a weight one per dimension.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import Tensor

from ..network.trace import Traced, Tracer

FIXED = 0
WILD = "wild"  # the note of a constant such as zeros: it fits any width


class Ties(Tracer, Protocol):
    """What rules tell about channels."""

    func: Any  # the operation that is running

    def tie(self, a: Tensor, b: Tensor) -> None:
        """Numbers at equal places stay or go together."""

    def freeze(self, tensors: Any) -> None:
        """The widths of these tensors never change."""

    def refuse(self, reason: str, fix: str) -> None:
        """The running module does something that has no rule."""

    def repeats(self, numbers: Tensor, times: int) -> None:
        """Every index of this dimension of a weight stands for so many channels."""

    def picks(self, slot: Tensor) -> None:
        """The running operation takes these channels out of others, by their position."""


def is_wild(t: Any) -> bool:
    return isinstance(t, Traced) and t.note is WILD


def slots_of(t: Any) -> list[Tensor]:
    return t.note if isinstance(t, Traced) and isinstance(t.note, list) else []


def stored(slot: Tensor) -> Tensor:
    """The part of a slot that is in memory: dimensions that only repeat it have size 1."""
    for d, size in enumerate(slot.shape):
        if size > 1 and slot.stride(d) == 0:
            slot = slot.narrow(d, 0, 1)
    return slot


def numbers_in(slot: Tensor) -> Tensor:
    """Its numbers in order, once per place in memory."""
    return stored(slot).reshape(-1)


def varies(slot: Tensor) -> frozenset[int]:
    """The dimensions along which the numbers of a slot differ."""
    small = stored(slot)
    return frozenset(
        d
        for d, size in enumerate(small.shape)
        if size > 1 and not torch.equal(small, small.narrow(d, 0, 1).expand_as(small))
    )


def compact(slots: Iterable[Tensor]) -> list[Tensor]:
    """The same slots as views that store nothing twice; slots that say nothing are left out."""
    out = []
    for slot in slots:
        along = varies(slot)
        small = slot
        for d in range(slot.ndim):
            if d not in along and slot.shape[d] > 0:
                small = small.narrow(d, 0, 1)
        if small.numel() > 1 or (small.numel() == 1 and int(small.reshape(-1)[0]) != FIXED):
            out.append(small.contiguous().expand(slot.shape))
    return out


def along(slots: list[Tensor], dim: int) -> list[Tensor]:
    return [s for s in slots if dim % s.ndim in varies(s)]


def vector(tracer: Ties, slots: list[Tensor], dim: int, size: int) -> Tensor:
    """The numbers along one dimension [size]; zeros where there are none."""
    varying = along(slots, dim)
    if not varying:
        return torch.zeros(size, dtype=torch.int64)
    dim = dim % varying[0].ndim
    index: list[Any] = [slice(None) if d == dim else 0 for d in range(varying[0].ndim)]
    if len(varying) > 1 or varies(varying[0]) != {dim}:
        tracer.refuse(
            "channels are spread over several dimensions where one is expected",
            "give every channel one dimension of its own",
        )
        for slot in varying:
            tracer.tie(slot, torch.tensor(FIXED))
    return varying[0][tuple(index)]


def spread(numbers: Tensor, dim: int, shape: Iterable[int]) -> Tensor:
    """Numbers [size] along `dim` of `shape`."""
    shape = tuple(shape)
    return numbers.view([-1 if d == dim % len(shape) else 1 for d in range(len(shape))]).expand(shape)
