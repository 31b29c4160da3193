"""All members at once, side by side in the channels from the first layer to the last (Packed-Ensembles, Figure 3c).

Where a network is proved to do to all members side by side what it does to one, it runs so (`wide`). Elsewhere vmap
runs the one-member network; for the operations that have a rule in `rules`, the members are channels or rows of
one plain operation of torch, and the tensors between two such operations stay as they are. Whatever has no rule is
vmap's, or, where vmap has none either, runs member after member.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _functorch as functorch
from torch.overrides import TorchFunctionMode

from ..rewrite.dropout import Randomness
from .rules import RULES
from .vmap import Vmap
from .wide import wide_of

__all__ = ["Grouped"]


class Grouped(Vmap):
    """Compiled, it is vmap: the compiler makes its own kernels of what lies between two products."""

    name = "grouped"
    mostly_fastest = True

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
        if not torch.compiler.is_compiling():
            out = wide_of(network).run(network, stacked, x, members, per_member)
            if out is not None:
                return out
        return super().run(network, stacked, moving, x, members, per_member, randomness)

    tried = Vmap.run  # it can run whatever the other way can

    @contextmanager
    def rules(self) -> Iterator[None]:
        if torch.compiler.is_compiling():
            yield
            return
        functorch._set_vmap_fallback_warning_enabled(False)  # type: ignore[attr-defined]
        try:
            with _Folding():
                yield
        finally:
            # torch does not tell what it was; this is how it starts.
            functorch._set_vmap_fallback_warning_enabled(True)  # type: ignore[attr-defined]

    def suits(self, device: str, training: bool, trunk: bool) -> bool:
        return False


class _Folding(TorchFunctionMode):
    """Shows the rules what vmap is about to map."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        rule = RULES.get(func)
        if rule is not None:
            out = rule(func, args, kwargs or {})
            if out is not NotImplemented:
                return out
        return func(*args, **(kwargs or {}))
