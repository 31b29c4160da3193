"""Runs as files that know their data: the same answers from an environment without multum and without torch."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import multum
from exporting.alone import answers_alone
from multum.cli import app
from multum.data.sources import load_data
from multum.errors import ConfigError, DataError, ExportError
from multum.exporting import serving
from multum.exporting.columns import TableCells, cells_of, codes_of_words, words_of_cells
from multum.exporting.onnx_file import OnnxModel
from multum.exporting.predicting import predict_frames
from multum.runs import train as job
from multum.runs.predict import predict_run

ROWS = 1000


def table(rows: int, seed: int) -> pd.DataFrame:
    """Numbers with a long tail, text, true/false, text that looks like numbers, and gaps."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": draw.normal(40, 12, rows).round(2),
            "income": draw.exponential(1000, rows).round(3),
            "visits": draw.poisson(0.7, rows),
            "colour": draw.choice(["red", "blue", "green, dark"], rows),
            "code": draw.choice(["007", "12", "1.50"], rows),
            "member": draw.choice([True, False], rows),
        }
    )
    score = frame["age"] / 12 + (frame["colour"] == "red") + 0.5 * frame["member"]
    frame["bought"] = np.where(score + draw.normal(0, 0.3, rows) > 4, "yes", "no")
    frame["price"] = (1000 + 100 * score + draw.normal(0, 20, rows)).round(3)
    frame.loc[draw.random(rows) < 0.1, "age"] = np.nan
    frame.loc[draw.random(rows) < 0.1, "colour"] = np.nan
    return frame


def unseen(folder: Path) -> Path:
    """New rows, with a gap and a category where training had none."""
    frame = table(ROWS, seed=1).drop(columns=["bought", "price"])
    frame.loc[3, "income"] = np.nan
    frame.loc[4, "colour"] = "violet"
    frame.to_csv(folder / "new.csv", index=False)
    return folder / "new.csv"


def trained(folder: Path, target: str, **options) -> Path:
    drop = "price" if target == "bought" else "bought"
    table(500, seed=0).to_csv(folder / "table.csv", index=False)
    name = f"csv:{folder / 'table.csv'}#target={target},drop={drop}"
    job.train(name, "mlp:hidden=8", "deep:members=2", folder / "run", {"epochs": 1}, progress=False, **options)
    return folder / "run"


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """The folder of a table, a run on it, and its ONNX file."""
    folder = tmp_path_factory.mktemp("shop")
    multum.export(trained(folder, "bought", temperature=True), folder / "shop.onnx", each_member=True, card=False)
    return folder


def test_a_table_is_answered_without_multum_and_torch(shop):
    new = unseen(shop)
    answers = answers_alone(shop / "shop.onnx", new)
    expected = predict_run(shop / "run", new, coverage=0.9, conformal=0.9, probabilities=True, progress=False)
    classes = multum.exporting.describing.metadata(shop / "shop.onnx")["classes"]
    assert len(expected) == ROWS and classes == ["no", "yes"]
    assert [classes[label] for label in answers["labels"]] == expected["label"].tolist()
    np.testing.assert_allclose(answers["probs"], expected[["p_no", "p_yes"]], rtol=0, atol=1e-5)
    for name in ("confidence", "entropy", "mutual_information"):
        np.testing.assert_allclose(answers[name], expected[name], rtol=0, atol=1e-5)
    sure = (answers["confidence"] - expected.attrs["abstention"]["threshold"]).__abs__() > 1e-5
    assert (answers["abstain"] == expected["abstain"])[sure].all() and 0 < answers["abstain"].sum() < ROWS
    assert (answers["set"].sum(1) == expected["set_size"]).mean() > 0.999 and len(set(expected["set_size"])) > 1


def test_multum_predicts_with_the_file_alone(shop):
    new = unseen(shop)
    options = {"probabilities": True, "members": True, "progress": False}
    by_file = pd.concat(predict_frames(shop / "shop.onnx", new, **options), ignore_index=True)
    by_run = predict_run(shop / "run", new, coverage=0.9, conformal=0.9, **options)
    assert list(by_file) == list(by_run)
    texts = by_run.select_dtypes(exclude="number").columns
    assert (by_file[texts] == by_run[texts]).mean().min() > 0.999
    numbers = by_run.columns.difference(texts)
    np.testing.assert_allclose(by_file[numbers], by_run[numbers], rtol=0, atol=1e-5)
    with pytest.raises(ConfigError, match="`coverage` must be chosen when a model is exported"):
        predict_frames(shop / "shop.onnx", new, coverage=0.5)
    (shop / "bad.csv").write_text("age,income\n1,2\n")
    with pytest.raises(DataError, match="they lack"):
        next(predict_frames(shop / "shop.onnx", shop / "bad.csv", progress=False))


def test_what_training_fitted_is_in_the_metadata(shop):
    about = multum.exporting.describing.metadata(shop / "shop.onnx")
    run = json.loads((shop / "run" / "run.json").read_text())
    assert about["rules"]["temperature"] == run["temperature"] and about["fingerprint"] == run["fingerprint"]
    assert about["parity"]["examples"] == "test examples" and about["rules"]["conformal"]["alpha"] == pytest.approx(0.1)


def test_cells_are_what_a_table_encodes(shop):
    data = load_data(f"csv:{shop / 'table.csv'}#target=bought,drop=price", seed=0)
    rows = data.table.encode(next(data.table.frames(unseen(shop))))
    cells = cells_of(data.table, rows)
    assert torch.equal(TableCells(data.table)(cells), rows)
    assert {"colour", "age"} <= words_of_cells(data.table, cells).keys()


def test_spellings_of_missing_and_of_truth(shop):
    columns = {c.name: c for c in load_data(f"csv:{shop / 'table.csv'}#target=bought,drop=price", seed=0).table.columns}
    assert codes_of_words(columns["colour"])["NA"] == 3 and "NA" not in codes_of_words(columns["code"])
    member = codes_of_words(columns["member"])
    assert member["true"] == member["TRUE"] == member["True"] == 1 and member["false"] == 0


def test_servers_get_their_folders(shop, tmp_path, monkeypatch):
    about, asked = multum.exporting.describing.metadata(shop / "shop.onnx"), []

    def export(run: Path, path: Path, **options: object) -> dict[str, object]:
        asked.append((run, options))
        shutil.copyfile(shop / "shop.onnx", path)
        return about

    monkeypatch.setattr(serving, "export", export)
    monkeypatch.setattr(serving, "write_card", lambda run, to: to.write_text(f"of {run}"))
    _, model = serving.write(shop / "run", tmp_path / "my shop", serve="triton", coverage=0.8)
    assert model == tmp_path / "my shop" / "my_shop" / "1" / "model.onnx" and model.is_file()
    assert asked == [(shop / "run", {"coverage": 0.8, "format": "onnx", "card": False})]
    config = (model.parents[1] / "config.pbtxt").read_text()
    assert '{ name: "colour", data_type: TYPE_STRING, dims: [1], reshape: { shape: [] } }' in config
    assert '{ name: "probs", data_type: TYPE_FP32, dims: [2] }' in config and 'platform: "onnxruntime_onnx"' in config
    opened = OnnxModel.open(model).session
    batched = [value.name for value in (*opened.get_inputs(), *opened.get_outputs()) if value.name != "members"]
    assert re.findall(r'{ name: "(.*?)"', config) == batched and len(batched) > 10  # members have no batch in front
    assert "`my_shop`" in (tmp_path / "my shop" / "README.md").read_text()
    assert (tmp_path / "my shop" / "CARD.md").read_text() == f"of {shop / 'run'}"

    got, model = serving.write(shop / "run", tmp_path / "lit", serve="litserve", card=False)
    assert got is about and sorted(path.name for path in (tmp_path / "lit").iterdir()) == [
        *("README.md", "model.onnx", "requirements.txt", "server.py")
    ]
    row = json.loads(re.search(r"'{\"rows\": \[(.*)\]}'", (tmp_path / "lit" / "README.md").read_text())[1])
    assert row == {"age": 0.0, "income": 0.0, "visits": 0.0, "colour": "blue", "code": 0.0, "member": "False"}
    compile((tmp_path / "lit" / "server.py").read_text(), "server.py", "exec")


def test_the_command_writes_and_predicts(shop, tmp_path):
    runner = CliRunner()
    done = runner.invoke(
        app, ["export", str(shop / "run"), "--to", str(tmp_path / "a.pt2"), "--members", "1", "--json"]
    )
    assert done.exit_code == 0 and json.loads(done.stdout)["members"] == 1
    assert (tmp_path / "a.md").is_file() and (tmp_path / "a-reliability.svg").is_file()
    done = runner.invoke(app, ["predict", str(shop / "shop.onnx"), str(unseen(shop)), "--json"])
    assert len(json.loads(done.stdout)) == ROWS


def test_a_saved_model_predicts_arrays(tmp_path):
    net = multum.models.build("mlp", in_features=3, hidden=4, classes=2)
    ens = multum.ensemble(net, multum.Deep(members=2), example=torch.zeros(2, 3), seed=0)
    multum.save(ens, tmp_path / "m.safetensors")
    x = torch.randn(5, 3)
    np.save(tmp_path / "x.npy", x.numpy())
    frame = next(predict_frames(tmp_path / "m.safetensors", tmp_path / "x.npy", probabilities=True, progress=False))
    np.testing.assert_allclose(frame[["p_0", "p_1"]], multum.predict(ens, x).probs, rtol=1e-6)
    with pytest.raises(multum.errors.TrainingError, match="`coverage` must be fitted on what a run held out"):
        next(predict_frames(tmp_path / "m.safetensors", tmp_path / "x.npy", coverage=0.9, progress=False))


def test_a_run_without_its_data_is_checked_on_random_examples(shop, tmp_path, caplog):
    (shop / "table.csv").rename(shop / "gone.csv")
    try:
        about = multum.export(shop / "run", tmp_path / "a.pt2", conformal=None, coverage=None, card=False)
    finally:
        (shop / "gone.csv").rename(shop / "table.csv")
    assert about["parity"]["examples"] == "random examples" and "checked on random examples" in caplog.text
    assert set(about["rules"]) == {"temperature"}


@pytest.mark.slow
def test_a_regression_is_answered_without_multum_and_torch(tmp_path):
    run = trained(tmp_path, "price")
    multum.export(run, tmp_path / "a.onnx", card=False)
    answers = answers_alone(tmp_path / "a.onnx", unseen(tmp_path))
    expected = predict_run(run, tmp_path / "new.csv", coverage=0.9, conformal=0.9, progress=False)
    for name in ("mean", "low", "high", "conformal_low", "conformal_high"):
        np.testing.assert_allclose(answers[name], expected[name], rtol=0, atol=1e-5 * expected["std"].max())
    np.testing.assert_allclose(answers["variance"], expected["std"] ** 2, rtol=1e-5)
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "a.onnx"), str(tmp_path / "new.csv")])
    assert done.exit_code == 0 and "fitted on" in done.stdout and "risk" not in done.stdout


def test_without_the_extra_the_fix_is_stated(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    ens = multum.ensemble(torch.nn.Linear(2, 2), multum.Single(), example=torch.zeros(2, 2))
    with pytest.raises(ExportError, match=r"pip install 'multum\[onnx\]'"):
        multum.export(ens, tmp_path / "a.onnx")


@pytest.mark.slow
def test_a_column_that_is_called_like_an_output_is_refused(tmp_path):
    frame = table(300, seed=0).rename(columns={"age": "entropy"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    name = f"csv:{tmp_path / 't.csv'}#target=bought,drop=price"
    job.train(name, "mlp:hidden=4", "single", tmp_path / "run", {"epochs": 1}, progress=False)
    with pytest.raises(ExportError, match="must not be called like an output; got entropy"):
        multum.export(tmp_path / "run", tmp_path / "a.onnx", card=False)


def test_an_onnx_file_of_others_is_refused(shop):
    import onnx

    proto = onnx.load(shop / "shop.onnx")
    del proto.metadata_props[:]
    onnx.save(proto, shop / "other.onnx")
    with pytest.raises(multum.errors.FileError, match=r"must be written by multum\.export"):
        _ = OnnxModel.open(shop / "other.onnx").metadata
