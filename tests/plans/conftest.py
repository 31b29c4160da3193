from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import multum
from multum.plans import plan as planning
from multum.plans.counting import Base


class Counted(Base):
    """A base that counts every config once for all plans of a module."""

    def __init__(self, network: Any, example: Any):
        super().__init__(network, example, "classification", None)
        self.done: dict[Any, Any] = {}

    def counts(self, method: Any, width: float, affordable: Callable[[float, float], bool] = lambda *_: True) -> Any:
        if (method, width) not in self.done:
            self.done[method, width] = super().counts(method, width)
        return self.done[method, width]


@pytest.fixture(scope="module")
def mlp() -> Counted:
    network = multum.models.build("mlp", in_features=20, classes=10, hidden=[64, 64])
    return Counted(network, torch.zeros(1, 20))


@pytest.fixture(scope="module")
def resnet18() -> Counted:
    return Counted(multum.models.build("resnet18", classes=10), torch.zeros(1, 3, 32, 32))


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., planning.Plan]:
    """`multum.plan` for a base that remembers its counts."""

    def plan(base: Counted, **options: Any) -> planning.Plan:
        monkeypatch.setattr(planning, "base_of", lambda *_: (base, []))
        return planning.plan(base.network, **{"example": base.example, "seconds": 0, **options})

    return plan
