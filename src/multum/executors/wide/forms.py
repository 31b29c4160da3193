"""Which modules have a form for all members: torch's own layers by their very class, and what multum makes of them."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import nn

from ...rewrite.dropout import DROPOUTS
from ...rewrite.norm import NORMS
from ...rewrite.walker import MemberLayer
from .generated import WideCarved, WideEmbedded, WideMixed
from .layers import NotWide, WideLayer
from .norms import WideBatchNorm, WideDropout, WideGroupNorm, WideLayerNorm, WideReLU
from .products import (
    WideConvolution,
    WideGroupedLinear,
    WideLinear,
    WideMasked,
    WideRankOne,
    WideTransposed,
)

__all__ = ["wide_layer"]

_PRODUCTS: dict[type, type[WideLayer]] = {
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), WideConvolution),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), WideTransposed),
    nn.Linear: WideLinear,
}
_FORMS: dict[type, type[WideLayer]] = {
    **_PRODUCTS,
    **dict.fromkeys(NORMS.values(), WideBatchNorm),
    **dict.fromkeys(DROPOUTS.values(), WideDropout),
    nn.GroupNorm: WideGroupNorm,
    nn.LayerNorm: WideLayerNorm,
    nn.ReLU: WideReLU,
}
# By the names under which layers are registered: those of methods stand on a higher floor.
_CHANGED: dict[str, type[WideLayer]] = {
    "RankOne": WideRankOne,
    "Masked": WideMasked,
    "Mixed": WideMixed,
    "Embedded": WideEmbedded,
    "Carved": WideCarved,
    "GroupedLinear": WideGroupedLinear,
}


@cache
def _form(kind: Any) -> type[WideLayer] | None:
    if kind in _FORMS:
        return _FORMS[kind]
    if not issubclass(kind, MemberLayer) or kind.plain not in _PRODUCTS or kind.mixin.__name__ not in _CHANGED:
        return None
    changed, product = _CHANGED[kind.mixin.__name__], _PRODUCTS[kind.plain]
    return (
        changed
        if issubclass(changed, product)
        else type(f"{changed.__name__}{product.__name__}", (changed, product), {})
    )


def wide_layer(module: nn.Module, own: frozenset[str], members: int) -> WideLayer | None:
    """The module's form for all members; None where members own none of its tensors, and it runs as it is.

    Args:
        own: the names of its tensors that members own.
    """
    kind: Any = type(module)
    form = _form(kind)
    if form is not None:
        return form(module, own, members)
    if own:
        raise NotWide(f"{type(module).__name__} has no form for all members at once")
    return None
