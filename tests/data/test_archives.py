"""Official archives: little ones written here byte for byte as published, read back, and broken ones refused."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

import multum
from multum.data import archives
from multum.data.sources import folder, load_examples
from multum.errors import DataError


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MULTUM_DATA", str(tmp_path))
    return tmp_path


def idx(path: Path, array: np.ndarray) -> None:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.parent.mkdir(exist_ok=True)
    content = head + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def idx_set(place: Path, end: str = "-ubyte.gz", joint: str = "-") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {
        f"train-images{joint}idx3": rng.integers(0, 256, (30, 28, 28)),
        f"train-labels{joint}idx1": np.arange(30) % 10,
        f"t10k-images{joint}idx3": rng.integers(0, 256, (10, 28, 28)),
        f"t10k-labels{joint}idx1": np.arange(10),
    }
    for name, array in arrays.items():
        idx(place / f"{name}{end}", array)
    return arrays


@pytest.mark.parametrize(("end", "joint"), [("-ubyte.gz", "-"), ("-ubyte", "-"), ("-ubyte", ".")])
@pytest.mark.parametrize("name", ["mnist", "kmnist", "letters"])
def test_idx_files(name: str, end: str, joint: str, root: Path) -> None:
    arrays = [*idx_set(root / name, end, joint).values()]
    data = multum.load_data(name)
    assert data.name == name and data.outputs == 10 and data.train.x.dtype == torch.uint8
    assert torch.equal(data.train.x[:, 0], torch.tensor(arrays[0], dtype=torch.uint8))
    assert torch.equal(data.test.x[:, 0], torch.tensor(arrays[2], dtype=torch.uint8))
    assert data.train.y.tolist() == arrays[1].tolist() and data.test.y.tolist() == arrays[3].tolist()


def test_an_npz_file_comes_first(root: Path) -> None:
    idx_set(root / "mnist")
    x, y = np.zeros((4, 5, 5), np.uint8), np.arange(4)
    np.savez(root / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert len(multum.load_data("mnist").train) == 4 and load_examples("mnist").shape == (4, 1, 5, 5)
    (root / "mnist.npz").unlink()
    assert len(multum.load_data("mnist").train) == 30 and load_examples("mnist").shape == (10, 1, 28, 28)


def test_broken_idx_files_are_named(root: Path) -> None:
    idx_set(root / "mnist")
    labels = root / "mnist" / "train-labels-idx1-ubyte.gz"
    whole = labels.read_bytes()
    for content, message in (
        (whole[:-12], r"the files of mnist in .* must be readable.*Fetch them anew: mnist/"),
        (gzip.compress(gzip.decompress(whole)[:-1]), r"train-labels.*must hold bytes of the shape \(30,\); got 29"),
        (gzip.compress(b"<html>not found</html>"), r"an idx file of bytes in 1 dimension; it begins with b'<htm'"),
        (
            gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 2, 1, 2])),
            r"same length; got 30 examples and 2 targets in the training part",
        ),
    ):
        labels.write_bytes(content)
        with pytest.raises(DataError, match=message):
            multum.load_data("mnist")
    labels.unlink()
    with pytest.raises(DataError, match=r"got only .*Fetch the others too"):
        multum.load_data("mnist")
    idx_set(root / "letters")
    (root / "letters" / "train-images-idx3-ubyte.gz").write_bytes(b"<html>")
    with pytest.raises(DataError, match="the files of letters"):
        multum.load_data("letters")


def test_only_the_head_of_a_wrong_archive_is_unpacked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that grow a thousandfold; what is read of them is counted."""
    counts: list[int] = []
    read = gzip.GzipFile.read

    def counted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        counts.append(len(content := read(self, size)))
        return content

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    monkeypatch.setattr(archives, "MOST_BYTES", 2**22)
    idx_set(root / "mnist")
    images = root / "mnist" / "train-images-idx3-ubyte.gz"
    head = bytes([0, 0, 8, 3]) + struct.pack(">3I", 30, 28, 28)
    for start, message in (
        (b"", "it begins with"),
        (head, r"of the shape \(30, 28, 28\); got 23,521"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 60_000, 2800, 2800), "must unpack to at most 4,194,304 bytes"),
    ):
        counts.clear()
        images.write_bytes(gzip.compress(start + bytes(2**23), 1))
        with pytest.raises(DataError, match=message):
            multum.load_data("mnist")
        assert sum(counts) < 2**15
    with tarfile.open(root / "cifar-10-binary.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
        member.size = 2**23
        archive.addfile(member, io.BytesIO(bytes(2**23)))
    counts.clear()
    with pytest.raises(DataError, match=r"data_batch_1.bin must unpack to at most 4,194,304 bytes; it announces 8,388"):
        multum.load_data("cifar10")
    assert sum(counts) < 2**20
    savemat(root / "train_32x32.mat", {"X": np.zeros(2**23, np.uint8), "y": np.zeros(1)}, do_compression=True)
    savemat(root / "test_32x32.mat", {"X": np.zeros(1), "y": np.zeros(1)})
    with pytest.raises(DataError, match=r"train_32x32.mat must unpack to at most"):
        multum.load_data("svhn")


NAMES_10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def cifar_files(coarse: bool) -> tuple[dict[str, bytes], np.ndarray, np.ndarray]:
    """Files of the binary version; all images and their labels, the last file's for testing."""
    rng = np.random.default_rng(0)
    files = ["train.bin", "test.bin"] if coarse else [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    count, classes = (100, 100) if coarse else (10, 10)
    images, labels, contents = [], [], {}
    for file in files:
        x, y = rng.integers(0, 256, (count, 3072), dtype=np.uint8), rng.permutation(classes).astype(np.uint8)
        rows = [y[:, None], x] if not coarse else [y[:, None] // 5, y[:, None], x]
        contents[file] = np.concatenate(rows, axis=1).astype(np.uint8).tobytes()
        images.append(x.reshape(-1, 3, 32, 32))
        labels.append(y)
    words = [f"fine{i:02d}" for i in range(100)] if coarse else NAMES_10
    contents["fine_label_names.txt" if coarse else "batches.meta.txt"] = ("\n".join(words) + "\n\n").encode()
    return contents, np.concatenate(images), np.concatenate(labels)


def packed(path: Path, inside: str, contents: dict[str, bytes]) -> None:
    path.parent.mkdir(exist_ok=True)
    unpacked = path.parent / inside
    unpacked.mkdir()
    for name, content in contents.items():
        (unpacked / name).write_bytes(content)
    with tarfile.open(path, "w:gz") as archive:
        archive.add(unpacked, arcname=inside)
    for name in contents:
        (unpacked / name).unlink()
    unpacked.rmdir()


@pytest.mark.parametrize("place", ["", "own"])
@pytest.mark.parametrize("form", ["packed", "unpacked"])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar(name: str, form: str, place: str, root: Path) -> None:
    contents, images, labels = cifar_files(coarse=name == "cifar100")
    n = name.removeprefix("cifar")
    inside = "cifar-10-batches-bin" if n == "10" else "cifar-100-binary"
    where = root / name if place else root
    where.mkdir(exist_ok=True)
    if form == "packed":
        packed(where / f"cifar-{n}-binary.tar.gz", inside, contents)
    else:
        (where / inside).mkdir()
        for file, content in contents.items():
            (where / inside / file).write_bytes(content)
    data = multum.load_data(name)
    k = len(data.train)
    assert k == (100 if n == "100" else 50) and data.outputs == int(n) and len(data.classes) == int(n)
    assert torch.equal(data.train.x, torch.from_numpy(images[:k])) and torch.equal(
        data.test.x, torch.from_numpy(images[k:])
    )
    assert data.train.y.tolist() == labels[:k].tolist() and data.test.y.tolist() == labels[k:].tolist()
    assert data.classes[3] == ("fine03" if n == "100" else "cat")


def test_broken_cifar_files_are_named(root: Path) -> None:
    contents, *_ = cifar_files(coarse=False)
    inside = root / "cifar-10-batches-bin"
    inside.mkdir()
    for file, content in contents.items():
        (inside / file).write_bytes(content)
    (inside / "data_batch_3.bin").write_bytes(contents["data_batch_3.bin"][:-100])
    with pytest.raises(DataError, match=r"data_batch_3.bin must hold bytes of the shape .*; got 30,630"):
        multum.load_data("cifar10")
    (inside / "data_batch_3.bin").unlink()
    with pytest.raises(DataError, match=r"it lacks data_batch_3.bin"):
        multum.load_data("cifar10")
    (root / "cifar-100-binary.tar.gz").write_bytes(b"<html>")
    with pytest.raises(DataError, match=r"files of cifar100 .* must be readable"):
        multum.load_data("cifar100")


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path(str(folder() / "exploded")),))


@pytest.mark.parametrize("form", ["cifar-10-python.tar.gz", "cifar-10-batches-py", "cifar10/cifar-10-python.tar.gz"])
def test_pickled_archives_are_refused_and_never_run(form: str, root: Path) -> None:
    batches = {"data_batch_1": pickle.dumps(Bomb())}
    if form.endswith("-py"):
        (root / form).mkdir()
        (root / form / "data_batch_1").write_bytes(batches["data_batch_1"])
    else:
        packed(root / form, "cifar-10-batches-py", batches)
    with pytest.raises(DataError, match=r"pickles.*Fetch the binary version: cifar-10-binary.tar.gz \(from https"):
        multum.load_data("cifar10")
    assert not (root / "exploded").exists()


@pytest.mark.parametrize("place", ["", "svhn"])
def test_svhn(place: str, root: Path) -> None:
    rng = np.random.default_rng(0)
    where = root / place
    where.mkdir(exist_ok=True)
    images, labels = rng.integers(0, 256, (32, 32, 3, 20), dtype=np.uint8), (np.arange(20) % 10 + 1)[:, None]
    savemat(where / "train_32x32.mat", {"X": images, "y": labels})
    with pytest.raises(DataError, match=r"got train_32x32.mat alone"):
        multum.load_data("svhn")
    savemat(where / "test_32x32.mat", {"X": images[..., :5], "y": labels[:5]})
    data = multum.load_data("svhn")
    assert data.train.x.shape == (20, 3, 32, 32) and data.train.x.dtype == torch.uint8 and data.outputs == 10
    assert int(data.train.x[7, 2, 4, 9]) == images[4, 9, 2, 7]
    assert data.train.y[:11].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]  # the digit 0 is published as 10
    savemat(where / "test_32x32.mat", {"Z": images})
    with pytest.raises(DataError, match="must hold X and y; got "):
        multum.load_data("svhn")
    whole = (where / "train_32x32.mat").read_bytes()
    for content in (b"junk", whole[:200], whole[: len(whole) // 2], b"<html>" * 100):
        (where / "test_32x32.mat").write_bytes(content)
        with pytest.raises(DataError, match=r"test_32x32.mat.*Fetch it anew"):
            multum.load_data("svhn")
