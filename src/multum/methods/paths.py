"""What methods ask of a network by its paths: those that fields name, and one example's way through the modules."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..errors import ConfigError, Refusal, RewriteError, did_you_mean
from ..network.dependence import Usage, trace_members

__all__ = ["followed", "known_path", "module_path"]


def module_path(name: str, value: object) -> None:
    """Refuse a value that cannot be the path of a module."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be the path of a module, or None; got {name}={value!r}. Use {name}='fc', say")


def known_path(name: str, path: str, network: nn.Module) -> None:
    """Refuse a field that names a module which the network does not have."""
    paths = [p for p, _ in network.named_modules() if p]
    if path not in paths:
        raise ConfigError(
            f"{name} must be the path of a module of the network; got {name}={path!r}. {did_you_mean(path, paths)}"
        )


def followed(network: nn.Module, example: Any, fix: str) -> Usage:
    """How one row of the example runs through the network; an error with this fix where that cannot be found out."""
    try:
        return trace_members(network, (), tree_map_only(Tensor, lambda t: t[:1], example))
    except Exception as error:  # a user's network may raise anything on noted tensors
        reason = f"one example must run through the network on traced tensors; got {type(error).__name__}: {error}"
        raise RewriteError("the network", [Refusal("", reason, fix)]) from error
