"""The attributes of a module that repeat the shapes of tensors: what must change with a width."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from .copies import own_tensors


def attributes_for(module: nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The attributes that a layer needs once its tensors have new shapes.

    Shape: `shapes` maps the layer's own tensor names (`weight`, `bias` ...) to their new shapes.

    >>> attributes_for(nn.Linear(8, 8), {"weight": (4, 2)})
    {'in_features': 2, 'out_features': 4}
    """
    weight = shapes.get("weight")
    size = weight or shapes.get("running_mean")
    if isinstance(module, nn.modules.conv._ConvNd) and weight is not None:
        groups = module.groups
        if groups == module.in_channels and groups > 1:  # depthwise
            groups = weight[0] // (1 if module.transposed else module.out_channels // module.in_channels)
        one, other = weight[0], weight[1] * groups
        inputs, outputs = (one, other) if module.transposed else (other, one)
        return {"in_channels": inputs, "out_channels": outputs, "groups": groups}
    if isinstance(module, nn.Linear) and weight is not None:
        return {"in_features": weight[1], "out_features": weight[0]}
    if isinstance(module, (nn.modules.batchnorm._NormBase)) and size is not None:
        return {"num_features": size[0]}
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)) and weight is not None:
        return {"normalized_shape": tuple(weight)}
    if isinstance(module, nn.GroupNorm) and weight is not None:
        per_channel = module.num_groups == module.num_channels
        return {"num_channels": weight[0], **({"num_groups": weight[0]} if per_channel else {})}
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and weight is not None:
        return {"embedding_dim": weight[1]}
    if isinstance(module, nn.PReLU) and weight is not None:
        return {"num_parameters": weight[0]}
    if isinstance(module, nn.MultiheadAttention):
        width = shapes["in_proj_weight" if "in_proj_weight" in shapes else "q_proj_weight"][1]
        inner = shapes["in_proj_weight"][0] // 3 if "in_proj_weight" in shapes else shapes["q_proj_weight"][0]
        return {
            "embed_dim": width,
            "kdim": shapes["k_proj_weight"][1] if "k_proj_weight" in shapes else width,
            "vdim": shapes["v_proj_weight"][1] if "v_proj_weight" in shapes else width,
            "head_dim": inner // module.num_heads,
        }
    if isinstance(module, nn.RNNBase):
        gates = {"LSTM": 4, "GRU": 3}.get(module.mode, 1)
        projected = {"proj_size": shapes["weight_hr_l0"][0]} if "weight_hr_l0" in shapes else {}
        rows, inputs = shapes["weight_ih_l0"]
        return {"input_size": inputs, "hidden_size": rows // gates, **projected}
    if isinstance(module, nn.RNNCellBase):
        return {"input_size": shapes["weight_ih"][1], "hidden_size": shapes["weight_hh"][1]}
    return {}


def norm_dims(module: nn.Module, ndim: int) -> tuple[int, ...]:
    """The dimensions of its input whose size a norm repeats, where it has no tensors to tell; () elsewhere.

    >>> norm_dims(nn.LayerNorm(8, elementwise_affine=False), 3), norm_dims(nn.LayerNorm(8), 3)
    ((2,), ())
    """
    if own_tensors(module):
        return ()
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        return tuple(range(ndim - len(module.normalized_shape), ndim))
    return (1,) if isinstance(module, (nn.GroupNorm, nn.modules.batchnorm._NormBase)) else ()


def width_attributes(module: nn.Module, widths: Mapping[int, set[int]]) -> dict[str, Any]:
    """Attributes of a user's module (an attention block, say) that repeat a width which has changed.

    Shape: `widths` maps the old size of every dimension below this module to its new sizes. An attribute is changed
    only where its name says that it is a width, and where the new size is beyond doubt.
    """
    changed: dict[str, Any] = {}
    heads = getattr(module, "num_heads", getattr(module, "heads", 0))
    heads = heads if isinstance(heads, int) else 0
    for name in _WIDTH_NAMES:
        value = module.__dict__.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        per_head = name in _HEAD_NAMES and heads > 0
        new = widths.get(value * heads if per_head else value, set())
        if len(new) == 1:
            changed[name] = next(iter(new)) // (heads if per_head else 1)
    shape = module.__dict__.get("shape")
    if isinstance(shape, tuple) and all(isinstance(n, int) for n in shape):
        sizes = [widths.get(n, set()) if n > 1 else {n} for n in shape]
        if all(len(size) == 1 for size in sizes):
            changed["shape"] = tuple(next(iter(size)) for size in sizes)
    head = next((name for name in _HEAD_NAMES if name in changed), None)
    scale = module.__dict__.get("scale")
    if head and isinstance(scale, float) and math.isclose(scale, module.__dict__[head] ** -0.5):
        changed["scale"] = changed[head] ** -0.5
    return {name: value for name, value in changed.items() if value != module.__dict__[name]}


_HEAD_NAMES = ("head_dim", "attention_head_size", "dim_head", "head_size")
_WIDTH_NAMES = (
    *_HEAD_NAMES,
    *("all_head_size", "attn_dim", "channels", "dim", "embed_dim", "features", "hidden", "hidden_dim", "hidden_size"),
    *("in_channels", "in_features", "inner_dim", "num_features", "out_channels", "out_features", "planes", "width"),
)
