"""What layers do to channels: products, convolutions, norms, reductions, pooling, attention."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..network.trace import Traced
from .channel_rules import argument, aten, joint, pointwise, rule, unsqueezed
from .slots import FIXED, Ties, along, is_wild, slots_of, spread, varies, vector

__all__: list[str] = []

NEVER = torch.tensor(FIXED)


def contract(tracer: Ties, a: Tensor, b: Tensor, shape: Iterable[int]) -> list[Tensor]:
    """Slots of a matrix product [..., n, k] @ [..., k, m]: the contracted numbers are tied, the others survive."""
    shape = tuple(shape)
    a_slots, b_slots = slots_of(a), slots_of(b)
    a_inner, b_inner = along(a_slots, a.ndim - 1), along(b_slots, b.ndim - 2)
    if any(a.ndim - 2 in varies(s) for s in a_inner) or any(b.ndim - 1 in varies(s) for s in b_inner):
        tracer.refuse("a product contracts channels that also vary along its rows", "use one dimension per channel")
    if not is_wild(a) and not is_wild(b):
        for left in a_inner or [torch.zeros(a.shape, dtype=torch.int64)]:
            for right in b_inner or [torch.zeros(b.shape, dtype=torch.int64)]:
                tracer.tie(left.narrow(-2, 0, 1).squeeze(-2), right.narrow(-1, 0, 1).squeeze(-1))
    kept_a = [s.narrow(-1, 0, 1).expand(shape) for s in a_slots if not any(s is i for i in a_inner)]
    kept_b = [s.narrow(-2, 0, 1).expand(shape) for s in b_slots if not any(s is i for i in b_inner)]
    return _merged(tracer, kept_a + kept_b)


def _merged(tracer: Ties, slots: list[Tensor]) -> list[Tensor]:
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


@rule("mv")
def _mv(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    column = unsqueezed(tracer, args[1], -1)
    yield [s.squeeze(-1) for s in contract(tracer, args[0], column, (*outputs[0].shape, 1))]


@rule("convolution", "_convolution", "mkldnn_convolution")
def _convolution(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    x, weight, bias, stride, padding, _, transposed, _, groups = args[:9]
    shape = outputs[0].shape
    slots = slots_of(weight)
    for d in range(2, weight.ndim):
        for slot in along(slots, d):
            tracer.tie(slot, NEVER)
    first = vector(tracer, slots, 0, weight.shape[0])
    second = vector(tracer, slots, 1, weight.shape[1])
    into, out = (first, second) if transposed else (second, first)
    channels = into if is_wild(x) and groups == 1 else vector(tracer, slots_of(x), 1, x.shape[1])
    # view [groups, channels of one group]
    channels = channels.view(groups, -1)
    depthwise = channels.shape[1] == 1 and groups > 1
    if transposed and depthwise:
        tracer.tie(into.view(groups, -1), channels)
        out_numbers = into.repeat_interleave(weight.shape[1])
    elif transposed:
        tracer.repeats(out, groups)
        tracer.tie(into.view(groups, -1)[:1], into.view(groups, -1))
        tracer.tie(into.view(groups, -1), channels)
        out_numbers = out.repeat(groups)
    elif depthwise:
        tracer.tie(out.view(groups, -1), channels)
        out_numbers = out
    else:
        tracer.repeats(into, groups)
        tracer.tie(into.view(1, -1), channels)
        tracer.tie(out.view(groups, -1)[:1], out.view(groups, -1))
        out_numbers = out
    if isinstance(bias, Tensor):
        tracer.tie(out_numbers, vector(tracer, slots_of(bias), 0, bias.shape[0]))
    yield [spread(out_numbers, 1, shape), *_beside(tracer, x, weight, stride, padding, shape)]


def _beside(tracer: Ties, x: Tensor, weight: Tensor, stride: list, padding: list, shape: Any) -> list[Tensor]:
    """Numbers along the positions of a convolution: they pass a kernel of size 1; any other one mixes them."""
    passed = []
    for slot in slots_of(x):
        if varies(slot) & set(range(2, x.ndim)):
            if weight.shape[2:].numel() == 1 and set(stride) == {1} and not any(padding) and 1 not in varies(slot):
                passed.append(slot.narrow(1, 0, 1).expand(shape))
            else:
                tracer.tie(slot, NEVER)
    return passed


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
        return pointwise(tracer, args, kwargs, outputs)
    if tracer.func.overloadpacket in (aten.argmax, aten.argmin):
        tracer.freeze(x)  # a position is the outcome
    dims = argument(tracer.func, args, kwargs, "dim")
    dims = [dims] if isinstance(dims, int) else dims
    gone = {d % x.ndim for d in dims} if dims else set(range(x.ndim))
    keep = bool(argument(tracer.func, args, kwargs, "keepdim", False))
    slots = []
    for slot in slots_of(x):
        if varies(slot) & gone:
            if varies(slot) - gone:
                tracer.refuse("a reduction runs over a part of the channels", "reduce over whole dimensions")
                tracer.tie(slot, NEVER)
            continue
        for d in sorted(gone, reverse=True):
            slot = slot.narrow(d, 0, 1) if keep else slot.select(d, 0)
        slots.append(slot)
    return [slots for _ in outputs]


@rule("_softmax", "_log_softmax", "_safe_softmax", "softmax", "log_softmax", "cumsum", "cumprod", "sort", "topk")
@rule("logcumsumexp", "cummax", "cummin")
def _mix(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    """What mixes the elements of a dimension keeps its size; the other dimensions pass."""
    x = args[0]
    dim = argument(tracer.func, args, kwargs, "dim", -1) % x.ndim
    for slot in along(slots_of(x), dim):
        tracer.tie(slot, NEVER)
    return [[s.narrow(dim, 0, 1).expand(o.shape) for s in slots_of(x) if dim not in varies(s)] for o in outputs]


@rule("glu")
def _glu(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    x = args[0]
    dim = argument(tracer.func, args, kwargs, "dim", -1) % x.ndim
    halves = [slot.chunk(2, dim) for slot in slots_of(x)]
    for left, right in halves:
        tracer.tie(left, right)
    yield [left for left, _ in halves]


@rule("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d", "avg_pool1d", "max_pool1d")
@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d", "max_pool2d")
@rule("upsample_nearest1d", "upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_linear1d")
@rule("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "upsample_trilinear3d", "upsample_nearest3d")
@rule("reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d")
@rule("replication_pad3d", "adaptive_avg_pool1d", "mkldnn_max_pool2d", "adaptive_avg_pool2d")
def _spatial(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    """Pooling, resizing and padding work inside every channel, on the last one, two or three dimensions."""
    x = args[0]
    dimensions = re.search(r"(\d)d", tracer.func.overloadpacket.__name__)
    first = x.ndim - int(dimensions.group(1))  # type: ignore[union-attr]
    inside = [s for s in slots_of(x) if max(varies(s), default=-1) < first]
    for slot in slots_of(x):
        if max(varies(slot), default=-1) >= first:
            tracer.tie(slot, NEVER)
    for out in outputs:
        small = inside
        for d in range(first, x.ndim):
            small = [s.narrow(d, 0, 1) for s in small]
        yield [s.expand(out.shape) for s in small]


@rule("pixel_shuffle", "pixel_unshuffle")
def _pixel_shuffle(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    """[C*r*r, H, W] <-> [C, H*r, W*r]: the r*r parts of a channel stay together."""
    x, parts, shape = args[0], args[1] ** 2, outputs[0].shape
    numbers = vector(tracer, slots_of(x), x.ndim - 3, x.shape[-3])
    if tracer.func.overloadpacket is aten.pixel_shuffle:
        numbers = numbers.view(-1, parts)
        tracer.tie(numbers, numbers[:, :1])
        numbers = numbers[:, 0]
    else:
        numbers = numbers.repeat_interleave(parts)
    for slot in slots_of(x):
        if varies(slot) - {x.ndim - 3}:
            tracer.tie(slot, NEVER)
    yield [spread(numbers, len(shape) - 3, shape)]


@rule("embedding")
def _embedding(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    weight = args[0]
    slots = slots_of(weight)
    for slot in along(slots, 0):
        tracer.tie(slot, NEVER)
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
    tracer.freeze((args[3:], kwargs))
    for slot in along(slots_of(v), -2):
        tracer.tie(slot, NEVER)
    yield [s.narrow(-2, 0, 1).expand(outputs[0].shape) for s in slots_of(v) if v.ndim - 2 not in varies(s)]
