"""The shapes of an example as JSON, and plain values of JSON."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

__all__ = ["MOST_VALUES", "in_precision", "is_int", "is_plain", "is_spec", "spec_of", "zeros"]

MOST_VALUES = 2**28  # elements of an example


def is_int(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_plain(value: Any, lists: int = 3) -> bool:
    """A number, a word, a truth value, nothing; or a short list of them."""
    if isinstance(value, list):
        return lists > 0 and len(value) <= 4096 and all(is_plain(entry, lists - 1) for entry in value)
    if isinstance(value, str):
        return len(value) <= 1000
    return value is None or isinstance(value, (float, bool)) or is_int(value, -(2**63), 2**63 - 1)


def spec_of(example: Any) -> Any:
    """The shapes of an example as JSON."""
    if isinstance(example, dict):
        return {"dict": {name: spec_of(value) for name, value in example.items()}}
    if isinstance(example, (tuple, list)):
        return {"tuple": [spec_of(value) for value in example]}
    if isinstance(example, Tensor):
        return {"shape": list(example.shape), "dtype": str(example.dtype).removeprefix("torch.")}
    return {"value": example}


def is_spec(spec: Any) -> bool:
    """Whether this is what `spec_of` writes, for an example that fits into memory."""
    if not isinstance(spec, dict) or len(spec) not in (1, 2):
        return False
    if set(spec) == {"shape", "dtype"}:
        shape, dtype = spec["shape"], spec["dtype"]
        sizes = isinstance(shape, list) and 1 <= len(shape) <= 16 and all(is_int(n, 0, MOST_VALUES) for n in shape)
        known = isinstance(dtype, str) and isinstance(getattr(torch, dtype, None), torch.dtype)
        return sizes and known and math.prod(shape) <= MOST_VALUES
    ((kind, inner),) = spec.items() if len(spec) == 1 else (("", None),)
    if kind == "dict":
        return isinstance(inner, dict) and len(inner) <= 64 and all(map(is_spec, inner.values()))
    if kind == "tuple":
        return isinstance(inner, list) and len(inner) <= 64 and all(map(is_spec, inner))
    return kind == "value" and is_plain(inner)


def zeros(spec: dict, device: Any) -> Any:
    """An example of these shapes."""
    if "dict" in spec:
        return {name: zeros(value, device) for name, value in spec["dict"].items()}
    if "tuple" in spec:
        return tuple(zeros(value, device) for value in spec["tuple"])
    if "value" in spec:
        return spec["value"]
    return torch.zeros(spec["shape"], dtype=getattr(torch, spec["dtype"]), device=device)


def in_precision(example: Any, network: nn.Module) -> Any:
    """The example in the precision that the network has by now, which need not be that of its first example."""
    dtypes = {p.dtype for p in network.parameters() if p.is_floating_point()}
    if len(dtypes) != 1:
        return example
    dtype = dtypes.pop()
    return tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, example)
