"""Which channels of a network belong together: the rules a width must obey, read off one run.

Every index of every dimension of every weight gets a number. One run on noted tensors then says which numbers must stay
or go together: a convolution ties its weight's input index j to channel j of its input; an addition ties channel j of
both sides; a view, a concatenation or a split only moves numbers around, so the very same operation is applied to the
numbers. What an operation does to channels is written once per kind of operation, not once per architecture.

`slots.py` says how numbers are kept on a tensor, `channel_rules.py` what operations do to them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from ..errors import Refusal
from .channel_rules import CONSTANTS, rule_for
from .slots import FIXED, WILD, compact, slots_of
from .trace import Traced, run_traced

__all__ = ["Channels", "Segment", "trace_channels"]


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
    try:
        return _run(network, x, "meta")
    except (RuntimeError, NotImplementedError, ValueError):
        # Reading values in Python is impossible on meta; there the run on the real device decides.
        return _run(network, x, None)


def _run(network: nn.Module, x: Any, device: str | None) -> Channels:
    tracer = _ChannelTracer(network)
    tracer.freeze(run_traced(network, x, tracer, tracer.begin, device=device))
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
        return WILD if func.overloadpacket in CONSTANTS else None

    def enter(self, path: str, inputs: Any) -> None:
        """Nothing to learn from a module's inputs."""

    # -- what operations do --------------------------------------------------------------------------------------------

    def result(self, func: Any, args: tuple, kwargs: dict, outputs: list[Tensor | None]) -> list[Any]:
        self.func = func
        inputs = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
        if not any(slots_of(t) for t in inputs):
            wild = all(isinstance(t, Traced) and t.note == WILD for t in inputs)
            return [WILD if wild else None for _ in outputs]
        rule = rule_for(func)
        if rule is None:
            self.refuse(
                f"the operation {func.overloadpacket} has no width rule",
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
