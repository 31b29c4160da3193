"""Proof that a thinner network connects what the given one connects.

A thinner network may run and still be wrong: `x[:, :4]` written for eight channels takes other ones out of four. So the
thinner network is run once on numbered tensors too. Every time two channels meet there they must have belonged together
in the given network, and what is picked by position must be what is left of the channels picked in the given network.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..errors import Refusal
from .channels import Channels, ChannelTracer, run_on_meta

__all__ = ["compare_wiring"]

_FIX = "pick channels by a share of the width (`chunk`, `x.shape`), not by fixed numbers, or use Deep"


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
