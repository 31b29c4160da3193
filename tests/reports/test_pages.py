"""Pages of docs/results that scripts write: the same bytes from the JSON beside them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from multum.methods import METHODS

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cascade", "plans"])
def test_a_page_is_made_of_its_results(name: str) -> None:
    results = ROOT / "docs" / "results"
    kept = json.loads((results / f"{name}.json").read_text())
    assert script(name).page_of(kept) == (results / f"{name}.md").read_text()


def test_for_every_method_there_is_a_budget_whose_largest_it_is() -> None:
    kept = json.loads((ROOT / "docs" / "results" / "plans.json").read_text())
    for network, rows in kept.items():
        assert {row["method"] for row in rows} == {*METHODS} - {"single"}, network
        assert all(row["method"] in row["largest"] for row in rows), network


def test_the_study_of_cascades_is_the_one_that_was_decided() -> None:
    kept, study = json.loads((ROOT / "docs" / "results" / "cascade.json").read_text()), script("cascade")
    cases = {(row["method"], row["size"], row["loss"]) for row in kept["rows"]}
    labels = [method.partition(":")[0] for method in study.METHODS]
    assert cases == {(label, size, loss) for label in labels for size in study.SIZES for loss in study.LOSSES}
    assert all(row["draws"] == study.DRAWS * len(study.SEEDS) for row in kept["held"])
