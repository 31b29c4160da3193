"""A comparison from end to end: the files, what is never run twice, what fails alone, and where it runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import multum
from deadly import Deadly
from multum import files
from multum.comparing.compare import _corruptions
from multum.errors import ConfigError, DataError, FileError
from multum.runs import pool as runners
from multum.runs.cells import RESULT, Cell

QUICK: dict[str, Any] = {"seeds": 2, "epochs": 1, "shift": "none", "tune": 0, "threads": 1}
QUICK["recipe"] = {"batch_size": 256}
COMMAND = [
    "--data",
    "digits",
    "--model",
    "small-cnn",
    "--methods",
    "single,packed:members=2",
    "--seeds",
    "2",
    "--epochs",
    "1",
]
TIMED = ("latency", "train_seconds")


def numbers(document: dict[str, Any]) -> dict[str, Any]:
    """Every number of a table but the measured times."""
    return {
        row["label"]: {key: value for key, value in row["values"].items() if key not in TIMED}
        for row in document["rows"]
    }


def results(out: Path) -> dict[str, int]:
    """When the result of each cell was written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob(f"*/{RESULT}")}


@pytest.fixture(scope="module")
def sequential(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("compare")
    return out, multum.compare("digits", "small-cnn", "single,packed:members=2", out=out, **QUICK)


def test_files_table_and_a_default_ood_set(sequential: tuple[Path, dict[str, Any]]) -> None:
    out, document = sequential
    assert {"report.html", "report.json", "report.md", "figures"} <= {p.name for p in out.iterdir()}
    assert json.loads((out / "report.json").read_text()) == document
    assert document["settings"]["data"] == "digits#hold_out=8+9" and document["settings"]["ood"] == ["digits#only=8+9"]
    assert document["classes"] == [str(i) for i in range(8)]
    single, packed = document["rows"]
    assert single["status"] == packed["status"] == "done"
    assert len(packed["values"]["latency"]["seeds"]) == 1
    for key in ("accuracy", "nll", "ece", "brier", "auroc", "aupr", "fpr95", "disagreement", "params", "macs"):
        assert len(packed["values"][key]["seeds"]) == 2, key
    assert document["advice"]["label"] in ("single", "packed:members=2")
    curves = {(c["label"], c["seed"]): set(c["curves"]) for c in document["cells"]}
    assert curves["single", 0] == {"reliability", "risk_coverage", "histograms", "by_class", "training"}
    assert curves["packed:members=2", 1] == {*curves["single", 0], "disagreement", "by_members"}


def test_what_is_done_is_never_run_again(
    sequential: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, document = sequential
    before = results(out)
    monkeypatch.setattr(runners, "work", lambda *args: pytest.fail("a finished cell was run"))
    again = multum.compare("digits", "small-cnn", "single,packed:members=2", out=out, **QUICK)
    assert results(out) == before and again["rows"] == document["rows"]


def test_controls_run_first_and_stand_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    work = runners.work
    monkeypatch.setattr(runners, "work", lambda cell, *rest: begun.append(cell.label) or work(cell, *rest))
    document = multum.compare("digits", "small-cnn", "single,deep:members=2,single@2x", out=tmp_path, **QUICK)
    assert begun == ["single@2x", "single@2x", *2 * ("single", "deep:members=2")]
    assert [row["label"] for row in document["rows"]] == ["single", "deep:members=2", "single@2x"]


@pytest.mark.slow  # tests/runs/test_own_networks.py compares the two for networks of a file
def test_processes_give_the_same_table(sequential: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    document = multum.compare("digits", "small-cnn", "single,packed:members=2", out=tmp_path, jobs=2, **QUICK)
    assert numbers(document) == numbers(sequential[1])


@pytest.mark.slow
def test_ray_gives_the_same_table(sequential: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    script = (
        "import json, multum\n"
        f"found = multum.compare('digits', 'small-cnn', 'single,packed:members=2', out={str(tmp_path)!r}, on='ray', "
        f"jobs=2, **{QUICK!r})\nprint(json.dumps(found['rows']))"
    )
    # A process of its own: Ray leaves threads and warnings behind.
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert numbers({"rows": json.loads(ran.stdout.splitlines()[-1])}) == numbers(sequential[1])


def test_files_come_back_from_workers_that_do_not_see_the_folder(tmp_path: Path) -> None:
    cell = Cell("single", 0, "digits", "small-cnn", multum.Single(), {"epochs": 1})
    outcome, files = runners._task(cell, str(tmp_path / "elsewhere"), "mark", 1)
    assert outcome.done and {RESULT, "examples.safetensors", "model.safetensors", "log.jsonl", "run.json"} <= set(files)
    assert not (tmp_path / "elsewhere").exists()


def test_a_method_that_fails_leaves_the_others_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*args: Any) -> None:
        raise RuntimeError("made to fail")

    with monkeypatch.context() as patch:
        patch.setattr(multum.Deep, "birth", explode)
        document = multum.compare("digits", "small-cnn", "single,deep:members=2", out=tmp_path, **{**QUICK, "seeds": 1})
    assert [row["status"] for row in document["rows"]] == ["done", "failed"]
    assert document["rows"][1]["reason"] == "seed 0: RuntimeError: made to fail"
    for name in ("report.html", "report.md"):
        assert "made to fail" in (tmp_path / name).read_text()
    assert "explode" in next(tmp_path.glob("deep*/failure.txt")).read_text()
    # Mended, the same call runs what failed, and only that.
    before = results(tmp_path)
    document = multum.compare("digits", "small-cnn", "single,deep:members=2", out=tmp_path, **{**QUICK, "seeds": 1})
    assert [row["status"] for row in document["rows"]] == ["done", "done"]
    assert {k: v for k, v in results(tmp_path).items() if k in before} == before


def test_a_cell_whose_process_dies_leaves_the_others_whole(tmp_path: Path) -> None:
    methods = {"good": multum.Single(), "bad": Deadly()}
    cells = [Cell(name, 0, "digits", "small-cnn", method, {"epochs": 1}) for name, method in methods.items()]
    outcomes = runners.processes(cells, tmp_path, 1, lambda cell: None, 2)
    assert {(outcome.name.split("-")[0], outcome.reason) for outcome in outcomes} == {
        ("good", None),
        ("bad", "its process ended with SIGKILL; out of memory is the usual cause"),
    }


def run(out: Path, *more: str) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "multum",
        "compare",
        *COMMAND,
        "--shift",
        "none",
        "--tune",
        "0",
        "--threads",
        "1",
        "batch_size=256",
        *more,
    ]
    return subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_killed_and_run_again_ends_as_if_never_stopped(
    sequential: tuple[Path, dict[str, Any]], tmp_path: Path, jobs: str
) -> None:
    killed = tmp_path / "killed"
    first = run(killed, "--jobs", jobs)
    until = time.monotonic() + 120
    while not results(killed) and first.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    before = results(killed)
    assert first.returncode == -signal.SIGKILL and 1 <= len(before) < 4, "killed too early or too late"
    document = multum.compare("digits", "small-cnn", "single,packed:members=2", out=killed, jobs=int(jobs), **QUICK)
    assert {k: v for k, v in results(killed).items() if k in before} == before  # not run twice
    assert set(results(killed)) == set(results(sequential[0])) and numbers(document) == numbers(sequential[1])


def test_one_comparison_at_a_time(tmp_path: Path) -> None:
    with files.locked(tmp_path), pytest.raises(FileError, match="another one at work"):
        multum.compare("digits", "small-cnn", "single", out=tmp_path, **QUICK)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"data": "digitz"}, DataError, "Did you mean digits"),
        ({"methods": "packd"}, ConfigError, "Did you mean packed"),
        ({"methods": "packed:alfa=2"}, ConfigError, "Did you mean alpha"),
        ({"model": "small-cnm"}, multum.errors.MultumError, "small-cnn"),
        ({"recipe": {"lrr": 1}}, ConfigError, "Did you mean lr"),
        ({"seeds": 0}, ConfigError, "seeds"),
        ({"jobs": 0}, ConfigError, "jobs"),
        ({"tune": 1}, ConfigError, "2 learning rates"),
        ({"methods": "single@dear"}, ConfigError, "`budget` must be"),
        ({"on": "mars"}, ConfigError, "'here' or 'ray'"),
        ({"shift": "some"}, ConfigError, "none, quick or all"),
        ({"budget": "cheap"}, ConfigError, "`budget` must be"),
        ({"data": "diabetes", "ood": ["mnist"]}, ConfigError, "regression"),
        ({"ood": ["nowhere"]}, DataError, "nowhere"),
    ],
    ids=str,
)
def test_bad_input_is_told_before_anything_is_written(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    out = tmp_path / "out"
    given = {"data": "digits", "model": "small-cnn", "methods": "single", "out": out, **QUICK, **changes}
    with pytest.raises(error, match=message):
        multum.compare(**given)
    assert not out.exists()


def test_regression_has_its_own_columns(tmp_path: Path) -> None:
    document = multum.compare("diabetes", None, "single,deep:members=2", out=tmp_path, **QUICK)
    keys = [column["key"] for column in document["columns"]]
    assert keys[:2] == ["rmse", "nll"] and "accuracy" not in keys and "epistemic_share" in keys
    assert document["cells"][0]["curves"].keys() == {"quantiles", "training"}


def table(folder: Path, rows: list[str]) -> str:
    (folder / "table.csv").write_text("\n".join(["a,b,y", *rows]) + "\n")
    return f"csv:{folder / 'table.csv'}#target=y"


def unreadable(folder: Path) -> str:
    for name in ("one", "two"):
        (folder / "images" / name).mkdir(parents=True)
        for i in range(5):
            (folder / "images" / name / f"{i}.png").write_bytes(b"not an image")
    return f"folder:{folder / 'images'}"


MANY = [f"{i},{i % 7},{'yes' if i % 3 else 'no'}" for i in range(60)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: table(d, MANY[:3]), "3"),
        (lambda d: table(d, [f"{i},{i % 7},yes" for i in range(60)]), "class"),
        (lambda d: table(d, MANY).replace("=y", "=yy"), "yy"),
        (lambda d: table(d, [f"{i},{i % 7}," for i in range(60)]), "with a target"),
        (lambda d: f"csv:{d / 'absent.csv'}#target=y", "absent.csv"),
        (unreadable, "Repair or remove"),
        (lambda d: f"npz:{d / 'absent.npz'}", "absent.npz"),
    ],
    ids=["three rows", "one class", "unknown column", "no target", "no table", "unreadable image", "no arrays"],
)
def test_data_that_cannot_be_used_is_told_before_anything_is_written(tmp_path: Path, make: Any, message: str) -> None:
    out = tmp_path / "out"
    with pytest.raises(DataError, match=message):
        multum.compare(make(tmp_path), None, "single", out=out, **QUICK)
    assert not out.exists()


def test_constant_and_empty_columns_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,same,none,y\n" + "".join(f"{i % 9},1,,{i % 2}\n" for i in range(60)))
    document = multum.compare(f"csv:{tmp_path / 't.csv'}#target=y", None, "single", out=tmp_path / "out", **QUICK)
    assert document["rows"][0]["status"] == "done" and document["classes"] == ["0", "1"]


@pytest.mark.parametrize("place", ["/proc/multum", "file"])
def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(multum.errors.MultumError, match=r"writ|folder"):
        multum.compare("digits", "small-cnn", "single", out=tmp_path / place, **QUICK)
    assert (tmp_path / "file").read_text() == "no folder"


def test_a_budget_names_what_it_changed(tmp_path: Path) -> None:
    given = {**QUICK, "seeds": 1, "budget": "1x"}
    document = multum.compare("digits", "small-cnn", "single,packed,deep", out=tmp_path, **given)
    assert [row["label"] for row in document["rows"]] == ["single", "packed (alpha=1.8333)", "deep (thin=0.4583)"]
    costs = [[row["values"][key]["mean"] for key in ("params", "macs")] for row in document["rows"]]
    assert all(value <= 1.01 * limit for cost in costs for value, limit in zip(cost, costs[0], strict=True))
    assert document["settings"]["budget"] == "1x"


def test_all_corruptions_are_the_fifteen_that_papers_average() -> None:
    digits = multum.load_data("digits")
    names, _ = _corruptions("all", digits)
    assert len(names) == 15 and not {"speckle_noise", "gaussian_blur", "spatter", "saturate"} & {*names}
    assert _corruptions("all", multum.load_data("diabetes")) == ((), None)
