"""Which channels of a network belong together: the rules a width must obey, read off one run.

Every index of every dimension of every weight gets a number. One run on noted tensors then says which numbers must stay
or go together: a convolution ties its weight's input index j to channel j of its input; an addition ties channel j of
both sides; a view, a concatenation or a split only moves numbers around, so the very same operation is applied to the
numbers. What an operation does to channels is written once per kind of operation, not once per architecture.

Shape: the note of a tensor is a list of *slots*. A slot is an int64 tensor that broadcasts to the tensor's shape; its
value is the number of the index that the element belongs to, and 0 means "never changes". An activation has one slot,
a weight one per dimension.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from ..errors import Refusal
from .trace import Traced, run_traced, tensors_of

__all__ = ["Channels", "Segment", "trace_channels"]

FIXED = 0
WILD = "wild"  # a constant such as zeros: it fits any width


@dataclass
class Segment:
    """Interchangeable channels: every class of tied indices touches the same dimensions equally often.

    Shape: `classes` [n]; one channel of the segment is `multiplicity` indices of its narrowest dimension (convolution
    groups, attention heads), so the width is n * multiplicity.
    """

    classes: np.ndarray
    multiplicity: int
    where: tuple[tuple[str, int], ...]

    @property
    def width(self) -> int:
        return len(self.classes) * self.multiplicity


@dataclass
class Channels:
    """The outcome: the class of every index of every dimension, and the segments that may be thinned.

    Shape: `classes[name][d]` is an int array [size of dimension d]; class 0 is kept always.
    """

    classes: dict[str, list[np.ndarray]]
    segments: list[Segment]
    refusals: list[Refusal]
    unused: list[str]


def trace_channels(network: nn.Module, x: Any) -> Channels:
    """Run the network once and return which channels belong together.

    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> [(s.width, s.where) for s in trace_channels(net, torch.zeros(1, 3)).segments]
    [(8, (('0.weight', 0), ('0.bias', 0), ('2.weight', 1)))]
    """
    for device in ("meta", None):
        tracer = _ChannelTracer(network)
        try:
            out = run_traced(network, x, tracer, tracer.begin, device=device)
            break
        except (RuntimeError, NotImplementedError, ValueError):
            # Reading values in Python is impossible on meta; there the run on the real device decides.
            if device is None:
                raise
    tracer.freeze(out)
    return tracer.finish()


@dataclass
class _ChannelTracer:
    network: nn.Module
    path: str = ""
    func: Any = None
    count: int = 1
    first: dict[tuple[str, int], int] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    edges: list[np.ndarray] = field(default_factory=list)
    refusals: dict[tuple[str, str], Refusal] = field(default_factory=dict)

    # -- notes of what exists before the run -------------------------------------------------------------------------

    def begin(self, name: str, tensor: Tensor) -> list[Tensor] | None:
        if tensor.ndim == 0 or not tensor.is_floating_point():
            return None
        self.shapes[name] = tuple(tensor.shape)
        slots = []
        for d, size in enumerate(tensor.shape):
            if size > 1:
                self.first[name, d] = self.count
                numbers = torch.arange(self.count, self.count + size)
                slots.append(numbers.view([-1 if e == d else 1 for e in range(tensor.ndim)]).expand(tensor.shape))
                self.count += size
        return slots

    def factory(self, func: Any, output: Tensor) -> Any:
        return WILD if func.overloadpacket in _CONSTANTS else None

    def enter(self, path: str, inputs: Any) -> None:
        """Nothing to learn from a module's inputs."""

    # -- what operations do --------------------------------------------------------------------------------------------

    def result(self, func: Any, args: tuple, kwargs: dict, outputs: list[Tensor | None]) -> list[Any]:
        self.func, packet = func, func.overloadpacket
        inputs = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
        if not any(slots_of(t) for t in inputs):
            wild = all(isinstance(t, Traced) and t.note == WILD for t in inputs)
            return [WILD if wild else None for _ in outputs]
        rule = _RULES.get(packet) or _RULES.get(getattr(aten, packet.__name__.rstrip("_"), None))
        if rule is None and torch.Tag.pointwise in func.tags:
            rule = _pointwise
        if rule is None:
            self.refuse(
                f"the operation {packet} has no width rule",
                "use an operation multum knows, or thin this network by hand and use Deep on the result",
            )
            self.freeze(inputs)
            return [None for _ in outputs]
        notes = rule(self, args, kwargs, outputs)
        return [compact(slots) if slots else None for slots in (list(notes) + [None] * len(outputs))[: len(outputs)]]

    def refuse(self, reason: str, fix: str) -> None:
        self.refusals.setdefault((self.path, reason), Refusal(self.path, reason, fix))

    def tie(self, a: Tensor, b: Tensor) -> None:
        """Numbers at equal places stay or go together."""
        a, b = torch.broadcast_tensors(a, b)
        for d in range(a.ndim):
            if a.stride(d) == 0 and b.stride(d) == 0 and a.shape[d] > 1:
                a, b = a.narrow(d, 0, 1), b.narrow(d, 0, 1)
        pairs = torch.stack([a.reshape(-1), b.reshape(-1)])
        pairs = pairs[:, pairs[0] != pairs[1]]
        if pairs.shape[1]:
            self.edges.append(torch.unique(pairs, dim=1).numpy())

    def freeze(self, tensors: Any) -> None:
        """The widths of these tensors never change."""
        for t in tree_flatten(tensors)[0]:
            for slot in slots_of(t):
                self.tie(slot, torch.tensor(FIXED))

    # -- the outcome ---------------------------------------------------------------------------------------------------

    def finish(self) -> Channels:
        edges = np.concatenate([np.zeros((2, 0), dtype=np.int64), *self.edges], axis=1)
        graph = coo_matrix((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(self.count, self.count))
        _, component = connected_components(graph, directed=False)
        touched = np.zeros(self.count, dtype=bool)
        touched[edges.reshape(-1)] = True
        # Component numbers are shifted so that what never changes is class 0, also where nothing constrains it.
        label = np.where(touched, component + 1, 0)
        label[component == component[FIXED]] = 0

        classes = {
            name: [
                label[self.first[name, d] : self.first[name, d] + size]
                if (name, d) in self.first
                else np.zeros(size, dtype=np.int64)
                for d, size in enumerate(shape)
            ]
            for name, shape in self.shapes.items()
        }
        parameters = dict(self.network.named_parameters())
        unused = [
            name
            for name, shape in self.shapes.items()
            if name in parameters
            and math.prod(shape) > 1
            and not any(
                touched[self.first[name, d] : self.first[name, d] + size].any()
                for d, size in enumerate(shape)
                if (name, d) in self.first
            )
        ]
        return Channels(classes, _segments(classes), list(self.refusals.values()), unused)


def _segments(classes: dict[str, list[np.ndarray]]) -> list[Segment]:
    uses: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for name, dims in classes.items():
        for d, labels in enumerate(dims):
            found, counts = np.unique(labels[labels != 0], return_counts=True)
            for label, times in zip(found.tolist(), counts.tolist(), strict=True):
                uses[label].append((name, d, times))
    alike: dict[tuple, list[int]] = defaultdict(list)
    for label, signature in uses.items():
        alike[tuple(signature)].append(label)
    return [
        Segment(
            classes=np.array(sorted(labels)),
            multiplicity=min(times for _, _, times in signature),
            where=tuple((name, d) for name, d, _ in signature),
        )
        for signature, labels in alike.items()
    ]


# -- slots -------------------------------------------------------------------------------------------------------------


def slots_of(t: Any) -> list[Tensor]:
    return t.note if isinstance(t, Traced) and isinstance(t.note, list) else []


def varies(slot: Tensor) -> frozenset[int]:
    """The dimensions along which the numbers of a slot differ."""
    return frozenset(
        d
        for d, size in enumerate(slot.shape)
        if size > 1 and slot.stride(d) != 0 and not bool((slot == slot.narrow(d, 0, 1)).all())
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


def vector(tracer: _ChannelTracer, slots: list[Tensor], dim: int, size: int) -> Tensor:
    """The numbers along one dimension [size]; zeros where there are none."""
    found = along(slots, dim)
    if not found:
        return torch.zeros(size, dtype=torch.int64)
    dim = dim % found[0].ndim
    index: list[Any] = [slice(None) if d == dim else 0 for d in range(found[0].ndim)]
    if len(found) > 1 or varies(found[0]) != {dim}:
        tracer.refuse(
            "channels are spread over several dimensions where one is expected",
            "give every channel one dimension of its own",
        )
        for slot in found:
            tracer.tie(slot, torch.tensor(FIXED))
    return found[0][tuple(index)]


def spread(numbers: Tensor, dim: int, shape: Iterable[int]) -> Tensor:
    """Numbers [size] along `dim` of `shape`."""
    shape = tuple(shape)
    return numbers.view([-1 if d == dim % len(shape) else 1 for d in range(len(shape))]).expand(shape)


# -- rules: (tracer, args, kwargs, outputs) -> slots of each output ---------------------------------------------------

Rule = Callable[[_ChannelTracer, tuple, dict, list], Iterable[Any]]
_RULES: dict[Any, Rule] = {}
aten = torch.ops.aten

_CONSTANTS = {aten.zeros, aten.ones, aten.full, aten.empty, aten.scalar_tensor}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule under ATen operation names; a name this torch lacks is left out."""

    def register(fn: Rule) -> Rule:
        for name in names:
            if hasattr(aten, name):
                _RULES[getattr(aten, name)] = fn
        return fn

    return register


def joint(tracer: _ChannelTracer, tensors: list[Tensor], shape: Iterable[int]) -> list[Tensor]:
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


def _pointwise(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
    for out in outputs:
        yield joint(tracer, tensors, out.shape) if out is not None else None


# Elementwise operations that torch does not tag as such.
@rule("hardswish", "hardsigmoid", "hardtanh", "elu", "celu", "selu", "leaky_relu", "threshold", "softplus", "mish")
@rule("log_sigmoid_forward", "dropout", "bernoulli", "native_dropout", "rrelu", "masked_fill", "nan_to_num", "prelu")
@rule("_prelu_kernel", "fill")
def _elementwise(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    return _pointwise(tracer, args, kwargs, outputs)


@rule("clone", "detach", "alias", "lift_fresh", "lift_fresh_copy", "_to_copy", "contiguous", "copy_", "_conj")
def _same(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    source = [t for t in args if isinstance(t, Tensor)][-1]
    yield [slot.expand(outputs[0].shape) for slot in slots_of(source)]


@rule("permute", "transpose", "t", "expand", "squeeze", "unsqueeze", "slice", "select", "split", "split_with_sizes")
@rule("unbind", "flip", "roll", "repeat", "index", "index_select", "chunk", "unsafe_split", "unsafe_chunk", "narrow")
@rule("numpy_T", "movedim", "swapaxes", "diagonal", "unfold", "unsafe_split_with_sizes", "tile", "repeat_interleave")
def _move(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
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
def _view(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
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
def _cat(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
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


def contract(tracer: _ChannelTracer, a: Tensor, b: Tensor, shape: Iterable[int]) -> list[Tensor]:
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


def merged(tracer: _ChannelTracer, slots: list[Tensor]) -> list[Tensor]:
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
def _mm(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    yield contract(tracer, args[0], args[1], outputs[0].shape)


@rule("addmm", "baddbmm")
def _addmm(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    shape = outputs[0].shape
    product = Traced(outputs[0], contract(tracer, args[1], args[2], shape), tracer)
    yield joint(tracer, [product, args[0]], shape)


@rule("convolution", "_convolution", "mkldnn_convolution")
def _convolution(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
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
def _batch_norm(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    x = args[0]
    numbers = vector(tracer, slots_of(x), 1, x.shape[1])
    for t in args[1:5]:
        if isinstance(t, Tensor):
            tracer.tie(numbers, vector(tracer, slots_of(t), 0, t.shape[0]))
    yield slots_of(x)


@rule("native_layer_norm", "_fused_rms_norm", "rms_norm")
def _layer_norm(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    yield joint(tracer, [t for t in args if isinstance(t, Tensor)], outputs[0].shape)


@rule("native_group_norm")
def _group_norm(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
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
def _reduce(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
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
def _mix(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
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
def _spatial(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    """Pooling, resizing and padding work inside every channel."""
    x, out = args[0], outputs[0]
    dim = 1 if x.ndim == out.ndim and x.shape[1] == out.shape[1] and x.ndim > 2 else 0
    numbers = vector(tracer, slots_of(x), dim, x.shape[dim])
    return [[spread(numbers, dim, o.shape)] for o in outputs]


@rule("constant_pad_nd")
def _pad(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
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
def _embedding(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    weight = args[0]
    slots = slots_of(weight)
    for slot in along(slots, 0):
        tracer.tie(slot, torch.tensor(FIXED))
    yield [spread(vector(tracer, slots, 1, weight.shape[1]), -1, outputs[0].shape)]


@rule("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention")
@rule("_scaled_dot_product_efficient_attention", "_scaled_dot_product_attention_math", "scaled_dot_product_attention")
@rule("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable")
def _attention(tracer: _ChannelTracer, args: tuple, kwargs: dict, outputs: list) -> Iterable[Any]:
    """softmax(q k^T) v: queries and keys are tied along their channels, the output has the values' channels."""
    q, k, v = args[:3]
    for left in along(slots_of(q), -1) or [torch.zeros(q.shape, dtype=torch.int64)]:
        for right in along(slots_of(k), -1) or [torch.zeros(k.shape, dtype=torch.int64)]:
            tracer.tie(left.narrow(-2, 0, 1), right.narrow(-2, 0, 1))
    yield [s.narrow(-2, 0, 1).expand(outputs[0].shape) for s in along(slots_of(v), -1)]
