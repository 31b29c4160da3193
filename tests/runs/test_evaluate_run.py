"""`multum evaluate` on a run of two classes: tables by class, confusions and thresholds, on a terminal and as JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from multum.errors import MultumError, TrainingError
from multum.files import dumps
from multum.runs.evaluate import evaluate_run, tables
from multum.runs.folder import RunFolder
from multum.runs.predict import predict_run
from multum.runs.train import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    rng = np.random.default_rng(0)
    a = rng.normal(size=400)
    rows = [f"{x:.3f},{'go' if x + 0.5 * rng.normal() > 1.3 else 'stay'}" for x in a]
    (folder / "two.csv").write_text("a,state\n" + "\n".join(rows) + "\n")
    overrides = {"epochs": 3, "keep": "best", "validation": 0.25, "class_weights": "balanced"}
    train(f"csv:{folder}/two.csv#target=state", "mlp:hidden=8", "deep:members=2", folder / "run", overrides)
    return folder / "run"


def printed(numbers) -> str:
    console = Console(file=io.StringIO(), width=160)
    for table in tables(numbers):
        console.print(table)
    return console.file.getvalue()


def test_the_rarer_class_is_positive_and_classes_have_names(run):
    numbers = evaluate_run(run, progress=False)
    assert numbers["by_class"]["positive"] == "go" and numbers["by_class"]["uneven"]
    assert [row["class"] for row in numbers["by_class"]["rows"]] == ["go", "stay"]
    text = printed(numbers)
    for words in ("class by class; positive: go", "as stay", "balanced_accuracy", "class_auprc", "thresholds for go"):
        assert words in text, words


def test_thresholds_come_from_the_part_that_was_held_out(run):
    numbers = evaluate_run(run, cost_ratio=3.0, progress=False)
    thresholds = numbers["by_class"]["thresholds"]
    assert set(thresholds) == {"f1", "balanced_accuracy", "cost"}
    assert all(row["held_out"] == 80 for row in thresholds.values())  # a quarter of the 320 rows for training
    assert thresholds["cost"]["cost"] >= 0 and "cost" not in thresholds["f1"]
    assert json.loads(dumps(numbers))["by_class"]["thresholds"] == thresholds


def test_a_run_without_held_out_examples_has_no_thresholds(run, tmp_path):
    source = f"csv:{run.parent}/two.csv#target=state"
    train(source, "mlp:hidden=4", "single", tmp_path / "run", {"epochs": 1, "validation": 0})
    assert "thresholds" not in evaluate_run(tmp_path / "run", progress=False)["by_class"]


def test_a_run_of_before_recipes_had_a_field_is_still_that_run(run, tmp_path):
    source = f"csv:{run.parent}/two.csv#target=state"
    settings = {"epochs": 1, "seed": 3}
    train(source, "mlp:hidden=4", "single", tmp_path / "run", settings)
    for name in ("run.json", "training.json"):
        path = tmp_path / "run" / name
        described = json.loads(path.read_text())
        for field in ("loss", "focal_gamma", "class_weights"):
            del described["recipe"][field]
        path.write_text(json.dumps(described))
    assert train(source, "mlp:hidden=4", "single", tmp_path / "run", settings)["last"]["epoch"] == 1
    (tmp_path / "run" / "model.safetensors").unlink()  # not finished: it goes on from its last checkpoint
    assert train(source, "mlp:hidden=4", "single", tmp_path / "run", settings)["last"]["epoch"] == 1
    with pytest.raises(TrainingError, match="another recipe"):
        train(source, "mlp:hidden=4", "single", tmp_path / "run", {**settings, "class_weights": "balanced"})


def test_a_threshold_of_the_least_cost_is_chosen_on_the_outputs_that_a_run_keeps(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(400, 2))
    rare = (x[:, 0] + 0.5 * draw.normal(size=400) > 1.2).astype(int)
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "rare": rare}).to_csv(tmp_path / "rows.csv", index=False)
    recipe = {"epochs": 3, "class_weights": "balanced"}
    train(f"csv:{tmp_path / 'rows.csv'}#target=rare", None, "deep:members=2", tmp_path / "run", recipe, warn=False)
    rows = evaluate_run(tmp_path / "run", cost_ratio=20.0, progress=False)["by_class"]["thresholds"]
    assert set(rows) == {"f1", "balanced_accuracy", "cost"}
    assert rows["cost"]["threshold"] <= rows["f1"]["threshold"]  # misses are dear: more is called positive
    assert rows["cost"]["held_out"] == len(RunFolder(tmp_path / "run").validation()["targets"])


def test_predict_labels_by_the_threshold_that_is_best_on_held_out_examples(run, tmp_path: Path) -> None:
    pd.DataFrame({"a": np.linspace(-1, 3, 81)}).to_csv(tmp_path / "new.csv", index=False)
    frame = predict_run(run, tmp_path / "new.csv", threshold="cost=20", probabilities=True, progress=False)
    chosen = evaluate_run(run, cost_ratio=20.0, progress=False)["by_class"]["thresholds"]["cost"]["threshold"]
    assert frame.attrs["threshold"]["threshold"] == pytest.approx(chosen)
    assert ((frame["label"] == "go") == (frame["p_go"] >= chosen)).all() and 0 < (frame["label"] == "go").sum() < 81
    plain = predict_run(run, tmp_path / "new.csv", progress=False)
    assert (plain["label"] == "go").sum() != (frame["label"] == "go").sum()
    for wrong, message in (("cost=much", "cost=RATIO; got 'cost=much'"), ("accuracy", "by must be")):
        with pytest.raises(MultumError, match=message):
            predict_run(run, tmp_path / "new.csv", threshold=wrong, progress=False)
