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

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import Refusal, RewriteError
from ..network.copies import name_in
from ..rewrite.norm import norm_tensors
from ..rewrite.walker import Edit, layer, names_of
from ..rewrite.weighted import Read, Scaled, scaled_weight, tensor_of, weighted_layers, widths
from .base import Builder, Method, Rewritten, setting
from .paths import followed

__all__ = ["SHORTCUTS", "BatchEnsemble"]

SHORTCUTS = ("*downsample*", "*shortcut*")  # Packed-Ensembles' counts of BatchEnsemble leave these plain
FACTORS = ("r", "s")
_DECONVOLVE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


class _Factors(Scaled):
    adds = (*FACTORS, "factors")
    factors: str  # how r and s start
    r: Tensor
    s: Tensor

    def adopt(self: Any, network: nn.Module) -> None:
        like = tensor_of(self)
        for name, size in zip(FACTORS, widths(self), strict=True):
            start = torch.empty(size, dtype=like.dtype, device=like.device)
            self.register_parameter(name, nn.Parameter(INITS[self.factors](start)))

    def generate(self, name: str, tensor: Tensor) -> Tensor:
        return tensor if name.endswith("bias") else scaled_weight(self, name, tensor, self.r, self.s)


INITS = {
    "sign": lambda t: t.bernoulli_(0.5).mul_(2).sub_(1),
    "normal": lambda t: t.normal_(1.0, 0.5),
    "ones": lambda t: t.fill_(1.0),
}


@layer
class RankOne(_Factors):
    """A layer that is called. The weight stays shared, so all members are one batch for it under vmap."""

    def forward(self: Any, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        kernel = () if isinstance(self, nn.Linear) else self.kernel_size
        along = (-1, *(1 for _ in kernel))
        x = x * self.r.view(along)
        if not kernel:
            y = F.linear(x, self.weight)
        elif self.transposed:
            pads = (x, output_size, self.stride, self.padding, self.kernel_size, len(kernel), self.dilation)
            extra = self._output_padding(*pads)
            y = _DECONVOLVE[len(kernel)](
                x, self.weight, None, self.stride, self.padding, extra, self.groups, self.dilation
            )
        else:
            y = self._conv_forward(x, self.weight, None)
        y = y * self.s.view(along)
        return y if self.bias is None else y + self.bias.view(along)


@layer
class RankOneRead(Read, _Factors):
    """A layer whose weight is read: by attention, by a fast path, by a subclass's own forward."""


@dataclass(frozen=True, kw_only=True)
class BatchEnsemble(Method):
    """Rank-one members of any network."""

    training_only = ("init",)
    undecayed_names = FACTORS
    variants = ({"init": "normal"},)

    members: int = setting(4, "M")
    init: str = setting(
        "sign", 'r and s start as random signs ("sign"), as N(1, 0.5^2) ("normal"), or as "ones"', choices=tuple(INITS)
    )
    norm: str = setting(
        "shared", 'norms: "shared", statistics pooled over members; or "own" (EnsembleBN)', choices=("shared", "own")
    )
    plain: tuple[str, ...] = setting(
        (), "layers without r and s: module paths with wildcards; the papers' SHORTCUTS, say", example=SHORTCUTS[0]
    )

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Rewritten:
        usage = followed(network, example, fix="use Deep, which rewrites no layer")
        layers = weighted_layers("BatchEnsemble", network, example, usage, self.plain, _Factors.adds)
        if not layers:
            raise RewriteError(
                "BatchEnsemble", [Refusal("", "there must be a layer to scale; got none", "leave fewer layers plain")]
            )
        kinds = {True: "RankOne", False: "RankOneRead"}
        edits = [Edit(w.path, {"factors": self.init}, kinds[w.called]) for w in layers]
        own = {name_in(w.path, name) for w in layers for name in (*FACTORS, "bias", "in_proj_bias")}
        own |= norm_tensors(network) if self.norm == "own" else set()
        # A tied tensor goes by its first name, which need not be the one found here.
        own |= {first for first, names in names_of(network).items() if own.intersection(names)}
        return Rewritten(network, edits, owns=lambda name, tensor: name in own)

    def alone(self) -> BatchEnsemble:
        return replace(self, members=1, init="ones")

    def undecayed(self, ensemble: Any) -> set[str]:
        """r and s, and the affine parameters of own norms."""
        return super().undecayed(ensemble) | (norm_tensors(ensemble.network) if self.norm == "own" else set())
