"""Means, errors, who is best, who is as good, and the advice: on results made by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import multum
from multum.comparing.advice import advise
from multum.comparing.budget import Budget
from multum.comparing.gather import rows_of
from multum.runs.cells import Cell
from multum.runs.work import Finished

SEEDS = (0, 1, 2)


def cells_of(**methods: Any) -> list[Cell]:
    return [Cell(label, s, "digits", "small-cnn", m, {"epochs": 1}) for s in SEEDS for label, m in methods.items()]


def result(nll: float, params: int = 100, macs: int = 1000, part: str = "same", **numbers: float) -> dict[str, Any]:
    return {
        "task": "classification",
        "test_part": part,
        "numbers": {"nll": nll, "accuracy": 0.9, **numbers},
        "cost": {"params": params, "macs": macs},
        "seconds": {"training": 1.0, "measuring": 1.0},
        "curves": {},
    }


def finished(results: dict[str, dict[int, dict[str, Any]]], shifts: dict[str, float]) -> Any:
    """Results with values of 400 test examples, which are the same for all methods but for noise and a shift."""

    def examples(label: str, seed: int) -> dict[str, torch.Tensor]:
        noise = torch.randn(400, generator=torch.Generator().manual_seed(seed))
        own = 0.1 * torch.randn(400, generator=torch.Generator().manual_seed(100 + seed + len(label)))
        values = noise + own + shifts[label]
        return {"nll": values, "accuracy": (values < 0).float()}

    return {
        label: {seed: Finished(values, examples(label, seed)) for seed, values in seeds.items()}
        for label, seeds in results.items()
    }


def test_means_errors_and_the_best() -> None:
    cells = cells_of(single=multum.Single(), deep=multum.Deep())
    results = {
        "single": {s: result(0.5 + 0.1 * s, ece=0.2) for s in SEEDS},
        "deep": {s: result(0.3 + 0.1 * s, params=400, ece=0.1 + 0.3 * s) for s in SEEDS},
    }
    shifts = {"single": 0.5, "deep": 0.0}
    columns, rows = rows_of(cells, finished(results, shifts), {}, {"single": 1.0, "deep": 4.0})
    single, deep = rows
    assert deep["values"]["nll"]["mean"] == pytest.approx(0.4)
    assert deep["values"]["nll"]["error"] == pytest.approx(0.1 / 3**0.5)
    assert deep["values"]["nll"]["best"] and single["values"]["nll"]["tied"] is False
    assert deep["values"]["params"] == {"mean": 400, "error": None, "seeds": [400] * 3, "best": False, "tied": None}
    assert single["values"]["ece"]["best"] and deep["values"]["ece"]["tied"] is True  # one seed of three is better
    assert single["values"]["latency"]["best"] and single["status"] == deep["status"] == "done"
    assert [c.key for c in columns] == ["accuracy", "nll", "ece", "params", "macs", "latency", "train_seconds"]


def test_no_difference_over_examples_is_a_tie_and_seeds_too_few_are_none() -> None:
    cells = [c for c in cells_of(single=multum.Single(), deep=multum.Deep()) if c.seed < 2]
    results = {label: {s: result(v, ece=v) for s in (0, 1)} for label, v in (("single", 0.501), ("deep", 0.5))}
    _, rows = rows_of(cells, finished(results, {"single": 0.001, "deep": 0.0}), {}, {})
    assert rows[0]["values"]["nll"]["tied"] is True and rows[0]["values"]["ece"]["tied"] is None


def test_failed_cells_have_reasons() -> None:
    cells = cells_of(single=multum.Single(), deep=multum.Deep(), mimo=multum.Mimo())
    reasons = {c.name: "out of luck" for c in cells if c.label == "mimo" or (c.label == "deep" and c.seed == 1)}
    results = {"single": {s: result(0.5) for s in SEEDS}, "deep": {s: result(0.4) for s in (0, 2)}}
    _, rows = rows_of(cells, finished(results, {"single": 0.0, "deep": 0.0}), reasons, {})
    assert [row["status"] for row in rows] == ["done", "partly", "failed"]
    assert rows[1]["reason"] == "seed 1: out of luck" and rows[2]["values"] == {}
    assert "mimo failed: seed 0, 1, 2: out of luck" in advise(rows)["notes"][1]


def row(label: str, nll: float, macs: float, *, best: bool = False, tied: bool | None = False) -> dict[str, Any]:
    values = {
        "nll": {"mean": nll, "error": 0.001, "best": best, "tied": tied},
        "accuracy": {"mean": 0.9},
        "params": {"mean": macs / 10},
        "macs": {"mean": macs},
    }
    return {"label": label, "name": label, "status": "done", "reason": None, "values": values}


def test_advice_is_the_cheapest_of_the_best() -> None:
    rows = [row("single", 0.5, 100), row("deep", 0.40, 400, best=True), row("packed", 0.41, 110, tied=True)]
    found = advise(rows)
    assert found["label"] == "packed"
    assert "1.10x its mult-adds" in found["sentence"] and "deep is not measurably better" in found["sentence"]


def test_advice_says_where_an_ensemble_does_not_help() -> None:
    rows = [row("single", 0.4, 100, best=True), row("deep", 0.41, 400, tied=True), row("packed", 0.6, 110)]
    found = advise(rows)
    assert found["label"] == "single" and "an ensemble does not help here" in found["sentence"]
    assert found["notes"] == ["Worse than one network here, by NLL: packed."]


def test_advice_keeps_to_the_budget() -> None:
    rows = [row("single", 0.5, 100), row("deep", 0.4, 400, best=True), row("packed", 0.45, 110)]
    found = advise(rows, Budget("1.2x", params=12, macs=120))
    assert found["label"] == "packed"
    assert found["notes"] == ["deep has a lower NLL (0.4000) but is over the budget of 1.2x"]
    assert advise(rows, Budget("0.1x", params=1, macs=10))["label"] is None


def test_no_advice_where_everything_failed() -> None:
    failed = {"label": "deep", "name": "deep", "status": "failed", "reason": "no", "values": {}}
    assert advise([failed]) == {
        "label": None,
        "sentence": "No advice: every method failed.",
        "notes": ["deep failed: no"],
    }


def test_one_example_far_off_makes_no_tie() -> None:
    cells = cells_of(single=multum.Single(), deep=multum.Deep())
    results = {"single": {s: result(2500.0) for s in SEEDS}, "deep": {s: result(0.5) for s in SEEDS}}
    done = finished(results, {"single": 0.3, "deep": 0.0})
    for cell in done["single"].values():
        cell.examples["nll"][0] = 1e6
    _, rows = rows_of(cells, done, {}, {})
    assert rows[0]["values"]["nll"]["tied"] is False


def test_advice_never_takes_what_is_worse_than_one_network() -> None:
    rows = [row("single", 0.5, 100), row("deep", 0.4, 400, best=True), row("masksembles", 111.0, 350, tied=True)]
    assert advise(rows)["label"] == "deep"
