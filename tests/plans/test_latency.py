from __future__ import annotations

import pytest
import torch

import multum
from multum.methods import Deep, Single
from multum.plans import backends
from multum.plans.backends import BACKENDS
from multum.plans.counting import Counts, Work
from multum.plans.measuring import Predictor, seconds_of


def counts(operations: int, macs: int, together: bool = False) -> Counts:
    return Counts(params=1, macs=macs, weights=4, peak=4, work=Work(operations, macs, 0, 0, together))


def seconds(each: Counts, factor: float = 1.0) -> float:
    assert each.work is not None
    return factor * (1e-6 * each.work.operations + 1e-9 * each.work.macs)


def test_predictions_follow_operations_mult_adds_and_the_method() -> None:
    seen = [counts(10, 1000), counts(40, 100_000), counts(90, 10_000), counts(20, 500_000)]
    measured = [("plain", each, seconds(each)) for each in seen]
    measured += [("slow", counts(30, 20_000), seconds(counts(30, 20_000)))]
    predictor = Predictor(measured)
    new = counts(60, 300_000)
    assert predictor.seconds("plain", new) == pytest.approx(seconds(new), rel=1e-6)
    assert predictor.seconds("never measured", new) == pytest.approx(seconds(new), rel=1e-6)


def test_what_a_method_takes_beyond_its_operations_is_carried_over() -> None:
    measured = [("plain", each, seconds(each)) for each in (counts(10, 1000), counts(40, 100_000), counts(90, 10_000))]
    slow = [("slow", each, seconds(each, 3.0)) for each in (counts(10, 1000), counts(40, 100_000))]
    predictor, new = Predictor([*measured, *slow]), counts(60, 300_000)
    assert predictor.seconds("slow", new) / predictor.seconds("plain", new) == pytest.approx(3.0, rel=0.05)


def test_prices_are_never_negative() -> None:
    predictor = Predictor([("a", counts(10, 1000), 2e-5), ("b", counts(20, 2000), 1e-5)])
    assert (predictor.prices >= 0).all() and predictor.seconds("a", counts(5, 5)) >= 0


def test_latency_grows_at_most_as_what_it_costs() -> None:
    """A slope above 1 comes of noise, and would be multiplied by every candidate that is larger."""
    seen = [counts(10, 0), counts(1000, 0)]
    predictor = Predictor([("a", seen[0], 1e-6), ("a", seen[1], 1e-3)])
    assert predictor.lines["a"][0] == 1.0
    assert Predictor([("a", seen[0], 2e-6), ("a", seen[1], 1e-6)]).lines["a"][0] == 0.0


def test_the_first_round_does_not_count() -> None:
    calls = {"a": iter([9.0, 0.02, *[7.0], *[0.01] * 20]), "b": iter([9.0, 0.02, *[7.0], *[0.03] * 20])}
    timed = seconds_of({name: each.__next__ for name, each in calls.items()})
    assert timed == {"a": [0.01] * 20, "b": [0.03] * 20}  # as many as fit into SECONDS, after one that prepares


def test_eager_times_every_ensemble_in_every_round(mlp) -> None:
    widths = {"a": 1.0, "b": 0.5}
    eager = BACKENDS["eager"]
    timed = seconds_of({name: eager(mlp.build(Single(), width), mlp.example) for name, width in widths.items()})
    assert len(timed["a"]) == len(timed["b"]) >= 5 and min(*timed["a"], *timed["b"]) > 0


@pytest.mark.parametrize("together", [False, True])
def test_the_work_of_a_pass_is_followed(mlp, together: bool) -> None:
    method = multum.Multihead(members=2) if together else multum.Deep(members=2)
    counted = mlp.counts(method, 1.0)
    assert counted.work.together == together and counted.work.macs == counted.macs
    assert counted.work.operations > 5 and counted.work.bytes > counted.weights
    ens = mlp.build(method, 1.0)
    multum.predict(ens, mlp.example)  # executors are tried at the first call
    measured = multum.metrics.speed.peak_bytes(ens, mlp.example)
    assert counted.peak == pytest.approx(measured, rel=0.05)


def test_what_a_runtime_is_timed_for_is_the_prediction(mlp, monkeypatch: pytest.MonkeyPatch) -> None:
    ens = mlp.build(Deep(members=2), 1.0)
    x = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    probs, file = multum.predict(ens, x).probs.numpy(), backends._file(ens, x)
    monkeypatch.setattr(backends, "_file", lambda *_: file)
    for name in ("onnxruntime", "openvino"):
        pytest.importorskip(name)
        once = backends.backend_of(name)(ens, x)
        assert 0 < once() < 60
        with monkeypatch.context() as patch:
            patch.setattr(backends, "_seconds", lambda run: run())
            answers = once()
        arrays = answers if isinstance(answers, list) else list(answers.values())
        assert any(a.shape == probs.shape and abs(a - probs).max() < 1e-5 for a in arrays), name
