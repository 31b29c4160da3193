"""The command line as a user meets it: `multum train`, its errors, and its output when piped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from multum import cli
from multum.training import job
from multum.training.interrupt import Stopped

QUICK = ["epochs=1", "batch_size=400", "--method", "single"]


@pytest.fixture
def multum(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path):
    """Call the command line; what it printed, what it complained, and its exit code."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[str, str, int]:
        monkeypatch.setattr(sys, "argv", ["multum", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as error:
            code = int(error.code or 0)
        printed = capsys.readouterr()
        return printed.out, printed.err, code

    return call


def test_train_leaves_a_run_and_finds_it_again(multum, tmp_path: Path) -> None:
    out, err, code = multum("train", "--out", "run", *QUICK)
    assert code == 0 and "single on digits: training loss" in out and "model.safetensors" in out
    assert err.splitlines()[-1].startswith("epoch 1/1  loss ")
    assert {f.name for f in (tmp_path / "run").iterdir()} == {
        *("checkpoints", "log.jsonl", "model.safetensors", "run.json", "training.json")
    }
    again, err, code = multum("train", "--out", "run", *QUICK)
    assert (again, err, code) == (out, "", 0)
    _, err, code = multum("train", "--out", "run", *QUICK, "lr=0.5")
    assert code == 2 and "another recipe" in err
    _, err, code = multum("train", "--out", "run", "--no-resume", *QUICK)
    assert code == 2 and "holds one already" in err


def test_json_is_all_that_is_printed(multum) -> None:
    out, err, code = multum("train", "--json", "--data", "diabetes", "--out", "run", *QUICK)
    found = json.loads(out)
    assert code == 0 and err == ""
    assert found["model"] == "mlp" and found["recipe"]["epochs"] == 1 and found["last"]["rmse"] > 0
    assert found["versions"]["torch"] and found["threads"] >= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "paked"], "Did you mean packed"),
        (["--method", "packed:member=3"], "Did you mean members"),
        (["--method", "packed:members=0"], "members=0"),
        (["--method", "packed:alpha"], "field=value"),
        (["--data", "digit"], "Did you mean digits"),
        (["--data", "npz:none.npz"], "none.npz"),
        (["--data", "folder:nowhere"], "nowhere"),
        (["--model", "smal-cnn"], "Did you mean small-cnn"),
        (["--model", "small-cnn:depth=3"], "depth"),
        (["--data", "diabetes", "--model", "small-cnn"], "use --model mlp"),
        (["epoch=3"], "Did you mean epochs"),
        (["epochs=three"], "epochs='three'"),
        (["epochs"], "for example epochs=30"),
        (["optimizer=adamm"], "Did you mean adam"),
        (["--accelerator", "abacus"], "abacus"),
        (["--out", "/proc/run"], "can be written"),
        (["--method", "snapshot:members=5", "epochs=2"], "5 members in 2 of 2 epochs"),
        (["--tensorboard", "epochs=1"], "pip install tensorboard"),
    ],
)
def test_mistakes_end_with_code_2_and_one_sentence(arguments: list[str], message: str, multum, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    out, err, code = multum("train", "--json", *arguments)
    assert code == 2 and out == ""
    assert err.startswith("error: ") and message in err and "Traceback" not in err


def test_a_stopped_run_says_how_to_go_on(multum, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*args, **kwargs) -> None:
        raise Stopped(15)

    monkeypatch.setattr(job, "train", stopped)
    _, err, code = multum("train")
    assert code == 143 and "stopped by SIGTERM; the same command goes on from here" in err


def test_piped_output_has_no_control_characters(tmp_path: Path) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "multum", "train", "--out", str(tmp_path / "run"), *QUICK]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    for text in (done.stdout, done.stderr):
        assert all(c.isprintable() or c == "\n" for c in text)
    assert len(done.stdout.splitlines()) == 1


def test_help_names_every_option(multum) -> None:
    out, _, code = multum("train", "--help")
    assert code == 0
    for name in ("--data", "--model", "--method", "--out", "--resume", "--devices", "--json", "--tensorboard"):
        assert name in out
