"""The executor by measurement: what wins, when nothing is measured, what is remembered, and that nothing moves."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import multum
from multum.executors import EXECUTORS, choosing, remembered

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
COSTS = {"loop": 3.0, "vmap": 2.0, "grouped": 1.0}


class Clock:
    """Time that passes only where an executor runs, by its cost."""

    def __init__(self) -> None:
        self.costs, self.now, self.runs = dict(COSTS), 0.0, list[str]()

    def __call__(self) -> float:
        return self.now

    def timed(self, name: str, run: Callable) -> Callable:
        def advance(*args):
            self.now += self.costs[name]
            self.runs.append(name)
            return run(*args)

        return advance


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Clock]:
    """Measuring by this clock, with a cache of its own."""
    monkeypatch.setenv("MULTUM_AUTOTUNE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    clock = Clock()
    monkeypatch.setattr(choosing, "clock", clock)
    for name, executor in EXECUTORS.items():
        monkeypatch.setattr(executor, "run", clock.timed(name, executor.run))
    remembered._HERE.clear()
    yield clock
    remembered._HERE.clear()


def network(dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


def ensemble(clock: Clock, method=None, net: nn.Module | None = None) -> multum.Ensemble:
    ens = multum.ensemble(net or network(), method or multum.Deep(members=2), example=X, seed=0)
    clock.runs.clear()
    return ens


# -- what wins ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("training", [True, False])
def test_the_fastest_runs(clock: Clock, name: str, training: bool) -> None:
    clock.costs[name] = 0.5
    ens = ensemble(clock).train(training)
    out = ens(X)
    assert ens.executor == name and clock.runs[-1] == name and set(clock.runs) == set(COSTS)
    ens.executor = "loop"
    torch.testing.assert_close(out, ens(X))


@pytest.mark.parametrize("share, winner", [(0.96, "grouped"), (0.94, "vmap")])
def test_a_little_faster_is_not_worth_another_choice_than_what_is_mostly_the_fastest(clock, share, winner) -> None:
    ens = ensemble(clock).eval()
    clock.costs = dict.fromkeys(COSTS, 1.0) | {"vmap": share}
    ens(X)
    assert ens.executor == winner and set(clock.runs) == set(COSTS)


def test_modes_gradients_and_sizes_are_measured_apart(clock: Clock) -> None:
    ens = ensemble(clock).train()
    ens(X)
    ens.eval()(X)
    with torch.no_grad():
        ens(X)
        ens(X[:5])
        ens(torch.cat([X, X]))
    assert [words.split(" cpu")[0] for words in ens.settled] == [
        "training float32 8x4 gradients",
        "eval float32 8x4 gradients",
        "eval float32 8x4",
        "eval float32 4x4",
        "eval float32 16x4",
    ]


def test_the_executor_in_use_is_the_last_one_settled_in_this_mode(clock: Clock) -> None:
    ens = ensemble(clock)
    tables = ens.eval().executor, ens.train().executor
    ens.train()(X)
    clock.costs = {"loop": 2.0, "vmap": 1.0, "grouped": 3.0}
    ens.eval()(X)
    assert (ens.eval().executor, ens.train().executor) == ("vmap", "grouped") != tables


def test_a_step_has_a_backward_pass_where_gradients_are_asked_for(clock: Clock, monkeypatch) -> None:
    backward = []
    grad = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *args, **kw: backward.append(1) or grad(*args, **kw))
    ens = ensemble(clock).eval()
    with torch.no_grad():
        ens(X)
    assert clock.runs and not backward
    clock.runs.clear()
    ens(X)
    assert len(backward) == len(clock.runs) - 1  # the last run is the call itself


@pytest.mark.parametrize("slower, rounds", [(0.2, 4), (2.0, 2)])
def test_a_slow_network_has_one_warm_up_and_four_rounds_and_a_very_slow_one_two(clock, slower, rounds) -> None:
    clock.costs = {"loop": 1.2 * slower, "vmap": 1.1 * slower, "grouped": slower}
    ensemble(clock)(X)
    assert sorted(clock.runs) == sorted([*(name for name in COSTS for _ in range(1 + rounds)), "grouped"])


def test_a_large_input_is_measured_by_some_of_its_rows_where_no_gradient_is_asked_for(clock, monkeypatch) -> None:
    rows = []
    for executor in EXECUTORS.values():
        run = executor.run
        monkeypatch.setattr(executor, "run", lambda *a, run=run: rows.append(a[3].shape[-2]) or run(*a))
    ens, x = ensemble(clock).eval(), torch.randn(1000, 4)
    rows.clear()
    with torch.no_grad():
        assert ens(x).shape == (2, 1000, 3)
        assert set(rows[:-1]) == {256} and rows[-1] == 1000
        rows.clear()
        ens(x.repeat(9, 1))  # the same situation
        assert rows == [9000]
        rows.clear()
        ens(x.expand(2, 1000, 4), per_member=True)
        assert set(rows[:-1]) == {256} and rows[-1] == 1000
    rows.clear()
    ens(x)
    assert set(rows) == {1000}


def test_a_race_is_bounded_and_who_is_clearly_behind_drops_out(clock: Clock) -> None:
    seconds = {"a": 0.001, "b": 0.0012, "c": 0.1}
    runs = []

    def step(name: str) -> None:
        runs.append(name)
        clock.now += seconds[name]

    assert choosing.race(list(seconds), step) == pytest.approx(seconds)
    assert {name: runs.count(name) for name in seconds} == {"a": 21, "b": 21, "c": 3}


def test_an_executor_that_fails_is_left_out_and_nothing_is_kept(clock: Clock, monkeypatch, caplog) -> None:
    def refuse(*args):
        raise torch.OutOfMemoryError("no room")

    ens = ensemble(clock)
    with caplog.at_level(logging.INFO, "multum"):
        monkeypatch.setattr(EXECUTORS["grouped"], "run", refuse)
        ens(X)
    assert ens.executor == "vmap" and "'grouped' was not measured: OutOfMemoryError: no room" in caplog.text
    assert not remembered.file().exists()


def test_a_network_that_cannot_be_copied_is_run_by_the_table(clock: Clock, caplog) -> None:
    class Alone:
        def __deepcopy__(self, memo):
            if ready:
                raise RuntimeError("there is one of me")
            return self

    ready, net = False, network()
    net.resource = Alone()
    ens = ensemble(clock, net=net)
    ready, usual = True, ens.executor
    with caplog.at_level(logging.INFO, "multum"):
        ens(X)
        ens(X)
    assert clock.runs == [usual, usual] and caplog.text.count("there is one of me") == 1


# -- nothing moves -----------------------------------------------------------------------------------------------------


def test_measuring_moves_neither_buffers_nor_generators_nor_gradients(clock: Clock) -> None:
    ens, twin = (ensemble(clock, net=network(dropout=0.5)) for _ in range(2))
    twin.executor = "grouped"
    inputs = X.clone().requires_grad_()
    torch.manual_seed(0)
    ens.train()(inputs)
    drawn = torch.rand(1)
    torch.manual_seed(0)
    twin.train()(X)
    assert torch.equal(drawn, torch.rand(1)) and inputs.grad is None
    assert all(p.grad is None for p in ens.parameters())
    for (name, value), other in zip(ens.state_dict().items(), twin.state_dict().values(), strict=True):
        assert torch.equal(value, other), name
    states = [e.randomness.state()["cpu"] for e in (ens, twin)]
    assert torch.equal(*states) and torch.equal(ens(X), twin(X))


def test_norms_that_members_share_stay_pooled(clock: Clock) -> None:
    clock.costs["loop"] = 0.1
    ens = ensemble(clock, multum.BatchEnsemble(members=2, norm="shared"))
    assert ens.pooled
    ens.train()(X)
    assert ens.executor == "grouped" and "loop" not in clock.runs
    ens.eval()(X)
    assert ens.executor == "loop"
    ens.network[1].train()  # alone: it goes by its batch, and pooling is not the table's way in eval mode
    clock.runs.clear()
    ens(X)
    assert clock.runs == ["loop"]


# -- nothing is measured -----------------------------------------------------------------------------------------------


def test_off_by_the_environment(clock: Clock, monkeypatch) -> None:
    monkeypatch.setenv("MULTUM_AUTOTUNE", "0")
    ens = ensemble(clock).eval()
    ens(X)
    assert clock.runs == [ens.settle(X)] == [ens.executor] == ["loop"] and not ens.settled


def test_where_the_answer_cannot_matter(clock: Clock) -> None:
    one = ensemble(clock, multum.Deep(members=1))
    one(X)
    folded = ensemble(clock, multum.Mimo(members=2))
    folded(X)
    chosen = ensemble(clock)
    chosen.executor = "vmap"
    chosen(X)
    assert clock.runs.count("vmap") == len(clock.runs) == 1 and not remembered.file().exists()


def test_where_others_would_see_it(clock: Clock) -> None:
    ens = ensemble(clock).eval()
    with FlopCounterMode(display=False) as flops:
        ens(X)
    assert flops.get_total_flops() == 2 * 2 * 6 * (4 * 8 + 8 * 3)
    torch.func.vmap(lambda x: ens(x), randomness="different")(X[None])
    assert not choosing.measurable(ens.network, X.to("meta")) and not choosing.measurable(ens.network, X[:0])
    hooked = ensemble(clock).eval()
    calls = []
    handle = hooked.network[0].register_forward_hook(lambda *_: calls.append(1))
    hooked(X)
    assert not ens.settled and not hooked.settled and len(calls) == 2
    handle.remove()
    hooked(X)
    assert hooked.settled and len(calls) == 2


def test_within_a_fixed_context_the_last_choice_runs_every_input(clock: Clock) -> None:
    ens = ensemble(clock).eval()
    ens(X)
    clock.runs.clear()
    with choosing.fixed():
        ens(torch.cat([X, X]))
        assert clock.runs == ["grouped"]
        ens.train()(X)
        assert clock.runs[1:] == ["vmap"] and ens.settle(X) == "grouped"


# -- what is remembered ------------------------------------------------------------------------------------------------


def entries() -> dict:
    return json.loads(remembered.file().read_text())


def test_what_was_measured_is_told_and_not_measured_again(clock: Clock, caplog) -> None:
    with caplog.at_level(logging.INFO, "multum"):
        ensemble(clock).eval()(X)
    assert "executor 'grouped' for eval float32 8x4" in caplog.text
    assert "grouped 1e+03 ms, vmap 2e+03 ms, loop 3e+03 ms" in caplog.text
    for here in ({}, None):
        if here is not None:  # as in another process
            remembered._HERE.clear()
        again = ensemble(clock).eval()
        again(X)
        again(X)
        assert clock.runs == ["grouped", "grouped"]
    (entry,) = entries().values()
    assert entry["executor"] == "grouped" and entry["seconds"] == {"loop": 3.0, "vmap": 2.0, "grouped": 1.0}


@pytest.mark.parametrize(
    "change",
    [
        lambda: ([nn.Sequential(nn.Linear(4, 9), nn.Linear(9, 3))], {}),
        lambda: ([nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.0), nn.Linear(8, 3))], {}),
        lambda: ([None], {"members": 3}),
    ],
)
def test_another_network_is_measured_anew(clock: Clock, change: Callable) -> None:
    ensemble(clock).eval()(X)
    (net,), fields = change()
    other = ensemble(clock, multum.Deep(**{"members": 2, **fields}), net)
    other.eval()(X)
    assert set(clock.runs) == set(COSTS) and len(entries()) == 2


def test_what_was_measured_with_other_code_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    read, machine = Path.read_bytes, choosing._machine.__wrapped__
    before = machine("cpu")
    sources = [*Path(choosing.__file__).parent.rglob("*.py")]
    assert machine("cpu") == before and any(source.parent.name == "wide" for source in sources)
    for source in sources:
        changed = lambda path, source=source: read(path) + (b" " if path == source else b"")  # noqa: E731
        monkeypatch.setattr(Path, "read_bytes", changed)
        assert machine("cpu") != before, source


@pytest.mark.parametrize("content", ["", "{", "[]", '{"key": 5}', "\\x00"])
def test_a_damaged_file_is_ignored_and_written_anew(clock: Clock, content: str) -> None:
    remembered.file().parent.mkdir(parents=True)
    remembered.file().write_text(content)
    ens = ensemble(clock).eval()
    ens(X)
    assert ens.executor == "grouped" and "grouped" in str(entries())


def test_an_entry_that_names_no_candidate_is_measured_again(clock: Clock) -> None:
    ensemble(clock).eval()(X)
    remembered._HERE.clear()
    remembered.file().write_text(json.dumps({key: {**entry, "executor": "gone"} for key, entry in entries().items()}))
    ens = ensemble(clock).eval()
    ens(X)
    assert ens.executor == "grouped" and next(iter(entries().values()))["executor"] == "grouped"


def test_a_folder_that_cannot_be_written_costs_only_the_memory_of_it(clock: Clock, monkeypatch, tmp_path) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "taken"))
    for _ in range(2):
        ens = ensemble(clock).eval()
        ens(X)
        assert ens.executor == "grouped"
    assert clock.runs == ["grouped"]


def test_the_first_to_write_decides(clock: Clock) -> None:
    first = remembered.remember("key", {"executor": "loop"}, COSTS)
    remembered._HERE.clear()  # another process, which measured at the same time
    assert remembered.remember("key", {"executor": "vmap"}, COSTS) == first == remembered.lookup("key", COSTS)


def test_clearing_forgets_everything(clock: Clock) -> None:
    ensemble(clock).eval()(X)
    assert remembered.clear() == 1 and remembered.clear() == 0
    clock.costs["loop"] = 0.1
    ens = ensemble(clock).eval()
    ens(X)
    assert ens.executor == "loop"


PROCESS = """
import json, sys
from multum.executors import remembered
keys = [f"shared {i}" for i in range(20)] + [f"own {sys.argv[1]} {i}" for i in range(20)]
print(json.dumps([remembered.remember(key, {"executor": sys.argv[1]}, ["a", "b"])["executor"] for key in keys]))
"""


@pytest.mark.slow
def test_processes_that_write_at_once_agree_and_lose_nothing(clock: Clock) -> None:
    command = [sys.executable, "-c", PROCESS]
    started = [
        subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True, env=os.environ) for name in ("a", "b")
    ]
    a, b = (json.loads(process.communicate()[0]) for process in started)
    assert a[:20] == b[:20] and set(a[20:]) == {"a"} and set(b[20:]) == {"b"}
    assert len(entries()) == 60
