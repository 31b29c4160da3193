"""A run on image files: trained and exported by the command line, then asked without multum and without torch."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from exporting.alone import answers_alone
from exporting.pictures import CLASSES, draw_folder
from multum.cli import app
from multum.data.folder import Images
from multum.exporting.describing import metadata
from multum.exporting.predicting import predict_frames
from multum.runs.predict import predict_run

SIZE, ROWS = 8, 1000
DOCS = Path(__file__).parents[2] / "docs"


def command(*words: str | Path) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """The folder of image files, of a run on them, and of its server."""
    folder = tmp_path_factory.mktemp("shop")
    draw_folder(folder / "images", each=25)
    data = f"folder:{folder / 'images'}#size={SIZE}"
    settings = (
        "--model",
        "small-cnn",
        "--method",
        "packed:members=2,alpha=2",
        "--temperature",
        "epochs=1",
        "validation=0.3",
    )
    command("train", "--data", data, "--out", folder / "run", *settings)
    rules = ("--conformal", "0.8", "--coverage", "0.7", "--no-card")
    command("export", folder / "run", "--to", folder / "server", "--serve", "litserve", *rules)
    return folder


def test_raw_images_are_answered_without_multum_and_torch(shop):
    raw = np.random.default_rng(1).integers(0, 256, (ROWS, 3, SIZE, SIZE)).astype(np.uint8)
    raw[::2] //= 3  # not all alike
    np.save(shop / "new.npy", raw)
    answers = answers_alone(shop / "server" / "model.onnx", shop / "new.npy")
    options = {"coverage": 0.7, "conformal": 0.8, "probabilities": True, "progress": False}
    expected = predict_run(shop / "run", shop / "new.npy", **options)
    about = metadata(shop / "server" / "model.onnx")
    assert about["classes"] == list(CLASSES) and about["rules"].keys() >= {"temperature", "abstention", "conformal"}
    assert [CLASSES[label] for label in answers["labels"]] == expected["label"].tolist()
    np.testing.assert_allclose(answers["probs"], expected[[f"p_{name}" for name in CLASSES]], rtol=0, atol=1e-5)
    sure = np.abs(answers["confidence"] - expected.attrs["abstention"]["threshold"]) > 1e-5
    assert (answers["abstain"] == expected["abstain"])[sure].all() and len({*answers["abstain"]}) == 2
    assert (answers["set"].sum(1) == expected["set_size"]).mean() > 0.999


def test_files_and_a_single_image_by_the_file_and_by_the_run(shop):
    for source in (shop / "images", shop / "images" / "plain" / "3.png"):
        by_file, by_run = (
            pd.concat(predict_frames(model, source, progress=False))
            for model in (shop / "server" / "model.onnx", shop / "run")
        )
        assert by_file["example"].tolist() == by_run["example"].tolist()
        assert (by_file["label"] == by_run["label"]).mean() > 0.98
        hot = predict_run(shop / "run", source, temperature=True, progress=False)
        np.testing.assert_allclose(by_file["confidence"], hot["confidence"], rtol=0, atol=1e-5)


def files(shop: Path) -> list[Path]:
    return [shop / "images" / name / f"{i}.{'jpg' if i % 5 == 4 else 'png'}" for name in CLASSES for i in range(10)]


def test_the_page_says_how_a_caller_reads_image_files(shop):
    """The code of docs/exports.md makes of every kind of file what training made of it, to the bit."""
    (block,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def read_image" in code)
    names: dict = {}
    exec(block.partition("session =")[0], names)
    expected = Images(files(shop), SIZE)[:].numpy()
    got = np.stack([names["read_image"](file, SIZE) for file in files(shop)])
    np.testing.assert_array_equal(got, expected)


PAGE = (DOCS / "exports.md").read_text()


def test_the_file_says_how_examples_are_read(shop):
    reading = metadata(shop / "server" / "model.onnx")["reading"]
    assert reading.startswith("uint8 of shape [batch, 3, 8, 8], 0 to 255") and "shorter side scaled to 8" in reading
    readme = (shop / "server" / "README.md").read_text()
    assert reading in readme and "base64 < photo.jpg" in readme
    assert "pillow" in (shop / "server" / "requirements.txt").read_text()


@pytest.fixture(scope="module")
def server(shop) -> ModuleType:
    """server.py, imported and not started."""
    pytest.importorskip("litserve")
    spec = importlib.util.spec_from_file_location("server", shop / "server" / "server.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("channels", [1, 3])
def test_the_server_reads_image_files_as_training_did(shop, server, monkeypatch, channels):
    monkeypatch.setitem(server.DATA, "shape", [channels, SIZE, SIZE])
    texts = [base64.b64encode(file.read_bytes()).decode() for file in files(shop)]
    texts[0] = "data:image/png;base64," + texts[0]
    (got,) = server.inputs_of(texts).values()
    np.testing.assert_array_equal(got, Images(files(shop), SIZE, channels=channels)[:].numpy())


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("hello", "row 0 must be an image file .* as base64 text; got text that is none"),
        (base64.b64encode(b"GIF89a").decode(), "must be an image file"),
        ([[1, 2], [3]], "lists of different lengths"),
        (np.zeros((SIZE, SIZE, 3), int).tolist(), r"the shape \[3, 8, 8\]; got \[8, 8, 3\]"),
        (np.full((3, SIZE, SIZE), np.nan).tolist(), "finite numbers"),
        (np.full((3, SIZE, SIZE), 256).tolist(), "from 0 to 255"),
        (np.full((3, SIZE, SIZE), 0.5).tolist(), "from 0 to 255"),
        (np.full((3, SIZE, SIZE), 10**30, dtype=object).tolist(), "must hold numbers"),
        (None, "must hold numbers"),
    ],
)
def test_the_server_refuses_what_it_cannot_read(server, row, reason):
    with pytest.raises(ValueError, match=reason):
        server.inputs_of([row])


def test_the_server_says_what_json_can(server):
    outputs = {"mean": np.array([1.0]), "conformal_high": np.array([np.inf]), "members": np.array([[np.nan, 2.0]])}
    (row,) = server.answers_of(outputs)
    assert json.loads(json.dumps(row, allow_nan=False)) == {"mean": 1, "conformal_high": None, "members": [None, 2.0]}
