"""Image folders: decoded by index, resized by the stated rule, and trained by the same loop."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import multum
from multum.data import folder
from multum.data.maps import Mapped
from multum.errors import DataError
from multum.runs.train import train
from multum.training.batches import _ahead


def picture(path: Path, width: int, height: int, colour: tuple[int, int, int], mode: str = "RGB") -> np.ndarray:
    rng = np.random.default_rng(abs(hash((path.name, width))) % 2**32)
    noise = rng.integers(0, 40, (height, width, 3))
    array = np.clip(noise + np.array(colour), 0, 255).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).convert(mode).save(path)
    return array


COLOURS = {"blue": (0, 0, 180), "green": (0, 180, 0), "red": (180, 0, 0)}


def tree(root: Path, n: int = 12) -> Path:
    """Three classes of one colour each; sizes, shapes and file types differ."""
    for name, colour in COLOURS.items():
        for i in range(n):
            kind = ("png", "jpg", "bmp")[i % 3]
            picture(root / name / f"{i:02d}.{kind}", 10 + i % 4, 12 + i % 3, colour)
    return root


def test_images_are_scaled_by_the_shorter_side_and_cut_in_the_middle(tmp_path: Path) -> None:
    files = [tmp_path / "wide.png", tmp_path / "high.png", tmp_path / "same.png", tmp_path / "gray.png"]
    picture(files[0], 30, 10, (10, 20, 30))
    picture(files[1], 10, 40, (200, 20, 30))
    exact = picture(files[2], 5, 5, (1, 2, 3))
    picture(files[3], 9, 9, (7, 8, 9), mode="L")
    images = folder.Images(files, 5)
    assert images.shape == (4, 3, 5, 5) and len(images) == 4 and images.dtype == torch.uint8
    batch = images[torch.tensor([2, 0, 1, 3])]
    assert batch.shape == (4, 3, 5, 5) and batch.dtype == torch.uint8
    assert torch.equal(batch[0], torch.from_numpy(exact).permute(2, 0, 1))
    for file, decoded in zip((files[0], files[1]), (batch[1], batch[2]), strict=True):
        with Image.open(file) as image:
            width, height = round(image.width * 5 / min(image.size)), round(image.height * 5 / min(image.size))
            scaled = np.array(image.resize((width, height), Image.Resampling.BILINEAR))
        left, top = (width - 5) // 2, (height - 5) // 2
        assert torch.equal(decoded, torch.from_numpy(scaled[top : top + 5, left : left + 5]).permute(2, 0, 1))
    assert torch.equal(batch[3][0], batch[3][1])  # gray images have three equal channels
    assert torch.equal(images[1:3], batch[[2, 0]]) and images[torch.zeros(4, dtype=torch.bool)].shape == (0, 3, 5, 5)


def test_images_are_turned_as_their_camera_says(tmp_path: Path) -> None:
    array = picture(tmp_path / "a.png", 4, 4, (0, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by a quarter turn
    Image.fromarray(array).save(tmp_path / "b.png", exif=exif)
    turned = folder.Images([tmp_path / "b.png"], 4)[:1][0]
    assert torch.equal(turned, torch.from_numpy(array).permute(2, 0, 1).rot90(-1, (1, 2)))


def test_a_folder_of_classes_becomes_data(tmp_path: Path) -> None:
    data = multum.load_data(f"folder:{tree(tmp_path)}#size=8")
    assert data.task == "classification" and data.outputs == 3 and data.classes == ("blue", "green", "red")
    assert len(data.train) == 30 and len(data.test) == 6 and data.train.lazy and data.is_image
    assert data.train.x[torch.arange(2)].shape == (2, 3, 8, 8) and data.example().dtype == torch.float32
    prepared = data.prepare(data.train.x[:])
    torch.testing.assert_close(prepared.mean((0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    split = data.with_validation(0.2, seed=0)
    assert split.validation.lazy and len(split.validation) == 6 and len(split.train) == 24
    assert not {*split.train.x.files} & {*split.validation.x.files}
    for part in (split.train, split.validation, split.test):
        assert all(COLOURS[f.parent.name] == [*COLOURS.values()][y] for f, y in zip(part.x.files, part.y, strict=True))


def test_parts_of_ones_own(tmp_path: Path) -> None:
    tree(tmp_path / "train", 4)
    tree(tmp_path / "val", 2)
    data = multum.load_data(f"folder:{tmp_path}")
    assert len(data.train) == 12 and len(data.test) == 6
    assert data.train.x.size == 10  # the shorter side of the first image, which is below 224
    picture(tmp_path / "val" / "yellow" / "1.png", 8, 8, (200, 200, 0))
    with pytest.raises(DataError, match="yellow"):
        multum.load_data(f"folder:{tmp_path}")


def test_a_folder_trains_with_the_same_loop_to_the_bit_as_from_memory(tmp_path: Path) -> None:
    data = multum.load_data(f"folder:{tree(tmp_path)}#size=8")
    loaded = [multum.data.Part(part.x[:], part.y) if part is not None else None for part in (data.train, data.test)]
    from dataclasses import replace

    memory = replace(data, train=loaded[0], test=loaded[1])
    recipe = multum.Recipe(epochs=6, batch_size=8, lr=0.02, flip=True, crop=1, average_from=0.5)
    results = []
    for source in (data, memory):
        net = multum.models.build("small-cnn", classes=3, in_channels=3)
        torch.manual_seed(0)
        net.reset_parameters()
        ens = multum.ensemble(net, multum.Packed(members=2, alpha=2), example=data.example(), seed=0)
        history = multum.fit(ens, source, recipe)
        results.append(ens.state_dict())
    assert all(torch.equal(results[0][k], results[1][k]) for k in results[0])
    assert history[-1]["accuracy"] > 0.9
    assert not [t for t in threading.enumerate() if "next-batch" in t.name]


def test_the_next_item_is_made_while_the_present_one_is_used() -> None:
    made: list[int] = []
    second = threading.Event()

    def batches():
        for i in range(3):
            made.append(i)
            if i == 1:
                second.set()
            yield i

    ahead = _ahead(batches())
    assert next(ahead) == 0
    assert second.wait(5)  # without anybody asking for it
    assert list(ahead) == [1, 2] and made == [0, 1, 2]


def test_errors_of_the_background_reach_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "CACHED_BYTES", 0)  # else it is in memory by now
    monkeypatch.setattr(folder, "has_room", lambda size: False)  # else on the disk
    data = multum.load_data(f"folder:{tree(tmp_path)}#size=8")
    data.train.x.files[7].write_bytes(b"no image")
    ens = multum.ensemble(
        multum.models.build("small-cnn", classes=3, in_channels=3), multum.Single(), example=torch.zeros(2, 3, 8, 8)
    )
    with pytest.raises(DataError, match=rf"{data.train.x.files[7].name}.*Repair or remove"):
        multum.fit(ens, data, multum.Recipe(epochs=1, batch_size=8))


def counted_decodes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are decoded from now on, in order."""
    decoded: list[Path] = []
    decode = folder.Images._decode

    def counted(self: folder.Images, file: Path) -> torch.Tensor:
        decoded.append(file)
        return decode(self, file)

    monkeypatch.setattr(folder.Images, "_decode", counted)
    return decoded


def test_images_of_a_small_folder_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = counted_decodes(monkeypatch)
    monkeypatch.setattr(folder, "has_room", lambda size: False)
    results = []
    for limit, times in ((36 * 3 * 64, 1), (36 * 3 * 64 - 1, 3)):
        monkeypatch.setattr(folder, "CACHED_BYTES", limit)
        decoded.clear()
        data = multum.load_data(f"folder:{tree(tmp_path)}#size=8").with_validation(0.2, seed=0)  # looks at all of train
        results.append([part.x[:] for _ in range(2) for part in (data.train, data.validation, data.test)])
        assert {decoded.count(file) for file in data.train.x.files} == {times}
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_images_of_a_large_folder_are_decoded_once_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTUM_DATA", str(tmp_path / "cache"))
    name = f"folder:{tree(tmp_path / 'images')}#size=8"
    wanted = multum.load_data(name)
    train, test = wanted.train.x[:], wanted.test.x[:]
    decoded = counted_decodes(monkeypatch)
    monkeypatch.setattr(folder, "CACHED_BYTES", 0)
    monkeypatch.setattr(folder, "DECODED_AT_ONCE", 7)
    for _ in range(2):
        data = multum.load_data(name)
        assert isinstance(data.train.x, Mapped) and data.train.x.shape == wanted.train.x.shape
        assert torch.equal(data.train.x[:], train) and torch.equal(data.test.x[:], test)
        assert torch.equal(data.mean, wanted.mean) and torch.equal(data.std, wanted.std)
    assert len(decoded) == len(set(decoded)) == 36
    # Where an image was changed, all are decoded again; one that cannot be read is named before training.
    first = wanted.train.x.files[0]
    picture(first, 8, 8, (9, 9, 9))
    assert not torch.equal(multum.load_data(name).train.x[:1], train[:1]) and len(decoded) == 72
    first.write_bytes(b"no image")
    with pytest.raises(DataError, match=rf"{first.name}.*Repair or remove"):
        multum.load_data(name)


def test_two_hundred_images_in_three_classes_of_all_sorts(tmp_path: Path) -> None:
    for i in range(200):
        name = [*COLOURS][i % 3]
        mode = ("RGB", "L", "RGBA", "P", "1")[i % 5]
        picture(tmp_path / name / f"{i}.png", 20 + i % 13, 24 + i % 7, COLOURS[name], mode)
    data = multum.load_data(f"folder:{tmp_path}", seed=2)
    assert len(data.train) + len(data.test) == 200 and data.outputs == 3
    side = data.train.x.size
    assert data.train.x[:].shape == (len(data.train), 3, side, side) and 20 <= side <= 32
    counts = data.test.y.bincount()
    assert counts.min() >= 13 and not {*data.train.x.files} & {*data.test.x.files}


def test_an_image_that_cannot_be_read_is_named_before_training(tmp_path: Path) -> None:
    tree(tmp_path)
    whole = (tmp_path / "red" / "03.png").read_bytes()
    for content in (b"no image", b"", whole[: len(whole) // 2]):
        (tmp_path / "red" / "03.png").write_bytes(content)
        with pytest.raises(DataError, match=r"red/03\.png.*Repair or remove"):
            multum.load_data(f"folder:{tmp_path}#size=8", seed=1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("folder:{}/nowhere", "no folder at"),
        ("folder:{}/empty", "two at least"),
        ("folder:{}/one", "two at least"),
        ("folder:{}/hollow", "got none in"),
        ("folder:{}/alone", "test, val or validation"),
        ("folder:{}/untested", "got none in the test part"),
        ("folder:{}/ok#size=0", "size must be a number of pixels from 1 to 99999; got size=0"),
        ("folder:{}/ok#sise=9", "Did you mean size"),
    ],
)
def test_what_is_no_image_folder_is_refused(name: str, message: str, tmp_path: Path) -> None:
    for path in ("empty", "hollow/a", "hollow/b", "untested/test"):
        (tmp_path / path).mkdir(parents=True)
    trained = [f"{name}/train/{label}/1.png" for name in ("alone", "untested") for label in "ab"]
    for path in ("one/a/1.png", *trained, "ok/a/1.png", "ok/b/1.png"):
        picture(tmp_path / path, 8, 8, (0, 0, 0))
    with pytest.raises(DataError, match=message):
        multum.load_data(name.format(tmp_path))


def test_broken_images_are_found_before_training_all_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path / "images")
    (tmp_path / "images" / "red" / "00.png").write_bytes(b"not a picture")
    whole = (tmp_path / "images" / "blue" / "01.jpg").read_bytes()
    (tmp_path / "images" / "blue" / "01.jpg").write_bytes(whole[: len(whole) // 2])
    for cached in (0, folder.CACHED_BYTES):
        monkeypatch.setattr(folder, "CACHED_BYTES", cached)
        with pytest.raises(
            DataError, match=r"got 2 images of folder:.*cannot be read.*(01\.jpg.*00\.png|00\.png.*01\.jpg)"
        ):
            train(f"folder:{tmp_path / 'images'}", "small-cnn", "single", tmp_path / "run", {"epochs": 1})
        with pytest.raises(DataError, match="got 2 images"):
            multum.compare(f"folder:{tmp_path / 'images'}", methods="single", seeds=1, out=tmp_path / "out")
    for i in range(10):
        picture(tree(tmp_path / "held") / "white" / f"{i}.png", 12, 12, (200, 200, 200))
    tested = multum.load_data(f"folder:{tmp_path / 'held'}").test
    broken = [file for file, label in zip(tested.x.files, tested.y.tolist(), strict=True) if label == 3]
    for file in broken:
        file.write_bytes(b"not a picture")  # of a class that is held out as OOD data
    with pytest.raises(DataError, match=f"got {len(broken)} images"):
        multum.compare(f"folder:{tmp_path / 'held'}", methods="single", seeds=1, out=tmp_path / "out")
    for part in ("train", "test"):
        tree(tmp_path / "parts" / part)
    (tmp_path / "parts" / "test" / "red" / "03.png").write_bytes(b"not a picture")  # nothing reads it while training
    with pytest.raises(DataError, match=r"got 1 image of .*03\.png"):
        train(f"folder:{tmp_path / 'parts'}", "small-cnn", "single", tmp_path / "run", {"epochs": 1})
    assert not (tmp_path / "run").exists() and not (tmp_path / "out").exists()


def test_a_folder_is_described(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    data = multum.load_data(f"folder:{tree(tmp_path / 'images')}")
    text = data.describe()
    assert "3 classes, blue (12), green (12), red (12); 30 images for training and 6 for testing" in text
    assert "each becomes 3 x 10 x 10" in text and multum.load_data("digits").describe() == ""
    train(data.name, "small-cnn", "single", tmp_path / "run", {"epochs": 1, "validation": 0.2}, progress=True)
    assert f"{text}\n  6 examples of the training part are held out" in capsys.readouterr().err
