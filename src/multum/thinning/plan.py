"""A finished plan of how one network becomes thinner or wider, the networks made from it, and the proof of them.

A thinner network may run and still be wrong: `x[:, :4]` written for eight channels takes other ones out of four. So the
thinner network is run once on numbered tensors too. Every time two channels meet there they must have belonged together
in the given network, and what is picked by position must be what is left of the channels picked in the given network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..checks import one_of
from ..errors import Refusal, RewriteError
from ..network.copies import on_meta, skeleton, tensors_of
from ..rewrite.walker import Edit, apply, reset, seeded
from .channels import Channels, ChannelTracer, run_on_meta

_FIX = "pick channels by a share of the width (`chunk`, `x.shape`), not by fixed numbers, or use Deep"
Kept = dict[str, list[np.ndarray]]  # tensor name -> for each dimension, the indices that stay; repeated if wider


@dataclass(frozen=True)
class Thinning:
    """How one network becomes thinner or wider.

    Shape: `keep[i]` classes of `channels.segments[i]` stay; of more than there are, some stand more than once.
    """

    channels: Channels
    keep: tuple[int, ...]
    example: Any  # a few rows
    edits: tuple[Edit, ...] = ()
    subgroups: dict[str, tuple[int, int]] = field(default_factory=dict)  # weight name -> (groups before, gamma > 1)

    def choose(self, seed: int | None = None) -> Kept:
        """The indices that stay, for every dimension of every tensor: the first ones, or a seeded choice."""
        copies = self._copies(seed)
        return {
            name: [np.repeat(np.arange(len(labels)), copies[labels]) for labels in dims]
            for name, dims in self.channels.classes.items()
        }

    def _copies(self, seed: int | None = None) -> np.ndarray:
        """How often each class of channels stands in the new network. Shape: [classes + 1], class 0 never changes."""
        rng = None if seed is None else np.random.default_rng(seed)
        labels = [*self.channels.classes.values(), *self.channels.norms.values()]
        copies = np.zeros(1 + max((int(dim.max(initial=0)) for dims in labels for dim in dims), default=0), np.int64)
        copies[0] = 1
        for segment, n in zip(self.channels.segments, self.keep, strict=True):
            size = len(segment.classes)
            every = max(n - 1, 0) // size
            more = n - every * size
            copies[segment.classes] = every
            copies[segment.classes[:more] if rng is None else rng.choice(segment.classes, more, replace=False)] += 1
        return copies

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(len(k) for k in dims) for name, dims in self.choose().items()}

    def norm_shapes(self) -> dict[str, tuple[int, ...]]:
        """What norms without tensors normalise over, by path."""
        copies = self._copies()
        return {path: tuple(int(copies[labels].sum()) for labels in dims) for path, dims in self.channels.norms.items()}

    def cut(self, tensors: dict[str, Tensor], kept: Kept) -> dict[str, Tensor]:
        """Slices of the given tensors; a layer that gets subgroups keeps the blocks on its diagonal."""
        out = {}
        for name, dims in kept.items():
            tensor = tensors[name].detach()
            for d, indices in enumerate(dims):
                if len(indices) != tensor.shape[d]:
                    tensor = tensor.index_select(d, torch.as_tensor(indices, device=tensor.device))
            if name in self.subgroups:
                tensor = _diagonal_blocks(tensor, *self.subgroups[name])
            out[name] = tensor.clone(memory_format=torch.contiguous_format)
        return out

    def apply(self, network: nn.Module, kept: Kept) -> nn.Module:
        """A thin copy with slices of the network's tensors; it shares no memory with the network."""
        old = tensors_of(network)
        new = skeleton(network, lambda t: t.detach())
        rest = {name: t.detach().clone() for name, t in old.items() if name not in kept}
        return apply(new, self.edits, {**self.cut(old, kept), **rest})

    def build(
        self, network: nn.Module, *, init: str, seed: int, builder: Callable[[], nn.Module] | None = None
    ) -> nn.Module:
        """One thin network. "fresh": its own initialisation under `seed`; "pretrained": a seeded choice of channels.

        What no layer initialises itself (tokens, positions) is a slice of what `builder` makes, or of the given values.
        """
        fresh = one_of("init", init, ("fresh", "pretrained")) == "fresh"
        if fresh:
            self._refuse_frozen(network)
        kept = self.choose(None if fresh else seed)
        if not fresh and self.channels.picks:
            self.refuse_other_wiring(network, kept)
        new = self.apply(network, kept)
        if not fresh or on_meta(network):
            return new
        with seeded(seed):
            left = reset(new)
            if left and builder is not None:
                source = tensors_of(builder())
                values = self.cut(source, {n: kept[n] for n in left if n in source and n in kept})
                apply(new, (), values)
        return new

    def refuse_other_wiring(self, network: nn.Module, kept: Kept) -> None:
        """Raise where a network with these channels would connect them otherwise than the given network does."""
        before = {name.removesuffix("weight").rstrip("."): groups for name, (groups, _) in self.subgroups.items()}
        edits = tuple(
            replace(e, attributes={**e.attributes, "groups": before[e.path]}, layer=None) if e.path in before else e
            for e in self.edits
        )
        thinner = replace(self, edits=edits, subgroups={}).apply(network, kept)
        dtype = next((p.dtype for p in network.parameters() if p.is_floating_point()), torch.float32)
        x = tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, self.example)
        refusals = compare_wiring(thinner, x, self.channels, kept)
        if refusals:
            raise RewriteError("thinning", refusals)

    def _refuse_frozen(self, network: nn.Module) -> None:
        segments = zip(self.channels.segments, self.keep, strict=True)
        changed = {name for s, n in segments if n != len(s.classes) for name, _ in s.where}
        frozen = [name for name, p in network.named_parameters() if name in changed and not p.requires_grad]
        if frozen:
            reason = "it is frozen, but at another width it would start from random values and stay so"
            fix = 'use init="pretrained", which keeps slices of it, or unfreeze it'
            raise RewriteError("thinning with fresh weights", [Refusal(name, reason, fix) for name in frozen])


def _diagonal_blocks(weight: Tensor, groups: int, gamma: int) -> Tensor:
    """[out, in/groups, ...] -> [out, in/(groups*gamma), ...]: what each subgroup's outputs see of its own inputs.

    A transposed convolution's weight is [in, out/groups, ...], and the same cut is right with the sides exchanged.
    """
    out, inner, *kernel = weight.shape
    # g b o c i ...: groups, subgroup of the outputs, its outputs, subgroup of the inputs, its inputs
    blocks = weight.view(groups, gamma, out // (groups * gamma), gamma, inner // gamma, *kernel)
    return torch.stack([blocks[:, b, :, b] for b in range(gamma)], dim=1).reshape(out, inner // gamma, *kernel)


def compare_wiring(thinner: nn.Module, x: Any, channels: Channels, kept: dict[str, list[np.ndarray]]) -> list[Refusal]:
    """Where the thinner network connects its channels otherwise than the network that `channels` was read off.

    Shape: `kept[name][d]` are the indices of dimension d of the given network's tensor that stayed.
    """
    labels = {name: [channels.classes[name][d][k] for d, k in enumerate(dims)] for name, dims in kept.items()}
    tracer, out = run_on_meta(lambda: _Wiring(thinner, labels=labels), thinner, x)
    tracer.freeze(out)
    stays = np.unique(np.concatenate([np.zeros(1, dtype=np.int64), *(v for dims in labels.values() for v in dims)]))
    here = [np.unique(tracer.label[numbers]).tobytes() for numbers in tracer.picked]
    there = [pick[np.isin(pick, stays)].tobytes() for pick in channels.picks]
    # A width of 1 has no number, so nothing is seen to be picked from it.
    same = set(here) <= set(there) if tracer.alone else here == there
    if not same:
        wrong = next((p for p, a, b in zip(tracer.paths, here, there, strict=False) if a != b), "")
        tracer.path = wrong
        tracer.refuse("other channels are picked by their position at other widths", _FIX)
    return list(tracer.refusals.values())


@dataclass
class _Wiring(ChannelTracer):
    """Knows the class that every number had in the given network."""

    labels: dict[str, list[np.ndarray]] = field(default_factory=dict)
    label: np.ndarray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    alone: set[int] = field(default_factory=set)
    paths: list[str] = field(default_factory=list)

    def begin(self, name: str, tensor: Tensor) -> list[Tensor] | None:
        slots = super().begin(name, tensor)
        for d, labels in enumerate(self.labels.get(name, [])):
            if (name, d) in self.first:
                self.label = np.concatenate([self.label, labels])
            else:
                # A width of 1 has no number: what is tied to it looks tied to nothing.
                self.alone.update(labels[labels != 0].tolist())
        return slots

    def tie(self, a: Tensor, b: Tensor) -> None:
        before = len(self.edges)
        super().tie(a, b)
        for edges in self.edges[before:]:
            pairs = self.label[edges]
            pairs = pairs[:, pairs[0] != pairs[1]]
            # What is tied to nothing may be tied to a width of 1.
            if pairs.size and not (np.isin(pairs, [0, *self.alone]).all() and (pairs == 0).any(axis=0).all()):
                self.refuse("channels meet at other widths that do not meet in the given one", _FIX)

    def picks(self, slot: Tensor) -> None:
        super().picks(slot)
        self.paths.append(self.path)
