"""A run folder stands alone: it answers the same wherever it lies and whatever became of its data."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import multum
from multum.data.preparation import Preparation
from multum.errors import DataError, FileError, TrainingError
from multum.runs.evaluate import evaluate_run
from multum.runs.folder import open_run
from multum.runs.predict import predict_run
from multum.runs.train import train

QUICK = {"epochs": 2, "batch_size": 32}


def table(path: Path, rows: int = 1000) -> pd.DataFrame:
    """A file with numbers, gaps, categories and labels that follow from them."""
    draw = np.random.default_rng(0)
    age = draw.integers(18, 80, rows).astype(float)
    plan = draw.choice(["basic", "plus", "pro"], rows)
    left = np.where((age < 45) ^ (plan == "pro"), "go", "stay")
    frame = pd.DataFrame({"age": age, "plan": plan, "money": draw.normal(size=rows).round(6), "lab": left})
    frame.loc[::11, "age"] = np.nan
    frame.to_csv(path, index=False)
    return frame


def trained(folder: Path, data: str, model: str | None = "mlp:hidden=8", **recipe: Any) -> Path:
    train(data, model, "deep:members=2", folder, {**QUICK, **recipe}, progress=False)
    return folder


def predicted(run: Path, file: Path) -> pd.DataFrame:
    return predict_run(run, file, progress=False)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    table(tmp_path / "lab.csv")
    return trained(tmp_path / "run", f"csv:{tmp_path / 'lab.csv'}#target=lab")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    table(tmp_path / "whole.csv", 50).drop(columns="lab").to_csv(tmp_path / "new.csv", index=False)
    return tmp_path / "new.csv"


def pictures(folder: Path, name: str, low: int) -> None:
    (folder / name).mkdir(parents=True)
    draw = np.random.default_rng(low)
    for i in range(20):
        Image.fromarray(draw.integers(low, low + 90, (12, 10, 3)).astype(np.uint8)).save(folder / name / f"{i}.png")


@pytest.fixture
def images(tmp_path: Path) -> tuple[Path, Path]:
    """A run on class folders, and the folder."""
    for name, low in (("cat", 0), ("dog", 80), ("emu", 160)):
        pictures(tmp_path / "pets", name, low)
    shutil.copytree(tmp_path / "pets", tmp_path / "before")
    return trained(tmp_path / "run", f"folder:{tmp_path / 'pets'}", "small-cnn"), tmp_path / "pets"


# What changes after training must not change an answer.


def test_other_labels_in_the_training_file_change_no_answer(run: Path, new: Path) -> None:
    before = predicted(run, new)
    file = run.parent / "lab.csv"
    file.write_text(file.read_text().replace(",stay\n", ",a_stay\n"))
    pd.testing.assert_frame_equal(predicted(run, new), before, check_exact=True)


def test_a_multiplied_column_changes_no_answer(run: Path, new: Path) -> None:
    before = predicted(run, new)
    frame = pd.read_csv(run.parent / "lab.csv")
    frame.assign(age=1000 * frame["age"]).to_csv(run.parent / "lab.csv", index=False)
    pd.testing.assert_frame_equal(predicted(run, new), before, check_exact=True)


@pytest.mark.parametrize("change", ["renamed", "added"])
def test_other_class_folders_change_no_answer(images: tuple[Path, Path], change: str) -> None:
    run, folder = images
    before = predicted(run, folder.parent / "before")
    if change == "renamed":
        (folder / "emu").rename(folder / "ant")
    else:
        pictures(folder, "bee", 40)
    pd.testing.assert_frame_equal(predicted(run, folder.parent / "before"), before, check_exact=True)


def test_a_moved_run_needs_nothing_of_its_training(
    run: Path, new: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = predict_run(run, new, coverage=0.8, temperature=True, progress=False)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.move(run, elsewhere / "moved")
    (run.parent / "lab.csv").unlink()
    monkeypatch.chdir(elsewhere)
    again = predict_run("moved", new, coverage=0.8, temperature=True, progress=False)
    pd.testing.assert_frame_equal(again, before, check_exact=True)
    assert again.attrs == before.attrs


def test_a_run_without_validation_part_needs_its_test_part_for_a_coverage(tmp_path: Path, new: Path) -> None:
    table(tmp_path / "lab.csv", 200)
    run = trained(tmp_path / "run", f"csv:{tmp_path / 'lab.csv'}#target=lab", epochs=1, validation=0)
    assert not (run / "validation.safetensors").exists() and "abstain" in predict_run(run, new, coverage=0.5)
    (tmp_path / "lab.csv").unlink()
    with pytest.raises(TrainingError, match=r"a coverage must be fitted .* validation=0\.1"):
        predict_run(run, new, coverage=0.5, progress=False)
    assert len(predicted(run, new)) == 50


@pytest.mark.parametrize("model", ["mlp:hidden=8,thin=0.5", "mlp:hidden=8,wide=2", "tabular-mlp:hidden=8,bins=4"])
def test_a_run_of_any_width_needs_no_data_either(tmp_path: Path, model: str) -> None:
    frame = table(tmp_path / "lab.csv", 200)
    run = trained(tmp_path / "run", f"csv:{tmp_path / 'lab.csv'}#target=lab", model, epochs=1)
    frame.drop(columns="lab").to_csv(tmp_path / "new.csv", index=False)
    before = predicted(run, tmp_path / "new.csv")
    (tmp_path / "lab.csv").unlink()
    pd.testing.assert_frame_equal(predicted(run, tmp_path / "new.csv"), before, check_exact=True)


def test_a_preparation_is_written_to_the_bit(tmp_path: Path) -> None:
    table(tmp_path / "lab.csv")
    for name in (
        "digits",
        "diabetes",
        f"csv:{tmp_path / 'lab.csv'}#target=lab",
        f"csv:{tmp_path / 'lab.csv'}#target=money",
    ):
        data = multum.load_data(name)
        text = json.dumps(data.preparation.as_dict())
        read = Preparation.from_dict(json.loads(text))
        assert json.dumps(read.as_dict()) == text
        assert torch.equal(read.prepare(data.test.x), data.prepare(data.test.x))
        assert torch.equal(read.targets(data.test.y), data.targets(data.test.y))
        assert read.class_names == data.class_names and read.shape == tuple(data.train.x.shape[1:])
        assert read.table == (data.table and replace(data.table, file=Path("lab.csv")))


def test_a_preparation_may_have_several_targets() -> None:
    one = multum.load_data("diabetes").preparation
    several = replace(one, target_mean=[1.0, 0.1], target_std=torch.tensor([2.0, 3.0], dtype=torch.float64))
    read = Preparation.from_dict(json.loads(json.dumps(several.as_dict())))
    y = torch.tensor([[3.0, 3.1], [1.0, 0.1]], dtype=torch.float64)
    assert torch.equal(read.targets(y), several.targets(y))
    torch.testing.assert_close(read.targets(y), torch.tensor([[1.0, 1.0], [0.0, 0.0]]))


# Data that changed is another data set.


def shuffled(path: Path, rows: int) -> None:
    """The same file with its labels shuffled, cut to fewer rows."""
    frame = pd.read_csv(path)
    frame["lab"] = frame["lab"].sample(frac=1, random_state=0).to_numpy()
    frame.head(rows).to_csv(path, index=False)


def test_train_does_not_return_the_model_of_other_data(run: Path) -> None:
    data = f"csv:{run.parent / 'lab.csv'}#target=lab"
    model = (run / "model.safetensors").read_bytes()
    trained(run, data)  # the same data: the finished run is returned
    shuffled(run.parent / "lab.csv", 700)
    with pytest.raises(TrainingError, match=r"lab\.csv.* changed since .* 1000 examples are now 700.*another --out"):
        trained(run, data)
    assert (run / "model.safetensors").read_bytes() == model


@pytest.mark.usefixtures("without_figures")
def test_compare_does_not_reuse_cells_of_other_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table(tmp_path / "lab.csv")
    data, recipe = f"csv:{tmp_path / 'lab.csv'}#target=lab", {**QUICK, "epochs": 4, "lr": 0.02}

    def compared() -> dict[str, Any]:
        options: dict[str, Any] = {"seeds": 1, "tune": 0, "recipe": recipe, "out": tmp_path / "out"}
        return multum.compare(data, "mlp:hidden=8", "single", **options)

    first, again = compared(), compared()
    assert [c["folder"] for c in first["cells"]] == [c["folder"] for c in again["cells"]]
    assert "lab.csv" not in caplog.text
    shuffled(tmp_path / "lab.csv", 700)
    with caplog.at_level(logging.WARNING):
        other = compared()
    assert "lab.csv" in caplog.text and "1000 examples are now 700" in caplog.text
    assert other["cells"][0]["folder"] != first["cells"][0]["folder"]
    accuracy = [document["rows"][0]["values"]["accuracy"]["mean"] for document in (first, other)]
    assert accuracy[0] > accuracy[1] + 0.1  # shuffled labels cannot be learned


def test_evaluate_takes_the_recorded_test_part_or_refuses(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = evaluate_run(run, progress=False)
    file = run.parent / "lab.csv"
    frame = pd.read_csv(file)
    turned = pd.concat([frame.head(20), frame.sample(frac=1, random_state=1)])  # another order, and 20 more rows
    turned.to_csv(file, index=False)
    with caplog.at_level(logging.WARNING):
        again = evaluate_run(run, progress=False)
    assert again == before and "1000 examples are now 1020" in caplog.text
    shuffled(file, 700)
    with pytest.raises(TrainingError, match=r"test part .* of its 200 examples .* --data"):
        evaluate_run(run, progress=False)


def test_evaluate_on_other_data_leaves_out_what_was_trained_on(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = evaluate_run(run, progress=False)
    same = evaluate_run(run, data=f"csv:{run.parent / 'lab.csv'}#target=lab", progress=False)
    assert before["examples"] == 200 and same["examples"] == 200 and same["nll"] == pytest.approx(before["nll"])
    other = table(run.parent / "other.csv", 1200).tail(50)
    other["money"] += 1  # rows that no one has seen
    other.to_csv(run.parent / "other.csv", index=False)
    (run.parent / "lab.csv").unlink()
    numbers = evaluate_run(run, data=f"csv:{run.parent / 'other.csv'}#target=lab", progress=False)
    assert numbers["examples"] == 50 and numbers["data"].endswith("other.csv#target=lab")
    renamed = other.rename(columns={"lab": "truth"})
    renamed.iloc[:3, 3] = "who knows"
    renamed.to_csv(run.parent / "renamed.csv", index=False, sep="|")
    name = f"csv:{run.parent / 'renamed.csv'}#target=truth,sep=|"
    with pytest.raises(DataError, match="who knows"):
        evaluate_run(run, data=name, progress=False)
    assert evaluate_run(run, data=f"{name}#hold_out=who knows", progress=False)["examples"] == 47


def test_evaluate_reads_other_data_in_the_runs_terms(images: tuple[Path, Path], tmp_path: Path) -> None:
    run, _ = images
    for name, low in (("dog", 90), ("emu", 150)):  # fewer classes, so that their numbers are others
        pictures(tmp_path / "new", name, low)
    numbers = evaluate_run(run, data=f"folder:{tmp_path / 'new'}", progress=False)
    assert numbers["examples"] == 40  # all of them: no part of it was held out by a person
    frame = predicted(run, tmp_path / "new")
    assert numbers["accuracy"] == pytest.approx((frame["example"].str[:3] == frame["label"]).mean())
    pictures(tmp_path / "new", "yak", 100)
    with pytest.raises(DataError, match=r"must have the run's classes; got yak .*#hold_out=yak"):
        evaluate_run(run, data=f"folder:{tmp_path / 'new'}", progress=False)
    again = evaluate_run(run, data=f"folder:{tmp_path / 'new'}#hold_out=yak", progress=False)
    assert (again["examples"], again["nll"], again["ece"]) == (40, numbers["nll"], numbers["ece"])


def test_evaluate_of_images_goes_by_content(images: tuple[Path, Path]) -> None:
    run, folder = images
    before = evaluate_run(run, progress=False)
    (folder / "cat" / "0.png").rename(folder / "cat" / "zero.png")  # another order and split, the same pictures
    assert evaluate_run(run, progress=False) == before
    pictures(folder, "bee", 40)
    assert evaluate_run(run, progress=False) == before
    for file in folder.rglob("1*.png"):
        file.unlink()
    with pytest.raises(TrainingError, match="test part"):
        evaluate_run(run, progress=False)


@pytest.mark.usefixtures("without_figures")
def test_a_changed_ood_set_is_measured_anew(tmp_path: Path) -> None:
    digits = multum.load_data("digits").test.x[:50].numpy()

    def compared() -> dict[str, Any]:
        np.savez(tmp_path / "ood.npz", x_test=digits)
        options: dict[str, Any] = {
            "seeds": 1,
            "tune": 0,
            "recipe": {**QUICK, "epochs": 4},
            "shift": "none",
            "out": tmp_path / "out",
        }
        return multum.compare("digits", "small-cnn", "single", ood=[f"npz:{tmp_path / 'ood.npz'}"], **options)

    first, again = compared(), compared()
    assert first["cells"][0]["folder"] == again["cells"][0]["folder"]
    assert first["examples"] == {"train": 1132, "validation": 126, "test": 539}
    digits = 255 - digits
    other = compared()
    assert other["cells"][0]["folder"] != first["cells"][0]["folder"]
    numbers = [document["rows"][0]["values"]["auroc"]["mean"] for document in (first, other)]
    assert abs(numbers[0] - 0.5) < 0.1 < abs(numbers[1] - 0.5)


def test_an_interrupted_run_goes_on_with_its_own_order(tmp_path: Path) -> None:
    frame = table(tmp_path / "lab.csv", 200)
    data = f"csv:{tmp_path / 'lab.csv'}#target=lab"
    run = trained(tmp_path / "run", data, epochs=1)
    before = (run / "split.safetensors").read_bytes()
    settings = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**settings, "last": None}))  # as if it had been stopped
    frame.iloc[::-1].to_csv(tmp_path / "lab.csv", index=False)
    with pytest.raises(TrainingError, match="its examples in their order"):
        trained(run, data, epochs=1)
    assert (run / "split.safetensors").read_bytes() == before
    frame.to_csv(tmp_path / "lab.csv", index=False)
    trained(run, data, epochs=1)
    assert open_run(run)[2]["last"]["epoch"] == 1


# What a folder holds.


def test_a_folder_can_be_loaded(run: Path) -> None:
    ens, preparation, _ = open_run(run)
    x = preparation.example()
    assert torch.equal(multum.load(run)(x), ens(x))


def test_the_split_is_written_by_example(run: Path) -> None:
    split = load_file(run / "split.safetensors")
    assert {name: len(ids) for name, ids in split.items()} == {"train": 720, "validation": 80, "test": 200}
    every = torch.cat(list(split.values()))
    assert every.dtype == torch.int64 and len(every.unique()) == 1000
    settings = open_run(run)[2]
    assert settings["format"] == 2 and len(settings["fingerprint"]) >= 16


def test_a_folder_of_the_first_format_opens_with_a_warning(
    run: Path, new: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, numbers = predicted(run, new), evaluate_run(run, progress=False)
    for name in ("preparation.json", "split.safetensors", "validation.safetensors"):
        (run / name).unlink()
    settings = json.loads((run / "run.json").read_text())
    del settings["format"], settings["fingerprint"]
    (run / "run.json").write_text(json.dumps(settings))
    with caplog.at_level(logging.WARNING):
        pd.testing.assert_frame_equal(predicted(run, new), before, check_exact=True)
    assert "lab.csv" in caplog.text and "as it is now" in caplog.text
    del numbers["by_class"]["thresholds"]  # they are chosen on validation outputs, which no such folder has
    again = evaluate_run(run, progress=False)
    assert again["calibrated_by"] == "cross-validation on the test part" != numbers["calibrated_by"]
    fitted = {name for name in numbers if "calibrated" in name or name == "temperature"}
    assert {k: v for k, v in again.items() if k not in fitted} == {k: v for k, v in numbers.items() if k not in fitted}
    with pytest.raises(TrainingError, match="another --out"):
        trained(run, f"csv:{run.parent / 'lab.csv'}#target=lab")


def test_damaged_files_are_refused(run: Path, new: Path) -> None:
    changed = (run / "preparation.json").read_text().replace('"stay"', '"stray"')
    for text in ('{"name": "digits"}', changed, ""):
        (run / "preparation.json").write_text(text)
        with pytest.raises(FileError, match=r"preparation\.json"):
            predicted(run, new)
    (run / "preparation.json").unlink()
    with pytest.raises(FileError, match=r"preparation\.json"):
        predicted(run, new)


@pytest.mark.parametrize("name", ["split", "validation"])
def test_damaged_tensors_are_refused(run: Path, new: Path, name: str) -> None:
    def used() -> Any:
        return evaluate_run(run, progress=False) if name == "split" else predict_run(run, new, coverage=0.9)

    file = run / f"{name}.safetensors"
    whole = file.read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:100], b""):
        file.write_bytes(damaged)
        with pytest.raises(FileError, match=rf"{name}\.safetensors must be .* Copy the folder again"):
            used()
    file.write_bytes(whole)
    used()


def test_a_recorded_test_part_is_found_in_arrays_that_stay_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MULTUM_DATA", str(tmp_path / "cache"))
    x = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    parts = {"x_test": x[200:], "y_test": y[200:]}
    np.savez(tmp_path / "rows.npz", x_train=x[:200], y_train=y[:200], **parts)
    trained(tmp_path / "run", f"npz:{tmp_path / 'rows.npz'}")
    numbers = evaluate_run(tmp_path / "run", progress=False)
    parts = {"x_test": x[150:][::-1], "y_test": y[150:][::-1]}  # all that it was tested on is there, and more
    np.savez(tmp_path / "rows.npz", x_train=x[:150], y_train=y[:150], **parts)
    for in_memory in (2**28, 100):
        monkeypatch.setattr("multum.data.maps.IN_MEMORY", in_memory)
        assert evaluate_run(tmp_path / "run", progress=False) == numbers
