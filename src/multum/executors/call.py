"""One member's network on its tensors: the step that every executor repeats or maps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint

from ..errors import NetworkError
from ..network.copies import arguments
from .holders import holders_of
from .recompute import recomputable

__all__ = ["call", "take"]


def call(
    network: nn.Module,
    tensors: dict[str, Tensor],
    x: Any,
    around: Callable[[], AbstractContextManager] = nullcontext,
    again: bool = False,
) -> Tensor:
    """`network(x)` with these tensors in place of its own.

    A buffer that the network assigns anew (rather than writing into it) is written back, so that no update is lost.

    Args:
        around: makes a context like the one that this runs in, where the network checkpoints blocks for backward.
        again: whether it keeps nothing for backward but its input, and is computed again there.
    """
    args, kwargs = arguments(x)
    if torch.compiler.is_compiling():
        current = dict(tensors)
        out = functional_call(network, current, args, kwargs)
    else:
        holders, recomputed = holders_of(network, tuple(tensors)), partial(checkpoint, network, use_reentrant=False)
        with recomputable(network, tensors, around), holders.exchanged(tensors) as current:
            out = (recomputed if again else network)(*args, **kwargs)
    if not isinstance(out, Tensor):
        raise NetworkError(
            f"network must return one tensor; got {type(out).__name__} in {'training' if network.training else 'eval'} "
            "mode. Wrap it so that forward returns the outputs alone in both modes"
        )
    for name, tensor in tensors.items():
        if current[name] is not tensor:
            tensor.copy_(current[name].detach())
    return out


def take(x: Any, member: int) -> Any:
    """The input of one member: [members, batch, ...] -> [batch, ...], also inside tuples and dicts."""
    return tree_map_only(Tensor, lambda t: t[member], x)
