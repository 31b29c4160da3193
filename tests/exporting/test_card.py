"""Model cards: front matter that the hub reads, numbers of the test part, and no place of this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from multum.cli import app
from multum.errors import ExportError
from multum.exporting.card import write_card
from multum.exporting.describing import public_name
from multum.exporting.hub import push_to_hub
from multum.runs import train as job
from multum.runs.evaluate import evaluate_run
from multum.runs.predict import predict_run


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


class Hub:
    """A hub that is a folder: what `HfApi` is asked to do is done on this disk."""

    def __init__(self, folder: Path):
        self.folder, self.private = folder, {}

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> str:
        (self.folder / repo_id).mkdir(parents=True, exist_ok=exist_ok)
        self.private[repo_id] = private
        return f"https://huggingface.co/{repo_id}"

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> None:
        assert commit_message
        shutil.copytree(folder_path, self.folder / repo_id, dirs_exist_ok=True)


def test_what_is_pushed_predicts_as_the_run_does(run, tmp_path):
    hub = Hub(tmp_path)
    assert push_to_hub(run, "me/price", api=hub, private=True) == "https://huggingface.co/me/price"
    repository = tmp_path / "me" / "price"
    names = {"README.md", "quantiles.svg", "model.safetensors", "run.json", "preparation.json"}
    assert names <= {path.name for path in repository.iterdir()} and hub.private == {"me/price": True}
    for path in repository.iterdir():
        assert str(run.parent).encode() not in path.read_bytes(), f"{path.name} says where the data lies"
    new = run.parent / "table.csv"
    expected = predict_run(run, new, progress=False)
    (run.parent / "table.csv").rename(run.parent / "gone.csv")
    try:
        (tmp_path / "new.csv").write_text((run.parent / "gone.csv").read_text())
        given = predict_run(repository, tmp_path / "new.csv", progress=False)
    finally:
        (run.parent / "gone.csv").rename(run.parent / "table.csv")
    assert given.equals(expected)


def test_the_hub_itself_reads_the_card(run, tmp_path):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    card = huggingface_hub.ModelCard.load(write_card(run, tmp_path))
    assert card.data.library_name == "multum" and card.data.pipeline_tag == "tabular-regression"
    results = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert results["rmse"] == pytest.approx(evaluate_run(run, progress=False)["rmse"], rel=1e-4)


def test_a_push_that_fails_says_why(run, monkeypatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", lambda *_, **__: (_ for _ in ()).throw(OSError("offline")))
    result = CliRunner().invoke(app, ["card", str(run), "--push", "me/price"])
    assert isinstance(result.exception, ExportError) and "OSError: offline. Log in with" in str(result.exception)
