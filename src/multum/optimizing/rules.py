"""Operators on all members at once: for a graph what the grouped executor's rules are for vmap's tensors.

No rule copies what the members hold apart: where they are not side by side already, the operator runs for each of them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from .norms import CONVOLUTIONS, LINEAR, TRANSPOSED
from .program import Constant, full_arguments
from .spread import CHANNELS, COMMON, EACH, FRONT, Rule, Spreader, Value

__all__ = ["RULES"]

aten = torch.ops.aten


def outputs_joined(values: Constant) -> Tensor:
    """Shape: [outputs, ...] of each member -> [members * outputs, ...]."""
    return torch.cat(values)


def second_joined(values: Constant) -> Tensor:
    """Shape: [inputs, outputs, ...] of each member -> [inputs, members * outputs, ...]."""
    return torch.cat(values, 1)


def products(values: Constant) -> Tensor:
    """Shape: [outputs, inputs] of each member -> [members, inputs, outputs]."""
    return torch.stack(values).transpose(1, 2)


def rows_added(values: Constant) -> Tensor:
    """Shape: [outputs] of each member -> [members, 1, outputs]."""
    return torch.stack(values).unsqueeze(1)


# -- layers ------------------------------------------------------------------------------------------------------------


def _convolution(s: Spreader, node: fx.Node) -> Value | None:
    """One grouped convolution; one dense convolution where the members share the input, or the weights."""
    transposed = node.target in TRANSPOSED
    x, weight, bias, *rest = full_arguments(node)
    kind, groups = s.values[x].kind, rest[3]
    if s.program.constant(weight) is None or kind not in (COMMON, CHANNELS):
        return None
    if s.values[weight].kind == COMMON:
        rows = s.call(aten.flatten.using_ints, s.apart(x), 0, 1)
        shared = None if bias is None else s.values[bias].node
        if bias is not None and s.values[bias].kind != COMMON:
            return None
        out = s.call(node.target, rows, s.values[weight].node, shared, *rest)
        out = s.call(aten.unflatten.int, out, 0, [-1, s.members])
        return Value(CHANNELS, (s.call(aten.flatten.using_ints, out, 1, 2),))
    if kind == COMMON and groups != 1:
        return None
    rest[3] = groups if kind == COMMON else groups * s.members
    kernel = s.joined(weight, second_joined if transposed and kind == COMMON else outputs_joined)
    return Value(CHANNELS, (s.call(node.target, s.values[x].node, kernel, s.joined(bias, outputs_joined), *rest),))


def _linear(s: Spreader, node: fx.Node) -> Value | None:
    """One batched product; one wide product where the members share the input."""
    x, weight, bias = full_arguments(node)
    kind, ndim = s.values[x].kind, x.meta["val"].ndim
    if s.program.constant(weight) is None or s.values[weight].kind == COMMON:
        return None
    if kind == COMMON and ndim == 2:
        kernel = s.joined(weight, outputs_joined)
        return Value(CHANNELS, (s.call(LINEAR, s.values[x].node, kernel, s.joined(bias, outputs_joined)),))
    if kind not in (CHANNELS, FRONT) or ndim != 2:
        return None
    data = s.values[x].node if kind == FRONT else s.call(aten.transpose.int, s.apart(x), 0, 1)
    if bias is None:
        return Value(FRONT, (s.call(aten.bmm.default, data, s.joined(weight, products)),))
    return Value(FRONT, (s.call(aten.baddbmm.default, s.joined(bias, rows_added), data, s.joined(weight, products)),))


def _batch_norm(s: Spreader, node: fx.Node) -> Value | None:
    x, weight, bias, mean, var, *rest = full_arguments(node)
    if s.values[x].kind != CHANNELS:
        return None
    joined = [s.joined(v, outputs_joined) for v in (weight, bias, mean, var)]
    return Value(CHANNELS, (s.call(node.target, s.values[x].node, *joined, *rest),))


def _group_norm(s: Spreader, node: fx.Node) -> Value | None:
    x, groups, weight, bias, *rest = full_arguments(node)
    if s.values[x].kind != CHANNELS:
        return None
    joined = [s.joined(v, outputs_joined) for v in (weight, bias)]
    return Value(CHANNELS, (s.call(node.target, s.values[x].node, groups * s.members, *joined, *rest),))


# -- everything between them -------------------------------------------------------------------------------------------


def _as_it_is(s: Spreader, node: fx.Node, kinds: tuple[str, ...] = (CHANNELS,)) -> Value | None:
    """Whatever treats every channel alike."""
    x, *rest = full_arguments(node)[: len(node.args)]
    if s.values[x].kind not in kinds:
        return None
    return Value(s.values[x].kind, (s.call(node.target, s.values[x].node, *rest),))


def _behind_channels(s: Spreader, node: fx.Node, first: int) -> Value | None:
    """Whatever works on dimensions from `first` on: a mean over positions, a flattening."""
    x, dims, *_ = full_arguments(node)
    ndim = x.meta["val"].ndim
    dims = [dims] if isinstance(dims, int) else dims
    return _as_it_is(s, node) if dims and all(d % ndim >= first for d in dims) else None


def _pointwise(s: Spreader, node: fx.Node) -> Value | None:
    """Elementwise on members side by side; what they have in common meets each of them."""
    tensors = [n for n in node.all_input_nodes if isinstance(n.meta["val"], Tensor)]
    kinds = {s.values[n].kind for n in tensors} - {COMMON}
    shape = node.meta["val"].shape
    if len(kinds) != 1 or len(tensors) != len(node.all_input_nodes):
        return None
    (kind,) = kinds
    alike = all(n.meta["val"].ndim == len(shape) and n.meta["val"].shape[1] == shape[1] for n in tensors)
    if kind == EACH or not (alike and len(shape) > 1):
        return None
    if kind == FRONT or all(s.values[n].kind == kind for n in tensors):
        return Value(kind, (s.copy(node, lambda n: s.values[n].node),))
    out = s.copy(node, s.apart)
    return Value(CHANNELS, (s.call(aten.flatten.using_ints, out, 1, 2),))


def _cat(s: Spreader, node: fx.Node) -> Value | None:
    """Members stay side by side: [batch, members, channels, ...] is joined along the channels."""
    tensors, dim = full_arguments(node)
    if dim % node.meta["val"].ndim != 1 or not {s.values[t].kind for t in tensors} <= {CHANNELS}:
        return None
    joined = s.call(aten.cat.default, [s.apart(t) for t in tensors], 2)
    return Value(CHANNELS, (s.call(aten.flatten.using_ints, joined, 1, 2),))


RULES: dict[Any, Rule] = {LINEAR: _linear, aten.cat.default: _cat, aten.batch_norm.default: _batch_norm}
RULES |= {aten.group_norm.default: _group_norm, aten.mean.dim: partial(_behind_channels, first=2)}
RULES |= {aten.flatten.using_ints: partial(_behind_channels, first=1)}
RULES |= dict.fromkeys(CONVOLUTIONS | TRANSPOSED, _convolution)
_UNARY = (
    "relu gelu silu sigmoid tanh hardswish hardsigmoid hardtanh leaky_relu elu mish selu softplus relu6 exp neg abs"
)
RULES |= {getattr(aten, name).default: partial(_as_it_is, kinds=(CHANNELS, FRONT)) for name in _UNARY.split()}
_BINARY = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.add.Scalar, aten.mul.Scalar)
RULES |= dict.fromkeys(_BINARY, _pointwise)
_POOLS = [
    f"{name}{n}d" for name in ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool") for n in (1, 2, 3)
]
RULES |= {getattr(aten, name).default: _as_it_is for name in _POOLS}
