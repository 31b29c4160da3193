"""What is measured, in which order, and what is stated with it; never how fast."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import multum
from multum.errors import ConfigError
from multum.metrics.speed import compare_speed, speed

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Heard(nn.Module):
    """Tells a list when it runs, and moves a clock that only it can move."""

    def __init__(self, name: str, log: list[str], clock: list[float], seconds: float):
        super().__init__()
        self.layer, self.name, self.log, self.clock, self.seconds = nn.Linear(4, 2), name, log, clock, seconds
        self.sizes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.log.append(self.name)
        self.sizes.append(len(x))
        self.clock[0] += self.seconds * len(x)
        return self.layer(x)


def build(method: multum.methods.Method) -> multum.Ensemble:
    net = multum.models.build("mlp", in_features=4, classes=2, hidden=(8,))
    return multum.ensemble(net, method, example=X, seed=0)


def test_every_round_times_all_in_turn_and_back():
    log: list[str] = []
    clock = [0.0]
    networks = {name: Heard(name, log, clock, s) for name, s in (("a", 1.0), ("b", 3.0), ("c", 2.0))}
    found = compare_speed(networks, X, batch_sizes=(2,), rounds=3, warmup=1, clock=lambda: clock[0])
    assert "".join(log[:12]) == "cba" + "abc" + "cba" + "abc"
    assert [row.latency for row in found.rows] == [2.0, 6.0, 4.0]
    assert [row.ratio for row in found.rows] == [1.0, 3.0, 2.0]
    assert [row.throughput for row in found.rows] == [1.0, pytest.approx(1 / 3), 0.5]
    assert all(row.lower <= row.latency <= row.upper for row in found.rows)


def test_a_ratio_is_taken_within_a_round():
    """Rounds of 1, 10 and 100 seconds a pass; the medians of both, 10 and 50, would give 5."""
    clock = [0.0]

    class Listed(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            clock[0] += self.seconds.pop(0)
            return super().forward(x)

    networks = {"light": Listed(4, 2), "heavy": Listed(4, 2)}
    networks["light"].seconds, networks["heavy"].seconds = [1.0, 10.0, 100.0, 0.0], [1.0, 50.0, 200.0, 0.0]
    found = compare_speed(networks, X, batch_sizes=(1,), rounds=3, warmup=0, clock=lambda: clock[0])
    light, heavy = found.rows
    assert (light.lower, light.latency, light.upper) == (5.5, 10.0, 55.0)
    assert (heavy.ratio_lower, heavy.ratio, heavy.ratio_upper) == (1.5, 2.0, 3.5)


def test_batch_sizes_rounds_warm_up_threads_and_executor_are_stated():
    clock = [0.0]
    network = Heard("net", [], clock, 1.0)
    before = torch.get_num_threads()
    found = compare_speed(
        {"net": network, "deep": build(multum.Deep(members=3))},
        X,
        batch_sizes=(1, 5),
        rounds=2,
        warmup=1,
        threads=1,
        clock=lambda: clock[0],
    )
    assert torch.get_num_threads() == before
    assert [(r.name, r.batch_size) for r in found.rows] == [("net", 1), ("deep", 1), ("net", 5), ("deep", 5)]
    assert set(network.sizes) == {1, 5} and network.sizes.count(5) == 2 + 1 + 1  # rounds, warm-up, and the peak
    assert {(r.rounds, r.warmup, r.threads, r.device) for r in found.rows} == {(2, 1, 1, "cpu")}
    assert [r.executor for r in found.rows] == ["", "loop"] * 2
    assert [r.members for r in found.rows] == [1, 3] * 2
    text = str(found).splitlines()
    assert len(text) == 6 and len({len(line) for line in text[:-1]}) == 1
    assert text[-1] == "cpu, 1 thread; 2 rounds after 1 of warm-up"
    frame = found.frame()
    assert frame.shape == (4, 18) and frame["throughput"].tolist() == [r.throughput for r in found.rows]


@pytest.mark.parametrize(
    "method",
    [multum.Single(), multum.Packed(members=2, alpha=2), multum.Mimo(members=2)],
    ids=lambda m: type(m).__name__,
)
def test_the_disk_holds_what_the_file_holds(method, tmp_path):
    ens = build(method)
    multum.save(ens, tmp_path / "model.safetensors")
    row = speed(ens, X, batch_sizes=(2,), rounds=1, warmup=0).rows[0]
    assert row.disk == (tmp_path / "model.safetensors").stat().st_size
    assert row.weights == sum(t.nbytes for t in ens.state_dict().values()) and row.name == type(method).__name__


def test_the_peak_is_what_lives_at_once():
    net = nn.Sequential(nn.Linear(4, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 2))
    row = speed(net, X, batch_sizes=(7,), rounds=1, warmup=0).rows[0]
    assert row.peak == 7 * (100 + 100) * 4  # a layer and its activation; what came before is gone
    in_place = nn.Sequential(nn.Linear(4, 100), nn.ReLU(inplace=True), nn.Linear(100, 50))
    assert speed(in_place, X, batch_sizes=(7,), rounds=1).rows[0].peak == 7 * (100 + 50) * 4
    loop, mapped = (build(multum.Deep(members=4)) for _ in range(2))
    loop.executor, mapped.executor = "loop", "vmap"
    peaks = [r.peak for r in compare_speed({"loop": loop, "vmap": mapped}, X, batch_sizes=(64,), rounds=1).rows]
    assert peaks[0] < peaks[1]


def test_nothing_is_changed():
    ens = build(multum.Deep(members=2)).train()
    ens.network.hidden[0].eval()
    flags = [m.training for m in ens.modules()]
    before = {n: t.clone() for n, t in ens.state_dict().items()}
    speed(ens, X, rounds=1)
    assert [m.training for m in ens.modules()] == flags
    assert all(torch.equal(t, before[n]) for n, t in ens.state_dict().items())


def test_a_clock_too_coarse_gives_no_ratio():
    row = speed(build(multum.Single()), X, batch_sizes=(1,), rounds=2, clock=lambda: 0.0).rows[0]
    assert row.latency == 0 and row.throughput == math.inf and math.isnan(row.ratio)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_sizes": ()}, r"batch_sizes=\(\)"),
        ({"batch_sizes": (0,)}, r"batch_sizes=\(0,\)"),
        ({"rounds": 0}, "`rounds` must be >= 1"),
        ({"warmup": -1}, "`warmup` >= 0"),
        ({"threads": 0}, "`threads` >= 1"),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        speed(build(multum.Single()), X, **settings)


def test_nothing_to_measure_is_refused():
    with pytest.raises(ConfigError, match="got none"):
        compare_speed({}, X)
    with pytest.raises(ConfigError, match="at least one example"):
        speed(build(multum.Single()), X[:0])
