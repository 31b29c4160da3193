"""Multihead: one body, M last layers; the cheapest ensemble, and the least diverse.

The baseline "naive multihead" of Havasi et al., Training independent subnetworks for robust prediction, ICLR 2021; also
Lee, Purushwalkam, Cogswell, Crandall, Batra: Why M Heads are Better than One, 2015.

    f_m(x) = W_m h(x) + b_m,    h shared, W_m and b_m initialised independently

All members see the same input, and the body is computed once. The body sees the mean of the heads' gradients.

Shape: x [batch, ...] -> [members, batch, outputs]. Cost: one network and M - 1 heads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ..errors import Refusal, RewriteError
from ..rewrite.walker import names_of
from .base import INITS, NOISE, Builder, Method, Rewritten, setting
from .paths import followed, known_path, module_path

__all__ = ["Multihead"]


@dataclass(frozen=True, kw_only=True)
class Multihead(Method):
    """M heads on one body."""

    members: int = setting(3, "M")
    head: str | None = setting(
        None, "path of the module that each member owns; None: the last weighted layers", check=module_path
    )
    init: str = setting(
        "fresh",
        '"fresh": every head initialised on its own; "pretrained": the given weights, with noise',
        choices=INITS,
    )

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Rewritten:
        heads = self._heads(network, example)
        self._check_heads(network, heads)
        inside = tuple(f"{path}." for path in heads)
        fresh, noise = (heads, 0.0) if self.init == "fresh" else ((), NOISE)
        return Rewritten(network, (), lambda name, tensor: name.startswith(inside), fresh, builder, noise)

    def alone(self) -> Multihead:
        return replace(self, members=1, init="pretrained")

    def _heads(self, network: nn.Module, example: Any) -> list[str]:
        if self.head is not None:
            known_path("head", self.head, network)
            return [self.head]
        usage = followed(network, example, "name the layer that each member owns, as in Multihead(head=path)")
        inner = [path for path in usage.heads if not path or _holds(path, usage.layers)]
        if inner or not usage.heads:
            reason = "the head must be a layer of its own; got a module that computes the outputs itself"
            fix = "make the last layer an nn.Linear, or name a module, as in Multihead(head=path)"
            raise RewriteError("Multihead", [Refusal(path, reason, fix) for path in inner or [""]])
        return usage.heads

    def _check_heads(self, network: nn.Module, heads: list[str]) -> None:
        """Every head has tensors of its own that can come to differ between members."""
        refusals = []
        for path in heads:
            inside = [(first, [_holds(path, [name]) for name in names]) for first, names in names_of(network).items()]
            tied = [first for first, held in inside if any(held) and not all(held)]
            other = "or name another module, as in Multihead(head=path)"
            if tied:
                reason = f"a head must have tensors of its own; got {', '.join(tied)}, tied to the body"
                refusals.append(Refusal(path, reason, f"untie it, {other}"))
            elif not any(p.requires_grad for p in network.get_submodule(path).parameters()):
                reason = "a head must have something to train; got one that is frozen, or has no parameters"
                refusals.append(Refusal(path, reason, f"unfreeze it with requires_grad_(True), {other}"))
        if refusals and self.members > 1:
            raise RewriteError("Multihead", refusals)


def _holds(path: str, names: list[str]) -> bool:
    """Whether one of these modules or tensors is inside the module at `path`."""
    return any(name.startswith(f"{path}.") for name in names)
