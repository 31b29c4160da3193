"""What a benchmark measures, in which order, and in which units; never how fast."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import multum
from multum.benching import bench as benching
from multum.benching import memory
from multum.benching.bench import LEAST, MOST, Timed, bench, shuffled, timed_rows
from multum.benching.memory import peak_memory
from multum.benching.report import markdown, terminal
from multum.benching.setting import Setting, listed, setting_of
from multum.benching.subjects import (
    INFERENCE,
    NETWORK,
    RECOMPUTED,
    TRAINING,
    Call,
    Subject,
    Workshop,
    executors_named,
)
from multum.errors import ConfigError
from multum.executors import EXECUTORS, REFERENCE
from multum.metrics.timing import in_turn

SMALL = Setting("small-cnn", (1, 8, 8))
# The network is too thin for the masks of Masksembles.
QUICK = {
    "model": "small-cnn:thin=0.25",
    "shape": (1, 8, 8),
    "batch": (2,),
    "rounds": 2,
    "memory": False,
    "backends": "none",
}


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are timed one by one, however short: what they take is no matter here."""
    monkeypatch.setattr(benching, "LEAST", 0.0)


class Work:
    """Calls that only move a clock, and tell a list when they are prepared and run."""

    def __init__(self) -> None:
        self.now, self.log = 0.0, []

    def call(self, name: str, *seconds: float) -> Call:
        rest = list(seconds)

        def run() -> None:
            self.log.append(name)
            self.now += rest.pop(0) if len(rest) > 1 else rest[0]

        return Call(lambda: self.log.append(f"prepare {name}"), run)

    def timed(self, name: str, *seconds: float) -> Timed:
        return Timed(self.call(name, *seconds), lambda: self.now)


def test_a_short_call_is_repeated_until_it_is_worth_timing() -> None:
    work = Work()
    assert work.timed("long", 2 * LEAST).repeats == 1
    assert work.timed("short", LEAST / 3.5).repeats == 4
    assert work.timed("instant", 0.0).repeats == MOST
    cold = work.timed("cold", 5.0, LEAST / 1.5)  # the first pass sets things up, and decides nothing
    assert cold.repeats == 2
    work.log.clear()
    assert cold() == pytest.approx(LEAST / 1.5) and work.log == ["prepare cold", "cold", "cold"]


def test_rows_are_in_units_of_the_network_of_the_same_round() -> None:
    """Rounds of 1, 10 and 100 seconds; the ratio of the medians, 20 / 10, would be 2."""
    work = Work()
    subjects = Subject(NETWORK), Subject("deep", "loop", multum.Deep(members=3))
    seconds = {subjects[0]: (1, 1, 1, 10, 100), subjects[1]: (1, 1, 4, 20, 500)}
    timed = {s: work.timed(s.name, *map(float, seconds[s])) for s in subjects}
    times = in_turn(timed, 3, lambda number, names: names)
    rows = timed_rows(timed, times, "inference", 8)
    one, deep = rows.values()
    assert one["seconds"]["median"] == 10 and one["ratio"]["median"] == 1 and one["throughput"] == 0.8
    assert (deep["ratio"]["lower"], deep["ratio"]["median"], deep["ratio"]["upper"]) == (3, 4, 4.5)
    assert (deep["name"], deep["way"], deep["members"], deep["rounds"]) == ("deep", "loop", 3, 3)


def test_every_round_times_each_once_in_an_order_of_its_own() -> None:
    work = Work()
    timed = {name: work.timed(name, 1.0) for name in "abcdef"}
    work.log.clear()
    in_turn(timed, 6, shuffled(3))
    ran = [name for name in work.log if not name.startswith("prepare")]
    rounds = ["".join(ran[i : i + 6]) for i in range(0, 36, 6)]
    assert all(sorted(order) == list("abcdef") for order in rounds) and len({*rounds}) > 3
    assert rounds[0] == "".join(shuffled(3)(0, list("abcdef")))


@pytest.mark.usefixtures("once")
def test_ctrl_c_leaves_what_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    passes: list[int] = []

    def interrupted(timed, rounds, order, advance, times) -> None:
        def stop(name) -> None:
            passes.append(1)
            if len(passes) == 4:
                raise KeyboardInterrupt

        in_turn(timed, rounds, order, stop, times)

    monkeypatch.setattr(benching, "in_turn", interrupted)
    document = bench(**QUICK, methods="deep:members=2", executors="loop,vmap", mode=("inference",), out=tmp_path)
    assert document["stopped"] and document["groups"] == []
    assert sorted(row["rounds"] for row in document["rows"]) == [1, 1, 2]
    assert json.loads((tmp_path / "bench.json").read_text())["rows"] == document["rows"]


@pytest.mark.usefixtures("once")
def test_a_stopped_benchmark_goes_on_with_its_next_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    group = benching._Job._group

    def stopping(self, subjects, mode, batch, advance) -> None:
        if mode == TRAINING:
            raise KeyboardInterrupt
        group(self, subjects, mode, batch, advance)

    options = {**QUICK, "methods": "single", "out": tmp_path}
    with monkeypatch.context() as patch:
        patch.setattr(benching._Job, "_group", stopping)
        first = bench(**options)
    assert first["stopped"] and [row["mode"] for row in first["rows"]] == [INFERENCE] * 2
    second = bench(**options)
    assert not second["stopped"] and second["rows"][:2] == first["rows"] and len(second["rows"]) == 4
    third = bench(**options)  # whole: measured anew
    assert third["rows"][:2] != first["rows"] and len(third["rows"]) == 4
    assert bench(**{**options, "seed": 1})["rows"][:2] != third["rows"][:2]


@pytest.mark.usefixtures("once")
def test_every_method_runs_in_both_modes_by_the_executors_that_make_a_difference() -> None:
    document = bench(**{**QUICK, "model": "small-cnn:thin=0.75", "rounds": 1, "batch": (4,)}, methods="all")
    assert document["left_out"] == []
    ways: dict[tuple[str, str], set[str]] = {}
    for row in document["rows"]:
        ways.setdefault((row["name"], row["mode"]), set()).add(row["way"])
    assert {name for name, _ in ways} == {NETWORK, *multum.methods.METHODS}
    every, none = {*EXECUTORS}, {""}
    assert ways["packed", INFERENCE] == ways["packed", TRAINING] == ways["swag", INFERENCE] == every
    assert ways["single", INFERENCE] == ways["mimo", TRAINING] == ways["swag", TRAINING] == none
    assert ways["mcdropout", INFERENCE] == every and ways["mcdropout", TRAINING] == none
    assert all(row["ratio"]["median"] > 0 and row["seconds"]["median"] > 0 for row in document["rows"])
    swag = next(row for row in document["rows"] if row["name"] == "swag")
    assert swag["members"] == multum.Swag().members


@pytest.mark.usefixtures("once")
def test_backends_are_for_inference_and_auto_is_an_executor() -> None:
    options = {**QUICK, "rounds": 1, "backends": "optimized", "executors": "auto"}
    document = bench(**options, methods="deep:members=2,single")
    ways = [(row["name"], row["way"]) for row in document["rows"] if row["mode"] == INFERENCE]
    deep = "deep:members=2"
    assert ways == [(NETWORK, ""), (deep, "auto"), (deep, "optimized"), ("single", ""), ("single", "optimized")]
    assert [row["way"] for row in document["rows"] if row["mode"] == TRAINING] == ["", "auto", ""]
    assert document["left_out"] == []


def test_a_training_step_moves_weights_and_a_pass_does_not() -> None:
    workshop = Workshop(SMALL)
    subject = Subject("deep", "vmap", multum.Deep(members=2))
    weights = workshop._born(subject.method).state_dict()
    before = {name: tensor.clone() for name, tensor in weights.items()}
    for mode, moved in ((INFERENCE, False), (TRAINING, True)):
        call = workshop.call(subject, mode, 4)
        call.prepare()
        call.run()
        assert any(not torch.equal(weights[name], before[name]) for name in before) is moved
        assert all(p.grad is None for p in workshop._born(subject.method).parameters())


@pytest.mark.usefixtures("once")
def test_an_executor_that_disagrees_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    run = EXECUTORS["vmap"].run
    monkeypatch.setattr(EXECUTORS["vmap"], "run", lambda *args: 1.1 * run(*args))
    document = bench(**QUICK, methods="deep", executors="loop,vmap", mode=("inference",))
    assert [row["way"] for row in document["rows"]] == ["", "loop"]
    (left_out,) = document["left_out"]
    assert left_out["way"] == "vmap" and "agree" in left_out["reason"]


@pytest.mark.usefixtures("once")
def test_a_method_that_cannot_be_built_is_left_out_with_the_reason() -> None:
    document = bench(**QUICK, methods="masksembles", mode=("inference",))
    assert [row["name"] for row in document["rows"]] == [NETWORK]
    (left_out,) = document["left_out"]
    assert left_out["name"] == "masksembles" and "a mask must have at least" in left_out["reason"]
    assert "is left out" in markdown(document)


@pytest.mark.usefixtures("once")
def test_a_regression_and_a_table_take_the_shape_of_their_data() -> None:
    document = bench(
        None, methods="deep:members=2", executors="loop", data="diabetes", rounds=1, batch=(2,), memory=False
    )
    assert document["settings"]["model"] == "mlp" and document["settings"]["shape"] == [10]
    ways = {(row["mode"], row["name"], row["way"]) for row in document["rows"]}
    assert len(ways) == len(document["rows"]) == 5
    assert {way for mode, name, way in ways if name == "deep:members=2" and mode == "training"} == {"loop"}


def test_the_memory_is_that_of_the_weights_at_least() -> None:
    setting = Setting("mlp:hidden=2000+2000", (64,))
    subjects = Subject(NETWORK), Subject("deep", "loop", multum.Deep(members=4))
    one, four = (peak_memory(setting, subject, INFERENCE, 2, 1) for subject in subjects)
    weights = 4 * (64 * 2000 + 2000 * 2000 + 2000 * 10)
    assert isinstance(one, int) and isinstance(four, int), (one, four)
    assert 0.9 * weights < one < 2 * weights and 3.9 * weights < four < 6 * weights


def test_a_step_that_computes_members_again_is_the_same_step_and_runs_them_one_by_one() -> None:
    setting, method = Setting("small-cnn", (1, 8, 8)), multum.Packed(members=2, alpha=2)
    weights = []
    for way in (REFERENCE, RECOMPUTED):
        work = Workshop(setting)
        call = work.call(Subject("packed", way, method), TRAINING, 4)
        call.prepare()
        for _ in range(2):
            call.run()
        (ens,) = work.built.values()
        assert ens.executor == REFERENCE
        weights.append(ens.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_process_that_fails_says_why() -> None:
    assert "Use mlp" in str(peak_memory(Setting("small-cnn", (64,)), Subject(NETWORK), INFERENCE, 2, 1))


@pytest.mark.parametrize("end", [EOFError, KeyboardInterrupt])
def test_a_process_that_dies_and_one_that_is_not_waited_for(end: type, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def recv() -> None:
        raise end

    noted = {name: partial(calls.append, name) for name in ("start", "terminate", "join")}
    pipe = SimpleNamespace(recv=recv), SimpleNamespace(close=lambda: None)
    context = SimpleNamespace(
        set_forkserver_preload=lambda names: None,
        Pipe=lambda duplex: pipe,
        Process=lambda **options: SimpleNamespace(exitcode=-9, **noted),
    )
    monkeypatch.setattr(memory.multiprocessing, "get_context", lambda kind: context)
    if end is EOFError:
        reason = "its process ended with code -9; out of memory is the usual cause"
        assert peak_memory(SMALL, Subject(NETWORK), INFERENCE, 2, 1) == reason and "terminate" not in calls
    else:
        with pytest.raises(KeyboardInterrupt):
            peak_memory(SMALL, Subject(NETWORK), INFERENCE, 2, 1)
        assert calls == ["start", "terminate", "join"]  # nothing is left running


def test_a_system_without_notes_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "STATUS", tmp_path / "status")
    assert "does not say" in str(peak_memory(SMALL, Subject(NETWORK), INFERENCE, 2, 1))


@pytest.mark.usefixtures("once")
def test_memory_is_in_units_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([100, 250, "no room"])
    monkeypatch.setattr(benching, "peak_memory", lambda *args: next(given))
    options = {**QUICK, "rounds": 1, "memory": True, "methods": "deep:members=2", "executors": "loop,vmap"}
    document = bench(**options, mode=("inference",))
    measured = [(row["way"], row["memory"], row["memory_ratio"]) for row in document["rows"]]
    assert measured == [("", 100, 1.0), ("loop", 250, 2.5), ("vmap", None, None)]
    (left_out,) = document["left_out"]
    assert (left_out["way"], left_out["reason"]) == ("vmap", "memory of inference, batch 2: no room")


@pytest.mark.usefixtures("once")
def test_the_files_hold_the_machine_and_the_rows(tmp_path: Path) -> None:
    document = bench(**QUICK, methods="single,packed", executors="loop", mode=("inference",), out=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"bench.json", "bench.md", "bench.png", "bench.svg"}
    page = (tmp_path / "bench.md").read_text()
    assert "| packed" in page and document["machine"]["processor"] in page and "torch 2" in page
    assert ">packed, loop<" in (tmp_path / "bench.svg").read_text()
    tables = list(terminal(document))
    assert tables[0].row_count == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds must be a whole number >= 1"),
        ({"batch": (0,)}, "batch must be a whole number >= 1"),
        ({"mode": ("learning",)}, "mode must be one of"),
        ({"executors": "lop"}, "Did you mean loop"),
        ({"backends": "opnvino"}, "Did you mean openvino"),
        ({"methods": "deep@1x"}, "no controls"),
        ({"model": None}, "--model resnet18"),
        ({"data": "digits"}, "got --shape and --data"),
    ],
)
def test_settings_that_are_refused(options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        bench(**{**QUICK, "methods": "single", **options})


@pytest.mark.parametrize(("batch", "shape"), [("1,a", None), ("", None), ("0", None), ("1", "3x"), ("1", "3,32")])
def test_lists_that_are_refused(batch, shape) -> None:
    with pytest.raises(ConfigError, match="must be whole numbers >= 1, as"):
        listed(batch, shape, "inference")


def test_names_of_executors_and_shapes_by_default() -> None:
    assert executors_named("all") == list(EXECUTORS)
    assert setting_of("resnet18", None, None).shape == (3, 32, 32)
    assert setting_of("mlp:hidden=8", None, None).shape == (64,)
