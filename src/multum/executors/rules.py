"""Operations on all members at once: what `grouped` does in place of vmap.

A rule gets vmap's tensors and gives such tensors, or NotImplemented: then vmap's own rule runs, which is right for any
layout. Convolutions, norms and pools hold the members next to the batch (see `folding`); linear layers and attention
hold them in front, for one batched product.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from ..rewrite.norm import batch_norm, normalised
from .folding import Level

__all__ = ["RULES", "Rule"]


class Rule(NamedTuple):
    """What an operation does to all members at once; `takes` are the arguments that it knows by name, None for any."""

    apply: Callable[..., Any]
    takes: frozenset[str] | None

    @classmethod
    def of(cls, apply: Callable[..., Any]) -> Rule:
        parameters = inspect.signature(apply).parameters.values()
        every = any(p.kind is p.VAR_KEYWORD for p in parameters)
        return cls(apply, None if every else frozenset(p.name for p in parameters))

    def __call__(self, func: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The result, or NotImplemented; what is called in an unusual way (`input=x`, `out=y`) is vmap's."""
        known = bool(args) and (self.takes is None or kwargs.keys() <= self.takes)
        return self.apply(Level.current(), func, *args, **kwargs) if known else NotImplemented


# -- convolutions ------------------------------------------------------------------------------------------------------


def convolution(
    level: Level,
    func: Callable,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    run = partial(func, stride=stride, padding=padding, dilation=dilation)
    return _convolved(level, run, x, weight, bias, groups, wide=lambda kernels: kernels.flatten(0, 1))


def transposed_convolution(
    level: Level,
    func: Callable,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    run = partial(func, stride=stride, padding=padding, output_padding=output_padding, dilation=dilation)
    return _convolved(level, run, x, weight, bias, groups, wide=lambda kernels: kernels.movedim(0, 1).flatten(1, 2))


def _convolved(
    level: Level,
    run: Callable[..., Tensor],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
    wide: Callable[[Tensor], Tensor],
) -> Any:
    """`wide` gives the kernels of all members as those of one layer with all their outputs."""
    if x.ndim != weight.ndim:  # an example without a batch
        return NotImplemented
    kernels = level.values(weight, 0)
    if kernels is None:
        if not level.own(x):
            return NotImplemented
        shared = None if level.own(bias) else bias
        rows, unfolded = level.rows(x)
        y = unfolded(run(rows, weight, shared, groups=groups))
        return y if shared is bias else y + bias.view(-1, *(1 for _ in x.shape[2:]))  # type: ignore[union-attr]
    members = len(kernels)
    biases = level.vector(bias, members)
    if groups == 1 and not level.own(x):
        return level.unfolded(run(x, wide(kernels), biases, groups=1), members)
    y = run(level.channels(x, members), kernels.flatten(0, 1), biases, groups=members * groups)
    return level.unfolded(y, members)


# -- norms -------------------------------------------------------------------------------------------------------------


def evaluated_norm(
    level: Level,
    func: Callable,
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Batch norm by running statistics."""
    if training or running_mean is None or x.ndim < 2:
        return NotImplemented
    vectors = (running_mean, running_var, weight, bias)
    if not level.own(x, *vectors):
        return NotImplemented
    if not level.own(*vectors):
        rows, unfolded = level.rows(x)
        return unfolded(func(rows, *vectors, False, momentum, eps))
    members = level.count(*vectors)
    folded = [level.vector(t, members) for t in vectors]
    return level.unfolded(func(level.channels(x, members), *folded, False, momentum, eps), members)


def trained_norm(
    level: Level,
    func: Callable,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running: Tensor | None,
    eps: float,
) -> Any:
    """multum's batch norm by the batch: own statistics, or statistics of all members together."""
    # Under a transformation of the whole ensemble its tensors are not plain; then the operator's own rules help.
    plain = level.number == 1
    run: Callable = _outside if plain else lambda x, weight, bias, eps: func(x, weight, bias, None, eps)
    decides = running if running is not None else weight  # as in the operator
    if not level.own(x if decides is None else decides):
        if not level.own(x) or level.own(weight, bias):
            return NotImplemented
        rows, unfolded = level.rows(x)
        y, *statistics = run(rows, weight, bias, eps)
        return unfolded(y), *statistics
    members = level.count(x, weight, bias, running)
    vectors = [level.vector(t, members) for t in (weight, bias)]
    y, *statistics = run(level.channels(x, members), *vectors, eps)
    return level.unfolded(y, members), *(level.mapped(s.view(members, -1), 0) for s in statistics)


def _outside(*args: Any) -> Any:
    """Outside of vmap, which would look for a rule of its own."""
    with temporarily_pop_interpreter_stack():
        return normalised(*args)


def group_norm(
    level: Level,
    func: Callable,
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    if not level.own(x):
        return NotImplemented
    if not level.own(weight, bias):
        rows, unfolded = level.rows(x)
        return unfolded(func(rows, num_groups, weight, bias, eps))
    members = level.count(x)
    vectors = [level.vector(t, members) for t in (weight, bias)]
    return level.unfolded(func(level.channels(x, members), members * num_groups, *vectors, eps), members)


# -- products ----------------------------------------------------------------------------------------------------------


def linear(level: Level, func: Callable, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.ndim != 2 or x.ndim < 2:
        return NotImplemented
    matrices = level.values(weight, 0)
    if matrices is None:
        return NotImplemented
    members, outputs, _ = matrices.shape
    values = level.values(x, 0)
    if values is None:
        y = func(x, matrices.flatten(0, 1), level.vector(bias, members))
        return level.mapped(y.unflatten(-1, (members, outputs)), x.ndim - 1)
    factors = values.flatten(1, -2), matrices.transpose(1, 2)
    biases = level.vector(bias, members)
    y = torch.bmm(*factors) if biases is None else torch.baddbmm(biases.view(members, 1, outputs), *factors)
    return level.mapped(y.unflatten(1, values.shape[1:-1]), 0)


def matrix_vector(level: Level, func: Callable, matrix: Tensor, vec: Tensor) -> Any:
    """Weights that members mix from common templates, each member's in one piece."""
    vectors = level.values(vec, 0)
    if vectors is None or level.own(matrix):
        return NotImplemented
    return level.mapped(torch.mm(vectors, matrix.t()), 0)


def attention(
    level: Level,
    func: Callable,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Members as rows of one fused attention, which vmap would take apart."""
    inputs = [t for t in (query, key, value) if t.ndim == 4 and level.own(t)]
    own_rows = level.own(attn_mask) or (attn_mask is not None and attn_mask.ndim > 2)  # a mask that is not for all rows
    if dropout_p or len(inputs) < 3 or own_rows or len({t.shape[0] for t in inputs}) > 1:
        return NotImplemented
    rows = [level.values(t, 0).flatten(0, 1) for t in inputs]  # type: ignore[union-attr]
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]) if query.device.type == "cpu" else nullcontext():
        y = func(*rows, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
    return level.mapped(y.unflatten(0, (level.count(query), query.shape[0])), 0)


# -- what looks at one row at a time, and the rest ---------------------------------------------------------------------


def rows_alone(batched: range, level: Level, func: Callable, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """A function of every row alone; its input is a batch where it has so many dimensions."""
    if x.ndim not in batched or not level.own(x) or level.own(*args, *kwargs.values()):
        return NotImplemented
    rows, unfolded = level.rows(x)
    return unfolded(func(rows, *args, **kwargs))


def concatenation(level: Level, func: Callable, tensors: Any, dim: int = 0) -> Any:
    ndim = tensors[0].ndim
    if any(t.ndim != ndim for t in tensors) or not -ndim <= dim < ndim:
        return NotImplemented
    at = next((place for t in tensors if (place := level.dim(t)) is not None), None)
    if at is None:
        return NotImplemented
    members = level.count(*tensors)
    common = (t.unsqueeze(at).expand(*t.shape[:at], members, *t.shape[at:]) for t in tensors if not level.own(t))
    values = [next(common) if (own := level.values(t, at)) is None else own for t in tensors]
    dim %= ndim
    return level.mapped(func(values, dim + (dim >= at)), at)


def one_by_one(level: Level, func: Callable, *args: Any, **kwargs: Any) -> Any:
    """Member after member, for what has no rule anywhere."""
    leaves, spec = tree_flatten((args, kwargs))
    if not level.own(*leaves):
        return NotImplemented
    values = [level.values(t, 0) for t in leaves]
    outputs = []
    with temporarily_pop_interpreter_stack():  # random numbers, too, are those of one member
        for i in range(level.count(*leaves)):
            one = [t if v is None else v[i] for t, v in zip(leaves, values, strict=True)]
            args, kwargs = tree_unflatten(one, spec)
            outputs.append(func(*args, **kwargs))
    return tree_map(lambda *results: level.mapped(torch.stack(results), 0), *outputs)


_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_ROWS_ALONE = {
    (F.max_pool1d, F.avg_pool1d, F.adaptive_avg_pool1d, F.adaptive_max_pool1d): range(3, 4),
    (F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, F.adaptive_max_pool2d): range(4, 5),
    (F.max_pool3d, F.avg_pool3d, F.adaptive_avg_pool3d, F.adaptive_max_pool3d): range(5, 6),
    (F.pixel_shuffle, F.pixel_unshuffle): range(4, 5),
    (F.interpolate,): range(3, 6),
}
_APPLIED: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.conv1d, torch.conv2d, torch.conv3d), convolution),
    **dict.fromkeys((torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d), transposed_convolution),
    **{func: partial(rows_alone, batched) for funcs, batched in _ROWS_ALONE.items() for func in funcs},
    F.batch_norm: evaluated_norm,
    batch_norm._opoverload: trained_norm,
    F.group_norm: group_norm,
    F.linear: linear,
    torch.mv: matrix_vector,
    F.scaled_dot_product_attention: attention,
    torch.cat: concatenation,
    **dict.fromkeys([F.rrelu, *(getattr(torch, name) for name in _RECURRENT)], one_by_one),
}
RULES: dict[Any, Rule] = {func: Rule.of(apply) for func, apply in _APPLIED.items()}
