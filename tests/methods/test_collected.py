"""Snapshot, FastGeometric and Swag: METHODS 3.8 with its numbers, and what is gathered becomes the members."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import multum
from multum.errors import ConfigError
from multum.methods.collect import collected


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


class TwoWeights(nn.Module):
    """A network whose only parameter is a vector of two weights."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.theta


def visit(ens: multum.Ensemble, values: list[tuple[float, float]]) -> None:
    for value in values:
        with torch.no_grad():
            ens.tensors(["theta"])["theta"][0] = torch.tensor(value, dtype=torch.float64)
        ens.method.collect(ens)


THETAS = [(1.0, 2.0), (3.0, 0.0), (2.0, 4.0)]


def swag(members: int = 4, **fields) -> multum.Ensemble:
    example = torch.zeros(2, 2, dtype=torch.float64)
    return multum.ensemble(TwoWeights(), multum.Swag(members=members, rank=3, **fields), example=example, seed=0)


def test_swag_moments_and_columns_are_those_of_the_hand_computation() -> None:
    ens = swag()
    visit(ens, THETAS)
    mean, square = ens.state["swag.mean.theta"], ens.state["swag.square.theta"]
    torch.testing.assert_close(mean, torch.tensor([2.0, 2.0], dtype=torch.float64))
    torch.testing.assert_close(square - mean**2, torch.tensor([2 / 3, 8 / 3], dtype=torch.float64))
    columns = torch.tensor([[0, 0], [1, -1], [0, 2]], dtype=torch.float64)
    torch.testing.assert_close(ens.state["swag.columns.theta"], columns)


def test_swag_samples_have_the_hand_computed_covariance() -> None:
    n = 20_000
    ens = swag(members=1)
    visit(ens, THETAS)
    draws = torch.stack([ens.method.sample(ens, seed)["theta"] for seed in range(n)])
    wanted = torch.tensor([[7 / 12, -1 / 4], [-1 / 4, 31 / 12]], dtype=torch.float64)
    # The standard error of a covariance entry is at most sqrt(2/n) * 31/12 = 0.026.
    torch.testing.assert_close(torch.cov(draws.T), wanted, rtol=0, atol=0.08)
    torch.testing.assert_close(draws.mean(0), torch.tensor([2.0, 2.0], dtype=torch.float64), rtol=0, atol=0.05)


def test_swag_scale_multiplies_the_covariance_and_its_root_the_deviation() -> None:
    deviations = {}
    for scale in (1.0, 0.25):
        ens = swag(members=1, scale=scale)
        visit(ens, THETAS)
        deviations[scale] = ens.method.sample(ens, seed=3)["theta"] - ens.state["swag.mean.theta"]
    assert (deviations[1.0] != 0).all()
    torch.testing.assert_close(deviations[0.25], 0.5 * deviations[1.0])


def test_swag_keeps_the_last_columns() -> None:
    ens = swag()
    visit(ens, [*THETAS, (0.0, 0.0)])
    assert ens.state["swag.columns.theta"].shape == (3, 2)
    assert int(ens.state["swag.count"]) == 4


def test_swag_divides_by_the_nominal_rank_even_if_fewer_columns_exist() -> None:
    ens = swag(members=1)
    visit(ens, THETAS[:2])
    ens.state["swag.square.theta"] = ens.state["swag.mean.theta"] ** 2
    z2 = torch.randn(2, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    low = z2[1] * torch.tensor([1.0, -1.0], dtype=torch.float64) / (2 * (3 - 1)) ** 0.5
    wanted = torch.tensor([2.0, 1.0], dtype=torch.float64) + low
    torch.testing.assert_close(ens.method.sample(ens, 7)["theta"], wanted, atol=1e-12, rtol=0)


def test_swag_with_scale_zero_is_the_average() -> None:
    ens = swag(scale=0.0)
    visit(ens, THETAS)
    ens.method.conclude(ens)
    assert ens.members == 4
    torch.testing.assert_close(ens.tensors(["theta"])["theta"], torch.full((4, 2), 2.0, dtype=torch.float64))


def test_swag_members_are_its_samples_and_differ(net: nn.Module) -> None:
    x = torch.randn(6, 3)
    ens = multum.ensemble(net, multum.Swag(members=3), example=x, seed=1)
    for _ in range(3):
        with torch.no_grad():
            for p in ens.parameters():
                p.add_(0.1 * torch.randn_like(p))
        ens.method.collect(ens)
    wanted = [ens.method.sample(ens, seed) for seed in ens.randomness.seeds[:3]]
    ens.method.conclude(ens)
    assert ens.eval()(x).shape == (3, 6, 2)
    for i, sample in enumerate(wanted):
        assert torch.equal(ens.tensors(["0.weight"])["0.weight"][i], sample["0.weight"])
    assert not torch.equal(ens(x)[0], ens(x)[1])


def test_swag_state_survives_saving(net: nn.Module, tmp_path) -> None:
    x = torch.randn(6, 3)
    ens = multum.ensemble(net, multum.Swag(members=3), example=x, seed=1)
    ens.method.collect(ens)
    ens.method.collect(ens)
    multum.save(ens, tmp_path / "a.safetensors")
    again = multum.load(tmp_path / "a.safetensors", network=net)
    assert set(again.state) == set(ens.state)
    assert all(torch.equal(again.state[name], ens.state[name]) for name in ens.state)
    ens.method.conclude(ens)
    again.method.conclude(again)
    assert torch.equal(again.eval()(x), ens.eval()(x))


def test_swag_without_collected_weights_says_so(net: nn.Module) -> None:
    ens = multum.ensemble(net, multum.Swag(), example=torch.zeros(2, 3))
    with pytest.raises(ConfigError, match="collected weights; got none"):
        ens.method.conclude(ens)


@pytest.mark.parametrize("method", [multum.Snapshot(members=3), multum.FastGeometric(members=3)])
def test_the_last_collected_networks_become_the_members(method, net: nn.Module) -> None:
    x = torch.randn(6, 3)
    ens = multum.ensemble(net, method, example=x, seed=0).eval()
    assert ens.members == 1 and torch.equal(ens(x)[0], net.eval()(x))
    seen = []
    for k in range(4):
        with torch.no_grad():
            for p in ens.parameters():
                p.add_(0.1)
            for b in ens.buffers():
                b.add_(1)
        ens.method.collect(ens)
        assert collected(ens) == k + 1
        seen.append(ens(x)[0].detach().clone())
    trained = copy.deepcopy(ens)
    ens.method.conclude(ens)
    assert ens.members == 3 and not ens.state
    torch.testing.assert_close(ens(x), torch.stack(seen[1:]), rtol=0, atol=0)
    for executor in ("loop", "vmap"):
        ens.executor = executor
        torch.testing.assert_close(ens(x), torch.stack(seen[1:]))
    assert trained.members == 1
    multum.check(ens, x, verbose=False)


def test_too_few_collected_names_what_would_work(net: nn.Module) -> None:
    ens = multum.ensemble(net, multum.Snapshot(members=3), example=torch.zeros(2, 3))
    ens.method.collect(ens)
    with pytest.raises(ConfigError, match="members=1"):
        ens.method.conclude(ens)


def test_snapshots_are_taken_at_the_ends_of_cycles() -> None:
    method = multum.Snapshot(members=5)
    assert [e for e in range(1, 201) if method.collects(e, 200)] == [40, 80, 120, 160, 200]
    assert [e for e in range(1, 4) if multum.Snapshot(members=3).collects(e, 3)] == [1, 2, 3]
    # Uneven: 5 cycles in 12 epochs still give 5 snapshots, the last at the end.
    uneven = [e for e in range(1, 13) if method.collects(e, 12)]
    assert len(uneven) == 5 and uneven[-1] == 12


@pytest.mark.parametrize(
    ("cycle", "taken"), [(2, list(range(21, 41, 2))), (4, [22, 26, 30, 34, 38]), (6, [23, 29, 35])]
)
def test_fast_geometric_collects_where_the_rate_is_lowest(cycle: int, taken: list[int]) -> None:
    method = multum.FastGeometric(members=3, cycle=cycle, start=0.5, high=0.05, low=0.001)
    assert [e for e in range(1, 41) if method.collects(e, 40)] == taken
    for epoch in taken:
        assert method.rate(epoch - 20, 0.0) == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("method", "fields", "message"),
    [
        (multum.Snapshot, {"start": 1.0}, "start"),
        (multum.Snapshot, {"members": 0}, "members"),
        (multum.FastGeometric, {"cycle": 3}, "even"),
        (multum.FastGeometric, {"low": 0.1, "high": 0.01}, "low <= high"),
        (multum.FastGeometric, {"low": 0.0}, "low"),
        (multum.Swag, {"rank": 1}, "rank"),
        (multum.Swag, {"scale": -1.0}, "scale"),
        (multum.Swag, {"start": -0.1}, "start"),
    ],
)
def test_bad_fields_state_the_rule(method, fields, message) -> None:
    with pytest.raises(ConfigError, match=message):
        method(**fields)
