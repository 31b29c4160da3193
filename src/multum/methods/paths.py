"""What methods ask of a network by its paths: those that fields name, and one example's way through the modules."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..errors import ConfigError, Refusal, RewriteError, check_known
from ..network.dependence import Usage, trace_members
from ..rewrite.walker import names_of


def module_path(name: str, value: object) -> None:
    """Refuse a value that cannot be the path of a module."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be the path of a module, or None; got {name}={value!r}. Use {name}='fc', say")


def known_path(name: str, path: str, network: nn.Module) -> None:
    """Refuse a field that names a module which the network does not have."""
    paths = [p for p, _ in network.named_modules() if p]
    check_known(path, paths, f"{name} must be the path of a module of the network", got=f"{name}={path!r}")


def followed(network: nn.Module, example: Any, fix: str) -> Usage:
    """How one row of the example runs through the network; an error with this fix where that cannot be found out."""
    try:
        return trace_members(network, (), tree_map_only(Tensor, lambda t: t[:1], example))
    except Exception as error:  # a user's network may raise anything on noted tensors
        reason = f"one example must run through the network on traced tensors; got {type(error).__name__}: {error}"
        raise RewriteError("the network", [Refusal("", reason, fix)]) from error


def heads_of(what: str, usage: Usage, otherwise: str) -> list[str]:
    """Paths of the last layers, which members own; one error where a module computes the outputs itself.

    `otherwise` is what a user of this method can do who cannot change the network.
    """
    inner = [path for path in usage.heads if not path or _holds(path, usage.layers)]
    if inner or not usage.heads:
        reason = "the head must be a layer of its own; got a module that computes the outputs itself"
        fix = f"make the last layer an nn.Linear, or {otherwise}"
        raise RewriteError(what, [Refusal(path, reason, fix) for path in inner or [""]])
    return usage.heads


def check_heads(what: str, network: nn.Module, heads: list[str], otherwise: str) -> None:
    """Refuse heads without tensors of their own that can come to differ between members."""
    refusals = []
    for path in heads:
        inside = [(first, [_holds(path, [name]) for name in names]) for first, names in names_of(network).items()]
        tied = [first for first, held in inside if any(held) and not all(held)]
        if tied:
            reason = f"a head must have tensors of its own; got {', '.join(tied)}, tied to the body"
            refusals.append(Refusal(path, reason, f"untie it, or {otherwise}"))
        elif not any(p.requires_grad for p in network.get_submodule(path).parameters()):
            reason = "a head must have something to train; got one that is frozen, or has no parameters"
            refusals.append(Refusal(path, reason, f"unfreeze it with requires_grad_(True), or {otherwise}"))
    if refusals:
        raise RewriteError(what, refusals)


def _holds(path: str, names: list[str]) -> bool:
    """Whether one of these modules or tensors is inside the module at `path`."""
    return any(name.startswith(f"{path}.") for name in names)
