"""The command line as a user meets it: `multum train`, its errors, and its output when piped."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import multum as library
from multum import cli
from multum.comparing import compare as comparing
from multum.data.sources import load_data
from multum.runs import train as job
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

    yield call
    logging.getLogger("multum").setLevel(logging.NOTSET)


def test_train_leaves_a_run_and_finds_it_again(multum, tmp_path: Path) -> None:
    out, err, code = multum("train", "--out", "run", *QUICK)
    assert code == 0 and "single on digits: training loss" in out and "model.safetensors" in out
    assert err.splitlines()[-1].startswith("epoch 1/1  loss ")
    assert {f.name for f in (tmp_path / "run").iterdir()} == {
        *(".lock", "checkpoints", "log.jsonl", "model.safetensors", "run.json", "training.json"),
        *("preparation.json", "split.safetensors", "validation.safetensors"),
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
        (["--data", "diabetes", "--model", "small-cnn"], "Use mlp"),
        (["epoch=3"], "Did you mean epochs"),
        (["epochs=three"], "epochs='three'"),
        (["epochs"], "For example: epochs=30"),
        (["optimizer=adamm"], "Did you mean adam"),
        (["--accelerator", "abacus"], "abacus"),
        (["--out", "/proc/run"], "must be writable"),
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


def test_piped_output_has_no_control_characters(multum) -> None:
    out, err, _ = multum("train", "--out", "run", *QUICK)
    assert err and len(out.splitlines()) == 1
    assert all(c.isprintable() or c == "\n" for c in out + err)


def test_the_package_is_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "multum", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"multum {library.__version__}\n"


def test_help_names_every_option(multum) -> None:
    out, _, code = multum("train", "--help")
    assert code == 0
    for name in ("--data", "--model", "--method", "--out", "--resume", "--devices", "--json", "--tensorboard"):
        assert name in out


def test_the_first_page_names_every_command_and_where_to_start(multum) -> None:
    out, _, code = multum("--help")
    assert code == 0 and "Start with: multum compare" in out and "Exit codes" in out
    for name in ("compare", "train", "evaluate", "predict", "methods"):
        assert f"\n  {name} " in out
        text, _, code = multum(name, "--help")
        assert code == 0 and f"multum {name}" in text.split("Example: ")[1]
    _, err, code = multum("compar")
    assert code == 2 and "Did you mean 'compare'" in err


def test_train_evaluate_and_predict_follow_each_other(multum, tmp_path: Path) -> None:
    multum("train", "--out", "run", "epochs=1", "batch_size=400", "--method", "deep:members=2")
    out, _, code = multum("evaluate", "run", "--ood", "digits", "--speed")
    assert code == 0
    for text in ("members' mean", "AUROC", "parameters", "latency, batch of 128", "on disk"):
        assert text in out, text
    out, err, code = multum("evaluate", "run", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "") and found["cost"]["params"] > 0 and "speed" not in found
    x = load_data("digits").test.x[:5].numpy()
    np.savez(tmp_path / "new.npz", x=x)
    out, _, code = multum("predict", "run", "new.npz")
    assert code == 0 and "confidence" in out
    out, err, code = multum("predict", "run", "new.npz", "--json", "--coverage", "0.6")
    rows = json.loads(out)
    assert (code, err) == (0, "") and len(rows) == 5 and {"label", "confidence", "abstain"} <= rows[0].keys()
    out, _, code = multum("predict", "run", "new.npz", "--out", "answers.csv")
    assert code == 0 and len((tmp_path / "answers.csv").read_text().splitlines()) == 6
    out, err, code = multum("predict", "run", "absent.npz", "--json")
    assert (out, code) == ("", 2) and err.startswith("error: ") and "absent.npz" in err


def test_predictions_by_flags(multum, tmp_path: Path) -> None:
    multum("train", "--out", "run", "epochs=1", "batch_size=400", "--method", "deep:members=2")
    np.savez(tmp_path / "new.npz", x=load_data("digits").test.x[:5].numpy())
    out, _, _ = multum("predict", "run", "new.npz", "--json", "--conformal", "0.9", "--temperature", "--members")
    row = json.loads(out)[0]
    assert {"p_0", "p_9", "member1_p_3", "set", "set_size"} <= row.keys() and sum(
        row[f"p_{k}"] for k in range(10)
    ) > 0.99
    out, _, _ = multum("predict", "run", "new.npz", "--json", "--no-probabilities")
    assert json.loads(out)[0].keys() == {"example", "label", "confidence", "entropy", "mutual_information"}
    out, _, code = multum("predict", "run", "new.npz", "--out", "answers.parquet", "--risk", "0.5")
    assert code == 0 and "5 examples" in out and "fitted on 126 validation examples" in out


def test_a_run_is_measured_on_other_data(multum, tmp_path: Path) -> None:
    multum("train", "--out", "run", "epochs=1", "batch_size=400")
    data = load_data("digits")
    other = {"x_test": 255 - data.test.x[:60].numpy(), "y_test": data.test.y[:60].numpy()}
    np.savez(tmp_path / "other.npz", x_train=data.train.x.numpy(), y_train=data.train.y.numpy(), **other)
    out, _, code = multum("evaluate", "run", "--json", "--data", "npz:other.npz")
    assert code == 0 and json.loads(out)["examples"] == 60 and json.loads(out)["data"] == "npz:other.npz"
    _, err, code = multum("evaluate", "run", "--data", "diabetes")
    assert code == 2 and "data must be of the run's kind" in err
    out, _, _ = multum("train", "--help")
    assert all(field in out for field in ("drop=A+B", "decimal=", "sep=", "test=FILE", "task=", "size=64", "hold_out="))


@pytest.mark.usefixtures("without_figures")
def test_compare_prints_its_table_and_the_place_of_the_report(multum, tmp_path: Path, monkeypatch) -> None:
    arguments = ["compare", "--methods", "single,deep:members=2", "--seeds", "1", "--epochs", "1", "--shift", "none"]
    arguments += ["--tune", "0", "--jobs", "1"]
    out, err, code = multum(*arguments, "--out", "c", "batch_size=400")
    assert code == 0 and "accuracy" in out and "Take " in out and "report: c/report.html" in out
    assert "2/2  deep:members=2, seed 0:" in err
    document = json.loads((tmp_path / "c" / "report.json").read_text())
    assert document["command"].startswith("multum compare --methods single,deep:members=2")
    out, err, code = multum(*arguments, "--out", "c", "batch_size=400", "--json")
    assert (code, err) == (0, "") and json.loads(out)["rows"] == document["rows"]
    monkeypatch.setattr(library.Deep, "birth", lambda *args: 1 / 0)
    out, err, code = multum(*arguments, "--out", "d", "batch_size=400")
    assert code == 1 and "ZeroDivisionError" in out and "report: d/report.html" in out


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt(), 130), (Stopped(15), 143)])
def test_a_stopped_comparison_says_how_to_go_on(multum, monkeypatch: pytest.MonkeyPatch, stop, code: int) -> None:
    def stopped(*args, **kwargs) -> None:
        raise stop

    monkeypatch.setattr(comparing, "compare", stopped)
    _, err, found = multum("compare")
    assert found == code and "the same command goes on from here" in err


def test_an_error_names_its_explanation_which_needs_no_file(multum) -> None:
    from multum.errors import PAGES

    _, err, code = multum("train", "--data", "nothing")
    assert code == 2 and err.endswith("\nmore: multum errors DataError\n")
    explained, _, _ = multum("errors", "DataError")
    assert explained.startswith("DataError\nA data set is missing") and "csv:FILE#target=COLUMN" in explained
    everything, _, _ = multum("errors")
    assert [line for line in everything.splitlines() if line in PAGES] == list(PAGES)
    _, err, code = multum("errors", "DatError")
    assert code == 2 and "Did you mean DataError" in err


def test_the_version(multum) -> None:
    assert multum("--version") == (f"multum {library.__version__}\n", "", 0)


def test_quiet_prints_results_alone_and_verbose_more(multum) -> None:
    out, err, code = multum("--quiet", "train", "--out", "run", *QUICK)
    assert (err, code) == ("", 0) and "model.safetensors" in out
    _, err, code = multum("--quiet", "train", "--out", "run", *QUICK, "lr=0.5")
    assert code == 2 and err.startswith("error: ") and "Traceback" not in err
    _, err, code = multum("--verbose", "train", "--out", "run", *QUICK, "lr=0.5")
    assert code == 2 and err.startswith("Traceback") and "error: " in err
    _, err, code = multum("train", "--out", "other", *QUICK)  # neither: as before
    assert code == 0 and "epoch 1/1" in err
    _, err, code = multum("--quiet", "--verbose", "methods")
    assert code == 2 and "got both" in err


@pytest.mark.usefixtures("without_figures")
def test_compare_ends_with_the_final_model_and_its_command(multum, tmp_path: Path) -> None:
    (tmp_path / "mynet.py").write_text(
        "from torch import nn\n\ndef build(in_features, classes, width=4):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(in_features, width), nn.ReLU(), nn.Linear(width, classes))\n"
    )
    options = ["--model", "mynet.py:build:width=8", "--methods", "single", "--seeds", "1", "--shift", "none"]
    options += ["--tune", "0", "--jobs", "1"]
    out, _, code = multum("compare", *options, "--epochs", "1", "--out", "c", "--final")
    final = json.loads((tmp_path / "c" / "report.json").read_text())["final"]
    assert (
        code == 0 and out.splitlines()[-2].split() == f"single, final multum predict c/{final['folder']} FILE".split()
    )
    assert (tmp_path / "c" / final["folder"] / "network.py").is_file()
    out, err, code = multum("compare", *options, "--epochs", "2", "--out", "c")
    assert (out, code) == ("", 2) and "epochs=1 instead of 2. Choose another --out" in err


def test_bench_prints_tables_or_json(multum, tmp_path: Path) -> None:
    quick = ["--model", "small-cnn:thin=0.25", "--shape", "1x8x8", "--methods", "single,packed", "--batch", "2"]
    quick += ["--rounds", "1", "--mode", "inference", "--no-memory", "--backends", "none"]
    out, err, code = multum("bench", *quick, "--json")
    document = json.loads(out)
    assert (code, err) == (0, "") and document["rows"][0]["name"] == "one network"
    assert document["command"].startswith("multum bench --model small-cnn") and document["machine"]["cores"]
    out, err, code = multum("bench", *quick, "--out", "bench")
    assert code == 0 and "inference, batch 2" in out and "packed" in out and (tmp_path / "bench/bench.svg").is_file()
    assert max(map(len, out.splitlines())) <= 80
    _, err, code = multum("bench", *quick, "--executors", "lop")
    assert code == 2 and "Did you mean loop" in err


def test_bench_forgets_what_was_measured(multum, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from multum.executors import remembered

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(remembered, "_HERE", {})
    remembered.remember("key", {"executor": "loop"}, ["loop"])
    assert remembered.file().is_file()
    out, err, code = multum("bench", "--clear")
    assert (out, err, code) == ("1 measured choices of executors are forgotten\n", "", 0)
    assert not remembered.file().is_file()


def test_headlines_are_planned_and_gathered(multum, tmp_path: Path) -> None:
    out, _, code = multum("reproduce", "headlines", "--dry-run")
    assert code == 0 and "## R1: Fashion-MNIST" in out
    out, _, code = multum("reproduce", "headlines", "--gather", "--out", str(tmp_path))
    assert code == 0 and "not run" in out and (tmp_path / "headlines.json").is_file()
