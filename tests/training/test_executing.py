"""The executor of a run: settled before its first step, written down, and the same when it is resumed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import multum
from multum.executors import EXECUTORS, choosing, remembered
from multum.training import executing

G = torch.Generator().manual_seed(0)
X = torch.randn(40, 4, generator=G)
DATA = (X, (X[:, 0] > 0).long())
RECIPE = multum.Recipe(epochs=2, batch_size=16, lr=0.05)


@pytest.fixture
def winner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Measuring, where the executor under "name" always wins; with a cache of its own."""
    monkeypatch.setenv("MULTUM_AUTOTUNE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wanted = {"name": "loop"}

    def race(names, step):
        for name in names:
            step(name)
        return {name: 1.0 if name == wanted["name"] else 2.0 for name in names}

    monkeypatch.setattr(choosing, "race", race)
    monkeypatch.setattr(choosing, "WORTH", 0)  # runs of a few steps
    remembered._HERE.clear()
    yield wanted
    remembered._HERE.clear()


def runs_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool, int]]:
    """Filled with executor, mode and rows of everything that runs on examples."""
    runs: list[tuple[str, bool, int]] = []

    def noted(name, run):
        def call(network, stacked, moving, x, *rest):
            runs.append((name, network.training, x.shape[-2]))
            return run(network, stacked, moving, x, *rest)

        return call

    for name, executor in EXECUTORS.items():
        monkeypatch.setattr(executor, "run", noted(name, executor.run))
    return runs


def ensemble(method: multum.methods.Method | None = None, dropout: float = 0.0) -> multum.Ensemble:
    net = multum.models.build("mlp", in_features=4, classes=2, hidden=(8,), dropout=dropout)
    return multum.ensemble(net, method or multum.Packed(members=2, alpha=2), example=X[:2], seed=0)


@pytest.mark.parametrize("name", ["loop", "vmap", "grouped"])
def test_a_run_has_one_executor_and_writes_it_down(winner, monkeypatch, tmp_path: Path, name: str) -> None:
    winner["name"] = name
    ens = ensemble()
    runs = runs_of(monkeypatch)
    multum.fit(ens, DATA, RECIPE, out=tmp_path / "run")
    steps = [run for run in runs if run[1]][3:]  # after one measured step of each
    assert steps == [(name, True, rows) for rows in (16, 16, 8) * 2]
    assert json.loads((tmp_path / "run" / "training.json").read_text())["executors"] == {"training": name}
    assert ens.latest == multum.load(tmp_path / "run").latest == {"training": name}


def test_held_out_examples_are_scored_by_what_was_settled_too(winner, monkeypatch) -> None:
    ens = ensemble()
    runs = runs_of(monkeypatch)
    winner["name"] = "vmap"
    multum.fit(ens, DATA, multum.Recipe(epochs=1, batch_size=16, keep="best", validation=0.25))
    assert ens.latest == {"training": "vmap", "eval": "vmap"}
    assert {name for name, _, _ in runs[6:]} == {"vmap"}


def test_a_short_run_is_not_measured_for(winner, monkeypatch) -> None:
    """Six steps, and two hundred rows that are scored: the table's choice, unless the answer is known already."""
    recipe = multum.Recipe(epochs=2, batch_size=16, keep="best", validation=0.25)
    monkeypatch.setattr(choosing, "WORTH", 20)
    ens = ensemble()
    usual = {"training": ens.train().executor, "eval": ens.eval().executor}
    winner["name"] = next(name for name in EXECUTORS if name not in usual.values())
    multum.fit(ens, DATA, recipe)
    assert ens.latest == usual and not remembered.file().exists()
    monkeypatch.setattr(choosing, "WORTH", 0)
    multum.fit(ensemble(), DATA, recipe)
    monkeypatch.setattr(choosing, "WORTH", 20)
    known = ensemble()
    multum.fit(known, DATA, recipe)
    assert known.latest == dict.fromkeys(usual, winner["name"])


def test_measuring_leaves_no_trace_in_the_result(winner, monkeypatch) -> None:
    measured, chosen = ensemble(dropout=0.3), ensemble(dropout=0.3)
    chosen.executor = "loop"
    for ens in (measured, chosen):
        multum.fit(ens, DATA, RECIPE)
    for (name, value), other in zip(measured.state_dict().items(), chosen.state_dict().values(), strict=True):
        assert torch.equal(value, other), name


def test_what_came_before_does_not_count(winner) -> None:
    """Runs of one seed give the same bits, also if an ensemble was used, or loaded, with another executor."""
    used = ensemble()
    used.latest.update(training="grouped", eval="grouped")
    multum.fit(used, DATA, RECIPE)
    assert used.latest == {"training": "loop"}


def test_a_run_is_resumed_with_its_own_choice(winner, tmp_path: Path) -> None:
    winner["name"] = "vmap"
    whole, ens = ensemble(), ensemble()
    multum.fit(whole, DATA, RECIPE, out=tmp_path / "whole")

    class Stop(Exception):
        pass

    def stop(epoch: int) -> None:
        if epoch == 1:
            raise Stop

    with pytest.raises(Stop):
        multum.fit(ens, DATA, RECIPE, out=tmp_path / "run", checkpoint_seconds=0, after_epoch=stop)
    remembered.clear()
    winner["name"] = "loop"
    again = ensemble()
    multum.fit(again, DATA, RECIPE, out=tmp_path / "run")
    assert again.latest == {"training": "vmap"}
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "run"))
    assert all(torch.equal(a[name], b[name]) for name in a | b)
    other = ensemble()
    multum.fit(other, DATA, RECIPE)
    assert other.latest == {"training": "loop"}


def test_members_that_take_turns_need_no_executor_in_training(winner, monkeypatch) -> None:
    ens = ensemble(multum.Hypernet(members=2))
    winner["name"] = "vmap"
    multum.fit(ens, DATA, multum.Recipe(epochs=4, batch_size=16, keep="best", validation=0.25))
    assert ens.members == 2 and ens.latest == {"eval": "vmap"}  # of the members that were born


def test_an_executor_that_is_no_more_is_replaced_with_a_warning(winner, tmp_path: Path, caplog) -> None:
    run = type("", (), {"ensemble": ensemble()})()
    with caplog.at_level(logging.WARNING, "multum"):
        executing.restore(run, {"training": "of yesterday", "eval": "vmap"})
    assert run.ensemble.latest == {"eval": "vmap"} and "agree to rounding, not to the bit" in caplog.text


def test_off_by_the_environment(monkeypatch) -> None:
    monkeypatch.setattr(choosing, "race", lambda *_: pytest.fail("measured"))
    ens = ensemble()
    multum.fit(ens, DATA, RECIPE)
    assert not ens.latest and not ens.settled
