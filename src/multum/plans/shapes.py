"""The meta device with a memory: an operation on shapes that it has met before gives what it gave then.

torch finds most shapes in Python, in a millisecond for a norm or a ReLU, and a plan follows the same few shapes through
hundreds of passes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["KnownShapes"]

PLAIN = (Tensor, nn.Parameter)


class KnownShapes(TorchDispatchMode):
    """While it is on, functional operations on tensors of the meta device are worked out once for each shape."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if any(kind not in PLAIN for kind in types):  # a subclass comes back with plain tensors
            return NotImplemented
        if kwargs or not args or type(args[0]) not in PLAIN or not args[0].is_meta or func.is_view:
            return func(*args, **(kwargs or {}))
        key = (func, *map(_key, args))
        outputs = self.known.get(key)
        if outputs is None:
            out = func(*args)
            self.known[key] = _outputs(func, args, out)
            return out
        if not outputs:
            return func(*args)
        made = [
            None if each is None else torch.empty_strided(*each[:2], dtype=each[2], device=each[3]) for each in outputs
        ]
        return made[0] if len(made) == 1 else tuple(made)


def _key(argument: Any) -> Any:
    if type(argument) in PLAIN:
        return argument.shape, argument.stride(), argument.dtype, argument.device
    return tuple(map(_key, argument)) if isinstance(argument, (list, tuple)) else (type(argument), argument)


def _outputs(func: Any, args: tuple, out: Any) -> list[Any]:
    """How to make what an operation gave; empty where it must run each time."""
    outputs = out if isinstance(out, tuple) and len(out) > 1 else (out,)
    plain = all(t is None or (type(t) is Tensor and t.is_meta) for t in outputs)
    aliases = any(each.alias_info is not None for each in (*func._schema.arguments, *func._schema.returns))
    given = {t.untyped_storage()._cdata for t in args if type(t) in PLAIN}
    if not plain or aliases or any(t is not None and t.untyped_storage()._cdata in given for t in outputs):
        return []
    return [None if t is None else (t.shape, t.stride(), t.dtype, t.device) for t in outputs]
