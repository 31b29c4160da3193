"""Tuning: the same runs for every method, the best by the held-out score, and nothing of the test part."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import multum
from multum.comparing import tuning
from multum.comparing.planning import Entry, Setting
from multum.comparing.tuning import FOLDER, ladder, tune
from multum.runs.cells import EXAMPLES, RESULT, Cell, Finished, Outcome

SETTING = Setting("digits", "f", 0, ("ood",), ("fog",), 10, {"epochs": 8})
Score = Callable[[Cell], float | None]


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[Entry], dict, list[list[Cell]]]]:
    """Tunes entries whose cells score as a function says; the entries, the document, and the cells of each stage."""

    def run(entries: Sequence[Entry], score: Score, **options: Any) -> tuple[list[Entry], dict, list[list[Cell]]]:
        stages: list[list[Cell]] = []

        def run_cells(cells: Sequence[Cell], folder: Path, epochs: int, title: str) -> Mapping[str, Outcome]:
            stages.append(list(cells))
            return {cell.name: Outcome(cell.name, None if score(cell) is not None else "it exploded") for cell in cells}

        monkeypatch.setattr(tuning, "finished", lambda cell, out: Finished({"numbers": {"nll": score(cell)}}, {}))
        settings: dict[str, Any] = {"candidates": 4, "epochs": 8, "lr": 0.01, "fixed_lr": False, "seed": 0}
        settings |= {"out": tmp_path, "run": run_cells, "fits": lambda entry: True, **options}
        entries, document = tune(entries, SETTING, **settings)
        return entries, document, stages

    return run


def lr_distance(best: float) -> Score:
    return lambda cell: abs(math.log(cell.recipe["lr"] / best))


@pytest.mark.parametrize(("count", "rates"), [(2, [0.01, 0.032]), (3, [0.0032, 0.01, 0.032]), (5, None)])
def test_ladder(count: int, rates: list[float] | None) -> None:
    steps = ladder(0.01, count)
    assert len(steps) == count and 0.01 in steps and steps == sorted(steps) and (rates is None or steps == rates)


def test_every_method_gets_the_same_runs(tuned: Any) -> None:
    entries = [Entry("single", multum.Single(), "mlp"), Entry("packed", multum.Packed(), "mlp")]
    chosen, document, stages = tuned(entries, lr_distance(0.03))
    assert [len(stage) for stage in stages] == [8, 6]
    for label in ("single", "packed"):
        assert [sum(cell.label == label for cell in stage) for stage in stages] == [4, 3]
    assert {cell.recipe["epochs"] for cell in stages[0]} == {2} and {cell.recipe["epochs"] for cell in stages[1]} == {4}
    assert all(cell.tuning and not cell.ood and not cell.shift for stage in stages for cell in stage)
    assert [entry.tuned for entry in chosen] == [{"lr": 0.032}, {"lr": 0.032}]
    assert document["stages"] == [{"epochs": 2, "runs": 4}, {"epochs": 4, "runs": 3}]
    assert json.loads(json.dumps(document)) == document and not document["methods"]["single"]["edge"]


def test_a_variant_wins_where_it_is_better(tuned: Any) -> None:
    best, other = multum.Packed.variants[0], multum.Packed.variants[1]

    def score(cell: Cell) -> float:
        changed = cell.method == multum.Packed(**best)
        return lr_distance(0.01)(cell) - changed  # type: ignore[operator]

    (packed,), _, stages = tuned([Entry("packed", multum.Packed(), "mlp")], score)
    assert packed.method == multum.Packed(**best) and packed.tuned == {"lr": 0.01, **best}
    assert [cell.method for cell in stages[1]] == [multum.Packed(**fields) for fields in ({}, best, other)]
    fixed = Entry("packed", multum.Packed(), "mlp", fixed=frozenset(best) | frozenset(other))
    (packed,), _, stages = tuned([fixed], score)
    assert packed.method == multum.Packed() and len(stages[1]) == 3  # the next best rates instead
    (packed,), _, stages = tuned([Entry("packed", multum.Packed(), "mlp")], score, fits=lambda entry: False)
    assert packed.method == multum.Packed()


def test_a_rate_that_a_user_sets_stays(tuned: Any) -> None:
    entries = [Entry("single", multum.Single(), "mlp"), Entry("packed", multum.Packed(), "mlp")]
    chosen, document, stages = tuned(entries, lr_distance(0.03), fixed_lr=True)
    assert [entry.tuned for entry in chosen] == [None, {"lr": 0.01}]
    assert [[cell.label for cell in stage] for stage in stages] == [["packed"] * 3]
    assert document["methods"]["single"] == {"chosen": None, "edge": False, "tried": []}


def test_the_end_of_the_ladder_is_said_and_failures_have_reasons(tuned: Any) -> None:
    def score(cell: Cell) -> float | None:
        return None if cell.recipe["lr"] > 0.05 else 1 / cell.recipe["lr"]

    _, document, _ = tuned([Entry("single", multum.Single(), "mlp")], lr_distance(0.1))
    assert document["methods"]["single"]["edge"]
    (single,), document, _ = tuned([Entry("single", multum.Single(), "mlp")], score)
    assert single.tuned == {"lr": 0.032}
    reasons = [trial["reason"] for trial in document["methods"]["single"]["tried"] if trial["nll"] is None]
    assert set(reasons) == {"it exploded"}
    (single,), document, _ = tuned([Entry("single", multum.Single(), "mlp")], lambda cell: math.nan)
    assert single.tuned is None and document["methods"]["single"]["chosen"] is None


def test_a_method_gets_the_epochs_that_it_needs(tuned: Any) -> None:
    _, _, stages = tuned([Entry("snapshot", multum.Snapshot(members=4), "mlp")], lr_distance(0.01))
    assert {cell.recipe["epochs"] for cell in stages[0]} == {4}


QUICK: dict[str, Any] = {"seeds": 1, "epochs": 4, "shift": "none", "ood": [], "threads": 1, "tune": 2}
QUICK["recipe"] = {"batch_size": 64}


def compared(folder: Path, labels: np.ndarray, **options: Any) -> dict[str, Any]:
    """A comparison on digits whose test labels are these."""
    digits = multum.load_data("digits")
    (x_train, y_train), x_test = (t.numpy()[:400] for t in (digits.train.x, digits.train.y)), digits.test.x.numpy()
    folder.mkdir(exist_ok=True)
    np.savez(folder / "d.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=labels)
    options = {**QUICK, "out": folder / "out", **options}
    return multum.compare(f"npz:{folder / 'd.npz'}", "mlp:hidden=64", "single,packed", **options)


def test_permuted_test_labels_change_no_decision(tmp_path: Path) -> None:
    labels = multum.load_data("digits").test.y.numpy()
    permuted = np.random.default_rng(0).permutation(labels)
    true, other = compared(tmp_path / "true", labels), compared(tmp_path / "other", permuted)
    assert true["tuning"] == other["tuning"] and true["tuning"]["methods"]["packed"]["chosen"]
    assert [row["tuned"] for row in true["rows"]] == [row["tuned"] for row in other["rows"]]
    accuracies = [[row["values"]["accuracy"]["mean"] for row in document["rows"]] for document in (true, other)]
    assert min(accuracies[0]) > max(accuracies[1])
    trials = list((tmp_path / "true" / "out" / FOLDER).iterdir())
    assert len(trials) == 2 * (2 + 2) and all({p.name for p in t.iterdir()} == {RESULT, EXAMPLES} for t in trials)
    written = {trial.name: (trial / RESULT).stat().st_mtime_ns for trial in trials}
    again = compared(tmp_path / "true", labels)
    assert again["tuning"] == true["tuning"]
    assert written == {trial.name: (trial / RESULT).stat().st_mtime_ns for trial in trials}  # none was run twice


def test_a_method_that_is_trained_at_a_hundred_times_its_rate_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Entry.cell

    def spoiled(self: Entry, seed: int, setting: Setting, **changes: Any) -> Cell:
        return cell(self, seed, setting, **({"lr": 1.0} if self.label == "packed" else {}))

    monkeypatch.setattr(Entry, "cell", spoiled)
    options = {**QUICK, "seeds": 2, "epochs": 8, "tune": 0, "recipe": {"lr": 0.01, "batch_size": 64}}
    document = multum.compare("digits", "mlp:hidden=64", "single,packed", out=tmp_path, **options)
    notes = [note for note in document["advice"]["notes"] if note.startswith("packed ")]
    assert document["advice"]["label"] == "single"
    assert len(notes) == 1 and ("did not train" in notes[0] or "trained badly" in notes[0]), notes
