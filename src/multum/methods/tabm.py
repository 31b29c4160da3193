"""TabM: members share the weights of one network, start apart by a random factor on its inputs, and own their heads.

Gorishniy, Kotelnikov, Babenko: TabM: Advancing Tabular Deep Learning with Parameter-Efficient Ensembling, ICLR 2025.

    full    layer_m(x) = W (x * r_m) * s_m + b_m    all layers but the last; r_m random in the first, else r_m = s_m = 1
    mini    layer_m(x) = W (x * r_m) + b            the first layer alone; all others are shared
    both    head_m(x)  = W_m x + b_m                initialised independently

It is BatchEnsemble with a different initialisation and separate heads: at first members differ only in how they scale
the inputs and in their last layer. The paper uses 32 members of an MLP, applies weight decay to r and s, and shows
members the same batches or, slightly better on some tables, different ones (`Recipe(order="own")`). An embedding of the
inputs that all members share is named in `plain`.

Shape: x [batch, ...] -> [members, batch, outputs]; r [members, inputs], s and b [members, outputs] of each layer.
Cost: parameters of one network, M heads and M (inputs + outputs) per layer (mini: M inputs); mult-adds M times one's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ..errors import ConfigError
from ..network.copies import name_in
from ..network.dependence import Usage
from ..rewrite.rank_one import ADDS, rank_one, tensors_beside
from ..rewrite.walker import names_of
from ..rewrite.weighted import Weighted, weighted_layers, widths
from .base import INITS, NOISE, Builder, Method, Rewritten, setting
from .paths import check_heads, followed, heads_of

DEEP = "use Deep, which rewrites no layer"
STARTS = {"sign": "sign", "normal": "standard"}


def _sizes(name: str, value: object) -> None:
    if not isinstance(value, tuple) or any(type(size) is not int or size < 1 for size in value):
        raise ConfigError(f"{name} must be whole numbers from 1 on; got {name}={value!r}. Use {name}=(1, 1, 5), say")


@dataclass(frozen=True, kw_only=True)
class TabM(Method):
    """Members of one network that differ by factors and heads."""

    training_only = ("start", "chunks", "init")
    variants = ({"start": "normal"},)
    knobs = {"form": ("full", "mini")}

    members: int = setting(4, "M, k in the paper, which has 32")
    form: str = setting(
        "full", '"full": factors and biases in every layer; "mini": factors on the inputs', choices=("full", "mini")
    )
    start: str = setting("sign", 'the first r: random signs ("sign"), or N(0, 1) ("normal")', choices=tuple(STARTS))
    chunks: tuple[int, ...] = setting(
        (),
        "numbers of neighbouring inputs whose r start alike: those of one category, say; none: each alone",
        check=_sizes,
    )
    plain: tuple[str, ...] = setting(
        (), "layers that members share as they are: module paths with wildcards", example="embedding*"
    )
    init: str = setting(
        "fresh",
        '"fresh": heads and the first r start apart; "pretrained": the given weights, with noise',
        choices=INITS,
    )

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Rewritten:
        usage = followed(network, example, DEEP)
        heads = heads_of("TabM", usage, DEEP)
        if self.members > 1:
            check_heads("TabM", network, heads, DEEP)
        layers = weighted_layers("TabM", network, example, usage, (*self.plain, *heads), ADDS)
        first = _first(layers, usage)
        self._check_chunks(layers, first)
        fresh = self.init == "fresh"
        start, rest = STARTS[self.start] if fresh else "ones", None if self.form == "mini" else "ones"
        scaled = [layer for layer in layers if layer.path in first or self.form == "full"]
        edits = [
            rank_one(layer, (start, rest), self.chunks) if layer.path in first else rank_one(layer, "ones")
            for layer in scaled
        ]
        own = {name_in(layer.path, "r") for layer in scaled}
        own = own.union(*map(tensors_beside, scaled)) if self.form == "full" else own
        inside = tuple(f"{path}." for path in heads)
        own |= {name for name, names in names_of(network).items() if own.intersection(names)}
        return Rewritten(
            network,
            edits,
            lambda name, tensor: name in own or name.startswith(inside),
            heads if fresh else (),
            builder,
            0.0 if fresh else NOISE,
        )

    def alone(self) -> TabM:
        return replace(self, members=1, init="pretrained")

    def _check_chunks(self, layers: list[Weighted], first: set[str]) -> None:
        for layer in layers:
            inputs = widths(layer.module)[0]
            if layer.path in first and self.chunks and sum(self.chunks) != inputs:
                raise ConfigError(
                    f"chunks must add up to the inputs of the first layer, {layer.path}; got {sum(self.chunks)}, not "
                    f"{inputs}. Leave them out"
                )


def _first(layers: list[Weighted], usage: Usage) -> set[str]:
    """The layers with none of these before them."""
    scaled = {layer.path for layer in layers}
    behind = {w.path for w in usage.work if (w.upstream - {w.path}) & scaled}
    return {path for path in scaled if path not in behind and path in usage.layers}
