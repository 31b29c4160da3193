"""Batch norm folded into the layer before it or behind it: in eval mode it only scales and shifts.

    s = gamma / sqrt(var + eps),  t = beta - s mean
    behind a layer    s (W x + b) + t  =  (s W) x + (s b + t)
    before a layer    W (s x + t) + b  =  (W s) x + (W t + b)     where no zeros pad what the layer sees

What dropout divides by, the rate of what it keeps, goes into the layer behind it, whatever pads: (W / (1 - p)) (x z).

A pair is folded only where nothing but the one reads the other. What is folded is computed in float64.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from .program import Constant, Program, full_arguments, mapped

__all__ = ["fold_norms", "fold_scales"]

aten = torch.ops.aten

CONVOLUTIONS = {getattr(getattr(aten, f"conv{n}d"), kind) for n in (1, 2, 3) for kind in ("default", "padding")}
TRANSPOSED = {aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input}
LINEAR = aten.linear.default


def fold_norms(program: Program) -> int:
    """Fold every batch norm that can be, in place; how many there were."""
    norms = [node for node in program.graph.nodes if node.target is aten.batch_norm.default]
    folded = [_into_layer_before(program, node) or _into_layer_behind(program, node) for node in norms]
    program.clean()
    return sum(folded)


def fold_scales(program: Program) -> None:
    """mask / (1 - p) becomes the mask where one layer alone reads what is dropped: its weights are divided instead."""
    masks = [node for node in program.graph.nodes if node.target is torch.ops.multum.keep.default]
    for scaled in [node for mask in masks for node in mask.users if node.target is aten.div.Tensor]:
        product = next(iter(scaled.users))
        layer = next(iter(product.users), product)
        alone = len(scaled.users) == len(product.users) == 1 and product.target is aten.mul.Tensor
        parts = _weights(program, layer) if alone and layer.args[0] is product else None
        if parts is not None:
            divided = mapped(partial(torch.div, other=scaled.args[1]), mapped(Tensor.double, parts[0]))
            _set_weights(program, layer, divided, parts[1], like=parts[0])
            scaled.replace_all_uses_with(scaled.args[0])
            program.graph.erase_node(scaled)
    program.clean()


def _into_layer_before(program: Program, norm: fx.Node) -> bool:
    layer, scaled = norm.args[0], _scale_and_shift(program, norm)
    if scaled is None or not isinstance(layer, fx.Node) or set(layer.users) != {norm}:
        return False
    parts = _weights(program, layer)
    # A norm's channels are the second dimension: those of a linear layer only where it has no others.
    if parts is None or (layer.target is LINEAR and layer.meta["val"].ndim != 2):
        return False
    (weight, bias), (scale, shift) = parts, scaled
    groups = full_arguments(layer)[6] if layer.target in TRANSPOSED else 1

    def wider(w: Tensor, s: Tensor) -> Tensor:
        if layer.target not in TRANSPOSED:
            return w.double() * s.view(-1, *(1 for _ in w.shape[1:]))
        grouped = w.double().unflatten(0, (groups, -1))  # [groups, inputs, outputs, ...]
        return (grouped * s.view(groups, 1, -1, *(1 for _ in w.shape[2:]))).flatten(0, 1)

    new_bias = shift if bias is None else mapped(lambda b, s, t: b.double() * s + t, bias, scale, shift)
    _set_weights(program, layer, mapped(wider, weight, scale), new_bias, like=weight)
    norm.replace_all_uses_with(layer)
    program.graph.erase_node(norm)
    return True


def _into_layer_behind(program: Program, norm: fx.Node) -> bool:
    scaled = _scale_and_shift(program, norm)
    layer = next(iter(norm.users), None)
    if scaled is None or layer is None or set(norm.users) != {layer} or layer.args[0] is not norm:
        return False
    parts = _weights(program, layer)
    plain = layer.target is LINEAR and norm.meta["val"].ndim == 2
    unpadded = layer.target in CONVOLUTIONS and full_arguments(layer)[6] == 1 and _is_unpadded(full_arguments(layer)[4])
    if parts is None or not (plain or unpadded):
        return False
    (weight, bias), (scale, shift) = parts, scaled

    def across(v: Tensor, w: Tensor) -> Tensor:
        return v.view(1, -1, *(1 for _ in w.shape[2:]))

    def added(w: Tensor, t: Tensor) -> Tensor:
        return (w.double() * across(t, w)).flatten(1).sum(1)

    new_bias = mapped(added, weight, shift)
    if bias is not None:
        new_bias = mapped(lambda a, b: a + b.double(), new_bias, bias)
    _set_weights(program, layer, mapped(lambda w, s: w.double() * across(s, w), weight, scale), new_bias, like=weight)
    norm.replace_all_uses_with(norm.args[0])  # type: ignore[arg-type]
    program.graph.erase_node(norm)
    return True


def _scale_and_shift(program: Program, norm: fx.Node) -> tuple[Constant, Constant] | None:
    """s and t in float64, where the norm uses running statistics."""
    _, weight, bias, mean, var, training, _, eps, *_ = norm.args
    tensors = [node for node in (mean, var, weight, bias) if node is not None]
    if training or mean is None or var is None or any(program.constant(node) is None for node in tensors):
        return None
    means, variances, weights, biases = (program.constant(node) for node in (mean, var, weight, bias))
    scale = mapped(lambda v: (v.double() + eps).rsqrt(), variances)  # type: ignore[arg-type]
    if weights is not None:
        scale = mapped(lambda s, w: s * w.double(), scale, weights)
    shift = mapped(lambda m, s: -m.double() * s, means, scale)  # type: ignore[arg-type]
    return scale, shift if biases is None else mapped(lambda t, b: t + b.double(), shift, biases)


def _weights(program: Program, layer: fx.Node) -> tuple[Constant, Constant | None] | None:
    """Weight and bias of a layer whose weights are constants; None where it is no such layer."""
    if layer.kwargs or layer.target not in {LINEAR, *CONVOLUTIONS, *TRANSPOSED}:
        return None
    weight, node = program.constant(layer.args[1]), full_arguments(layer)[2]
    bias = program.constant(node)
    return None if weight is None or (node is not None and bias is None) else (weight, bias)


def _set_weights(program: Program, layer: fx.Node, weight: Constant, bias: Constant | None, like: Constant) -> None:
    dtype = like[0].dtype
    nodes = [v and program.add(layer, mapped(lambda t: t.to(dtype), v)) for v in (weight, bias)]
    layer.args = (layer.args[0], *nodes, *layer.args[3:])


def _is_unpadded(padding: Any) -> bool:
    return padding == "valid" or (padding != "same" and not any(padding))
