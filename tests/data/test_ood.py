"""Foreign items: classes that are held out leave nothing behind, and other sets are made to fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import multum
from multum.data.ood import default_hold_out, fitted, foreign_sets, hold_out_classes
from multum.data.parts import Data, Part
from multum.data.sources import load_items
from multum.errors import DataError


def contents(x: torch.Tensor) -> set[bytes]:
    return {item.numpy().tobytes() for item in x}


@pytest.mark.parametrize(("count", "seed", "names"), [(None, 0, "89"), (3, 0, "789"), (None, 1, "67"), (3, 3, "890")])
def test_held_out_classes_leave_nothing_behind(count: int | None, seed: int, names: str) -> None:
    data = multum.load_data("digits").with_validation(0.2, seed=0)
    known, foreign, held = hold_out_classes(data, count, seed)
    assert sorted(held) == sorted(names) and known.outputs == 10 - len(names) == len(known.classes)
    out = torch.tensor([int(k) for k in held])
    assert torch.equal(foreign, data.test.x[torch.isin(data.test.y, out)])
    for part, whole in ((known.train, data.train), (known.validation, data.validation), (known.test, data.test)):
        stays = ~torch.isin(whole.y, out)
        assert torch.equal(part.x, whole.x[stays])
        assert [known.classes[y] for y in part.y] == [str(int(y)) for y in whole.y[stays]]
        assert sorted(part.y.unique().tolist()) == [*range(known.outputs)]
    x = known.prepare(known.train.x)
    assert abs(float(x.mean())) < 1e-4 and abs(float(x.std()) - 1) < 1e-3 and not torch.equal(known.mean, data.mean)


def test_the_names_of_both_sets_load_them_again() -> None:
    for seed in (0, 4):
        known, foreign, _ = hold_out_classes(multum.load_data("digits", seed=seed))
        again = multum.load_data(known.name, seed=seed)
        assert torch.equal(known.train.x, again.train.x) and torch.equal(known.train.y, again.train.y)
        assert known.classes == again.classes and torch.equal(known.mean, again.mean)
        assert torch.equal(foreign, load_items("digits#only=8+9", seed=seed))
    name, sets = default_hold_out("digits", multum.load_data("digits"))
    like = multum.load_data(name)
    assert name == hold_out_classes(multum.load_data("digits"))[0].name and list(sets) == ["digits#only=8+9"]
    assert contents(foreign_sets(sets, like)["digits#only=8+9"]).isdisjoint(contents(like.train.x))
    twice, _, names = hold_out_classes(like)  # classes keep their names, so a second choice finds them
    assert names == ("6", "7") and torch.equal(multum.load_data(twice.name).train.y, twice.train.y)


def test_classes_of_tables_are_held_out_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    kinds = np.array(["a+b", "c,d", "1", "50%", "e=f"])[np.arange(100) % 5]
    frame = pd.DataFrame({"x": rng.normal(size=100), "job": rng.choice(["cook", "smith"], 100), "kind": kinds})
    frame.loc[frame["kind"] == "e=f", "x"] += 100
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = multum.load_data(f"csv:{tmp_path}/t.csv#target=kind")
    assert data.classes == ("1", "50%", "a+b", "c,d", "e=f")
    known, foreign, names = hold_out_classes(data, 3)
    assert names == ("a+b", "c,d", "e=f") and known.classes == known.table.classes == ("1", "50%")
    assert foreign.shape == (12, 3) and known.table.rows == (len(known.train), len(known.test)) == (32, 8)
    x = known.prepare(known.train.x)
    assert abs(float(x[:, 0].mean())) < 1e-4 and abs(float(x[:, 0].std()) - 1) < 1e-3
    assert {*x[:, 1:].flatten().tolist()} == {0.0, 1.0}
    again = multum.load_data(known.name)
    assert torch.equal(again.train.x, known.train.x) and again.classes == known.classes
    assert torch.equal(load_items(known.name.replace("hold_out", "only")), foreign)


def picture_folder(root: Path, classes: int) -> Path:
    rng = np.random.default_rng(0)
    for k in range(classes):
        (root / f"class{k}").mkdir(parents=True)
        for i in range(10):
            Image.fromarray(rng.integers(0, 256, (9, 8, 3), dtype=np.uint8)).save(root / f"class{k}" / f"{i}.png")
    return root


def test_classes_of_image_folders_are_held_out_without_decoding_them(tmp_path: Path) -> None:
    data = multum.load_data(f"folder:{picture_folder(tmp_path, 6)}#size=8")
    known, foreign, names = hold_out_classes(data)
    assert names == ("class5",) and known.name.endswith("#size=8,hold_out=class5") and known.train.lazy
    assert [f.parent.name for f in foreign.files] == ["class5"] * 2 and foreign[:].shape == (2, 3, 8, 8)
    assert {f.parent.name for f in known.train.x.files} == {f"class{k}" for k in range(5)}
    assert all(f.parent.name == known.classes[y] for f, y in zip(known.test.x.files, known.test.y, strict=True))
    again = multum.load_data(known.name)
    assert again.train.x.files == known.train.x.files and torch.equal(again.mean, known.mean)
    small = multum.load_data(f"{data.name.replace('size=8', 'size=4')},only=class5")
    assert fitted(small.test.x, known).shape == (2, 3, 8, 8)


def test_too_few_classes_are_refused_or_stay_whole(tmp_path: Path) -> None:
    three = multum.load_data(f"folder:{picture_folder(tmp_path, 3)}#size=8")
    with pytest.raises(DataError, match="has 3 classes; name a foreign set"):
        hold_out_classes(three)
    with pytest.raises(DataError, match="is regression"):
        hold_out_classes(multum.load_data("diabetes"))
    digits = multum.load_data("digits")
    for count in (0, 9):
        with pytest.raises(DataError, match=f"{count} of 10"):
            hold_out_classes(digits, count)
    assert default_hold_out(three.name, three) == (three.name, ())
    with pytest.raises(DataError, match="chooses among classes"):
        multum.load_data("diabetes#only=3")
    with pytest.raises(DataError, match="'10' is none"):
        multum.load_data("digits#hold_out=10")
    with pytest.raises(DataError, match="leaves none"):
        multum.load_data("digits#hold_out=" + "+".join(map(str, range(10))))


def known_images(*shape: int) -> Data:
    part = Part(torch.zeros(2, *shape, dtype=torch.uint8), torch.tensor([0, 1]))
    return Data("known", "classification", part, part, 2, mean=torch.zeros(shape[0], 1, 1), std=torch.ones(1))


def test_foreign_images_take_the_known_shape_by_the_stated_rule() -> None:
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)).resize((48, 32), Image.Resampling.BICUBIC)
    x = torch.from_numpy(np.array(smooth)).permute(2, 0, 1)[None]
    found = fitted(x, known_images(3, 16, 16))
    scaled = np.array(smooth.resize((24, 16), Image.Resampling.BILINEAR))[:, 4:20]  # covers, then the middle
    assert found.dtype == torch.uint8 and found.shape == (1, 3, 16, 16)
    assert (found[0].permute(1, 2, 0).numpy().astype(int) - scaled).__abs__().max() <= 1
    grey = fitted(x, known_images(1, 32, 48))
    assert np.abs(grey[0, 0].numpy().astype(int) - np.array(smooth.convert("L"))).max() <= 1
    coloured = fitted(grey, known_images(3, 32, 48))
    assert torch.equal(coloured, grey.expand(-1, 3, -1, -1))
    floats = fitted(x.float() / 255, known_images(3, 16, 16))
    assert floats.dtype == torch.float32 and (floats * 255 - found).abs().max() <= 0.51
    many = x.expand(1100, -1, -1, -1)
    assert torch.equal(fitted(many, known_images(3, 16, 16)), found.expand(1100, -1, -1, -1))


def test_what_fits_stays_and_what_cannot_fit_is_refused() -> None:
    digits = multum.load_data("digits")
    assert fitted(digits.test.x, digits) is digits.test.x
    diabetes = multum.load_data("diabetes")
    assert fitted(diabetes.test.x, diabetes) is diabetes.test.x
    for x, like in ((diabetes.test.x, digits), (digits.test.x, diabetes), (torch.zeros(2, 4, 8, 8), digits)):
        with pytest.raises(DataError, match="choose another foreign set"):
            fitted(x, like)
    wide = replace(digits, train=Part(torch.zeros(2, 1, 8, 12, dtype=torch.uint8), digits.train.y[:2]))
    assert fitted(digits.test.x, wide).shape[1:] == (1, 8, 12)
