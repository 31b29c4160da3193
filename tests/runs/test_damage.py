"""Run folders and cells with damaged files: refused in one sentence, or set aside and run again."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import multum
from multum import files
from multum.comparing.document import _kept_latencies, _latencies
from multum.errors import FileError, MultumError
from multum.runs import cells as working
from multum.runs import pool
from multum.runs.cells import EXAMPLES, RESULT, Cell, finished, is_done, work
from multum.runs.folder import open_run
from multum.runs.pool import run_cells
from multum.runs.train import train

RECIPE = {"epochs": 1, "batch_size": 256}
FIRST, SECOND = (Cell("single", s, "digits#first=300", "small-cnn", multum.Single(), RECIPE) for s in (0, 1))


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cells that are done."""
    out = tmp_path_factory.mktemp("cells")
    for cell in (FIRST, SECOND):
        assert work(cell, out / cell.name, 1).done
    return out


def edited(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def swapped(out: Path, name: str) -> None:
    one, two = out / FIRST.name / name, out / SECOND.name / name
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)


def shortened(path: Path) -> None:
    save_file({name: values[:-1] for name, values in load_file(path).items()}, path)


def unfinished(out: Path, lacking: str) -> None:
    for name in (RESULT, lacking):
        (out / FIRST.name / name).unlink()


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "empty result": lambda out: (out / FIRST.name / RESULT).write_text(""),
    "a list": lambda out: (out / FIRST.name / RESULT).write_text("[]"),
    "no numbers": lambda out: (out / FIRST.name / RESULT).write_text("{}"),
    "accuracy of 99": lambda out: edited(out / FIRST.name / RESULT, lambda r: r["numbers"].update(accuracy=99)),
    "another's result": lambda out: swapped(out, RESULT),
    "another's examples": lambda out: swapped(out, EXAMPLES),
    "empty examples": lambda out: (out / FIRST.name / EXAMPLES).write_bytes(b""),
    "no examples": lambda out: (out / FIRST.name / EXAMPLES).unlink(),
    "too few examples": lambda out: shortened(out / FIRST.name / EXAMPLES),
    "empty run": lambda out: (out / FIRST.name / "run.json").write_text(""),
    "another's run": lambda out: swapped(out, "run.json"),
    "empty training": lambda out: (out / FIRST.name / "training.json").write_text(""),
    "unfinished, no preparation": lambda out: unfinished(out, "preparation.json"),
    "unfinished, no split": lambda out: unfinished(out, "split.safetensors"),
    "unfinished, of the first format": lambda out: (
        unfinished(out, "preparation.json"),
        edited(out / FIRST.name / "run.json", lambda run: run.pop("format")),
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_cell_is_named_set_aside_and_run_again(
    cells: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    out = shutil.copytree(cells, tmp_path / "out")
    DAMAGE[kind](out)
    ran = []
    monkeypatch.setattr(pool, "work", lambda cell, *rest: ran.append(cell) or working.Outcome(cell.name))
    with caplog.at_level(logging.WARNING, "multum"):
        run_cells([FIRST, SECOND], out, 1, runner=pool.here, threads=1, progress=False)
    damaged = [FIRST, SECOND] if kind.startswith("another") else [FIRST]
    assert ran == damaged
    assert (out / f"{FIRST.name}.damaged-1").is_dir() and not (out / FIRST.name).exists()
    assert [record.args[0] for record in caplog.records] == [cell.name for cell in damaged]  # type: ignore[index]


def test_what_is_run_again_gives_the_same(cells: Path, tmp_path: Path) -> None:
    out = shutil.copytree(cells, tmp_path / "out")
    DAMAGE["empty result"](out)
    outcomes = run_cells([FIRST, SECOND], out, 1, runner=pool.here, threads=1, progress=False)
    assert all(outcome.done for outcome in outcomes.values())
    again, before = finished(FIRST, out), finished(FIRST, cells)
    assert again is not None and before is not None and again.result["numbers"] == before.result["numbers"]
    assert all(torch.equal(again.examples[name], before.examples[name]) for name in before.examples)


def test_a_damaged_cell_that_is_only_read_is_left_out(
    cells: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = shutil.copytree(cells, tmp_path / "out")
    DAMAGE["accuracy of 99"](out)
    assert is_done(FIRST, out) and finished(FIRST, out) is None and finished(SECOND, out) is not None
    assert FIRST.name in caplog.text and "checksum" in caplog.text


def test_data_is_loaded_once_per_cell_and_the_model_is_not_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    monkeypatch.setattr(
        working, "load_data", lambda name, **seed: loaded.append(name) or multum.load_data(name, **seed)
    )
    for place in ("train.load_data", "folder.load_data", "folder.load"):
        monkeypatch.setattr(f"multum.runs.{place}", lambda *a, **k: pytest.fail("read again"))
    outcome = work(FIRST, tmp_path / "cell", 1)
    assert outcome.done, outcome.reason
    assert loaded == ["digits#first=300"]


def test_a_cell_that_was_stopped_before_it_was_measured_gives_the_same(cells: Path, tmp_path: Path) -> None:
    shutil.copytree(cells / FIRST.name, tmp_path / FIRST.name)
    (tmp_path / FIRST.name / RESULT).unlink()
    (tmp_path / FIRST.name / EXAMPLES).unlink()
    assert work(FIRST, tmp_path / FIRST.name, 1).done  # from model.safetensors
    again, before = finished(FIRST, tmp_path), finished(FIRST, cells)
    assert again is not None and before is not None and again.result["numbers"] == before.result["numbers"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"data": 3}',
        '{"data": "digits", "model": "mlp", "method": {}, "recipe": {}}',
        '{"data": "digits", "model": "mlp", "method": {"name": "single"}, "recipe": {"epochs": "many"}}',
        '{"data": "digits", "model": "mlp", "method": {"name": "single"}, "recipe": {"epoch": 1}}',
        '{"data": "digits", "model": "mlp", "method": {"name": "single"}, "recipe": {}, "last": 3}',
    ],
)
def test_a_damaged_run_is_refused_in_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(FileError, match=r"run\.json must hold .*; got .*Remove it"):
        open_run(tmp_path)
    with pytest.raises(FileError, match=r"run\.json must hold"):
        train("digits#first=300", None, "single", tmp_path, RECIPE)


def test_damaged_latencies_are_measured_again(tmp_path: Path) -> None:
    path, whole = tmp_path / "speed.json", {"cells": ["a"], "latency": {"single": 1.5}}
    assert _kept_latencies(path, ["a"], {"single"}) is None
    files.write_json(path, whole)
    assert _kept_latencies(path, ["a"], {"single"}) == {"single": 1.5}
    for content in ("", "[]", "{}", '{"cells": ["a"]}', '{"cells": ["a"], "latency": {"single": "fast"}}'):
        path.write_text(content)
        assert _kept_latencies(path, ["a"], {"single"}) is None
    files.write_json(path, {**whole, "latency": {"single": -1.0}})
    assert _kept_latencies(path, ["a"], {"single"}) is None


def test_one_training_at_a_time(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    with files.locked(out), pytest.raises(FileError, match="another one at work"):
        train("digits#first=300", None, "single", out, RECIPE)
    assert not (out / "run.json").exists()
    train("digits#first=300", None, "single", out, RECIPE)
    with files.locked(out):  # what is finished is read without a lock
        assert train("digits#first=300", None, "single", out, RECIPE)["last"]["epoch"] == 1


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_files_can_be_read_by_whom_the_umask_allows(cells: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    names = ("run.json", "training.json", "model.safetensors", RESULT, EXAMPLES)
    modes = {name: (cells / FIRST.name / name).stat().st_mode & 0o777 for name in names}
    assert modes == dict.fromkeys(names, 0o666 & ~mask)


def test_what_is_set_aside_is_numbered(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / "cell").mkdir()
        assert files.set_aside(tmp_path / "cell") == tmp_path / f"cell.damaged-{number}"
    with pytest.raises(MultumError, match="must be free to be renamed"):
        files.set_aside(tmp_path / "cell")


def test_a_damaged_model_has_no_latency_and_stops_no_other(cells: Path, tmp_path: Path, caplog) -> None:
    out = shutil.copytree(cells, tmp_path / "cells")
    results = {"first": {0: finished(FIRST, out)}, "second": {1: finished(SECOND, out)}}
    named = [replace(FIRST, label="first"), replace(SECOND, label="second")]
    for cell, model in zip(named, (FIRST, SECOND), strict=True):
        (out / model.name).rename(out / cell.name)
    (out / named[0].name / "model.safetensors").write_bytes(b"damaged")
    latencies = _latencies(named, results, multum.load_data("digits#first=300"), out, threads=1)
    assert latencies.keys() == {"second"} and "first has no latency" in caplog.text
