"""Predicting files: the numbers of `multum.predict`, thresholds from held-out examples, refusals."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from rich.console import Console

import multum
from multum.errors import DataError, MultumError, TrainingError
from multum.metrics.calibration import fit_temperature
from multum.metrics.regression import in_units
from multum.runs import predict as prediction
from multum.runs import train as job
from multum.runs.folder import open_run
from multum.runs.predict import predict_run, write
from multum.training.devices import Place
from multum.training.run import Run


def trained(folder: Path, data: str, model: str, *, method: str = "deep:members=2", **recipe) -> Path:
    job.train(data, model, method, folder, {"epochs": 2, **recipe}, progress=False)
    return folder


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    """A run that holds out a validation part."""
    return trained(tmp_path_factory.mktemp("runs") / "digits", "digits", "small-cnn", keep="best", validation=0.2)


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """A run that trained on everything."""
    return trained(tmp_path_factory.mktemp("runs") / "plain", "digits", "small-cnn", epochs=1, validation=0)


@pytest.fixture(scope="module")
def diabetes(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "diabetes", "diabetes", "mlp:hidden=8", keep="best")


@pytest.fixture(scope="module")
def churn(tmp_path_factory) -> tuple[Path, Path]:
    """A run on a table with text, gaps and names, and its file."""
    folder = tmp_path_factory.mktemp("churn")
    draw = np.random.default_rng(0)
    plan = draw.choice(["basic", "plus", "pro"], 90)
    age = draw.integers(18, 80, 90).astype(float)
    frame = pd.DataFrame({"plan": plan, "age": age, "left": np.where((plan == "basic") & (age < 50), "yes", "no")})
    frame.loc[::9, "age"] = np.nan
    frame.to_csv(folder / "churn.csv", index=False)
    data = f"csv:{folder / 'churn.csv'}#target=left"
    return trained(folder / "run", data, "mlp:hidden=8", epochs=30, lr=0.05), folder / "churn.csv"


def predict(run: Path, file: Path, **settings) -> pd.DataFrame:
    return predict_run(run, file, progress=False, **settings)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory) -> Path:
    folder, data = tmp_path_factory.mktemp("arrays"), multum.load_data("digits")
    np.savez(folder / "many.npz", x=data.test.x.numpy(), other=np.zeros(3))
    np.save(folder / "many.npy", data.test.x[:, 0].numpy())
    np.save(folder / "one.npy", data.test.x[0].numpy())
    return folder


def test_the_numbers_are_those_of_predict(digits, arrays):
    ens, data = open_run(digits)[0], multum.load_data("digits")
    expected = multum.predict(ens, data.prepare(data.test.x))
    frame = predict(digits, arrays / "many.npz", batch_size=100)
    assert list(frame) == ["example", "label", "confidence", "entropy", "mutual_information"]
    assert frame["example"].tolist() == list(range(539)) and frame["label"].tolist() == expected.labels.tolist()
    for name in ("confidence", "entropy", "mutual_information"):
        np.testing.assert_allclose(frame[name], getattr(expected, name).numpy(), rtol=1e-4, atol=1e-6)
    pd.testing.assert_frame_equal(predict(digits, arrays / "many.npy", batch_size=100), frame)
    assert predict(digits, arrays / "one.npy")["label"].tolist() == frame["label"].tolist()[:1]


def test_images_are_prepared_like_the_runs_own(digits, arrays, tmp_path):
    data = multum.load_data("digits")
    for i in range(4):
        Image.fromarray(data.test.x[i, 0].numpy()).save(tmp_path / f"{i}.png")
    (tmp_path / "deeper").mkdir()
    big = Image.fromarray(data.test.x[4, 0].numpy()).resize((16, 16), Image.Resampling.NEAREST).convert("RGB")
    big.save(tmp_path / "deeper" / "4.png")
    expected = predict(digits, arrays / "many.npz")
    frame = predict(digits, tmp_path)
    assert frame["example"].tolist() == ["0.png", "1.png", "2.png", "3.png", "deeper/4.png"]
    np.testing.assert_allclose(frame["confidence"][:4], expected["confidence"][:4], rtol=1e-5)
    assert predict(digits, tmp_path / "2.png")["example"].tolist() == ["2.png"]


def test_a_folder_of_classes_gives_their_names(tmp_path):
    draw = np.random.default_rng(0)
    for name, low in (("dark", 0), ("light", 150)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(10):
            picture = draw.integers(low, low + 100, (12, 10, 3)).astype(np.uint8)
            Image.fromarray(picture).save(tmp_path / "images" / name / f"{i}.png")
    run = trained(tmp_path / "run", f"folder:{tmp_path / 'images'}", "small-cnn", epochs=8, method="single")
    frame = predict(run, tmp_path / "images" / "dark")
    assert set(frame["label"]) <= {"dark", "light"} and (frame["label"] == "dark").mean() > 0.8


def test_rows_of_a_table_come_by_name(churn, tmp_path):
    run, file = churn
    frame = pd.read_csv(file)
    expected = predict(run, file)
    assert (expected["label"] == frame["left"]).mean() > 0.9 and set(expected["label"]) == {"yes", "no"}
    frame[["age", "plan"]].to_csv(tmp_path / "turned.csv", index=False)  # another order, no target
    pd.testing.assert_frame_equal(predict(run, tmp_path / "turned.csv"), expected)
    frame.drop(columns="plan").to_csv(tmp_path / "short.csv", index=False)
    with pytest.raises(DataError, match=r"columns of churn.csv; they lack plan"):
        predict(run, tmp_path / "short.csv")
    frame.assign(age="old").to_csv(tmp_path / "words.csv", index=False)
    with pytest.raises(DataError, match="'age' must hold numbers; got 'old'"):
        predict(run, tmp_path / "words.csv")


def test_a_regression_is_told_in_the_targets_units(diabetes, tmp_path):
    ens, data = open_run(diabetes)[0], multum.load_data("diabetes")
    pd.DataFrame(data.test.x.numpy()).to_csv(tmp_path / "rows.csv", index=False)
    frame = predict(diabetes, tmp_path / "rows.csv", coverage=0.8, level=0.9)
    columns = ["example", "mean", "std", "aleatoric", "epistemic", "low", "high", "abstain"]
    assert list(frame) == columns
    expected = in_units(multum.predict(ens, data.prepare(data.test.x)), mean=data.target_mean, std=data.target_std)
    np.testing.assert_allclose(frame["mean"], expected.mean.numpy(), rtol=1e-5)
    np.testing.assert_allclose(frame["std"] ** 2, frame["aleatoric"] + frame["epistemic"], rtol=1e-9)
    np.testing.assert_allclose(frame["high"], expected.interval(0.9)[1].numpy(), rtol=1e-5)
    assert frame.loc[frame["abstain"], "std"].min() > frame.loc[~frame["abstain"], "std"].max()
    assert math.isnan(frame.attrs["abstention"]["risk"]) and "risk" not in prediction.summary(frame)
    with pytest.raises(TrainingError, match="`risk` must be for classification"):
        predict(diabetes, tmp_path / "rows.csv", risk=0.1)
    with pytest.raises(TrainingError, match="`temperature` must be for classification"):
        predict(diabetes, tmp_path / "rows.csv", temperature=True)


def held_out(run: Path) -> tuple[multum.Prediction, torch.Tensor]:
    """The validation examples as the run held them out, and what the ensemble says."""
    ens, _, settings = open_run(run)
    data = multum.load_data(settings["data"])
    part = data.with_validation(0.2, settings["recipe"]["seed"]).validation
    return multum.predict(ens, data.prepare(part.x)), part.y


def test_a_threshold_keeps_its_promise_on_the_validation_part(digits, arrays):
    found, labels = held_out(digits)
    for coverage in (0.5, 0.9):
        frame = predict(digits, arrays / "many.npz", coverage=coverage)
        rule = frame.attrs["abstention"]
        answered = found.confidence.double() >= rule["threshold"]
        assert coverage <= float(answered.double().mean()) <= coverage + 0.02
        wrong = (found.labels != labels)[answered].double().mean()
        assert rule["risk"] == pytest.approx(float(wrong))
        assert (frame["abstain"] == (frame["confidence"] < rule["threshold"])).all()
        assert rule["fitted_on"] == f"{len(labels)} validation examples, which also chose the epoch"
    frame = predict(digits, arrays / "many.npz", risk=0.1)
    assert frame.attrs["abstention"]["risk"] <= 0.1 and frame["abstain"].any() and not frame["abstain"].all()
    sure = predict(digits, arrays / "many.npz", risk=0.1, delta=0.1)
    assert sure["abstain"].sum() >= frame["abstain"].sum()
    assert "answered; threshold" in prediction.summary(frame)


def test_the_validation_part_is_what_training_left_out(digits):
    """The split is made from the settings: it must be the one that `fit` would make."""
    ens, _, settings = open_run(digits)
    data = multum.load_data(settings["data"])
    recipe = multum.Recipe(**settings["recipe"])
    run = Run(ens, data, recipe, Place("cpu", 1, 1), None, True, False, False, 60.0)
    assert run.data.validation is not None
    expected = data.with_validation(recipe.validation, recipe.seed).validation
    assert torch.equal(run.data.validation.x[:], expected.x[:]) and torch.equal(run.data.validation.y, expected.y)


def test_risk_and_coverage_are_not_both_kept(digits, arrays):
    with pytest.raises(MultumError, match="either risk or coverage"):
        predict(digits, arrays / "many.npz", risk=0.1, coverage=0.9)
    with pytest.raises(MultumError, match="0 < coverage <= 1; got coverage=90"):
        predict(digits, arrays / "many.npz", coverage=90)


def test_a_temperature_comes_first(digits, arrays):
    plain_frame = predict(digits, arrays / "many.npz")
    frame = predict(digits, arrays / "many.npz", temperature=True, coverage=0.9)
    found, labels = held_out(digits)
    fitted = fit_temperature(found.logits, labels)
    assert frame.attrs["temperature"] == pytest.approx(fitted.temperature, rel=1e-3)
    warmer = frame["confidence"].mean() < plain_frame["confidence"].mean()
    assert warmer == (fitted.temperature > 1)
    answered = fitted(found.logits).confidence.double() >= frame.attrs["abstention"]["threshold"]
    assert float(answered.double().mean()) == pytest.approx(0.9, abs=0.02)
    assert f"temperature {fitted.temperature:.2f}"[:14] in prediction.summary(frame)


def test_a_run_that_trained_on_everything_has_no_labels_left(plain, arrays):
    with pytest.raises(TrainingError, match=r"a threshold for a risk .* Train again with keep=best .* give a coverage"):
        predict(plain, arrays / "many.npz", risk=0.05)
    with pytest.raises(TrainingError, match="a temperature must be fitted on held-out examples"):
        predict(plain, arrays / "many.npz", temperature=True)
    frame = predict(plain, arrays / "many.npz", coverage=0.75)
    rule = frame.attrs["abstention"]
    assert rule["fitted_on"] == "539 test examples, without their labels" and math.isnan(rule["risk"])
    assert (~frame["abstain"]).mean() == pytest.approx(0.75, abs=0.01)
    with pytest.raises(TrainingError, match="Give a risk"):
        predict(plain, arrays / "many.npz", coverage=0.9, delta=0.1)


def test_what_is_written_can_be_read(digits, arrays, tmp_path):
    frame = predict(digits, arrays / "many.npz", coverage=0.9)
    write(frame, tmp_path / "out.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "out.csv"), frame, check_exact=False)
    write(frame, tmp_path / "out.json")
    rows = json.loads((tmp_path / "out.json").read_text())
    assert rows[3] == pytest.approx(frame.iloc[3].to_dict(), rel=1e-12)
    with pytest.raises(DataError, match=r"\.csv or \.json; got out\.xlsx"):
        write(frame, tmp_path / "out.xlsx")
    with pytest.raises(DataError, match="folder that exists"):
        write(frame, tmp_path / "nowhere" / "out.csv")


def test_the_table_shows_the_first_rows_and_the_rule(digits, arrays):
    frame = predict(digits, arrays / "many.npz", coverage=0.9)
    console = Console(width=120, file=io.StringIO())
    console.print(prediction.table(frame, rows=3))
    text = console.file.getvalue()
    assert "and 536 more" in text and "mutual_information" in text and "539 examples" in text


def test_probabilities_and_members_are_those_of_predict(churn, diabetes, tmp_path):
    run, file = churn
    frame = predict(run, file, probabilities=True, members=True)
    assert list(frame)[5:] == [f"{who}p_{name}" for who in ("", "member0_", "member1_") for name in ("no", "yes")]
    np.testing.assert_allclose(frame["p_no"] + frame["p_yes"], 1, rtol=1e-6)
    np.testing.assert_allclose(frame["p_yes"], (frame["member0_p_yes"] + frame["member1_p_yes"]) / 2, rtol=1e-5)
    assert ((frame["p_yes"] > 0.5) == (frame["label"] == "yes")).all()
    rows = pd.DataFrame(multum.load_data("diabetes").test.x.numpy())
    rows.to_csv(tmp_path / "rows.csv", index=False)
    frame = predict(diabetes, tmp_path / "rows.csv", members=True, probabilities=True)
    means = frame[["member0_mean", "member1_mean"]]
    np.testing.assert_allclose(means.mean(axis=1), frame["mean"], rtol=1e-9)
    np.testing.assert_allclose(means.var(axis=1, ddof=0), frame["epistemic"], rtol=1e-6)
    assert (frame[["member0_variance", "member1_variance"]] > 0).all(axis=None)


def test_conformal_sets_keep_their_level_on_the_validation_part(digits, arrays):
    found, labels = held_out(digits)
    frame = predict(digits, arrays / "many.npz", conformal=0.9)
    rule = frame.attrs["conformal"]
    kept = (1 - found.probs.double() <= rule["threshold"]).gather(1, labels.unsqueeze(1)).double().mean()
    assert 0.9 <= float(kept) <= 0.9 + 2 / len(labels)
    assert [len(row.split("|")) for row in frame["set"]] == frame["set_size"].tolist()
    assert all(str(label) in row.split("|") for label, row in zip(frame["label"], frame["set"], strict=True))
    truth = multum.load_data("digits").test.y.tolist()
    covered = np.mean([str(y) in row.split("|") for y, row in zip(truth, frame["set"], strict=True)])
    assert 0.83 < covered < 0.97 and "conformal at 0.9" in prediction.summary(frame)
    wider = predict(digits, arrays / "many.npz", conformal=0.98)
    assert (wider["set_size"] >= frame["set_size"]).all() and wider["set_size"].sum() > frame["set_size"].sum()


def test_conformal_intervals_of_a_regression(diabetes, tmp_path):
    data = multum.load_data("diabetes")
    pd.DataFrame(data.test.x.numpy()).to_csv(tmp_path / "rows.csv", index=False)
    frame = predict(diabetes, tmp_path / "rows.csv", conformal=0.8)
    inside = (frame["conformal_low"] <= data.test.y.numpy()) & (data.test.y.numpy() <= frame["conformal_high"])
    assert 0.6 < inside.mean() < 0.95
    with pytest.raises(TrainingError, match=r"level of 0\.99 must have at least 99 held-out examples; got 31"):
        predict(diabetes, tmp_path / "rows.csv", conformal=0.99)
    with pytest.raises(TrainingError, match="0 < conformal < 1; got 90"):
        predict(diabetes, tmp_path / "rows.csv", conformal=90)


def test_rows_are_predicted_as_they_are_read(churn, tmp_path, monkeypatch):
    """Only the rows at hand are in memory: the first frame is there before the rest of the file is."""
    run, file = churn
    whole = predict(run, file, probabilities=True, batch_size=4)  # the same batches: others are summed in another order
    frames = list(prediction.predict_frames(run, file, probabilities=True, batch_size=4, progress=False))
    assert [len(frame) for frame in frames] == [32, 32, 26]
    pd.testing.assert_frame_equal(pd.concat(frames, ignore_index=True), whole, check_exact=True)
    lines = file.read_text().splitlines(keepends=True)
    (tmp_path / "late.csv").write_text("".join([*lines[:60], "plus,old,no\n", *lines[60:]]))
    late = prediction.predict_frames(run, tmp_path / "late.csv", batch_size=4, progress=False)
    assert len(next(late)) == 32
    with pytest.raises(DataError, match="got 'old' in row 60"):
        next(late)
    pd.read_csv(file).to_parquet(tmp_path / "rows.parquet")
    pieces = list(prediction.predict_frames(run, tmp_path / "rows.parquet", batch_size=4, progress=False))
    assert [len(frame) for frame in pieces] == [32, 32, 26]
    assert pd.concat(pieces)["example"].tolist() == list(range(90))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    pd.testing.assert_frame_equal(predict(run, Path("-"), probabilities=True, batch_size=4), whole, check_exact=True)


def test_predictions_are_written_row_by_row_to_every_format(churn, tmp_path):
    file = churn[1]
    run = trained(tmp_path / "run", f"csv:{file}#target=left", "mlp:hidden=8", validation=0.2)
    options = {"probabilities": True, "coverage": 0.8, "conformal": 0.8, "batch_size": 4, "progress": False}
    whole = predict_run(run, file, **options)
    for name, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet), ("json", pd.read_json)):
        said = write(prediction.predict_frames(run, file, **options), tmp_path / f"out.{name}")
        pd.testing.assert_frame_equal(read(tmp_path / f"out.{name}"), whole, check_dtype=False, rtol=1e-9)
        assert said == prediction.summary(whole)
    exact = json.loads((tmp_path / "out.json").read_text())
    assert exact == whole.to_dict("records")
    console = Console(width=200, file=io.StringIO())
    console.print(prediction.table(prediction.predict_frames(run, file, **options), rows=40))
    assert "and 50 more" in console.file.getvalue() and prediction.summary(whole)[:40] in console.file.getvalue()


def test_codes_that_look_like_numbers_stay_what_they_were(tmp_path):
    """A column of 007 and A1 is text: a file with 007 alone must not turn it into 7."""
    draw = np.random.default_rng(0)
    code = draw.choice(["007", "A1"], 120)
    pd.DataFrame({"code": code, "n": draw.normal(size=120), "y": code == "007"}).to_csv(tmp_path / "a.csv", index=False)
    run = trained(tmp_path / "run", f"csv:{tmp_path / 'a.csv'}#target=y", "mlp:hidden=8", epochs=30, lr=0.05)
    (tmp_path / "new.csv").write_text("code,n\n007,0.1\n007,-0.3\n")
    assert predict(run, tmp_path / "new.csv")["label"].tolist() == ["True", "True"]


def broken(folder: Path) -> dict[str, Path]:
    files = {
        "missing": folder / "none.csv",
        "kind": folder / "notes.md",
        "garbage": folder / "garbage.npz",
        "several": folder / "several.npz",
        "size": folder / "size.npy",
        "floats": folder / "floats.npy",
        "range": folder / "range.npy",
        "empty": folder / "empty.npy",
        "table": folder / "table.csv",
        "image": folder / "broken.png",
        "nothing": folder / "nothing",
    }
    files["kind"].write_text("hello")
    files["garbage"].write_bytes(b"not an archive")
    np.savez(files["several"], a=np.zeros(3), b=np.zeros(3))
    np.save(files["size"], np.zeros((2, 1, 9, 9), dtype=np.uint8))
    np.save(files["floats"], np.zeros((2, 1, 8, 8)))
    np.save(files["range"], np.full((2, 1, 8, 8), 300))
    np.save(files["empty"], np.zeros((0, 1, 8, 8), dtype=np.uint8))
    files["table"].write_text("a,b\n1,2\n")
    files["image"].write_bytes(b"not a picture")
    files["nothing"].mkdir()
    return files


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "got none at"),
        ("kind", r"must be one of .*\.csv.*; got notes\.md"),
        ("garbage", "must hold plain numpy arrays"),
        ("several", "one named x, X, x_test; got a, b"),
        ("size", r"shape \(1, 8, 8\) of digits; got \(2, 1, 9, 9\): size in size.npy"),
        ("floats", "whole numbers from 0 to 255, .* got torch.float64 from 0 to 0"),
        ("range", "from 300 to 300"),
        ("empty", "one example at least"),
        ("table", "digits must be images; got the table table.csv"),
        ("image", r"broken\.png: .*Repair or remove"),
        ("nothing", r"must hold images .*; got none"),
    ],
)
def test_files_that_are_refused(plain, tmp_path, name, message):
    with pytest.raises(DataError, match=message):
        predict(plain, broken(tmp_path)[name])


def test_rows_that_are_refused(diabetes, tmp_path):
    file = tmp_path / "rows.csv"
    frame = pd.DataFrame(np.zeros((3, 10)), columns=[f"c{i}" for i in range(10)])
    frame.assign(target=1.0).to_csv(file, index=False)
    with pytest.raises(DataError, match=r"the 10 columns of diabetes .* got 11 in .* \(c0, c1.*the target too"):
        predict(diabetes, file)
    frame.assign(c4=[0.0, "x", 1.0]).to_csv(file, index=False)
    with pytest.raises(DataError, match=r"1 in rows.csv that are not, the first in row 1, column c4"):
        predict(diabetes, file)
    with pytest.raises(DataError, match="diabetes must be rows of a table; got images"):
        predict(diabetes, tmp_path)
    np.save(tmp_path / "x.npy", np.array([[np.nan] * 10]))
    with pytest.raises(DataError, match=r"10 in x\.npy that are not, the first in row 0"):
        predict(diabetes, tmp_path / "x.npy")


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(TrainingError, match=r"a run folder must hold run\.json"):
        predict(tmp_path, tmp_path)
