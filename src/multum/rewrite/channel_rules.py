"""What every kind of operation does to channels: one rule per kind.

A rule gets the tracer and the operation's arguments and outputs, ties the numbers that must stay or go together, and
returns the slots of each output.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from .slots import FIXED, WILD, Ties, along, slots_of, spread, varies, vector
from .trace import Traced

__all__ = ["CONSTANTS", "rule_for"]

Rule = Callable[[Ties, tuple, dict, list], Iterable[Any]]
_RULES: dict[Any, Rule] = {}
aten = torch.ops.aten

CONSTANTS = {aten.zeros, aten.ones, aten.full, aten.empty, aten.scalar_tensor}


def rule_for(func: Any) -> Rule | None:
    """The rule of an operation, also of its in-place form; elementwise operations need none of their own."""
    packet = func.overloadpacket
    found = _RULES.get(packet) or _RULES.get(getattr(aten, packet.__name__.rstrip("_"), None))
    return found or (_pointwise if torch.Tag.pointwise in func.tags else None)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule under ATen operation names; a name this torch lacks is left out."""

    def register(fn: Rule) -> Rule:
        for name in names:
            if hasattr(aten, name):
                _RULES[getattr(aten, name)] = fn
        return fn

    return register


def joint(tracer: Ties, tensors: list[Tensor], shape: Iterable[int]) -> list[Tensor]:
    """Slots of an elementwise combination: slots along the same dimensions are tied to each other."""
    shape = tuple(shape)
    known: dict[frozenset[int], list[tuple[int, Tensor]]] = defaultdict(list)
    for i, t in enumerate(tensors):
        for slot in slots_of(t):
            slot = slot.expand(shape)
            known[varies(slot)].append((i, slot))
    out = []
    for dims, found in known.items():
        holders = {i for i, _ in found}
        for _, slot in found[1:]:
            tracer.tie(found[0][1], slot)
        for i, t in enumerate(tensors):
            if i in holders or (isinstance(t, Traced) and t.note == WILD):
                continue
            full = [1] * (len(shape) - t.ndim) + list(t.shape)
            if any(full[d] > 1 for d in dims):
                # A tensor without numbers, of full size: this width is a constant of the program.
                tracer.tie(found[0][1], torch.tensor(FIXED))
        out.append(found[0][1])
    return out


def _pointwise(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
    for out in outputs:
        yield joint(tracer, tensors, out.shape) if out is not None else None


# Elementwise operations that torch does not tag as such.
@rule("hardswish", "hardsigmoid", "hardtanh", "elu", "celu", "selu", "leaky_relu", "threshold", "softplus", "mish")
@rule("log_sigmoid_forward", "dropout", "bernoulli", "native_dropout", "rrelu", "masked_fill", "nan_to_num", "prelu")
@rule("_prelu_kernel", "fill")
def _elementwise(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    return _pointwise(tracer, args, kwargs, outputs)


@rule("clone", "detach", "alias", "lift_fresh", "lift_fresh_copy", "_to_copy", "contiguous", "copy_", "_conj")
def _same(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    source = [t for t in args if isinstance(t, Tensor)][-1]
    yield [slot.expand(outputs[0].shape) for slot in slots_of(source)]


@rule("permute", "transpose", "t", "expand", "squeeze", "unsqueeze", "slice", "select", "split", "split_with_sizes")
@rule("unbind", "flip", "roll", "repeat", "index", "index_select", "chunk", "unsafe_split", "unsafe_chunk", "narrow")
@rule("numpy_T", "movedim", "swapaxes", "diagonal", "unfold", "unsafe_split_with_sizes", "tile", "repeat_interleave")
def _move(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    """Moving elements moves their numbers: the same operation is applied to the slots."""
    func = tracer.func
    if any(t.is_meta for t in tree_flatten((args[1:], kwargs))[0] if isinstance(t, Tensor)):
        raise NotImplementedError("indices have no values on the meta device")
    moved: list[list[Tensor]] = [[] for _ in outputs]
    for slot in slots_of(args[0]):
        for i, piece in enumerate(tree_flatten(func(slot, *args[1:], **kwargs))[0]):
            moved[i].append(piece)
    return moved


@rule("view", "_unsafe_view", "reshape", "_reshape_alias", "flatten", "unflatten")
def _view(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    """A view that splits a dimension into parts (heads, groups) keeps the parts equal: all are thinned alike."""
    shape = outputs[0].shape
    slots = []
    for slot in slots_of(args[0]):
        new = slot.reshape(shape)
        after = varies(new)
        if len(after) > max(1, len(varies(slot))):
            inner = max(after)
            representative = new
            for d in after - {inner}:
                representative = representative.narrow(d, 0, 1)
            tracer.tie(new, representative)
            new = representative.expand(shape)
        slots.append(new)
    yield slots


@rule("cat", "stack")
def _cat(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    func, tensors = tracer.func, args[0]
    slots = [slots_of(t) for t in tensors]
    depth = max(len(s) for s in slots)
    if depth > 1 and len({len(s) for s in slots}) > 1:
        tracer.refuse(
            "a concatenation joins weights with different numbers of dimensions in use", "concatenate activations"
        )
        tracer.freeze(tensors)
        return [None]
    padded = [
        s + [torch.zeros(t.shape, dtype=torch.int64)] * (depth - len(s)) for s, t in zip(slots, tensors, strict=True)
    ]
    joined = [func([s[i] for s in padded], *args[1:], **kwargs) for i in range(depth)]
    # Elsewhere than along the joined dimension the inputs must agree: tie them to the first one.
    dim = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % outputs[0].ndim
    if func.overloadpacket is aten.cat:
        for i in range(depth):
            for s in padded[1:]:
                if dim not in varies(s[i]) and dim not in varies(padded[0][i]):
                    tracer.tie(s[i].narrow(dim, 0, 1), padded[0][i].narrow(dim, 0, 1))
        joined = [
            j if dim in set().union(*(varies(s[i]) for s in padded)) else padded[0][i].narrow(dim, 0, 1).expand(j.shape)
            for i, j in enumerate(joined)
        ]
    else:
        for i in range(depth):
            for s in padded[1:]:
                tracer.tie(s[i], padded[0][i])
        joined = [padded[0][i].unsqueeze(dim).expand(outputs[0].shape) for i in range(depth)]
    return [joined]


def contract(tracer: Ties, a: Tensor, b: Tensor, shape: Iterable[int]) -> list[Tensor]:
    """Slots of a matrix product [..., n, k] @ [..., k, m]: the contracted numbers are tied, the others survive."""
    shape = tuple(shape)
    a_slots, b_slots = slots_of(a), slots_of(b)
    a_inner, b_inner = along(a_slots, a.ndim - 1), along(b_slots, b.ndim - 2)
    for slot in a_inner:
        if a.ndim - 2 in varies(slot):
            tracer.refuse("a product contracts channels that also vary along its rows", "use one dimension per channel")
    for left in a_inner or [torch.zeros(a.shape, dtype=torch.int64)]:
        for right in b_inner or [torch.zeros(b.shape, dtype=torch.int64)]:
            tracer.tie(left.narrow(-2, 0, 1).squeeze(-2), right.narrow(-1, 0, 1).squeeze(-1))
    kept_a = [s.narrow(-1, 0, 1).expand(shape) for s in a_slots if not any(s is i for i in a_inner)]
    kept_b = [s.narrow(-2, 0, 1).expand(shape) for s in b_slots if not any(s is i for i in b_inner)]
    return merged(tracer, kept_a + kept_b)


def merged(tracer: Ties, slots: list[Tensor]) -> list[Tensor]:
    """Slots along the same dimensions become one."""
    first: dict[frozenset[int], Tensor] = {}
    for slot in slots:
        key = varies(slot)
        if key in first:
            tracer.tie(first[key], slot)
        elif key:
            first[key] = slot
    return list(first.values())


@rule("mm", "bmm")
def _mm(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    yield contract(tracer, args[0], args[1], outputs[0].shape)


@rule("addmm", "baddbmm")
def _addmm(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    shape = outputs[0].shape
    product = Traced(outputs[0], contract(tracer, args[1], args[2], shape), tracer)
    yield joint(tracer, [product, args[0]], shape)


@rule("convolution", "_convolution", "mkldnn_convolution")
def _convolution(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    x, weight, bias, _, _, _, transposed, _, groups = args[:9]
    shape = outputs[0].shape
    slots = slots_of(weight)
    for d in range(2, weight.ndim):
        for slot in along(slots, d):
            tracer.tie(slot, torch.tensor(FIXED))
    channels = vector(tracer, slots_of(x), 1, x.shape[1])
    first = vector(tracer, slots, 0, weight.shape[0])
    second = vector(tracer, slots, 1, weight.shape[1])
    # view [groups, channels of one group]
    into, out = (first, second) if transposed else (second, first)
    channels = channels.view(groups, -1)
    if transposed:
        if groups == x.shape[1] and groups > 1:
            tracer.tie(into.view(groups, -1), channels)
            out_numbers = into.repeat_interleave(weight.shape[1])
        else:
            tracer.tie(into.view(groups, -1)[:1], into.view(groups, -1))
            tracer.tie(into.view(groups, -1), channels)
            out_numbers = out.repeat(groups)
    elif channels.shape[1] == 1 and groups > 1:
        tracer.tie(out.view(groups, -1), channels)
        out_numbers = out
    else:
        tracer.tie(into.view(1, -1), channels)
        tracer.tie(out.view(groups, -1)[:1], out.view(groups, -1))
        out_numbers = out
    if isinstance(bias, Tensor):
        tracer.tie(out_numbers, vector(tracer, slots_of(bias), 0, bias.shape[0]))
    yield [spread(out_numbers, 1, shape)]


@rule("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "cudnn_batch_norm")
@rule("_batch_norm_with_update", "_batch_norm_no_update", "batch_norm", "miopen_batch_norm", "instance_norm")
def _batch_norm(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    x = args[0]
    numbers = vector(tracer, slots_of(x), 1, x.shape[1])
    for t in args[1:5]:
        if isinstance(t, Tensor):
            tracer.tie(numbers, vector(tracer, slots_of(t), 0, t.shape[0]))
    yield slots_of(x)


@rule("native_layer_norm", "_fused_rms_norm", "rms_norm")
def _layer_norm(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    yield joint(tracer, [t for t in args if isinstance(t, Tensor)], outputs[0].shape)


@rule("native_group_norm")
def _group_norm(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    x, weight, bias, groups = args[0], args[1], args[2], args[6]
    numbers = vector(tracer, slots_of(x), 1, x.shape[1])
    for t in (weight, bias):
        if isinstance(t, Tensor):
            tracer.tie(numbers, vector(tracer, slots_of(t), 0, t.shape[0]))
    if groups < x.shape[1]:
        tracer.tie(numbers.view(groups, -1)[:1], numbers.view(groups, -1))
    yield slots_of(x)


@rule("mean", "sum", "amax", "amin", "max", "min", "var", "std", "var_mean", "std_mean", "norm", "linalg_vector_norm")
@rule("logsumexp", "prod", "any", "all", "argmax", "argmin")
def _reduce(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    x = args[0]
    if len([t for t in args if isinstance(t, Tensor)]) > 1:
        return _pointwise(tracer, args, kwargs, outputs)
    gone, keep = reduced_dims(tracer.func, args, kwargs, x.ndim)
    slots = []
    for slot in slots_of(x):
        if varies(slot) & gone:
            if varies(slot) - gone:
                tracer.refuse("a reduction runs over a part of the channels", "reduce over whole dimensions")
                tracer.tie(slot, torch.tensor(FIXED))
            continue
        for d in sorted(gone, reverse=True):
            slot = slot.narrow(d, 0, 1) if keep else slot.select(d, 0)
        slots.append(slot)
    return [slots for _ in outputs]


def reduced_dims(func: Any, args: tuple, kwargs: dict, ndim: int) -> tuple[set[int], bool]:
    bound = {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)} | kwargs
    dims = bound.get("dim")
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return set(range(ndim)), bool(bound.get("keepdim", False))
    dims = [dims] if isinstance(dims, int) else dims
    return {d % ndim for d in dims}, bool(bound.get("keepdim", False))


@rule(
    "_softmax",
    "_log_softmax",
    "_safe_softmax",
    "softmax",
    "log_softmax",
    "cumsum",
    "cumprod",
    "sort",
    "topk",
    "glu",
    "logcumsumexp",
)
def _mix(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    """What mixes the elements of a dimension keeps its size; the other dimensions pass."""
    x = args[0]
    bound = {a.name: v for a, v in zip(tracer.func._schema.arguments, args, strict=False)} | kwargs
    dim = bound.get("dim", -1) % x.ndim
    if tracer.func.overloadpacket is aten.glu:
        halves = [slot.chunk(2, dim) for slot in slots_of(x)]
        for left, right in halves:
            tracer.tie(left, right)
        return [[left for left, _ in halves]]
    for slot in along(slots_of(x), dim):
        tracer.tie(slot, torch.tensor(FIXED))
    return [[s for s in slots_of(x) if dim not in varies(s)] for _ in outputs]


@rule("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d", "avg_pool1d", "max_pool1d")
@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d", "max_pool2d")
@rule("upsample_nearest1d", "upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_linear1d")
@rule("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "upsample_trilinear3d", "upsample_nearest3d")
@rule("reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d", "adaptive_avg_pool1d")
@rule("grid_sampler_2d", "mkldnn_max_pool2d", "adaptive_avg_pool2d")
def _spatial(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    """Pooling, resizing and padding work inside every channel."""
    x, out = args[0], outputs[0]
    dim = 1 if x.ndim == out.ndim and x.shape[1] == out.shape[1] and x.ndim > 2 else 0
    numbers = vector(tracer, slots_of(x), dim, x.shape[dim])
    return [[spread(numbers, dim, o.shape)] for o in outputs]


@rule("constant_pad_nd")
def _pad(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    x, pads = args[0], args[1]
    changed = {x.ndim - 1 - i // 2 for i, p in enumerate(pads) if p != 0}
    slots = []
    for slot in slots_of(x):
        if varies(slot) & changed:
            slots.append(aten.constant_pad_nd(slot, pads, FIXED))
        else:
            small = slot
            for d in changed:
                small = small.narrow(d, 0, 1)
            slots.append(small.expand(outputs[0].shape))
    yield slots


@rule("embedding")
def _embedding(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    weight = args[0]
    slots = slots_of(weight)
    for slot in along(slots, 0):
        tracer.tie(slot, torch.tensor(FIXED))
    yield [spread(vector(tracer, slots, 1, weight.shape[1]), -1, outputs[0].shape)]


@rule("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention")
@rule("_scaled_dot_product_efficient_attention", "_scaled_dot_product_attention_math", "scaled_dot_product_attention")
@rule("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable")
def _attention(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    """softmax(q k^T) v: queries and keys are tied along their channels, the output has the values' channels."""
    q, k, v = args[:3]
    for left in along(slots_of(q), -1) or [torch.zeros(q.shape, dtype=torch.int64)]:
        for right in along(slots_of(k), -1) or [torch.zeros(k.shape, dtype=torch.int64)]:
            tracer.tie(left.narrow(-2, 0, 1), right.narrow(-2, 0, 1))
    yield [s.narrow(-2, 0, 1).expand(outputs[0].shape) for s in along(slots_of(v), -1)]
