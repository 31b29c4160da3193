"""Means, errors, who is best, who is as good, and the advice: on results made by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import multum
from multum.comparing.advice import advise
from multum.comparing.gather import rows_of
from multum.runs.cells import Cell, Finished

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
    columns, rows, _ = rows_of(cells, finished(results, shifts), {}, {"single": 1.0, "deep": 4.0})
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
    _, rows, _ = rows_of(cells, finished(results, {"single": 0.001, "deep": 0.0}), {}, {})
    assert rows[0]["values"]["nll"]["tied"] is True and rows[0]["values"]["ece"]["tied"] is None


def test_failed_cells_have_reasons() -> None:
    cells = cells_of(single=multum.Single(), deep=multum.Deep(), mimo=multum.Mimo())
    reasons = {c.name: "out of luck" for c in cells if c.label == "mimo" or (c.label == "deep" and c.seed == 1)}
    results = {"single": {s: result(0.5) for s in SEEDS}, "deep": {s: result(0.4) for s in (0, 2)}}
    _, rows, _ = rows_of(cells, finished(results, {"single": 0.0, "deep": 0.0}), reasons, {})
    assert [row["status"] for row in rows] == ["done", "partly", "failed"]
    assert rows[1]["reason"] == "seed 1: out of luck" and rows[2]["values"] == {}
    assert "mimo failed: seed 0, 1, 2: out of luck" in advise(rows)["notes"][1]


def test_seeds_that_disagree_make_a_tie_however_many_examples_there_are() -> None:
    cells = cells_of(single=multum.Single(), deep=multum.Deep())
    results = {"single": {s: result(0.5) for s in SEEDS}, "deep": {s: result(0.45) for s in SEEDS}}
    done = finished(results, {"single": 0.05, "deep": 0.0})
    for seed, shift in zip(SEEDS, (-1.0, 1.5, -0.5), strict=True):
        done["single"][seed].examples["nll"].add_(shift)
    _, rows, _ = rows_of(cells, done, {}, {})
    assert rows[0]["values"]["nll"]["tied"] is True


CALIBRATED = {"calibrated_nll": 0.0, "temperature": 1.2, "chance_nll": 2.3, "chance_accuracy": 0.1}


def compared(levels: dict[str, float], methods: dict[str, Any], curves: dict[str, Any] | None = None) -> Any:
    """Rows of methods with these calibrated NLLs."""
    cells = cells_of(**methods)
    results = {}
    for label, nll in levels.items():
        results[label] = {s: result(nll, **CALIBRATED | {"calibrated_nll": nll}) for s in SEEDS}
        for values in results[label].values():
            values["curves"] = (curves or {}).get(label, {})
    done = finished(results, levels)
    for label, seeds in done.items():
        for seed, cell in seeds.items():
            noise = 0.01 * torch.randn(400, generator=torch.Generator().manual_seed(seed + 7 * len(label)))
            cell.examples["calibrated_nll"] = levels[label] + noise - noise.mean()
    return rows_of(cells, done, {}, {})


METHODS = {"single": multum.Single(), "deep": multum.Deep(), "packed": multum.Packed()}


@pytest.mark.parametrize(("deep", "verdicts"), [(3.0, [False, True]), (0.9, [None, None]), (0.0, [True, True])])
def test_noise_by_which_networks_of_their_own_are_one_model_says_nothing(deep: float, verdicts: list) -> None:
    """Of members that differ by this times the noise of one, and of others that differ by half of it."""
    cells = cells_of(deep=multum.Deep(), batchensemble=multum.BatchEnsemble())
    done = finished(
        {name: {s: result(0.4) for s in SEEDS} for name in ("deep", "batchensemble")},
        dict.fromkeys(("deep", "batchensemble"), 0.0),
    )
    for name, factor in {"deep": deep, "batchensemble": 0.5}.items():
        for cell in done[name].values():
            cell.examples["variance_of_one_member"] = torch.linspace(0.9, 1.1, 100)
            cell.examples["variance_of_members"] = factor * torch.linspace(0.9, 1.1, 100)
    rows = rows_of(cells, done, {}, {})[1]
    assert [row["one_model"] for row in rows] == verdicts
    assert [row.get("coarse") for row in rows] == ["deep" if verdicts[0] is None else None] * 2


def test_rows_hold_what_a_document_promises() -> None:
    columns, rows, versus = compared({"single": 0.5, "deep": 0.3, "packed": 0.4}, METHODS)
    single, deep, packed = rows
    assert packed["against"]["best"]["label"] == "deep" and packed["against"]["single"]["label"] == "single"
    assert deep["against"]["best"] is None and single["against"]["single"] is None
    best = packed["against"]["best"]
    assert best["mean"] == pytest.approx(0.1, abs=1e-6) and best["p"] < 0.01
    assert best["low"] < best["mean"] < best["high"]
    value = packed["values"]["calibrated_nll"]
    assert value["low"] < value["mean"] < value["high"] and not value["best"] and value["tied"] is False
    assert not any(row["control"] for row in rows) and all(row["one_model"] is None for row in rows)
    assert [row["converged"] for row in rows] == [None] * 3 and rows[0]["tuned"] is None
    assert versus.key == "calibrated_nll"
    assert {c.key for c in columns if c.main} >= {"accuracy", "nll", "calibrated_nll", "macs"}


def test_a_method_is_worth_so_many_independent_networks() -> None:
    curve = {"by_members": {"members": [1, 2, 3, 4], "nll": [0.5, 0.4, 0.35, 0.3]}}
    levels = {"single": 0.503, "deep": 0.3, "packed": 0.45, "mimo": 0.6, "swag": 0.2}
    methods = {**METHODS, "mimo": multum.Mimo(), "swag": multum.Swag()}
    columns, rows, _ = compared(levels, methods, {"deep": curve})
    assert [row["equivalent"] for row in rows] == ["1.0", "4.0", "1.5", "< 1", "> 4"]
    value = rows[2]["values"]["equivalent"]
    assert 1.4 < value["low"] < value["mean"] < value["high"] < 1.6
    assert "equivalent" in [c.key for c in columns]


def test_without_independent_networks_there_is_no_worth() -> None:
    alone = {"single": 0.5, "packed": 0.45}
    columns, rows, _ = compared(alone, {name: METHODS[name] for name in alone})
    assert rows[0]["equivalent"] is None and "equivalent" not in [c.key for c in columns]
    flat = {"by_members": {"members": [1, 2], "nll": [0.5, 0.499]}}  # two are no better than one
    assert compared({"single": 0.5, "deep": 0.499}, METHODS, {"deep": flat})[1][0]["equivalent"] is None
    steep = {"by_members": {"members": [1, 2], "nll": [0.5, 0.4]}}  # but one network, tuned apart, is as good
    assert compared({"single": 0.4, "deep": 0.4}, METHODS, {"deep": steep})[1][0]["equivalent"] is None
    assert compared({"single": 0.5, "deep": 0.4}, METHODS, {"deep": steep})[1][0]["equivalent"] == "1.0"


@pytest.mark.parametrize(
    ("losses", "recipe", "converged"),
    [
        ([2.0, 1.0, 0.6, 0.5, 0.49], {"epochs": 5}, True),
        ([2.0, 1.5, 1.0, 0.5], {"epochs": 4}, False),
        ([2.0, 1.5, 1.0, 0.5], {"epochs": 50, "patience": 2}, True),  # stopped early
        ([2.0, 1.5, 1.0, 0.5], {"epochs": 4, "patience": 2}, False),  # the epochs were over
        ([2.0], {"epochs": 1}, None),
        ([], {"epochs": 1}, None),
    ],
)
def test_whether_runs_converged(losses: list[float], recipe: dict[str, Any], converged: bool | None) -> None:
    cells = [Cell("single", s, "digits", "small-cnn", multum.Single(), recipe) for s in SEEDS]
    values = {s: {**result(0.5), "curves": {"training": [{"loss": loss} for loss in losses]}} for s in SEEDS}
    _, rows, _ = rows_of(cells, finished({"single": values}, {"single": 0.0}), {}, {})
    assert rows[0]["converged"] is converged


def test_what_each_method_learned_is_measured_from_chance() -> None:
    _, rows, _ = compared({"single": 0.3, "deep": 2.29, "packed": 1.3}, METHODS)
    assert [row["learned"] for row in rows] == pytest.approx([1.0, 0.005, 0.5])


def test_results_of_an_older_multum_are_read() -> None:
    cells = cells_of(single=multum.Single(), deep=multum.Deep())
    results = {"single": {s: result(0.5) for s in SEEDS}, "deep": {s: result(0.3) for s in SEEDS}}
    columns, rows, versus = rows_of(cells, finished(results, {"single": 0.2, "deep": 0.0}), {}, {})
    assert versus.key == "nll" and "calibrated_nll" not in [c.key for c in columns]
    assert rows[0]["against"]["best"]["label"] == "deep" and rows[0]["learned"] is None
    assert advise(rows, None, versus, 0.005, 20)["label"] == "deep"


def test_intervals_of_shares_and_scores_end_where_these_do() -> None:
    cells = cells_of(single=multum.Single(), deep=multum.Deep())
    right = torch.ones(40)
    right[0] = 0.0
    examples = {"accuracy": right, "calibrated_nll": 1 - right, "nll": 1 - right}
    numbers = {"accuracy": 39 / 40, "calibrated_nll": 1 / 40, "nll": 1 / 40}
    results = {
        label: {s: Finished({**result(0.5), "numbers": {**result(0.5)["numbers"], **numbers}}, examples) for s in SEEDS}
        for label in ("single", "deep")
    }
    _, rows, _ = rows_of(cells, results, {}, {})
    values = rows[0]["values"]
    assert values["accuracy"]["high"] == 1.0 > values["accuracy"]["low"] > 0.9
    assert values["calibrated_nll"]["low"] == 0.0 < values["calibrated_nll"]["high"]
