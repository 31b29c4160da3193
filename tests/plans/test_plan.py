from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import multum
from grids import grid
from multum.errors import ConfigError, ExportError
from multum.files import dumps
from multum.methods import METHODS
from multum.plans.plan import Plan

MANY = [name for name in METHODS if name != "single"]
Planned = Callable[..., Plan]


def names(plan: Plan, *, whole: bool = True) -> set[str]:
    return {c.method.name for c in plan.feasible if c.width == 1 or not whole}


def forces_each_method(base: Any, planned: Planned, name: str) -> None:
    """A budget of exactly what a method costs admits it; 2 % less of any cost, and it is excluded for that cost."""
    everything = planned(base, members=(4,))
    mine = next(c for c in everything if c.method.name == name)
    ceilings = {"params": mine.counts.params, "macs": mine.counts.macs, "memory": mine.counts.memory}
    at = planned(base, members=(4,), **ceilings)
    assert mine.method in [c.method for c in at.feasible]
    for other in at.feasible:
        assert other.counts.params <= 1.01 * mine.counts.params and other.counts.macs <= 1.01 * mine.counts.macs
        assert other.counts.memory <= mine.counts.memory
    for cost, word in (("params", "parameters"), ("macs", "mult-adds"), ("memory", "memory")):
        under = planned(base, members=(4,), methods=[mine.method], **{cost: 0.98 * ceilings[cost]})
        excluded = next(c for c in under.excluded if c.method == mine.method and c.width == 1)
        assert excluded.reason.startswith(f"{word} ")
        fitted = [c for c in under.feasible if c.width < 1 or c.method != mine.method]
        assert all(getattr(c.counts, cost) <= 1.01 * 0.98 * ceilings[cost] for c in fitted)


@pytest.mark.parametrize("name", grid(MANY, always=["packed", "deep"]))
def test_budgets_force_each_method_in_turn(mlp: Any, planned: Planned, name: str) -> None:
    forces_each_method(mlp, planned, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY)
def test_budgets_force_each_method_of_resnet18_in_turn(resnet18: Any, planned: Planned, name: str) -> None:
    forces_each_method(resnet18, planned, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"params": "1.02x", "macs": "1.02x"}, {"mimo", "multihead", "packed"}),
        ({"params": "1.001x", "macs": "5x", "memory": "60MB"}, {"mimo", "multihead", "packed", "batchensemble"}),
        ({"macs": "2.5x"}, {"mimo", "multihead", "packed", "treenet"}),
    ],
)
def test_limits_on_resnet18_leave_these_methods(resnet18, planned: Planned, limits: dict, expected: set) -> None:
    left = names(planned(resnet18, members=(4,), **limits))
    assert expected <= left and not left & {"deep", "swag", "snapshot", "fastgeometric"}


def test_counts_are_those_of_the_ensembles_themselves(mlp: Any, planned: Planned) -> None:
    for candidate in planned(mlp, methods="packed,batchensemble,masksembles,treenet,mimo,deep", members=(2,)):
        counted = multum.cost(mlp.build(candidate.method, candidate.width), example=mlp.example)
        assert (candidate.counts.params, candidate.counts.macs) == (counted.params, counted.macs), candidate.label


@pytest.mark.parametrize("name", [n for n in MANY if METHODS[n].variants])
def test_what_is_said_to_cost_the_same_does(mlp: Any, planned: Planned, name: str) -> None:
    candidate = next(iter(planned(mlp, methods=[METHODS[name]()])))
    for variant in candidate.alternatives:
        other = mlp.counts(replace(candidate.method, **variant), 1.0)
        assert (other.params, other.macs) == (candidate.counts.params, candidate.counts.macs)


def test_members_that_come_while_training_are_counted(mlp: Any, planned: Planned) -> None:
    by_name = {c.method.name: c.counts for c in planned(mlp, members=(4,), methods="deep,swag,snapshot,fastgeometric")}
    assert {(c.params, c.macs) for c in by_name.values()} == {(by_name["deep"].params, by_name["deep"].macs)}


def test_a_method_that_fits_at_no_config_gets_a_thinner_network(mlp: Any, planned: Planned) -> None:
    deep = planned(mlp, methods="deep", members=(2, 4), params="1.2x")
    (thinned,) = deep.feasible
    assert thinned.width < 1 and "thin=" in thinned.label and thinned.counts.params <= 1.212 * deep.single.counts.params
    assert len(deep.excluded) == 2 and all("parameters" in c.reason for c in deep.excluded)


def test_a_method_with_a_size_of_its_own_is_sized_to_the_limits(mlp: Any, planned: Planned) -> None:
    sizes = [c.method.alpha for c in planned(mlp, methods="packed:members=4", params="1.2x").feasible]
    assert max(sizes) == pytest.approx(1.6667)  # in 24ths, between 1.5 that fits and 2 that does not


def test_the_feasible_come_first_and_cheapest_first(mlp: Any, planned: Planned) -> None:
    plan = planned(mlp, params="1.2x", members=(2, 4))
    assert list(plan) == [*plan.feasible, *plan.excluded] and len(plan) == len(list(plan)) and plan[0].feasible
    macs = [c.counts.macs for c in plan.feasible]
    assert macs == sorted(macs)
    assert all(c.reason for c in plan.excluded) and not any(c.reason for c in plan.feasible)


def test_fields_that_are_asked_for_stay(mlp: Any, planned: Planned) -> None:
    plan = planned(mlp, methods="packed:members=3,gamma=1,deep:members=5", members=(2,))
    assert {c.members for c in plan if c.method.name == "packed"} == {3}
    assert [c.members for c in plan if c.method.name == "deep"] == [5]


def fake(ens: Any, x: Any) -> Callable[[], float]:
    """A clock by which a pass takes a microsecond per mult-add."""
    macs = multum.cost(ens, example=x).macs
    return lambda: 1e-6 * macs


def test_latency_is_measured_of_what_passes_alone(mlp: Any, planned: Planned) -> None:
    timed: list[Any] = []

    def backend(ens: Any, x: Any) -> Callable[[], float]:
        timed.append(ens.method)
        return fake(ens, x)

    options: dict[str, Any] = {
        "methods": "deep,multihead,mcdropout",
        "members": (2, 4),
        "backend": backend,
        "seconds": 60,
    }
    plan = planned(mlp, params="1.2x", latency="2x", **options)
    single = plan.single.counts.macs
    assert plan.single.latency.seconds == pytest.approx(1e-6 * single) and plan.limits.latency == 2e-6 * single
    assert multum.Deep(members=2) not in timed and multum.McDropout(members=4) in timed
    for c in plan:
        if c.latency is not None:
            assert c.latency.measured and c.latency.seconds == pytest.approx(1e-6 * c.counts.macs)
            assert c.feasible == (c.counts.macs <= 2 * single)
    slow = next(c for c in plan.excluded if c.label == "mcdropout:members=4")
    assert slow.reason.startswith("latency ") and "predicted" not in slow.reason


def test_what_is_not_measured_in_time_is_predicted_and_says_so(mlp: Any, planned: Planned) -> None:
    plan = planned(mlp, methods="multihead,mcdropout", members=(2, 8), backend=fake, seconds=1e-9)
    assert all(not c.latency.measured and c.latency.seconds > 0 for c in plan)
    assert "~" in str(plan) and "~ predicted from those that were measured" in str(plan)


def test_what_a_backend_cannot_run_is_excluded_with_its_reason(mlp: Any, planned: Planned) -> None:
    def backend(ens: Any, x: Any) -> Callable[[], float]:
        if ens.method.name == "mcdropout":
            raise ExportError("a network must be of operations that ONNX has; got dropout")
        return fake(ens, x)

    plan = planned(mlp, methods="multihead,mcdropout", members=(2,), backend=backend, seconds=60)
    assert [c.reason for c in plan.excluded] == [
        "cannot be run: a network must be of operations that ONNX has; got dropout"
    ]
    assert names(plan) == {"multihead"}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_runtimes_are_timed_too(mlp: Any, planned: Planned, backend: str) -> None:
    plan = planned(mlp, methods="deep", members=(2,), backend=backend, seconds=60)
    assert plan[0].latency.measured and plan[0].latency.seconds > 0


def test_a_plan_is_data_and_text(mlp: Any, planned: Planned) -> None:
    plan = planned(mlp, params="1.2x", methods="deep,multihead,packed", members=(2, 4), backend=fake, seconds=60)
    document = plan.document()
    assert json.loads(dumps(document)) == document
    assert [c["label"] for c in document["candidates"]] == [c.label for c in plan]
    assert {"params", "macs", "memory", "latency", "known", "reason"} <= document["candidates"][0].keys()
    text = str(plan)
    assert "excluded: deep:members=2 and 1 larger: parameters 12.3 k, and 7.38 k are allowed" in text
    assert f"{len(plan.feasible)} of {len(plan)} fit: parameters up to 7.38 k" in text


def test_what_cannot_be_built_is_excluded_with_its_reason() -> None:
    plan = multum.plan(nn.Linear(4, 3), example=torch.zeros(1, 4), methods="masksembles,deep", members=(2,), seconds=0)
    (masked,) = plan.excluded
    assert masked.counts is None and masked.reason.startswith("cannot be built: ") and names(plan) == {"deep"}
    assert masked.document()["params"] is None


def test_the_network_is_left_as_it_is() -> None:
    network = multum.models.build("mlp", in_features=4, classes=3).train()
    before = {name: t.clone() for name, t in network.state_dict().items()}
    multum.plan(network, example=torch.zeros(1, 4), methods="packed,mcdropout", members=(2,), seconds=5, backend=fake)
    assert network.training and all(torch.equal(t, before[name]) for name, t in network.state_dict().items())


def test_networks_by_name_take_their_shapes_from_data_or_options() -> None:
    few: dict[str, Any] = {"methods": "multihead", "members": (2,), "seconds": 0}
    assert (
        multum.plan("mlp", shape="7", classes=5, **few).single.counts.params
        == multum.plan(
            multum.models.build("mlp", in_features=7, classes=5), example=torch.zeros(1, 7), **few
        ).single.counts.params
    )
    assert len(multum.plan("mlp", data="diabetes", **few)) == 1
    assert "3x32x32" in multum.plan("lenet", **few).notes[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": "mlp"}, "mlp must have the shape of its rows"),
        ({"network": nn.Linear(2, 2)}, "must come with an example batch"),
        ({"network": "lenet", "shape": "3xa"}, "`shape` must be that of one example"),
        ({"network": "lenet", "backend": "abacus"}, "`backend` must be one of eager, onnxruntime, openvino"),
        ({"network": "lenet", "latency": "5ms", "seconds": 0}, "must have time to measure"),
        ({"network": "lenet", "params": "lots", "methods": "deep"}, "`params` must be a limit above 0"),
        ({"network": "lenet", "known": "nowhere"}, "a comparison must be a folder that `multum compare` left"),
    ],
)
def test_what_cannot_be_planned_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        multum.plan(options.pop("network"), **options)
