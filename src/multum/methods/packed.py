"""Packed-Ensembles: M thin networks that together are about as large as one.

Laurent, Lafage, Tartaglione, Daniel, Martinez, Bursuc, Franchi: Packed-Ensembles for Efficient Uncertainty Estimation,
ICLR 2023.

A layer C_j -> C_{j+1} of the base network becomes alpha*C_j -> alpha*C_{j+1} channels in M*gamma groups. One member is
then a network of its own, with

    width(C) = ceil(int(alpha * C) / M)        channels, rounded up so that members are equal
    gamma_j  = gamma, lowered until it divides both sides and leaves 64 input channels per group;
               1 in the stem, the head, and the first convolution of ResNet blocks

so that parameters and mult-adds are alpha^2 / (M*gamma) of M dense networks: alpha = sqrt(M) costs one network,
alpha = M is Deep Ensembles.

Shape: x [batch, ...] -> [members, batch, outputs].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ..errors import ConfigError
from ..thinning.thin import DENSE, Thinning, plan_thinning
from .base import INITS, Birth, Builder, Method, one_of, whole

__all__ = ["Packed"]


@dataclass(frozen=True, kw_only=True)
class Packed(Method):
    """Thin members of any network."""

    reduction = "mean"

    members: int = 4  # M
    alpha: float = 2  # alpha: width of all members together, in widths of the base network
    gamma: int = 1  # gamma: subgroups of every convolution, where they fit
    min_channels: int = 64  # the floor: input channels that a subgroup keeps
    dense: tuple[str, ...] = DENSE  # convolutions without subgroups: "Class.child" or a module path with wildcards
    init: str = "fresh"  # "fresh"; or "pretrained": every member keeps its own seeded choice of trained channels

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("gamma", self.gamma, least=1)
        whole("min_channels", self.min_channels, least=1)
        one_of("init", self.init, INITS)
        object.__setattr__(self, "dense", (self.dense,) if isinstance(self.dense, str) else tuple(self.dense))
        if (
            isinstance(self.alpha, bool)
            or not isinstance(self.alpha, (int, float))
            or not 0 < self.alpha <= self.members
        ):
            raise ConfigError(
                f"alpha is a width with 0 < alpha <= members, however: alpha={self.alpha!r}, members={self.members}; "
                f"alpha={self.members} gives Deep Ensembles, alpha={self.members**0.5:.3g} costs about one network"
            )

    def width(self, channels: int) -> int:
        """Channels of one member's layer.

        >>> Packed(members=3, alpha=2).width(200)
        134
        """
        return -(-int(self.alpha * channels) // self.members)

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Birth:
        plan = plan_thinning(
            network, example, self.width, gamma=self.gamma, min_channels=self.min_channels, dense=self.dense
        )
        return _Thin(network, plan, self.init, builder)

    def alone(self) -> Packed:
        return replace(self, members=1, alpha=1, gamma=1, init="pretrained")


class _Thin(Birth):
    def __init__(self, network: nn.Module, plan: Thinning, init: str, builder: Builder | None):
        self.network, self.plan, self.init, self.builder = network, plan, init, builder
        self.anew = init == "fresh"
        self.edits = plan.edits

    def member(self, seed: int) -> nn.Module:
        return self.plan.build(self.network, init=self.init, seed=seed, builder=self.builder)
