"""Data sets by name: what comes out, what standardises it, and what is said when it cannot be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import multum
from multum.data.sources import SOURCES, Data, Part, load_data, load_examples, split
from multum.errors import DataError


def test_digits_are_uint8_images_in_three_parts_that_do_not_overlap() -> None:
    data = multum.load_data("digits", seed=3).with_validation(0.2, seed=1)
    assert data.task == "classification" and data.outputs == 10 and data.is_image
    assert data.train.x.dtype == torch.uint8 and data.train.x.shape[1:] == (1, 8, 8)
    assert len(data.train) + len(data.test) + len(data.validation) == 1797
    counts = data.validation.y.bincount()
    assert counts.max() - counts.min() <= 3  # stratified
    prepared = data.prepare(multum.load_data("digits", seed=3).train.x)
    assert abs(float(prepared.mean())) < 1e-4 and abs(float(prepared.std()) - 1) < 1e-3


def test_parts_share_no_example() -> None:
    for seed in (0, 1):
        data = multum.load_data("digits", seed=seed).with_validation(0.25, seed=seed)
        contents = [
            {example.numpy().tobytes() for example in part.x} for part in (data.train, data.validation, data.test)
        ]
        assert sum(map(len, contents)) == len(contents[0] | contents[1] | contents[2]) == 1797  # all digits differ


def test_a_kind_that_is_none_gets_a_hint() -> None:
    with pytest.raises(DataError, match="Did you mean csv"):
        multum.load_data("cvs:a.csv#target=y")


def test_diabetes_is_standardised_by_its_training_part_alone() -> None:
    data = multum.load_data("diabetes")
    assert data.task == "regression" and data.outputs == 2
    x, y = data.prepare(data.train.x), data.targets(data.train.y)
    torch.testing.assert_close(x.mean(0), torch.zeros(10), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.std(0), torch.ones(10), atol=1e-4, rtol=0)
    assert abs(float(y.mean())) < 1e-5 and abs(float(y.std()) - 1) < 1e-4
    assert abs(float(data.targets(data.test.y).mean())) > 1e-3


def test_the_same_seed_splits_the_same_way_and_another_another() -> None:
    parts = [multum.load_data("digits", seed=s).test.x for s in (0, 0, 1)]
    assert torch.equal(parts[0], parts[1]) and not torch.equal(parts[0][:50], parts[2][:50])


def npz(path: Path, **arrays: np.ndarray) -> str:
    np.savez(path, **arrays)
    return f"npz:{path}"


def test_arrays_of_ones_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, 5, 6, 3), dtype=np.uint8)
    labels = {"y_train": np.arange(8) % 3, "y_test": np.zeros(4, int)}
    data = multum.load_data(npz(tmp_path / "a.npz", x_train=images[:8], x_test=images[8:], **labels))
    assert data.train.x.shape == (8, 3, 5, 6) and data.outputs == 3
    assert torch.equal(data.train.x, torch.from_numpy(images[:8]).permute(0, 3, 1, 2))
    gray = npz(tmp_path / "g.npz", x_train=images[:8, ..., 0], x_test=images[8:, ..., 0], **labels)
    assert multum.load_data(gray).train.x.shape == (8, 1, 5, 6)
    x, y = rng.normal(size=(10, 4)), rng.normal(size=10)
    x[:, 2] = 7.0
    data = multum.load_data(npz(tmp_path / "t.npz", x_train=x, y_train=y, x_test=x, y_test=y))
    assert data.task == "regression"
    assert torch.equal(data.prepare(data.train.x)[:, 2], torch.zeros(10))  # a constant column
    index = {
        "train_idx": np.stack([np.arange(6), np.arange(4, 10)]),
        "test_idx": np.stack([np.arange(4), np.arange(4)]),
    }
    folds = npz(tmp_path / "f.npz", X=x, y=y, **index)
    assert torch.equal(multum.load_data(folds, seed=1).train.x, torch.from_numpy(x[4:10]))


def test_tables_with_categories(tmp_path: Path) -> None:
    numbers, codes = np.arange(10.0).reshape(5, 2), np.array([[0], [2], [1], [0], [2]], dtype=np.uint8)
    arrays = {"x_cat": codes, "y": np.arange(5) % 2, "part": np.array([0, 1, 2, 0, 2], dtype=np.uint8)}
    data = multum.load_data(npz(tmp_path / "t.npz", x_num=numbers, **arrays))
    assert data.train.x.tolist() == [[0, 1, 1, 0, 0], [2, 3, 0, 0, 1], [6, 7, 1, 0, 0]] and len(data.test) == 2
    turned = multum.load_data(npz(tmp_path / "u.npz", x_num_T=numbers.T, **arrays))
    assert torch.equal(turned.train.x, data.train.x) and data.outputs == 2


def test_named_sets_lie_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTUM_DATA", str(tmp_path))
    x, y = np.zeros((4, 2)), np.arange(4)
    npz(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert len(multum.load_data("mine").train) == 4
    with pytest.raises(DataError, match="Did you mean mine"):
        multum.load_data("mime")
    with pytest.raises(DataError, match="Did you mean digits"):
        multum.load_data("digit")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y_train": np.arange(2)}, "got 3 examples and 2 targets in the training part"),
        ({"x_train": np.full((3, 2), np.nan)}, "NaN"),
        ({"y_train": np.array([0.0, np.inf, 1.0])}, "NaN or infinite"),
        ({"y_train": np.arange(3) - 1}, "got -1"),
        ({"y_test": np.array([3])}, "got 3 in the test part alone"),
        ({"y_test": np.array([-1])}, "got -1"),
        ({"x_test": np.full((1, 2), np.inf)}, "NaN or infinite"),
        ({"x_test": np.zeros((0, 2)), "y_test": np.arange(0)}, "got none in the test part"),
        ({"x_train": np.array(3.0)}, r"x_train must have the shape \[examples, ...\]; got \(\)"),
        ({"y_train": np.array(3)}, r"y_train must have 1 dimension; got the shape \(\)"),
        ({"y_train": np.eye(3)}, r"y_train must have 1 dimension; got the shape \(3, 3\)"),
        ({"y_train": np.array(["a", "b", "c"])}, "must hold numbers, classes as 0, 1, 2"),
    ],
)
def test_arrays_that_are_not_a_data_set_are_refused(arrays: dict, message: str, tmp_path: Path) -> None:
    good = {"x_train": np.zeros((3, 2)), "y_train": np.arange(3), "x_test": np.zeros((1, 2)), "y_test": np.arange(1)}
    multum.load_data(npz(tmp_path / "good.npz", **good))
    with pytest.raises(DataError, match=message):
        multum.load_data(npz(tmp_path / "bad.npz", **good | arrays))
    with pytest.raises(DataError, match=r"; got x$"):
        multum.load_data(npz(tmp_path / "other.npz", x=np.zeros(3)))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (np.array([[0, 7]]), "indices of the 6 rows of X, a line per seed; got torch.int64 from 0 to 7"),
        (np.array([[-1, 2]]), "from -1 to 2"),
        (np.array([[0.0, 2.5]]), "got torch.float64"),
        (np.zeros((0, 3), int), "got none"),
        (np.arange(3), r"train_idx must have 2 dimensions; got the shape \(3,\)"),
    ],
)
def test_wrong_indices_are_refused(index: np.ndarray, message: str, tmp_path: Path) -> None:
    arrays = {"X": np.zeros((6, 2)), "y": np.arange(6) % 2, "test_idx": np.array([[4, 5]], dtype=np.uint16)}
    assert len(multum.load_data(npz(tmp_path / "good.npz", **arrays, train_idx=np.array([[0, 1, 2]]))).test) == 2
    with pytest.raises(DataError, match=message):
        multum.load_data(npz(tmp_path / "bad.npz", **arrays, train_idx=index))


def test_wrong_tables_of_arrays_are_refused(tmp_path: Path) -> None:
    arrays = {"x_num": np.zeros((4, 2)), "y": np.arange(4) % 2, "part": np.array([0, 0, 2, 2])}
    for change, message in (
        ({"part": np.array([0, 2])}, "for each of the 4 rows; got 2"),
        ({"x_cat": np.array([[0], [-1], [0], [0]])}, r"codes 0, 1, 2, .* got \(4, 1\) codes with negative ones"),
        ({"x_cat": np.zeros((3, 1), int)}, r"for each of the 4 rows; got \(3, 1\) codes$"),
        ({"x_num": np.array(1.0)}, "x_num must have 2 dimensions"),
    ):
        with pytest.raises(DataError, match=message):
            multum.load_data(npz(tmp_path / "bad.npz", **arrays | change))


@pytest.mark.parametrize("dtype", [">f8", ">f4", np.longdouble, np.float16, ">i2", np.uint16, np.uint32])
def test_arrays_of_any_type_of_number(dtype: Any, tmp_path: Path) -> None:
    x = np.arange(12).reshape(6, 2).astype(dtype)
    y = np.array([0, 1, 2, 0, 1, 2]).astype(">i4")
    data = multum.load_data(npz(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x, y_test=y))
    assert data.task == "classification" and data.train.x.tolist() == x.tolist() and data.train.y.tolist() == y.tolist()
    assert data.prepare(data.train.x).isfinite().all()


@pytest.mark.parametrize("kind", ["", "npz:", "folder:", "csv:", "parquet:"])
def test_names_that_no_file_can_have_are_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTUM_DATA", str(tmp_path))
    for length in (300, 5000):
        name = kind + "n" * length
        for read in (load_data, load_examples):
            with pytest.raises(DataError, match=r"nnn\.\.\.' must be data that can be read; got File name too long"):
                read(name)


def test_a_source_is_a_module_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_source.py").write_text(
        "import torch\n"
        "from multum.data.parts import Part, assembled\n"
        "def load(place, name, seed):\n"
        "    part = Part(torch.eye(int(place)) + seed, torch.arange(int(place)))\n"
        "    return assembled(name, 'classification', part, part)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(SOURCES, "toy", "toy_source")
    data = load_data("toy:3#hold_out=2", seed=5)
    assert data.name == "toy:3#hold_out=2" and data.outputs == 2 and float(data.train.x.min()) == 5
    assert torch.equal(load_examples("toy:3"), torch.eye(3))
    for name in ("tyo:3", "nowhere"):
        with pytest.raises(DataError, match=r"toy:\.\.\."):
            load_data(name)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is none at"):
        multum.load_data(f"npz:{tmp_path}/none.npz")
    (tmp_path / "junk.npz").write_bytes(b"junk")
    with pytest.raises(DataError, match=r"junk\.npz"):
        multum.load_data(f"npz:{tmp_path}/junk.npz")
    np.save(tmp_path / "bare.npy", np.zeros(3))
    with pytest.raises(DataError, match="plain numpy arrays"):
        multum.load_data(f"npz:{tmp_path}/bare.npy")
    np.savez(tmp_path / "pickle.npz", x_train=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match="plain numpy arrays"):
        multum.load_data(f"npz:{tmp_path}/pickle.npz")


def test_a_split_leaves_something_on_both_sides() -> None:
    part = Part(torch.arange(4.0)[:, None], torch.tensor([0, 0, 1, 1]))
    with pytest.raises(DataError, match="both parts"):
        split(part, 0.01, 0, "classification")
    with pytest.raises(DataError, match=r"0 < share < 1; got 1\.0"):
        split(part, 1.0, 0, "classification")


def test_given_tensors_stay_as_they_are() -> None:
    x, y = torch.randint(9, (5, 3)), torch.tensor([0, 2, 1, 0, 2])
    data = Data.given(x, y, "classification")
    assert data.outputs == 3 and data.prepare(x) is x and data.targets(y) is y
    with pytest.raises(DataError, match="got 5 examples and 4 targets"):
        Data.given(x, y[:4], "classification")


# -- the first examples ------------------------------------------------------------------------------------------------


def test_the_first_examples_of_either_part() -> None:
    whole, some = load_data("digits"), load_data("digits#first=200,test=30")
    assert torch.equal(some.train.x, whole.train.x[:200]) and torch.equal(some.test.y, whole.test.y[:30])
    assert not torch.equal(some.mean, whole.mean)  # standardised by what is trained on
    assert some.name == "digits#first=200,test=30"
    assert torch.equal(load_examples("digits#test=30"), whole.test.x[:30])
    held = load_data("digits#first=200,hold_out=8+9")
    assert held.outputs == 8 and len(held.train) < 200


def test_the_first_examples_of_a_regression_scale_its_targets() -> None:
    some = load_data("diabetes#first=50")
    assert some.target_mean == pytest.approx(float(some.train.y[:50].mean())) and len(some.train) == 50
    assert len(load_data("diabetes#first=100000").train) == len(load_data("diabetes").train)


@pytest.mark.parametrize(
    "text", ["first=0", "first=some", "test=0", "first=3", "first=+5", "first=1+2", "test=" + "9" * 5000]
)
def test_a_choice_of_examples_is_a_number_that_leaves_all_classes(text: str) -> None:
    with pytest.raises(DataError, match=r"classes|1 or more"):
        load_data(f"digits#{text}")


def test_sines_differ_by_seed_in_training_alone() -> None:
    one, two = load_data("sines", seed=0), load_data("sines", seed=1)
    assert torch.equal(one.test.y, two.test.y) and not torch.equal(one.train.y, two.train.y)
    x, y = one.test.x.squeeze(1), one.test.y
    clean = x + 0.3 * (2 * torch.pi * x).sin() + 0.3 * (4 * torch.pi * x).sin()
    assert float(x.min()) >= 0 and float(x.max()) <= 0.5 and float((y - clean).abs().max()) < 0.5


@pytest.mark.parametrize("x_test", [np.zeros((4, 3, 9, 9), np.uint8), np.zeros((4, 3, 8, 8), np.float32)])
def test_a_test_part_of_another_size_or_type_is_refused(x_test: np.ndarray, tmp_path: Path) -> None:
    y = np.array([0, 1, 0, 1])
    np.savez(tmp_path / "a.npz", x_train=np.zeros((4, 3, 8, 8), np.uint8), y_train=y, x_test=x_test, y_test=y)
    with pytest.raises(DataError, match=r"both parts .* must be alike; got torch\.uint8 of shape \(3, 8, 8\)"):
        multum.load_data(f"npz:{tmp_path / 'a.npz'}")
