"""A network's tensors by name, copies of a network, the call that an input stands for, and batches to try it on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only


def arguments(x: Any) -> tuple[tuple, dict]:
    """The call that an input stands for: a tensor is one argument, a tuple several, a dict the keyword ones."""
    if isinstance(x, dict):
        return (), x
    return (tuple(x), {}) if isinstance(x, (tuple, list)) else ((x,), {})


def run(network: nn.Module, x: Any) -> Any:
    """`network` on the call that an input stands for."""
    args, kwargs = arguments(x)
    return network(*args, **kwargs)


def tensors_of(network: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by its first name; a tied tensor appears once."""
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}


def own_tensors(module: nn.Module, path: str = "") -> dict[str, Tensor]:
    """A module's parameters and buffers without those of its children, by their names in the network."""
    own = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}
    return {name_in(path, name): tensor for name, tensor in own.items()}


def name_in(path: str, tensor: str) -> str:
    """The name of a module's tensor; the network itself has the empty path."""
    return f"{path}.{tensor}" if path else tensor


def on_meta(network: nn.Module) -> bool:
    """Whether the network has shapes alone."""
    return any(t.is_meta for t in tensors_of(network).values())


def skeleton(network: nn.Module, convert: Callable[[Tensor], Tensor]) -> nn.Module:
    """A deep copy of the network whose tensors are `convert(tensor)`, so that no weight is copied on the way.

    Ties survive: two names of one tensor stay two names of one tensor.
    """
    memo: dict[int, Any] = {}
    for tensor in tensors_of(network).values():
        new = convert(tensor)
        memo[id(tensor)] = (
            nn.Parameter(new, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else new
        )
    return copy.deepcopy(network, memo)


def full_copy(network: nn.Module) -> nn.Module:
    """A deep copy with tensors of its own and without their history."""
    return skeleton(network, lambda t: t.detach().clone())


def trial_copy(network: nn.Module) -> nn.Module:
    """A copy to run once: it shares the parameters, which a run does not write."""
    return skeleton(network, unwritten)


def unwritten(t: Tensor) -> Tensor:
    """The tensor for a trial run, which may write into inputs and buffers; parameters are too large to copy."""
    return t.detach() if isinstance(t, nn.Parameter) else t.detach().clone()


def two_rows(example: Any) -> Any:
    """At most two rows of the example, and at least two: batch norm cannot train on one."""
    return tree_map_only(Tensor, lambda t: t[:2] if t.shape[0] > 1 else torch.cat([t, t]), example)


def fold_rows(x: Any, members: int) -> Any:
    """The same rows for every member, folded into the batch: [batch, ...] -> [members * batch, ...]."""
    return tree_map_only(Tensor, lambda t: t.repeat(members, *(1 for _ in t.shape[1:])), x)


def drawn(example: Any, like: Tensor) -> Any:
    """A batch of this shape with values of both signs, on the network's device and in its dtype."""
    generator = torch.Generator().manual_seed(0)

    def draw(t: Tensor) -> Tensor:
        if not t.is_floating_point():
            return torch.zeros(2 * t.shape[0], *t.shape[1:], dtype=t.dtype, device=like.device)
        half = torch.randn(t.shape, generator=generator, dtype=torch.float64)
        return torch.cat([half, -half]).to(like)

    return tree_map_only(Tensor, draw, example)
