"""Model cards: front matter that the hub reads, numbers of the test part, and no place of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from multum.exporting.card import write_card
from multum.exporting.describing import public_name
from multum.runs import train as job
from multum.runs.evaluate import evaluate_run


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("card")
    rows = [f"{i % 7},{'red' if i % 3 else 'blue'},{i % 7 + i % 3 + i % 2}.5" for i in range(120)]
    (folder / "table.csv").write_text("\n".join(["a,colour,price", *rows]) + "\n")
    name = f"csv:{folder / 'table.csv'}#target=price,task=regression"
    job.train(name, "mlp:hidden=4", "deep:members=2", folder / "run", {"epochs": 1}, progress=False)
    return folder / "run"


def test_a_card_holds_what_was_measured(run, tmp_path):
    page = write_card(run, tmp_path)
    assert page == tmp_path / "README.md"
    _, front, text = page.read_text().split("---\n", 2)
    about = yaml.safe_load(front)
    assert about["pipeline_tag"] == "tabular-regression" and about["library_name"] == "multum"
    (result,) = about["model-index"][0]["results"]
    metrics = {metric["type"]: metric["value"] for metric in result["metrics"]}
    measured = evaluate_run(run, progress=False)
    assert metrics["rmse"] == pytest.approx(measured["rmse"], rel=1e-4) and "nll" in metrics
    assert len(metrics) == len(result["metrics"])
    for heading in ("Data", "Cost", "What it is worth", "Intended use", "Limits"):
        assert f"\n## {heading}\n" in text
    assert "(quantiles.svg)" in text and (tmp_path / "quantiles.svg").is_file() and " ± " in text
    assert str(run.parent) not in page.read_text() and "csv:table.csv#target=price" in text


def test_a_card_without_data_says_so(run, tmp_path):
    table = run.parent / "table.csv"
    table.rename(run.parent / "gone.csv")
    try:
        page = write_card(run, tmp_path / "card.md")
    finally:
        (run.parent / "gone.csv").rename(table)
    text = page.read_text()
    assert "Not measured here" in text and "model-index" not in text and ".svg" not in text


def test_names_lose_their_folders():
    assert public_name("npz:/data/x.npz") == "npz:x.npz" and public_name("./nets/mynet.py:Net") == "mynet.py:Net"
