"""All members at once: torch.func.vmap over what they own, what they share closed over.

vmap turns the members' convolutions into one grouped convolution and a first layer on a common input into one dense
convolution (Packed-Ensembles, Figures 3b and 3c); a trunk that the members share is computed once.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map_only

from ..network.trace import plain_attention
from ..rewrite.dropout import Randomness
from .base import Executor
from .call import call

__all__ = ["Vmap"]


class Vmap(Executor):
    """What the members share moves in place, by what the members have in common; a shared buffer that would get another
    value from every member cannot be written, and makes vmap refuse the network."""

    name = "vmap"
    pools = True

    def run(
        self,
        network: nn.Module,
        stacked: Mapping[str, Tensor],
        moving: Mapping[str, Tensor],
        x: Any,
        members: int,
        per_member: bool,
        randomness: Randomness | None,
    ) -> Tensor:
        shared = {**_contiguous_weights(network, stacked), **moving}

        def one(tensors: dict[str, Tensor], x: Any) -> Tensor:
            return call(network, {**tensors, **shared}, x)

        mapped = torch.func.vmap(one, in_dims=(0, 0 if per_member else None), randomness="different")
        cpu = any(t.device.type == "cpu" for t in stacked.values())
        with nullcontext() if torch.compiler.is_compiling() else plain_attention(), _mappable_attention(cpu):
            return mapped(dict(stacked), tree_map_only(Tensor, Tensor.contiguous, x))

    def suits(self, device: str, training: bool, trunk: bool) -> bool:
        return True

    def refusal(self, *network: Any) -> str | None:
        with warnings.catch_warnings():
            # An operation without a rule would run member after member, slower than the reference.
            warnings.filterwarnings("error", message="There is a performance drop")
            reason = super().refusal(*network)
        # torch asks for a report of what it cannot do; that is not the user's concern here.
        return reason and re.split("[,.]? please file", reason, flags=re.IGNORECASE)[0]


def _contiguous_weights(network: nn.Module, stacked: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The shared weights in another memory format. Under vmap, group norm and others raise on anything that is not
    contiguous; from contiguous inputs and weights the network computes what it was tried on."""
    return {
        name: p.contiguous() for name, p in network.named_parameters() if name not in stacked and not p.is_contiguous()
    }


def _mappable_attention(cpu: bool) -> AbstractContextManager:
    """The fused attention kernel of the CPU has no rule for vmap: torch would run it member after member."""
    return sdpa_kernel(SDPBackend.MATH) if cpu else nullcontext()
