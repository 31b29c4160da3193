"""What every method is: a frozen config that knows how its members are born."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..errors import ConfigError, did_you_mean
from ..rewrite.trace import skeleton, tensors_of
from ..rewrite.walker import Edit, install, reset, seeded

__all__ = ["INITS", "Birth", "Builder", "Method", "Remake", "one_of", "whole"]

INITS = ("fresh", "pretrained")

Builder = Callable[[], nn.Module]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method's config. Subclasses add fields, `birth`, and `alone`."""

    members: int = 4  # M

    def __post_init__(self) -> None:
        whole("members", self.members, least=1)

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Birth:
        """How the members of this network come to be; raises where the method and the network do not fit."""
        raise NotImplementedError

    def alone(self) -> Method:
        """The same method with one member and the given weights, which is then the base network itself."""
        raise NotImplementedError


class Birth:
    """Members that are each a network of their own: every tensor is own, unless a method says otherwise."""

    edits: Sequence[Edit] = ()

    def member(self, seed: int) -> nn.Module:
        raise NotImplementedError

    def owns(self, name: str, tensor: Tensor) -> bool:
        return True


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
