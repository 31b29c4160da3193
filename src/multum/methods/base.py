"""What every method is: a frozen config that knows how its members are born."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import ConfigError, did_you_mean
from ..rewrite.trace import skeleton, tensors_of
from ..rewrite.walker import Edit, apply, install, reset, seeded

__all__ = ["INITS", "Batch", "Birth", "Builder", "Method", "Remake", "Rewritten", "one_of", "whole"]

INITS = ("fresh", "pretrained")

Builder = Callable[[], nn.Module]


class Batch(NamedTuple):
    """What the members see in one step. Shape: x [batch, ...], or [members, batch, ...] where `per_member`."""

    x: Any
    y: Any
    per_member: bool


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method's config. Subclasses add fields and `birth`, and say where they differ from the rest."""

    reduction: ClassVar[str] = "sum"  # of the members' losses, as the method's paper trains it: "sum" or "mean"

    members: int = 4  # M

    def __post_init__(self) -> None:
        whole("members", self.members, least=1)

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Birth:
        """How the members of this network come to be; raises where the method and the network do not fit."""
        raise NotImplementedError

    def alone(self) -> Method | None:
        """The same method with one member and the given weights, which is then the base network; None if it is not."""
        raise NotImplementedError

    def batch(self, x: Any, y: Any, generator: torch.Generator | None = None) -> Batch:
        """What the members see of one batch; the same for all, unless a method says otherwise."""
        return Batch(x, y, per_member=False)

    def decays(self, name: str, tensor: Tensor) -> bool:
        """Whether weight decay applies to this parameter."""
        return True

    def parameter_groups(self, ensemble: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
        """Groups for a torch optimizer: what decays, and what the method keeps from decaying."""
        trainable = [(name, p) for name, p in ensemble.named_parameters() if p.requires_grad]
        groups = [
            {"params": [p for name, p in trainable if self.decays(name, p)], "weight_decay": weight_decay},
            {"params": [p for name, p in trainable if not self.decays(name, p)], "weight_decay": 0.0},
        ]
        return [group for group in groups if group["params"]]


class Birth:
    """Members that are each a network of their own: every tensor is own, unless a method says otherwise."""

    edits: Sequence[Edit] = ()
    born: int | None = None  # members at the start, None for all of them
    folded: bool = False  # whether the network takes all members at once, folded into the batch

    def member(self, seed: int) -> nn.Module:
        raise NotImplementedError

    def owns(self, name: str, tensor: Tensor) -> bool:
        return True


class Rewritten(Birth):
    """Members of one rewritten network: what they share keeps the given weights, what they own is born under a seed.

    Args:
        edits: how the one-member network differs from the base network.
        owns: name and tensor of the rewritten network -> whether each member has its own.
        fresh: paths of modules (heads, branches) that every member initialises anew.
    """

    def __init__(
        self,
        network: nn.Module,
        edits: Sequence[Edit],
        owns: Callable[[str, Tensor], bool],
        fresh: Sequence[str] = (),
    ):
        self.network, self.edits, self.owned, self.fresh = network, tuple(edits), owns, tuple(fresh)

    def member(self, seed: int) -> nn.Module:
        one = skeleton(self.network, lambda t: t.detach().clone())
        with seeded(seed):
            apply(one, self.edits, {})
            if not any(t.is_meta for t in tensors_of(one).values()):
                for path in self.fresh:
                    reset(one.get_submodule(path))
        return one

    def owns(self, name: str, tensor: Tensor) -> bool:
        return self.owned(name, tensor)


class Remake(Birth):
    """Members made from the base network: initialised anew under a seed, or copies of the given weights."""

    def __init__(self, network: nn.Module, init: str, builder: Builder | None):
        self.network, self.init, self.builder = network, init, builder

    def member(self, seed: int) -> nn.Module:
        one = skeleton(self.network, lambda t: t.detach().clone())
        if self.init == "pretrained" or any(t.is_meta for t in tensors_of(one).values()):
            return one
        with seeded(seed):
            if self.builder is None:
                reset(one)
                return one
            fresh = self.builder().train(one.training)
        frozen = {n: p.detach() for n, p in one.named_parameters() if not p.requires_grad}
        install(fresh, {n: copy.deepcopy(t) for n, t in frozen.items()})
        return fresh


def whole(name: str, value: Any, least: int) -> None:
    """Refuse a field that is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} is a whole number >= {least}, however: {name}={value!r}")


def one_of(name: str, value: Any, known: Sequence[str]) -> None:
    """Refuse a field that is not one of the known words."""
    if value not in known:
        raise ConfigError(
            f"{name} is one of {', '.join(map(repr, known))}, however: {name}={value!r}. "
            + did_you_mean(str(value), known)
        )
