"""All members at once: torch.func.vmap over what they own, what they share closed over.

vmap turns the members' convolutions into one grouped convolution and a first layer on a common input into one dense
convolution (Packed-Ensembles, Figures 3b and 3c); a trunk that the members share is computed once.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from ..network.trace import plain_attention
from ..rewrite.dropout import Randomness
from .base import Executor
from .call import call
from .holders import tensors_named

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
        weights = _contiguous_weights(network)
        stacked = {name: weights.pop(name, tensor) for name, tensor in stacked.items()}
        shared = {**weights, **moving}
        device = next(iter(stacked.values())).device.type

        def one(tensors: dict[str, Tensor], x: Any) -> Tensor:
            with self.rules():
                return call(network, {**tensors, **shared}, x, partial(self.around, device))

        mapped = torch.func.vmap(one, in_dims=(0, 0 if per_member else None), randomness="different")
        with _mappable(device):
            return mapped(stacked, tree_map_only(Tensor, Tensor.contiguous, x))

    @contextmanager
    def around(self, device: str) -> Iterator[None]:
        """A context in which a block may run again, under a vmap of its own."""
        with _mappable(device), self.rules():
            yield

    def rules(self) -> AbstractContextManager:
        """A context in which operations are mapped by other rules than vmap's."""
        return nullcontext()

    def suits(self, device: str, training: bool, trunk: bool) -> bool:
        return True

    def refusal(self, *network: Any) -> str | None:
        with warnings.catch_warnings():
            # An operation without a rule would run member after member, slower than the reference.
            warnings.filterwarnings("error", message="There is a performance drop")
            reason = super().refusal(*network)
        # torch asks for a report of what it cannot do; that is not the user's concern here.
        return reason and re.split("[,.]? please file", reason, flags=re.IGNORECASE)[0]


def _contiguous_weights(network: nn.Module) -> dict[str, Tensor]:
    """The weights in another memory format. Under vmap, group norm and others raise on anything that is not contiguous;
    from contiguous inputs and weights the network computes what it was tried on."""
    parameters = tensors_named(network, None)
    return {name: p.contiguous() for name, p in parameters.items() if not p.is_contiguous()}


@contextmanager
def _mappable(device: str) -> Iterator[None]:
    """Operations that vmap can map: no fused attention, which torch would run member after member on a CPU."""
    compiling, autocast = torch.compiler.is_compiling(), device != "meta" and torch.is_autocast_enabled(device)
    with (
        nullcontext() if compiling else plain_attention(),
        sdpa_kernel(SDPBackend.MATH) if device == "cpu" else nullcontext(),
        _LowProducts(device) if autocast else nullcontext(),
    ):
        yield


class _LowProducts(TorchFunctionMode):
    """Layers in autocast's precision: vmap takes them apart (a linear layer into a product and a sum) before autocast
    sees them, and does not show it convolutions at all."""

    def __init__(self, device: str):
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in _PRODUCTS and torch.is_autocast_enabled(self.device):  # a network may turn it off for a part
            args, kwargs = tree_map_only(Tensor, self.lower, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def lower(self, t: Tensor) -> Tensor:
        low = t.is_floating_point() and t.dtype != torch.float64
        return t.to(torch.get_autocast_dtype(self.device)) if low else t


_PRODUCTS = {F.linear, torch.addmm, torch.baddbmm, torch.bmm, torch.conv1d, torch.conv2d, torch.conv3d}
_PRODUCTS |= {torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d}
