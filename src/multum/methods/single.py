"""Single: one network, the baseline that every ensemble is measured against.

    f(x) = f_1(x)

Shape: x [batch, ...] -> [1, batch, outputs].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ..errors import ConfigError
from .base import INITS, Builder, Method, Remake, setting


@dataclass(frozen=True, kw_only=True)
class Single(Method):
    """The network as it is, behind the interface of an ensemble."""

    members: int = setting(1, "always one")
    init: str = setting("pretrained", '"pretrained": the given weights; "fresh": initialised anew', choices=INITS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members != 1:
            raise ConfigError(f"Single must have one member; got members={self.members}. Use Deep(members=...)")

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Remake:
        return _One(network, self.init, builder)

    def alone(self) -> Single:
        return replace(self, init="pretrained")


class _One(Remake):
    def owns(self, name: str, tensor: Tensor) -> bool:
        return False
