"""Early stopping, runs that have not converged, the loss per member, and the learning-rate finder."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import multum
from multum.errors import ConfigError, TrainingError
from multum.network.copies import tensors_of
from multum.training import run as run_module
from multum.training.optimizers import Optimizers
from multum.training.stopping import is_stalled, still_falling
from training.noisy import Noisy

METHODS = (
    multum.Deep(members=2),
    multum.BatchEnsemble(members=2),
    multum.Mimo(members=2),
    multum.Hypernet(members=2, birth_epoch=1),
    multum.McDropout(members=2),
    multum.Swag(members=2),
)


def pairs(n: int = 120) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def made(method: multum.methods.Method = METHODS[0]) -> multum.Ensemble:
    torch.manual_seed(0)
    return multum.ensemble(Noisy(), method, example=pairs()[0][:4], seed=3)


SCORES = [0.9, 0.5, 0.6, 0.4, 0.5, 0.45, 0.41, 0.3, 0.2, 0.1]
PATIENT = multum.Recipe(epochs=10, batch_size=32, patience=3, validation=0.2, seed=1)


def scored(monkeypatch: pytest.MonkeyPatch, crash_after: int = 0) -> None:
    """Held-out scores that are known: the best of the first seven epochs is the fourth."""

    def score(ensemble: multum.Ensemble, data: multum.Data, by: str, place: object, member: int | None) -> float:
        scored.epoch += 1
        return SCORES[scored.epoch - 1]

    monkeypatch.setattr(run_module, "held_out_score", score)


scored.epoch = 0  # type: ignore[attr-defined]


def test_training_stops_when_the_score_gets_no_better_and_keeps_the_best_epoch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scored.epoch = 0
    scored(monkeypatch)
    states = {}
    ens = made()
    keep = lambda epoch: states.update({epoch: {n: t.clone() for n, t in tensors_of(ens.network).items()}})  # noqa: E731
    history = multum.fit(ens, pairs(), PATIENT, after_epoch=keep, progress=True)
    assert "stopped after epoch 7; epoch 4 is kept, the best by nll" in capsys.readouterr().err
    assert [row["epoch"] for row in history] == list(range(1, 8))  # the fourth was best, and three were no better
    assert all(torch.equal(t, states[4][n]) for n, t in tensors_of(ens.network).items())


def timeless(history: list[dict]) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in ("seconds", "waiting")} for row in history]


def test_a_run_that_is_stopped_early_resumes_to_the_bit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recipe = replace(PATIENT, lr=0.3, epochs=40, patience=2)
    whole = multum.fit(made(), pairs(), recipe, out=tmp_path / "whole")
    assert 2 < len(whole) < 40
    step, left = Optimizers.step, {"moves": 0}

    def crashing(self: Optimizers, *args: object, **kwargs: object) -> None:
        left["moves"] -= 1
        if left["moves"] == 0:
            raise KeyError("a crash")
        step(self, *args, **kwargs)

    monkeypatch.setattr(Optimizers, "step", crashing)
    for moves in (5, 4, 3 * (len(whole) - 3)):
        left["moves"] = moves
        with pytest.raises(KeyError):
            multum.fit(made(), pairs(), recipe, out=tmp_path / "crashed", checkpoint_seconds=0)
    left["moves"] = 0
    again = multum.fit(made(), pairs(), recipe, out=tmp_path / "crashed")
    assert timeless(whole) == timeless(again)
    models = [multum.load(tmp_path / name / "model.safetensors", network=Noisy) for name in ("whole", "crashed")]
    x = pairs()[0]
    assert torch.equal(models[0](x), models[1](x))
    # A finished run that is asked for again says what it said, and trains no more.
    assert len(multum.fit(made(), pairs(), recipe, out=tmp_path / "crashed")) == len(whole)


def test_patience_keeps_the_best_and_refuses_what_it_cannot_stop() -> None:
    assert PATIENT.keep == "best"
    with pytest.raises(ConfigError, match="patience must be a whole number >= 0"):
        multum.Recipe(patience=-1)
    with pytest.raises(TrainingError, match="patience ends the training of all members"):
        multum.fit(made(), pairs(), replace(PATIENT, sequential=True))
    with pytest.raises(TrainingError, match="gathers those of several epochs"):
        multum.fit(made(multum.Swag(members=2)), pairs(), PATIENT)


def test_members_that_are_born_late_are_not_stopped_before(monkeypatch: pytest.MonkeyPatch) -> None:
    scored.epoch = 0
    scored(monkeypatch)
    monkeypatch.setattr(f"{__name__}.SCORES", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    ens = made(multum.Hypernet(members=2, birth_epoch=5))
    assert len(multum.fit(ens, pairs(), PATIENT)) == 9  # the sixth epoch is the best of the members, three follow
    assert ens.members == 2


def test_stalled_is_a_matter_of_epochs_since_the_first_best() -> None:
    assert not is_stalled([], 3) and not is_stalled([1.0], 1) and is_stalled([1.0, 1.0], 1)
    assert not is_stalled([3, 2, 1, 2, 2], 3) and is_stalled([3, 2, 1, 2, 2, 2], 3)
    assert not is_stalled([1, 2, 3, 4], 0)


def test_a_run_that_has_not_converged_is_said_and_one_that_has_is_not(caplog: pytest.LogCaptureFixture) -> None:
    short, long = (multum.Recipe(epochs=epochs, batch_size=96, lr=1e-2, seed=1) for epochs in (3, 60))
    with caplog.at_level(logging.WARNING, "multum"):
        multum.fit(made(), pairs(480), long)
        assert "not converged" not in caplog.text
        multum.fit(made(), pairs(480), short, warn=False)
        assert "not converged" not in caplog.text
        multum.fit(made(), pairs(480), short)
    assert "not converged: in the last 1 of 3 epochs" in caplog.text and "epochs=6" in caplog.text


def test_the_rule_of_convergence() -> None:
    flat = [2.0, 1.0, 0.5, 0.3, 0.25, 0.24, 0.235, 0.233, 0.232, 0.2315]
    assert still_falling(flat) is None
    assert still_falling([2.0 - 0.1 * k for k in range(20)]).epochs == 2
    noisy = [*flat[:-3], 0.40, 0.233, 0.42, 0.30]  # it falls by 0.12, and rose by 0.19 shortly before
    assert still_falling(noisy) is None
    assert still_falling([1.0]) is None and still_falling([1.0, 2.0]) is None and still_falling([]) is None


@pytest.mark.parametrize("reduction", [None, "sum", "mean"])
def test_the_loss_of_a_row_is_per_member(reduction: str | None) -> None:
    x, y = pairs(64)
    recipe = multum.Recipe(epochs=1, batch_size=64, lr=0.0, reduction=reduction)
    single = multum.ensemble(nn.Linear(8, 3), multum.Deep(members=1), example=x, seed=0)
    four = multum.ensemble(nn.Linear(8, 3), multum.Deep(members=4, init="pretrained"), example=x, seed=0)
    for name, t in tensors_of(four.network).items():
        t.data.copy_(tensors_of(single.network)[name].expand_as(t))
    rows = [multum.fit(ens, (x, y), recipe)[0] for ens in (single, four)]
    assert rows[1]["loss"] == pytest.approx(rows[0]["loss"], rel=1e-5)


def test_a_row_says_how_long_the_loop_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    from multum.training.batches import Batches

    epoch = Batches.epoch

    def slow(self: Batches, *args: object) -> object:
        import time

        for step in epoch(self, *args):
            time.sleep(0.05)
            yield step

    quick = multum.fit(made(), pairs(), multum.Recipe(epochs=2))[-1]
    monkeypatch.setattr(Batches, "epoch", slow)
    waited = multum.fit(made(), pairs(), multum.Recipe(epochs=2))[-1]
    assert 0 <= quick["waiting"] <= 1 and 0 < waited["waiting"] <= 1
    assert waited["waiting"] * waited["seconds"] > 0.099  # two steps that were slept before, on however busy a machine


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_the_finder_leaves_everything_as_it_was(method: multum.methods.Method) -> None:
    ens = made(method)
    ens.train()
    ens.network.norm.eval()
    next(ens.parameters()).grad = torch.ones_like(next(ens.parameters()))
    before = {n: t.clone() for n, t in tensors_of(ens.network).items()}
    random, flags = ens.randomness.state(), [m.training for m in ens.modules()]
    torch_state = torch.get_rng_state()
    curve = multum.find_lr(ens, pairs(), multum.Recipe(batch_size=32))
    assert all(torch.equal(t, before[n]) for n, t in tensors_of(ens.network).items())
    assert all(torch.equal(t, random[n]) for n, t in ens.randomness.state().items())
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert [m.training for m in ens.modules()] == flags and not ens.state
    assert torch.equal(next(ens.parameters()).grad, torch.ones_like(next(ens.parameters())))
    assert 1e-6 <= curve.lr <= 1
    assert multum.find_lr(ens, pairs(), multum.Recipe(batch_size=32)) == curve  # and again the same


def test_the_finder_finds_a_rate_that_trains_and_shows_its_curve() -> None:
    recipe = multum.Recipe(batch_size=32, optimizer="sgd", schedule="constant", epochs=10)
    curve = multum.find_lr(made(), pairs(480), recipe)
    assert len(curve.rates) == len(curve.losses) == len(curve.smooth) == len(curve.frame())
    assert curve.lr == pytest.approx(curve.frame().loc[curve.frame()["smooth"].idxmin(), "rate"] / 10, rel=0.05)
    found, timid = (
        multum.fit(made(), pairs(480), replace(recipe, lr=lr), warn=False)[-1]["loss"]
        for lr in (curve.lr, curve.lr / 100)
    )
    assert found < 0.8 * timid
    assert f"lr={curve.lr:.3g}" in str(curve) and str(curve).count("\n") < 20
    assert curve.plot().axes[0].get_xscale() == "log"


def test_the_finder_refuses_what_gives_no_curve() -> None:
    with pytest.raises(ConfigError, match="steps must be at least 10"):
        multum.find_lr(made(), pairs(), steps=3)
    with pytest.raises(ConfigError, match="high must be a number"):
        multum.find_lr(made(), pairs(), low=1e-2, high=1e-3)
    with pytest.raises(TrainingError, match="the loss must fall at some rate; got none between 1e-12 and 2e-12"):
        multum.find_lr(made(), pairs(), low=1e-12, high=2e-12)
