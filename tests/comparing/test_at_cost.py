"""A method at the cost of so many networks: thinned members, or one network that is widened."""

from __future__ import annotations

import re
from typing import Any

import pytest

import multum
from multum.comparing import budget as budgets
from multum.comparing.budget import Budget, at_cost, cost_of_network
from multum.metrics.cost import Cost


@pytest.fixture
def widened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs as if every network could be widened: F^2 of 1,000 mult-adds and of 100 parameters."""

    def cost(method: multum.methods.Method, model: str, data: Any) -> Cost:
        match = re.search(r"(?:wide|thin)=([\d.]+)", model)
        times = method.members * (float(match[1]) if match else 1.0) ** 2
        values = {"trainable": 0, "torchinfo": 0, "attention": 0, "members": method.members, "parts": ()}
        return Cost(params=int(100 * times), macs=int(1000 * times), **values)

    monkeypatch.setattr(budgets, "cost_of", cost)
    monkeypatch.setattr(budgets, "cost_of_network", lambda model, data: cost(multum.Single(), model, data))


@pytest.mark.parametrize(
    ("text", "model"),
    [("4x", "mlp:wide=2"), ("1x", "mlp"), ("2x", "mlp:wide=1.375"), ("60x", "mlp:wide=7.7083"), ("1.05x", "mlp")],
)
def test_one_network_is_widened_to_the_cost_from_below(widened: None, text: str, model: str) -> None:
    single = budgets.cost_of_network("mlp", None)
    method, chosen = at_cost(multum.Single(), "mlp", None, Budget.parse(text, single))
    assert chosen == model and method == multum.Single()
    limit, cost = Budget.parse(text, single).macs, budgets.cost_of(method, chosen, None).macs
    assert cost <= limit and cost > 0.9 * limit


def test_parameters_alone_are_a_cost_too(widened: None) -> None:
    assert at_cost(multum.Single(), "mlp", None, Budget("params=400", params=400))[1] == "mlp:wide=2"


def test_members_are_thinned_to_the_cost_of_one_network(widened: None) -> None:
    single = budgets.cost_of_network("mlp", None)
    method, model = at_cost(multum.Deep(members=4), "mlp", None, Budget.parse("1x", single))
    assert method == multum.Deep(members=4) and model == "mlp:thin=0.5"
    assert at_cost(multum.Deep(members=4), "mlp", None, Budget.parse("4x", single))[1] == "mlp"


def test_a_method_with_a_size_of_its_own_takes_that() -> None:
    data = multum.load_data("diabetes")
    limit = Budget.parse("1x", cost_of_network("mlp", data))
    method, model = at_cost(multum.Packed(members=2, alpha=2), "mlp", data, limit)
    assert model == "mlp" and method.alpha != 2
