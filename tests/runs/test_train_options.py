"""What `multum train` can do besides training: find a rate, fit a temperature, take a number of threads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import multum
from multum.errors import ConfigError, TrainingError
from multum.metrics.calibration import fit_temperature
from multum.runs.train import summary, train

QUICK = {"epochs": 2, "batch_size": 400}


def test_a_found_rate_is_kept_when_the_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train("digits", "mlp:hidden=8", "deep:members=2", tmp_path, QUICK, find_lr=True)
    assert run["recipe"]["lr"] != multum.Recipe().lr and 1e-5 < run["recipe"]["lr"] < 1
    digits = multum.load_data("digits")
    ens = multum.ensemble(
        lambda: multum.models.build("mlp", in_features=64, classes=10, hidden=8),
        multum.Deep(members=2),
        example=digits.example(),
        seed=0,
    )
    recipe = multum.Recipe(**{**run["recipe"], "lr": multum.Recipe().lr})
    assert multum.find_lr(ens, digits, recipe).lr == run["recipe"]["lr"]
    # The same command goes on with the rate that it found, and looks for no other.
    monkeypatch.setattr("multum.runs.train.find_rate", None)
    assert train("digits", "mlp:hidden=8", "deep:members=2", tmp_path, QUICK, find_lr=True) == run


def test_a_temperature_is_fitted_on_the_validation_part_and_kept(tmp_path: Path) -> None:
    recipe = {**QUICK, "keep": "best", "validation": 0.2}
    run = train("digits", "small-cnn", "deep:members=2", tmp_path / "run", recipe, temperature=True)
    digits = multum.load_data("digits").with_validation(0.2, 0)
    ens = multum.load(tmp_path / "run" / "model.safetensors").eval()
    with torch.no_grad():
        outputs = ens(digits.prepare(digits.validation.x))
    assert run["temperature"] == pytest.approx(fit_temperature(outputs, digits.validation.y).temperature, rel=1e-4)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["temperature"] == run["temperature"] != 1
    assert "temperature" in summary(run, tmp_path)
    # A run that was trained without one gets it without another epoch.
    plain = train("digits", "small-cnn", "deep:members=2", tmp_path / "later", recipe)
    assert "temperature" not in plain
    later = train("digits", "small-cnn", "deep:members=2", tmp_path / "later", recipe, temperature=True)
    assert later["temperature"] == pytest.approx(run["temperature"]) and later["last"] == plain["last"]


def test_a_temperature_needs_classes_and_held_out_examples(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="a temperature must be fitted on a validation part"):
        train("digits", "small-cnn", "single", tmp_path / "run", {**QUICK, "validation": 0}, temperature=True)
    with pytest.raises(TrainingError, match="a temperature must be for classification"):
        train("diabetes", None, "single", tmp_path / "run", QUICK, temperature=True)
    assert not (tmp_path / "run").exists()


def test_threads_are_those_that_were_asked_for_and_come_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    assert train("digits", "small-cnn", "single", tmp_path, QUICK, threads=before + 1)["threads"] == before + 1
    assert torch.get_num_threads() == before
    with pytest.raises(ConfigError, match="threads must be a whole number >= 1"):
        train("digits", "small-cnn", "single", tmp_path / "other", QUICK, threads=0)


def test_a_run_of_a_version_with_fewer_fields_goes_on(tmp_path: Path) -> None:
    run = train("digits", "small-cnn", "single", tmp_path, QUICK)
    for name in ("run.json", "training.json"):
        described = json.loads((tmp_path / name).read_text())
        del described["recipe"]["patience"]
        (tmp_path / name).write_text(json.dumps(described))
    again = train("digits", "small-cnn", "single", tmp_path, QUICK)
    assert again["last"] == run["last"]
    with pytest.raises(TrainingError, match="got another recipe"):
        train("digits", "small-cnn", "single", tmp_path, {**QUICK, "patience": 1})
