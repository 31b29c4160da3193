"""Where the members are in the output of an operation, given where they are in its inputs.

Members lie outermost in one dimension of a tensor, [..., members * n, ...]. A rule gives that dimension of the output,
or None where the operation mixes the members or is not known to keep them apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["SIZED", "Operation", "place_of_output"]

aten = torch.ops.aten


class Operation(NamedTuple):
    """One call of an operator of torch; `places` are the members' dimensions in its operands."""

    func: Any
    args: tuple
    kwargs: dict[str, Any]
    operands: list[Tensor]
    places: list[int | None]
    out: Tensor
    members: int

    @property
    def x(self) -> Tensor:
        return self.operands[0]

    @property
    def at(self) -> int:
        """The members' dimension in the first operand."""
        return self.places[0]  # type: ignore[return-value]

    def setting(self, index: int, name: str, otherwise: Any = None) -> Any:
        return self.args[index] if len(self.args) > index else self.kwargs.get(name, otherwise)

    def without(self, dims: Any) -> int | None:
        """Where the members are once these dimensions are gone."""
        gone = {d % self.x.ndim for d in dims}
        return None if self.at in gone else self.at - sum(d < self.at for d in gone)


def place_of_output(op: Operation) -> int | None:
    packet = op.func.overloadpacket
    if torch.Tag.pointwise in op.func.tags or packet in _POINTWISE:
        return _aligned(op)
    alone = packet is aten.cat or all(place is None for place in op.places[1:])
    if packet not in _RULES or not op.places or op.places[0] is None or not alone:
        return None
    return _RULES[packet](op)


def _aligned(op: Operation) -> int | None:
    """Broadcasting counts dimensions from behind; what is common must be one number for all channels."""
    pairs = list(zip(op.operands, op.places, strict=True))
    behind = {t.ndim - at for t, at in pairs if at is not None}
    if len(behind) != 1:
        return None
    (b,) = behind
    mixes = any(at is None and t.ndim >= b and t.shape[t.ndim - b] != 1 for t, at in pairs)
    return None if mixes else op.out.ndim - b


def _reshaped(op: Operation) -> int | None:
    before = math.prod(op.x.shape[: op.at])
    sizes = op.out.shape
    return next(
        (i for i, n in enumerate(sizes) if math.prod(sizes[:i]) == before and n > 1 and n % op.members == 0), None
    )


def _expanded(op: Operation) -> int:
    return op.out.ndim - (op.x.ndim - op.at)


def _permuted(op: Operation) -> int:
    return [d % op.x.ndim for d in op.args[1]].index(op.at)


def _transposed(op: Operation) -> int:
    a, b = (d % op.x.ndim for d in (op.args[1:3] if len(op.args) > 2 else (0, 1)))
    return {a: b, b: a}.get(op.at, op.at)


def _unsqueezed(op: Operation) -> int:
    return op.at + (op.args[1] % op.out.ndim <= op.at)


def _squeezed(op: Operation) -> int | None:
    dims = op.setting(1, "dim", range(op.x.ndim))
    return op.without(d for d in ([dims] if isinstance(dims, int) else dims) if op.x.shape[d] == 1)


def _selected(op: Operation) -> int | None:
    return op.without([op.args[1]])


def _along(op: Operation) -> int | None:
    """One other dimension, which stays."""
    return op.at if op.setting(1, "dim", 0) % op.x.ndim != op.at else None


def _reduced(op: Operation) -> int | None:
    dims = op.setting(1, "dim")
    if dims is None or dims == []:
        return None
    dims = [dims] if isinstance(dims, int) else dims
    place = op.without(dims)
    return op.at if place is not None and op.out.ndim == op.x.ndim else place


def _each_channel(op: Operation) -> int | None:
    """Every channel alone, behind the batch."""
    return 1 if op.at == 1 and op.x.ndim > 2 else None


def _padded(op: Operation) -> int | None:
    return op.at if op.at < op.x.ndim - len(op.args[1]) // 2 else None


def _joined(op: Operation) -> int | None:
    dim = op.setting(1, "dim", 0) % op.out.ndim
    return op.at if set(op.places) == {op.at} and dim != op.at else None


def _packets(names: str) -> list[Any]:
    return [getattr(aten, name) for name in names.split()]


SIZED = set(_packets("view _unsafe_view reshape expand"))  # their output's shape says what they do
_POINTWISE = set(_packets("hardswish hardswish_ _to_copy copy_ detach alias log_sigmoid_forward"))
_EACH_CHANNEL = (
    "max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d "
    "adaptive_max_pool2d adaptive_max_pool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "_upsample_nearest_exact2d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d "
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d"
)
_RULES: dict[Any, Callable[[Operation], int | None]] = {
    **dict.fromkeys(_packets("view _unsafe_view reshape"), _reshaped),
    **dict.fromkeys(_packets("transpose t"), _transposed),
    **dict.fromkeys(_packets("slice _softmax _log_softmax cumsum"), _along),
    **dict.fromkeys(_packets("mean sum amax amin var std logsumexp linalg_vector_norm"), _reduced),
    **dict.fromkeys(_packets(_EACH_CHANNEL), _each_channel),
    aten.expand: _expanded,
    aten.permute: _permuted,
    aten.unsqueeze: _unsqueezed,
    aten.squeeze: _squeezed,
    aten.select: _selected,
    aten.constant_pad_nd: _padded,
    aten.cat: _joined,
}
