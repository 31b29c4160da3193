"""All members at once: torch.func.vmap over what they own, what they share closed over.

vmap turns the members' convolutions into one grouped convolution and a first layer on a common input into one dense
convolution (Packed-Ensembles, Figures 3b and 3c); a trunk that the members share is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..network.trace import plain_attention
from ..rewrite.dropout import Randomness
from .call import call

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
    """All members' outputs. Shape and arguments: as in `loop.run`.

    What the members share moves in place, by what the members have in common; a shared buffer that would get another
    value from every member cannot be written and makes vmap refuse the network.
    """

    def one(tensors: dict[str, Tensor], x: Any) -> Tensor:
        return call(network, {**tensors, **moving}, x)

    mapped = torch.func.vmap(one, in_dims=(0, 0 if per_member else None), randomness="different")
    cpu = any(t.device.type == "cpu" for t in stacked.values())
    with nullcontext() if torch.compiler.is_compiling() else plain_attention(), _mappable_attention(cpu):
        return mapped(dict(stacked), x)


def _mappable_attention(cpu: bool) -> AbstractContextManager:
    """The fused attention kernel of the CPU has no rule for vmap: torch would run it member after member."""
    return sdpa_kernel(SDPBackend.MATH) if cpu else nullcontext()
