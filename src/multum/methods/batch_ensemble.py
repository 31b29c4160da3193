"""BatchEnsemble: members share every weight and differ by a rank-one factor of each, and by their biases.

Wen, Tran, Ba: BatchEnsemble: an Alternative Approach to Efficient Ensemble and Lifelong Learning, ICLR 2020.

    W_m = W * (s_m r_m^T),    so that    layer_m(x) = layer(x * r_m) * s_m + b_m

with r_m on the input and s_m on the output channels of every Linear, convolution (also transposed) and attention; W and
everything else keep the given weights. Norms are shared, their statistics pooled over members, or own (EnsembleBN).

Shape: x [batch, ...] -> [members, batch, outputs]; r [members, inputs], s and b [members, outputs] of each layer.
Cost: parameters of one network plus M (inputs + outputs) per layer; mult-adds M times one network's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ..errors import Refusal, RewriteError
from ..rewrite.norm import norm_tensors
from ..rewrite.rank_one import ADDS, FACTORS, rank_one, tensors_beside
from ..rewrite.walker import names_of
from ..rewrite.weighted import weighted_layers
from .base import Builder, Method, Rewritten, setting
from .paths import followed

SHORTCUTS = ("*downsample*", "*shortcut*")  # Packed-Ensembles' counts of BatchEnsemble leave these plain


@dataclass(frozen=True, kw_only=True)
class BatchEnsemble(Method):
    """Rank-one members of any network."""

    training_only = ("init",)
    undecayed_names = FACTORS
    variants = ({"init": "normal"},)

    members: int = setting(4, "M")
    init: str = setting(
        "sign",
        'r and s start as random signs ("sign"), as N(1, 0.5^2) ("normal"), or as "ones"',
        choices=("sign", "normal", "ones"),
    )
    norm: str = setting(
        "shared", 'norms: "shared", statistics pooled over members; or "own" (EnsembleBN)', choices=("shared", "own")
    )
    plain: tuple[str, ...] = setting(
        (), "layers without r and s: module paths with wildcards; the papers' SHORTCUTS, say", example=SHORTCUTS[0]
    )

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Rewritten:
        usage = followed(network, example, fix="use Deep, which rewrites no layer")
        layers = weighted_layers("BatchEnsemble", network, example, usage, self.plain, ADDS)
        if not layers:
            raise RewriteError(
                "BatchEnsemble", [Refusal("", "there must be a layer to scale; got none", "leave fewer layers plain")]
            )
        edits = [rank_one(layer, self.init) for layer in layers]
        own = set().union(*map(tensors_beside, layers))
        own |= norm_tensors(network) if self.norm == "own" else set()
        # A tied tensor goes by its first name, which need not be the one found here.
        own |= {first for first, names in names_of(network).items() if own.intersection(names)}
        return Rewritten(network, edits, owns=lambda name, tensor: name in own)

    def alone(self) -> BatchEnsemble:
        return replace(self, members=1, init="ones")

    def undecayed(self, ensemble: Any) -> set[str]:
        """r and s, and the affine parameters of own norms."""
        return super().undecayed(ensemble) | (norm_tensors(ensemble.network) if self.norm == "own" else set())
