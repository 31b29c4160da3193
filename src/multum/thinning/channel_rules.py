"""What operations do to channels that compute element by element, or only move elements around.

A rule gets the tracer and the operation's arguments and outputs, ties the numbers that must stay or go together, and
returns the slots of each output. The rules of layers are in `layer_rules.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from ..network.trace import Traced
from .slots import FIXED, Ties, is_wild, numbers_in, slots_of, varies

Rule = Callable[[Ties, tuple, dict, list], Iterable[Any]]
_RULES: dict[Any, Rule] = {}
aten = torch.ops.aten

CONSTANTS = {aten.zeros, aten.ones, aten.full, aten.empty, aten.scalar_tensor}
CONSTANTS |= {aten.new_zeros, aten.new_ones, aten.new_full, aten.new_empty}


def rule_for(func: Any) -> Rule | None:
    """The rule of an operation, also of its in-place form; elementwise operations need none of their own."""
    packet = func.overloadpacket
    own_rule = _RULES.get(packet) or _RULES.get(getattr(aten, packet.__name__.rstrip("_"), None))
    return own_rule or (pointwise if torch.Tag.pointwise in func.tags else None)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule under ATen operation names; a name this torch lacks is left out."""

    def register(fn: Rule) -> Rule:
        for name in names:
            if hasattr(aten, name):
                _RULES[getattr(aten, name)] = fn
        return fn

    return register


def argument(func: Any, args: tuple, kwargs: dict, name: str, default: Any = None) -> Any:
    """The value of a named argument, wherever it was given."""
    bound = {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)} | kwargs
    return bound.get(name, default)


def joint(tracer: Ties, tensors: list[Tensor], shape: Iterable[int]) -> list[Tensor]:
    """Slots of an elementwise combination: slots along the same dimensions are tied to each other."""
    shape = tuple(shape)
    known: dict[frozenset[int], list[tuple[int, Tensor]]] = defaultdict(list)
    for i, t in enumerate(tensors):
        for slot in slots_of(t):
            slot = slot.expand(shape)
            known[varies(slot)].append((i, slot))
    out = []
    for dims, alike in known.items():
        holders = {i for i, _ in alike}
        for _, slot in alike[1:]:
            tracer.tie(alike[0][1], slot)
        for i, t in enumerate(tensors):
            if i in holders or is_wild(t):
                continue
            full = [1] * (len(shape) - t.ndim) + list(t.shape)
            if any(full[d] > 1 for d in dims):
                # A tensor without numbers, of full size: this width is a constant of the program.
                tracer.tie(alike[0][1], torch.tensor(FIXED))
        out.append(alike[0][1])
    return out


def pointwise(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
    for out in outputs:
        yield joint(tracer, tensors, out.shape) if out is not None else None


# Elementwise operations that torch does not tag as such.
@rule("hardswish", "hardsigmoid", "hardtanh", "elu", "celu", "selu", "leaky_relu", "threshold", "softplus", "mish")
@rule("log_sigmoid_forward", "dropout", "bernoulli", "native_dropout", "rrelu", "masked_fill", "nan_to_num", "prelu")
@rule("_prelu_kernel", "fill", "copy_", "zero_", "_weight_norm_interface")
def _elementwise(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    return pointwise(tracer, args, kwargs, outputs)


@rule("clone", "detach", "alias", "lift_fresh", "lift_fresh_copy", "_to_copy", "contiguous", "_conj")
@rule("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like")
def _same(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    yield [slot.expand(outputs[0].shape) for slot in slots_of(args[0])]


@rule("as_strided")
def _as_strided(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    """Pooling to one position says only where elements lie: sizes and strides stay wherever there is more than one."""
    x, size, stride = args[:3]
    moved = any(a != b for a, b, n in zip(stride, x.stride(), size, strict=True) if n > 1)
    if moved or tuple(size) != tuple(x.shape):
        tracer.refuse("the network lays out memory by hand", "use views and permutations")
        tracer.freeze(x)
    yield slots_of(x)


# Operations that pick or reorder by position.
_POSITIONS = {"slice", "split", "split_with_sizes", "flip", "roll", "index", "index_select", "chunk", "unsafe_split"}
_POSITIONS |= {"unsafe_chunk", "narrow", "diagonal", "unfold", "unsafe_split_with_sizes"}


@rule("permute", "transpose", "t", "expand", "squeeze", "unsqueeze", "select", "unbind", "repeat", "numpy_T", "movedim")
@rule("swapaxes", "tile", "repeat_interleave", *_POSITIONS)
def _move(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    """Moving elements moves their numbers: the same operation is applied to the slots."""
    func, name = tracer.func, tracer.func.overloadpacket.__name__
    if any(t.is_meta for t in tree_flatten((args[1:], kwargs))[0] if isinstance(t, Tensor)):
        raise NotImplementedError("indices have no values on the meta device")
    moved: list[list[Tensor]] = [[] for _ in outputs]
    for slot in slots_of(args[0]):
        if name in ("select", "unbind") and argument(func, args, kwargs, "dim", 0) % slot.ndim in varies(slot):
            # One channel, named by its position: it would be another one in a thinner network.
            tracer.tie(slot, torch.tensor(FIXED))
        pieces = tree_flatten(func(aten.alias(slot), *args[1:], **kwargs))[0]  # an alias: `transpose_` works in place
        for i, piece in enumerate(pieces):
            if name in _POSITIONS and not torch.equal(numbers_in(piece), numbers_in(slot)):
                tracer.picks(piece)
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


@rule("channel_shuffle", "native_channel_shuffle")
def _channel_shuffle(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    """[groups, n] channels are transposed: the groups are thinned alike."""
    x, groups = args[0], args[1]
    for slot in slots_of(x):
        parts = slot.unflatten(1, (groups, -1))
        tracer.tie(parts, parts.narrow(1, 0, 1))
    yield [slot.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2) for slot in slots_of(x)]


@rule("cat", "stack")
def _cat(tracer: Ties, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    tensors, shape = args[0], outputs[0].shape
    dim = argument(tracer.func, args, kwargs, "dim", 0) % len(shape)
    if tracer.func.overloadpacket is aten.stack:
        tensors = [unsqueezed(tracer, t, dim) for t in tensors]
    slots = [slots_of(t) for t in tensors]
    depth = max(len(s) for s in slots)
    if depth > 1 and len({len(s) for s in slots if s}) > 1:
        tracer.refuse(
            "a concatenation joins weights with different numbers of dimensions in use", "concatenate activations"
        )
        tracer.freeze(tensors)
        return [None]
    joined = []
    for i in range(depth):
        parts = [s[i] if s else torch.zeros(t.shape, dtype=torch.int64) for s, t in zip(slots, tensors, strict=True)]
        if any(dim in varies(part) for part in parts):
            joined.append(torch.cat(parts, dim))
            continue
        # Elsewhere than along the joined dimension the inputs must agree.
        known = [part.narrow(dim, 0, 1) for part, t in zip(parts, tensors, strict=True) if not is_wild(t)]
        for part in known[1:]:
            tracer.tie(part, known[0])
        joined.append(known[0].expand(shape))
    return [joined]


def unsqueezed(tracer: Ties, t: Tensor, dim: int) -> Traced:
    elem, note = (t.elem, t.note) if isinstance(t, Traced) else (t, [])
    return Traced(elem.unsqueeze(dim), [s.unsqueeze(dim) for s in note] if isinstance(note, list) else note, tracer)


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
