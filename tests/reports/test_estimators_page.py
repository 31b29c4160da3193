"""docs/results/estimators.md comes byte for byte from the rows beside it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_is_that_of_its_rows() -> None:
    spec = importlib.util.spec_from_file_location("estimators_page", ROOT / "benchmarks" / "estimators.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    kept = json.loads((ROOT / "docs" / "results" / "estimators.json").read_text())
    assert script.page(**kept) == (ROOT / "docs" / "results" / "estimators.md").read_text()
    folds = {(row["data"], row["model"], row["fold"]) for row in kept["rows"]}
    assert len(folds) == len(kept["rows"]) and {name for name, _, _ in folds} == {*script.FOLDS}
    low, high = script.band([{"held_out": 99, "tested": 100}] * 4)
    assert low < script.COVERAGE < high and high - low == pytest.approx(2 * 1.96 * 0.0424 / 2, rel=0.02)
