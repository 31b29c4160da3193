"""OOD data: classes that are held out leave nothing behind, and other sets are made to fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import multum
from multum.data.parts import Data, Part
from multum.data.sources import default_ood, load_examples, ood_sets, resized_like, selected
from multum.errors import DataError


def contents(x: torch.Tensor) -> set[bytes]:
    return {example.numpy().tobytes() for example in x}


def held_out(data: Data, *names: str) -> tuple[Data, Any]:
    """The data without some classes, and the test examples of those."""
    out = torch.tensor([data.class_names.index(name) for name in names])
    return selected(data, "hold_out", names), data.test.rows(torch.isin(data.test.y, out)).x


@pytest.mark.parametrize("names", ["89", "67", "890"])
def test_held_out_classes_leave_nothing_behind(names: str) -> None:
    data = multum.load_data("digits").with_validation(0.2, seed=0)
    known = selected(data, "hold_out", names)
    assert known.outputs == 10 - len(names) == len(known.classes)
    out = torch.tensor([int(k) for k in names])
    for part, whole in ((known.train, data.train), (known.validation, data.validation), (known.test, data.test)):
        stays = ~torch.isin(whole.y, out)
        assert torch.equal(part.x, whole.x[stays])
        assert [known.classes[y] for y in part.y] == [str(int(y)) for y in whole.y[stays]]
        assert sorted(part.y.unique().tolist()) == [*range(known.outputs)]
    x = known.prepare(known.train.x)
    assert abs(float(x.mean())) < 1e-4 and abs(float(x.std()) - 1) < 1e-3 and not torch.equal(known.mean, data.mean)


def test_the_names_of_both_sets_load_them_again() -> None:
    for seed in (0, 4):
        known, ood = held_out(multum.load_data("digits", seed=seed), "8", "9")
        again = multum.load_data(known.name, seed=seed)
        assert torch.equal(known.train.x, again.train.x) and torch.equal(known.train.y, again.train.y)
        assert known.classes == again.classes and torch.equal(known.mean, again.mean)
        assert torch.equal(ood, load_examples("digits#only=8+9", seed=seed))
    name, sets = default_ood("digits", multum.load_data("digits"))
    like = multum.load_data(name)
    assert name == "digits#hold_out=8+9" and list(sets) == ["digits#only=8+9"]
    assert contents(ood_sets(sets, like)["digits#only=8+9"]).isdisjoint(contents(like.train.x))
    twice = multum.load_data(default_ood(name, like)[0])  # classes keep their names, so a second choice finds them
    assert twice.classes == tuple("012345") and twice.name == "digits#hold_out=8+9,hold_out=6+7"


def test_classes_of_tables_are_held_out_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kinds = np.array(["a+b", "c,d", "1", "50%", "e=f"])[np.arange(100) % 5]
    frame = pd.DataFrame({"x": rng.normal(size=100), "job": rng.choice(["cook", "smith"], 100), "kind": kinds})
    frame.loc[frame["kind"] == "e=f", "x"] += 100
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = multum.load_data(f"csv:{tmp_path}/t.csv#target=kind")
    assert data.classes == ("1", "50%", "a+b", "c,d", "e=f")
    known, ood = held_out(data, "a+b", "c,d", "e=f")
    assert known.classes == known.table.classes == ("1", "50%")
    assert ood.shape == (12, 3) and known.table.rows == (len(known.train), len(known.test)) == (32, 8)
    x = known.prepare(known.train.x)
    assert abs(float(x[:, 0].mean())) < 1e-4 and abs(float(x[:, 0].std()) - 1) < 1e-3
    assert {*x[:, 1:].flatten().tolist()} == {0.0, 1.0}
    again = multum.load_data(known.name)
    assert torch.equal(again.train.x, known.train.x) and again.classes == known.classes
    assert torch.equal(load_examples(known.name.replace("hold_out", "only")), ood)


def picture_folder(root: Path, classes: int) -> Path:
    rng = np.random.default_rng(0)
    for k in range(classes):
        (root / f"class{k}").mkdir(parents=True)
        for i in range(10):
            Image.fromarray(rng.integers(0, 256, (9, 8, 3), dtype=np.uint8)).save(root / f"class{k}" / f"{i}.png")
    return root


def test_classes_of_image_folders_are_held_out_without_decoding_them(tmp_path: Path) -> None:
    data = multum.load_data(f"folder:{picture_folder(tmp_path, 6)}#size=8")
    known, ood = held_out(data, "class5")
    assert known.name.endswith("#size=8,hold_out=class5") and known.train.lazy
    assert [f.parent.name for f in ood.files] == ["class5"] * 2 and ood[:].shape == (2, 3, 8, 8)
    assert {f.parent.name for f in known.train.x.files} == {f"class{k}" for k in range(5)}
    assert all(f.parent.name == known.classes[y] for f, y in zip(known.test.x.files, known.test.y, strict=True))
    again = multum.load_data(known.name)
    assert again.train.x.files == known.train.x.files and torch.equal(again.mean, known.mean)
    small = multum.load_data(f"{data.name.replace('size=8', 'size=4')},only=class5")
    assert resized_like(small.test.x, known).shape == (2, 3, 8, 8)


def test_too_few_classes_stay_whole_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    three = multum.load_data(f"folder:{picture_folder(tmp_path, 3)}#size=8")
    assert default_ood(three.name, three) == (three.name, ())
    with pytest.raises(DataError, match="only must be used on data with classes"):
        multum.load_data("diabetes#only=3")
    with pytest.raises(DataError, match="must name classes of digits; got '10'"):
        multum.load_data("digits#hold_out=10")
    with pytest.raises(DataError, match="leaves none"):
        multum.load_data("digits#hold_out=" + "+".join(map(str, range(10))))


def known_images(*shape: int) -> Data:
    part = Part(torch.zeros(2, *shape, dtype=torch.uint8), torch.tensor([0, 1]))
    return Data("known", "classification", part, part, 2, mean=torch.zeros(shape[0], 1, 1), std=torch.ones(1))


def test_ood_images_take_the_known_shape_by_the_stated_rule() -> None:
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)).resize((48, 32), Image.Resampling.BICUBIC)
    x = torch.from_numpy(np.array(smooth)).permute(2, 0, 1)[None]
    resized = resized_like(x, known_images(3, 16, 16))
    scaled = np.array(smooth.resize((24, 16), Image.Resampling.BILINEAR))[:, 4:20]  # covers, then the middle
    assert resized.dtype == torch.uint8 and resized.shape == (1, 3, 16, 16)
    assert (resized[0].permute(1, 2, 0).numpy().astype(int) - scaled).__abs__().max() <= 1
    grey = resized_like(x, known_images(1, 32, 48))
    assert np.abs(grey[0, 0].numpy().astype(int) - np.array(smooth.convert("L"))).max() <= 1
    coloured = resized_like(grey, known_images(3, 32, 48))
    assert torch.equal(coloured, grey.expand(-1, 3, -1, -1))
    floats = resized_like(x.float() / 255, known_images(3, 16, 16))
    assert floats.dtype == torch.float32 and (floats * 255 - resized).abs().max() <= 0.51
    many = x.expand(1100, -1, -1, -1)
    assert torch.equal(resized_like(many, known_images(3, 16, 16)), resized.expand(1100, -1, -1, -1))


def test_what_fits_stays_and_what_cannot_fit_is_refused() -> None:
    digits = multum.load_data("digits")
    assert resized_like(digits.test.x, digits) is digits.test.x
    diabetes = multum.load_data("diabetes")
    assert resized_like(diabetes.test.x, diabetes) is diabetes.test.x
    for x, like in ((diabetes.test.x, digits), (digits.test.x, diabetes), (torch.zeros(2, 4, 8, 8), digits)):
        with pytest.raises(DataError, match="Choose another OOD set"):
            resized_like(x, like)
    wide = replace(digits, train=Part(torch.zeros(2, 1, 8, 12, dtype=torch.uint8), digits.train.y[:2]))
    assert resized_like(digits.test.x, wide).shape[1:] == (1, 8, 12)
