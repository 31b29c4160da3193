from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import multum
from multum.errors import ConfigError
from multum.plans.candidates import Comparison


def row(spec: str, nll: float, model: str = "mlp", status: str = "done") -> dict[str, Any]:
    value = {"mean": nll, "error": 0.01, "seeds": [nll, nll], "low": nll - 0.1, "high": nll + 0.1}
    accuracy = {"mean": 0.9, "error": None, "seeds": [0.9, 0.9]}
    values = {"calibrated_nll": value, "accuracy": accuracy}
    return {"label": spec, "spec": spec, "model": model, "status": status, "values": values}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [row("single", 0.5), row("mcdropout:members=4,rate=0.2", 0.4), row("deep:members=2", 0.3, "mlp:thin=0.5")]
    rows.append(row("multihead:members=2", 0.45, status="failed"))
    (tmp_path / "report.json").write_text(json.dumps({"rows": rows, "settings": {"data": "digits"}}))
    return tmp_path


def test_rows_are_found_by_method_cost_and_network(folder: Path) -> None:
    comparison = Comparison(folder)
    known = comparison.of(multum.McDropout(members=4), "mlp")  # the rate changes no cost, and was tuned
    assert known == {
        "label": "mcdropout:members=4,rate=0.2",
        "data": "digits",
        "metric": "calibrated_nll",
        "mean": 0.4,
        "low": pytest.approx(0.3),
        "high": pytest.approx(0.5),
        "seeds": 2,
        "accuracy": 0.9,
    }
    assert comparison.of(multum.McDropout(members=5), "mlp") is None
    assert comparison.of(multum.Deep(members=2), "mlp") is None
    assert comparison.of(multum.Deep(members=2), "mlp:thin=0.5") is not None
    assert comparison.of(multum.Multihead(members=2), "mlp") is None


def test_a_plan_shows_what_is_known(folder: Path) -> None:
    plan = multum.plan("mlp", shape="6", classes=3, methods="mcdropout,deep", members=(4,), known=folder, seconds=0)
    assert plan.single.known["mean"] == 0.5
    assert [c.label for c in plan if c.known] == ["mcdropout:members=4"]
    text = str(plan)
    assert "calibrated NLL on digits" in text and "0.4000 [0.3000, 0.5000]" in text


def test_another_network_is_said(folder: Path) -> None:
    plan = multum.plan("lenet", methods="deep", members=(2,), known=folder, seconds=0)
    assert any(note.startswith("nothing is known from") and "mlp" in note for note in plan.notes)


def test_a_damaged_report_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"a comparison must be a folder that `multum compare` left"):
        Comparison(tmp_path)
