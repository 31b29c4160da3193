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

from .base import INITS, NOISE, Builder, Method, Rewritten, setting
from .paths import check_heads, followed, heads_of, known_path, module_path

NAME = "name the module that each member owns, as in Multihead(head=path)"


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
        if self.members > 1:
            check_heads("Multihead", network, heads, NAME)
        inside = tuple(f"{path}." for path in heads)
        fresh, noise = (heads, 0.0) if self.init == "fresh" else ((), NOISE)
        return Rewritten(network, (), lambda name, tensor: name.startswith(inside), fresh, builder, noise)

    def alone(self) -> Multihead:
        return replace(self, members=1, init="pretrained")

    def _heads(self, network: nn.Module, example: Any) -> list[str]:
        if self.head is not None:
            known_path("head", self.head, network)
            return [self.head]
        return heads_of("Multihead", followed(network, example, NAME), NAME)
