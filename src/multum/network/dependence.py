"""What depends on the member, and what every operation costs: one run that follows the own tensors.

A layer runs once per member exactly where its input or its weight depends on the member; everything before is a trunk
that all members share.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from .trace import Traced, run_traced

aten = torch.ops.aten


class Work(NamedTuple):
    """Multiply-adds of one operation: where, of which kind, for one member, and whether every member pays."""

    path: str
    kind: str  # "conv", "linear" or "attention" (a product of two activations)
    macs: int
    per_member: bool
    positions: int  # output positions of a convolution, 1 elsewhere
    upstream: frozenset[str]  # paths of the weighted layers that its input has passed


@dataclass
class Usage:
    """Shape: `inputs` holds the paths of the modules whose input depends on the member."""

    inputs: set[str] = field(default_factory=set)
    calls: dict[str, int] = field(default_factory=dict)
    work: list[Work] = field(default_factory=list)

    @property
    def layers(self) -> list[str]:
        """Paths of the weighted layers, in the order in which they first run."""
        return list(dict.fromkeys(w.path for w in self.work if w.kind != "attention"))

    @property
    def stems(self) -> list[str]:
        """The weighted layers with no weighted layer before them."""
        return [path for path in self.layers if all(not w.upstream - {path} for w in self.work if w.path == path)]

    @property
    def heads(self) -> list[str]:
        """The weighted layers with no weighted layer behind them."""
        before = frozenset().union(*(w.upstream - {w.path} for w in self.work))
        return [path for path in self.layers if path not in before]

    @property
    def has_trunk(self) -> bool:
        """Whether some weighted layer is computed once for all members."""
        return any(not w.per_member for w in self.work)


class _Note(NamedTuple):
    per_member: bool
    from_input: bool
    upstream: frozenset[str] = frozenset()

    @staticmethod
    def joined(notes: Collection[_Note]) -> _Note:
        upstream = frozenset().union(*(n.upstream for n in notes))
        return _Note(any(n.per_member for n in notes), any(n.from_input for n in notes), upstream)


class _MemberTracer:
    shortens = False  # every step costs

    def __init__(self) -> None:
        self.usage = Usage()
        self.path = ""

    def enter(self, path: str, inputs: Any) -> None:
        self.usage.calls[path] = self.usage.calls.get(path, 0) + 1
        if any(isinstance(t, Traced) and t.note.per_member for t in tree_flatten(inputs)[0]):
            self.usage.inputs.add(path)

    def factory(self, func: Any, output: Tensor) -> None:
        return None

    def result(self, func: Any, args: tuple, kwargs: dict, outputs: list[Tensor | None]) -> list[Any]:
        note = _Note.joined([t.note for t in tree_flatten((args, kwargs))[0] if isinstance(t, Traced)])
        before = len(self.usage.work)
        self.count(func.overloadpacket, args, outputs, note)
        if len(self.usage.work) > before and self.usage.work[-1].kind != "attention":
            note = note._replace(upstream=note.upstream | {self.path})
        return [note for _ in outputs]

    def write(self, target: Tensor, note: _Note) -> None:
        if not isinstance(target, Traced):
            raise NotImplementedError("the network writes into a tensor that it created itself")
        target.note = note
        if isinstance(target._base, Traced):
            target._base.note = _Note.joined([target._base.note, note])

    def count(self, packet: Any, args: tuple, outputs: list[Tensor | None], note: _Note) -> None:
        name, out = packet.__name__, outputs[0]
        if out is None:
            return
        if packet in (aten.convolution, getattr(aten, "mkldnn_convolution", None)):
            x, weight, transposed = args[0], args[1], args[6]
            positions = math.prod((x if transposed else out).shape[2:]) * out.shape[0]
            self.add("conv", weight.numel() * positions, note, math.prod(out.shape[2:]) * out.shape[0])
        elif packet in (aten.mm, aten.bmm, aten.addmm, aten.baddbmm):
            a, b = (args[1], args[2]) if packet in (aten.addmm, aten.baddbmm) else (args[0], args[1])
            both = all(isinstance(t, Traced) and t.note.from_input for t in (a, b))
            self.add("attention" if both else "linear", a.numel() * b.shape[-1], note)
        elif "scaled_dot_product" in name:
            q, k, v = args[:3]
            pairs = math.prod(q.shape[:-1]) * k.shape[-2]
            self.add("attention", pairs * (q.shape[-1] + v.shape[-1]), note)
        elif name == "mkldnn_rnn_layer":
            x, w_input, w_hidden = args[0], args[1], args[2]
            self.add("linear", math.prod(x.shape[:-1]) * (w_input.numel() + w_hidden.numel()), note)

    def add(self, kind: str, macs: int, note: _Note, positions: int = 1) -> None:
        self.usage.work.append(Work(self.path, kind, macs, note.per_member, positions, note.upstream))


def trace_members(network: nn.Module, own: Collection[str], x: Any) -> Usage:
    """Follow the own tensors through one run of one member's network on `x`.

    >>> net = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 2))
    >>> usage = trace_members(net, {"1.weight", "1.bias"}, torch.zeros(1, 3))
    >>> [(w.path, w.macs, w.per_member) for w in usage.work], usage.inputs
    ([('0', 24, False), ('1', 16, True)], set())
    """
    try:
        return _run(network, own, x, "meta")
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        # Reading values in Python is impossible on meta; there the run on the real device decides.
        return _run(network, own, x, None)


def _run(network: nn.Module, own: Collection[str], x: Any, device: str | None) -> Usage:
    tracer = _MemberTracer()

    def noted(t: Tensor) -> Tensor:
        return Traced(t.clone() if device is None else t.to(device), _Note(False, True), tracer)

    def note(name: str, t: Tensor) -> _Note | None:
        return _Note(name in own, False) if t.is_floating_point() or name in own else None

    run_traced(network, tree_map_only(Tensor, noted, x), tracer, note, device=device)
    return tracer.usage
