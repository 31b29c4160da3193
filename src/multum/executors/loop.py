"""Members one after another: the reference that every other executor is held to (Packed-Ensembles, Figure 3a)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..rewrite.dropout import Randomness
from .call import call, take

__all__ = ["run"]


def run(
    network: nn.Module,
    stacked: Mapping[str, Tensor],
    moving: Mapping[str, Tensor],
    x: Any,
    members: int,
    per_member: bool,
    randomness: Randomness | None,
) -> Tensor:
    """All members' outputs.

    Shape: stacked tensors [members, ...], x [batch, ...] or [members, batch, ...] -> [members, batch, ...].

    Args:
        moving: shared buffers that a forward pass in training changes. They move once per call: every member starts
            from the same values and the members' results are averaged, which is exact in a shared trunk.
        randomness: the generators, where the members share a dropout mask; None where they share none.
    """
    slices = {name: tensor.unbind(0) for name, tensor in stacked.items()}
    updates: list[dict[str, Tensor]] = []
    outputs = []
    shared = randomness.shared_state() if randomness is not None else {}
    training = bool(moving) and any(module.training for module in network.modules())
    for i in range(members):
        if i > 0 and randomness is not None:
            randomness.restore_shared(shared)
        own = {name: parts[i] for name, parts in slices.items()}
        updates.append({name: buffer.clone() for name, buffer in moving.items()} if training else {})
        outputs.append(call(network, {**own, **updates[-1]}, take(x, i) if per_member else x))
    for name, buffer in moving.items() if training else ():
        first = updates[0][name]
        rest = [u[name] for u in updates[1:]]
        if buffer.is_floating_point() and not all(torch.equal(first, u) for u in rest):
            first = torch.stack([first, *rest]).mean(0)
        buffer.copy_(first)
    return torch.stack(outputs)
