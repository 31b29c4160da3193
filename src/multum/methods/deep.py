"""Deep Ensembles: M networks that differ in their initialisation and in the order of their batches.

Lakshminarayanan, Pritzel, Blundell: Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles,
NeurIPS 2017.

    p(y | x) = 1/M sum_m p(y | x, theta_m),    theta_m independent

Members share nothing (`independent`), so a training loop may draw an order of batches for each of them; whether it does
is the recipe's `order`.

Shape: x [batch, ...] -> [members, batch, outputs]. Cost: M times one network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from .base import INITS, Builder, Method, Remake, setting


@dataclass(frozen=True, kw_only=True)
class Deep(Method):
    """M independent copies of the network."""

    independent = True
    training_only = ("init",)

    members: int = setting(4, "M")
    init: str = setting(
        "fresh", '"fresh": every member initialised on its own; "pretrained": all from the given weights', choices=INITS
    )

    @property
    def order(self) -> str:
        return "own"

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Remake:
        return Remake(network, self.init, builder)

    def alone(self) -> Deep:
        return replace(self, members=1, init="pretrained")
