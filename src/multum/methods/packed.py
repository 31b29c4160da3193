"""Packed-Ensembles: M thin networks that together are about as large as one.

Laurent, Lafage, Tartaglione, Daniel, Martinez, Bursuc, Franchi: Packed-Ensembles for Efficient Uncertainty Estimation,
ICLR 2023.

A layer C_j -> C_{j+1} of the base network becomes alpha*C_j -> alpha*C_{j+1} channels in M*gamma groups. One member is
then a network of its own, with

    width(C) = ceil(int(alpha * C) / M)        channels, rounded up so that members are equal
    gamma_j  = gamma, lowered until it divides both sides and leaves 64 input channels per group, of convolutions and
               linear layers; 1 in the stem, the head, the first convolution of ResNet blocks, and the projections of
               attention

so that parameters and mult-adds are alpha^2 / (M*gamma) of M dense networks: alpha = sqrt(M) costs one network,
alpha = M is Deep Ensembles.

Shape: x [batch, ...] -> [members, batch, outputs].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ..building import Birth
from ..checks import number
from ..thinning.thin import DENSE, Thinning, plan_thinning
from .base import INITS, Builder, Method, setting


@dataclass(frozen=True, kw_only=True)
class Packed(Method):
    """Thin members of any network."""

    independent = True
    variants = ({"alpha": 1.5}, {"alpha": 3})
    knobs = {"alpha": (1.5, 2, 3), "gamma": (1, 2)}

    members: int = setting(4, "M")
    alpha: float = setting(2, "alpha: width of all members together, in widths of the base network")
    gamma: int = setting(1, "gamma: subgroups of every convolution and linear layer, where they fit")
    min_channels: int = setting(64, "the floor: input channels that a subgroup keeps")
    dense: tuple[str, ...] = setting(
        DENSE, 'layers without subgroups: "Class.child" or a module path with wildcards', example=DENSE[0]
    )
    init: str = setting(
        "fresh", '"fresh"; or "pretrained": every member keeps its own seeded choice of trained channels', choices=INITS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        deep, like_one = self.members, f"{self.members**0.5:.3g}"
        fix = f"Here members={deep}: alpha={deep} gives Deep Ensembles, alpha={like_one} costs about one network"
        number("alpha", self.alpha, above=0, most=self.members, fix=fix)

    def width(self, channels: int) -> int:
        """Channels of one member's layer.

        >>> Packed(members=3, alpha=2).width(200)
        134
        """
        return -(-int(self.alpha * channels) // self.members)

    @property
    def order(self) -> str:
        """As in the paper; but where alpha = M, members that start from trained channels start alike."""
        return "own" if self.init == "pretrained" else "same"

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Birth:
        plan = plan_thinning(
            network, example, self.width, gamma=self.gamma, min_channels=self.min_channels, dense=self.dense
        )
        return _Thin(network, plan, self.init, builder)

    def sized(self, share: float, room: float | None) -> Packed:
        return replace(self, alpha=round(self.members * share, 4))

    def alone(self) -> Packed:
        return replace(self, members=1, alpha=1, gamma=1, init="pretrained")


class _Thin(Birth):
    def __init__(self, network: nn.Module, plan: Thinning, init: str, builder: Builder | None):
        self.network, self.plan, self.init, self.builder = network, plan, init, builder
        self.starts_fresh = init == "fresh"
        self.edits = plan.edits

    def member(self, index: int, seed: int) -> nn.Module:
        return self.plan.build(self.network, init=self.init, seed=seed, builder=self.builder)
