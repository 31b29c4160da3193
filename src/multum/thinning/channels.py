"""Which channels of a network belong together: the rules a width must obey, read off one run.

Every index of every dimension of every weight gets a number. One run on noted tensors then says which numbers must stay
or go together: a convolution ties its weight's input index j to channel j of its input; an addition ties channel j of
both sides; a view, a concatenation or a split only moves numbers around, so the very same operation is applied to the
numbers. What an operation does to channels is written once per kind of operation, not once per architecture.

`slots.py` says how numbers are kept on a tensor, `channel_rules.py` and `layer_rules.py` what operations do to them,
and `plan.py` holds a thinner network to what was found here.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten

from ..errors import Refusal, RewriteError, first_line
from ..network.attributes import norm_dims
from ..network.trace import Traced, run_traced
from . import layer_rules  # noqa: F401  (it registers its rules)
from .channel_rules import CONSTANTS, rule_for
from .slots import FIXED, WILD, compact, is_wild, numbers_in, slots_of, stored, vector


@dataclass
class Segment:
    """Interchangeable channels: every class of tied indices touches the same dimensions equally often, and no operation
    picks some of them by their position.

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
    unused: list[str]  # parameters that the run did not touch
    wide: list[str]  # weights whose outputs keep their number because of something inside the network
    norms: dict[str, list[np.ndarray]]  # path of a norm without tensors -> the classes of what it normalises over
    picks: list[np.ndarray]  # the classes that are picked by their position, in the order of the program


def trace_channels(network: nn.Module, x: Any) -> Channels:
    """Run the network once and return which channels belong together.

    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> [(s.width, s.where) for s in trace_channels(net, torch.zeros(1, 3)).segments]
    [(8, (('0.weight', 0), ('0.bias', 0), ('2.weight', 1)))]
    """
    tracer, out = run_on_meta(lambda: ChannelTracer(network), network, x)
    return tracer.finish(out)


def run_on_meta(make: Any, network: nn.Module, x: Any) -> tuple[Any, Any]:
    """A new tracer and the network's output after a run, on the meta device if that is possible."""
    tracer = make()
    try:
        with _SimplePads():
            return tracer, run_traced(network, x, tracer, tracer.begin, device="meta")
    except Exception:
        # Reading values in Python is impossible on meta; there the run on the real device decides.
        tracer = make()
    try:
        with _SimplePads():
            return tracer, run_traced(network, x, tracer, tracer.begin, device=None)
    except Exception as error:
        reason = first_line(error)
        refusal = Refusal(
            tracer.path,
            f"what happens to channels here cannot be followed: {reason}",
            "write it with ordinary operations, or use Deep instead of a thinner network",
        )
        raise RewriteError("thinning", [*tracer.refusals.values(), refusal]) from error


class _SimplePads(TorchFunctionMode):
    """Circular padding, which torch writes piece by piece, as replication: neither moves anything between channels."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.pad and "circular" in (*args[2:3], kwargs.get("mode")):
            args, kwargs["mode"] = args[:2], "replicate"
        return func(*args, **kwargs)


@dataclass
class ChannelTracer:
    """Collects what belongs together while a network runs on numbered tensors."""

    network: nn.Module
    path: str = ""
    func: Any = None
    count: int = 1
    first: dict[tuple[str, int], int] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    edges: list[np.ndarray] = field(default_factory=list)
    picked: list[np.ndarray] = field(default_factory=list)
    repeated: dict[int, int] = field(default_factory=dict)  # first number of a dimension -> channels per index
    norms: dict[str, list[Tensor]] = field(default_factory=dict)
    refusals: dict[tuple[str, str], Refusal] = field(default_factory=dict)
    untouched: dict[int, str] = field(default_factory=dict)
    fixed: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.bool))
    shortens: bool = True

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
        self.untouched[id(slots)] = name
        self.fixed = torch.zeros(self.count, dtype=torch.bool)
        return slots

    def factory(self, func: Any, output: Tensor) -> Any:
        return WILD if func.overloadpacket in CONSTANTS else None

    def enter(self, path: str, inputs: Any) -> None:
        """A norm without tensors of its own has a size all the same: that of its input."""
        module = self.network.get_submodule(path)
        x = next((t for t in tree_flatten(inputs)[0] if isinstance(t, Traced)), None)
        if x is not None and path not in self.norms:
            self.norms[path] = [vector(self, slots_of(x), d, x.shape[d]) for d in norm_dims(module, x.ndim)]

    # -- what operations do --------------------------------------------------------------------------------------------

    def result(self, func: Any, args: tuple, kwargs: dict, outputs: list[Tensor | None]) -> list[Any]:
        self.func = func
        inputs = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
        for t in inputs:
            self.untouched.pop(id(getattr(t, "note", None)), None)
        if func.overloadpacket in CONSTANTS:
            return [WILD]
        if not any(slots_of(t) for t in inputs):
            wild = all(is_wild(t) for t in inputs)
            return [WILD if wild else None for _ in outputs]
        rule = rule_for(func)
        if rule is None:
            self.refuse(
                f"the operation {func.overloadpacket} has no width rule",
                "use an operation multum knows, or thin this network by hand and use Deep on the result",
            )
            self.freeze(inputs)
            return [None for _ in outputs]
        notes = [*rule(self, args, kwargs, outputs), *outputs][: len(outputs)]
        return [compact(map(self.without_fixed, slots)) if isinstance(slots, list) else None for slots in notes]

    def without_fixed(self, slot: Tensor) -> Tensor:
        """Numbers that are known never to change say no more than 0 does: two slots may then be one."""
        small = stored(slot)
        return small.masked_fill(self.fixed[small], FIXED).expand(slot.shape) if bool(self.fixed[small].any()) else slot

    def write(self, target: Tensor, note: Any) -> None:
        """The rules have tied what was written to what was there; only a constant had nothing to tie it to."""
        if is_wild(target) and target._is_view() and isinstance(note, list):
            self.refuse("channels are written into a part of a constant", "build the tensor with torch.cat or stack")
            self.freeze_slots(note)
        elif isinstance(target, Traced) and not target._is_view():
            target.note = note

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
            self.edges.append(pairs.numpy())
            self.fixed[pairs[:, (pairs == FIXED).any(0)]] = True

    def freeze(self, tensors: Any) -> None:
        """The widths of these tensors never change."""
        for t in tree_flatten(tensors)[0]:
            self.freeze_slots(slots_of(t))

    def freeze_slots(self, slots: list[Tensor]) -> None:
        for slot in slots:
            self.tie(slot, torch.tensor(FIXED))

    def repeats(self, numbers: Tensor, times: int) -> None:
        self.repeated[int(numbers[0])] = times

    def picks(self, slot: Tensor) -> None:
        self.picked.append(np.unique(numbers_in(slot).numpy()))

    # -- the outcome ---------------------------------------------------------------------------------------------------

    def finish(self, out: Any) -> Channels:
        inside, _ = self.components()
        self.freeze(out)
        component, touched = self.components()
        # Component numbers are shifted so that what never changes is class 0, also where nothing constrains it.
        label = np.where(touched, component + 1, 0).astype(np.int64)
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
        picks = [np.unique(label[numbers]) for numbers in self.picked]
        return Channels(
            classes=classes,
            segments=_segments(classes, picks, {key: self.repeated.get(n, 1) for key, n in self.first.items()}),
            refusals=list(self.refusals.values()),
            unused=[n for n in self.untouched.values() if n in parameters and parameters[n].numel() > 1],
            wide=[n for n, shape in self.shapes.items() if self.is_wide(n, shape, inside)],
            norms={path: [label[numbers.numpy()] for numbers in dims] for path, dims in self.norms.items()},
            picks=picks,
        )

    def is_wide(self, name: str, shape: tuple[int, ...], component: np.ndarray) -> bool:
        path, _, last = name.rpartition(".")
        layer = isinstance(self.network.get_submodule(path), (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d))
        if not layer or last != "weight" or (name, 0) not in self.first:
            return False
        rows = component[self.first[name, 0] : self.first[name, 0] + shape[0]]
        return bool((rows == component[FIXED]).all())

    def components(self) -> tuple[np.ndarray, np.ndarray]:
        """The component of every number, and whether anything was said about it."""
        edges = np.concatenate([np.zeros((2, 0), dtype=np.int64), *self.edges], axis=1)
        graph = coo_matrix((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(self.count, self.count))
        _, component = connected_components(graph, directed=False)
        touched = np.zeros(self.count, dtype=bool)
        touched[edges.reshape(-1)] = True
        return component, touched


def _segments(
    classes: dict[str, list[np.ndarray]], picks: list[np.ndarray], repeated: dict[tuple[str, int], int]
) -> list[Segment]:
    uses: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for name, dims in classes.items():
        for d, labels in enumerate(dims):
            present, counts = np.unique(labels[labels != 0], return_counts=True)
            for label, times in zip(present.tolist(), counts.tolist(), strict=True):
                uses[label].append((name, d, times * repeated[name, d]))
    picked: dict[int, list[int]] = defaultdict(list)
    for i, labels in enumerate({pick.tobytes(): pick for pick in picks}.values()):
        for label in labels.tolist():
            picked[label].append(i)
    alike: dict[tuple, list[int]] = defaultdict(list)
    for label, signature in uses.items():
        alike[tuple(signature), tuple(picked[label])].append(label)
    return [
        Segment(
            classes=np.array(sorted(labels)),
            multiplicity=min(times for _, _, times in signature),
            where=tuple((name, d) for name, d, _ in signature),
        )
        for (signature, _), labels in alike.items()
    ]
