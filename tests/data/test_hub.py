"""Sets from the Hugging Face hub, through a stand-in for its package: what is asked of it, and what comes out."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pictures

import multum
from multum.data import archives, hub
from multum.errors import DataError


class Image:
    """A feature, known by the name of its type."""


class Value(Image):
    pass


class ClassLabel:
    def __init__(self, names: list[str]):
        self.names = names


class Rows:
    """Columns that answer as those of `datasets.Dataset` do."""

    def __init__(self, features: dict[str, Any], columns: dict[str, list]):
        self.features, self.columns = features, columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self.columns[key]
        return {name: column[key] for name, column in self.columns.items()}


def rows(n: int, seed: int, mode: str = "RGB", sizes: tuple[tuple[int, int], ...] = ((6, 5),)) -> Rows:
    rng = np.random.default_rng(seed)
    pictures = []
    for i in range(n):
        width, height = sizes[i % len(sizes)]
        pictures.append(Pictures.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).convert(mode))
    labels = [i % 3 for i in range(n)]
    features = {"id": Value(), "img": Image(), "label": ClassLabel(["ant", "bee", "cow"])}
    return Rows(features, {"id": [*range(n)], "img": pictures, "label": labels})


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Puts a stand-in for the package in place; `asked` are the arguments of its calls."""
    monkeypatch.setenv("MULTUM_DATA", str(tmp_path))

    def serve(answer: Any) -> list[tuple]:
        asked: list[tuple] = []

        def load_dataset(*arguments: Any) -> Any:
            asked.append(arguments)
            if isinstance(answer, Exception):
                raise answer
            return answer

        module = types.ModuleType("datasets")
        module.load_dataset = load_dataset  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "datasets", module)
        return asked

    return serve


def test_splits_become_parts_and_columns_are_found(served) -> None:
    train, test = rows(300, 0), rows(30, 1)
    asked = served({"train": train, "test": test, "validation": rows(3, 2)})
    data = multum.load_data("hf:some/insects")
    assert asked == [("some/insects",)] and data.classes == ("ant", "bee", "cow") and data.name == "hf:some/insects"
    assert data.train.x.shape == (300, 3, 5, 6) and data.train.x.dtype == torch.uint8 and len(data.test) == 30
    assert torch.equal(data.train.x[277], torch.from_numpy(np.array(train["img"][277])).permute(2, 0, 1))
    assert data.test.y.tolist() == test["label"]


def test_one_split_is_divided_by_the_seed(served) -> None:
    served({"train": rows(60, 0), "test": rows(30, 1), "extra": rows(45, 3)})
    one, again, other = (multum.load_data("hf:some/insects#split=extra", seed=s) for s in (0, 0, 1))
    assert len(one.train) == 36 and len(one.test) == 9
    assert torch.equal(one.train.x, again.train.x) and not torch.equal(one.train.x, other.train.x)
    served({"test": rows(60, 0)})
    assert len(multum.load_data("hf:some/insects").test) == 12


def test_grey_images_stay_grey_and_sizes_that_differ_go_by_the_rule_of_folders(served) -> None:
    served({"train": rows(30, 0, "L"), "test": rows(30, 1, "L")})
    assert multum.load_data("hf:some/grey").train.x.shape == (30, 1, 5, 6)
    served({"train": rows(30, 0, "L", ((6, 5), (8, 9))), "test": rows(30, 1)})
    data = multum.load_data("hf:some/mixed")
    assert data.train.x.shape == (30, 1, 5, 5) and data.test.x.shape == (30, 1, 5, 5)


def test_columns_by_name_and_labels_as_text(served) -> None:
    table = rows(30, 0)
    words = [["dog", "ape"][i % 2] for i in range(30)]
    named = Rows({"a": Image(), "b": Value()}, {"a": table["img"], "b": words})
    asked = served({"train": named, "test": named})
    data = multum.load_data("hf:zoo#config=small,image=a,label=b")
    assert asked == [("zoo", "small")] and data.classes == ("ape", "dog") and data.train.y.tolist() == [1, 0] * 15


def test_names_of_known_sets_come_from_the_hub_where_no_file_is(served, tmp_path: Path) -> None:
    asked = served({"train": rows(30, 0), "test": rows(9, 1)})
    data = multum.load_data("svhn")
    assert asked == [("ufldl-stanford/svhn", "cropped_digits")] and data.name == "svhn" and len(data.test) == 9
    assert all(archive.hub for archive in archives.ARCHIVES.values())
    x, y = np.zeros((4, 5, 5), np.uint8), np.arange(4)
    np.savez(tmp_path / "svhn.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert len(multum.load_data("svhn").train) == 4 and len(asked) == 1


def test_offline_and_without_the_package_the_error_says_what_to_do(served, monkeypatch: pytest.MonkeyPatch) -> None:
    served(ConnectionError("no route to huggingface.co"))
    with pytest.raises(DataError, match=r"ConnectionError: no route.*Check the name.*network"):
        multum.load_data("hf:some/insects")
    with pytest.raises(DataError, match=r"mnist must be mnist.npz or mnist/.*got no such file, and .*no route"):
        multum.load_data("mnist")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"multum\[hub\]"):
        multum.load_data("hf:some/insects")
    with pytest.raises(DataError, match=r"cifar-10-binary.tar.gz.*multum\[hub\]"):
        multum.load_data("cifar10")


def no_images() -> Rows:
    return Rows({"a": Value(), "b": ClassLabel(["x", "y"])}, {"a": [1, 2, 3], "b": [0, 1, 0]})


@pytest.mark.parametrize(
    ("name", "splits", "message"),
    [
        ("hf:s#split=trian", {"train": rows(6, 0)}, "Did you mean train"),
        ("hf:s#imag=a", {"train": rows(6, 0)}, "Did you mean image"),
        ("hf:s#image=pic", {"train": rows(6, 0)}, r"image must name a column .* it has id \(Value\), img \(Image\)"),
        ("hf:s", {"train": no_images()}, r"a column of type Image.*parquet:FILE"),
        ("hf:s#image=a", {"train": no_images()}, r"got a of hf:s, a <class 'int'>"),
        ("hf:s#label=id", {"train": rows(6, 0), "test": rows(9, 0)}, r"got 6, 7, 8 in the test part alone"),
    ],
)
def test_what_is_no_set_of_images_is_refused(name: str, splits: dict, message: str, served) -> None:
    served(splits)
    with pytest.raises(DataError, match=message):
        multum.load_data(name)


def test_sets_that_do_not_fit_into_memory_are_refused(served, monkeypatch: pytest.MonkeyPatch) -> None:
    served({"train": rows(30, 0)})
    monkeypatch.setattr(hub, "MOST_BYTES", 30 * 90 - 1)
    with pytest.raises(DataError, match=r"hf:some/insects takes about .*use folder:DIR"):
        multum.load_data("hf:some/insects")
    monkeypatch.setattr(hub, "MOST_BYTES", 30 * 90)
    assert len(multum.load_data("hf:some/insects").train) == 24
