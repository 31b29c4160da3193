"""Members folded into the channels or the rows of one tensor, for vmap's tensors that hold them next to the batch.

The layout [batch, members, channels, ...] is both foldings, and neither copies a number:

    own weights      members are channels   [batch, members * channels, ...]   one grouped convolution, one batch norm
    shared weights   members are rows       [batch * members, channels, ...]   one plain convolution

A tensor that another operation leaves in another layout is folded all the same, by a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch._C import _functorch as functorch

__all__ = ["Level"]


class Level(NamedTuple):
    """The vmap that is running: the executor's, or one that the network runs inside of it, for which rules hold too."""

    number: int  # from 1 on; 0 where none runs

    @classmethod
    def current(cls) -> Level:
        return cls(functorch.maybe_current_level() or 0)

    def dim(self, t: Any) -> int | None:
        """The members' dimension in a tensor's values; None where all members have one value in common."""
        mapped = isinstance(t, Tensor) and functorch.is_batchedtensor(t) and functorch.maybe_get_level(t) == self.number
        return functorch.maybe_get_bdim(t) if mapped else None

    def own(self, *tensors: Any) -> bool:
        """Whether some of these differ from member to member."""
        return any(self.dim(t) is not None for t in tensors)

    def values(self, t: Tensor, at: int) -> Tensor | None:
        """A tensor's values with the members' dimension in this place; None where the members have them in common."""
        dim = self.dim(t)
        if dim is None:
            return None
        values = functorch.get_unwrapped(t)
        return values if dim == at else values.movedim(dim, at)

    def mapped(self, values: Tensor, dim: int) -> Tensor:
        return functorch._add_batch_dim(values, dim, self.number)

    def count(self, *tensors: Any) -> int:
        """How many members there are; one of the tensors must be own."""
        return next(functorch.get_unwrapped(t).shape[dim] for t in tensors if (dim := self.dim(t)) is not None)

    # -- members as channels -------------------------------------------------------------------------------------------

    def channels(self, x: Tensor, members: int) -> Tensor:
        """Shape: [batch, channels, ...] of each member -> [batch, members * channels, ...]."""
        values = self.values(x, 1)
        return (x.unsqueeze(1).expand(-1, members, *x.shape[1:]) if values is None else values).flatten(1, 2)

    def vector(self, t: Tensor | None, members: int) -> Tensor | None:
        """Shape: [channels] of each member -> [members * channels]."""
        if t is None:
            return None
        values = self.values(t, 0)
        return t.repeat(members) if values is None else values.flatten()

    def unfolded(self, y: Tensor, members: int) -> Tensor:
        return self.mapped(y.unflatten(1, (members, y.shape[1] // members)), 1)

    # -- members as rows -----------------------------------------------------------------------------------------------

    def rows(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """All members' rows as those of one batch, and what turns a result with these rows back; x must be own.

        Shape: [batch, ...] of each member -> [batch * members, ...], in any order of the two.
        """
        dim, values = functorch.maybe_get_bdim(x), functorch.get_unwrapped(x)
        if dim not in (0, 1):
            values, dim = values.movedim(dim, 1), 1
        if values.stride(0) < values.stride(1):  # the other order lies in memory
            values, dim = values.transpose(0, 1), 1 - dim
        return values.flatten(0, 1), lambda y: self.mapped(y.unflatten(0, values.shape[:2]), dim)
