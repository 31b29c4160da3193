"""Image sets as their authors publish them, read where they lie and without running any pickle.

    mnist, fashion_mnist, kmnist    NAME/train-images-idx3-ubyte.gz and its three fellows, packed or not
    cifar10, cifar100               cifar-10-binary.tar.gz, cifar-100-binary.tar.gz, packed or not: the binary version
    svhn                            train_32x32.mat, test_32x32.mat: the cropped digits

Each lies in $MULTUM_DATA/NAME; those whose files no other set has may lie in $MULTUM_DATA itself. Other sets of four
idx files in a folder NAME are read too.
"""

from __future__ import annotations

import gzip
import math
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ..errors import DataError
from ..files import explained
from .parts import Data, Part, assembled

MOST_BYTES = 2**31  # of one unpacked file: ten times the largest of them, and no gzip bomb

Parts = tuple[Part, Part, tuple[str, ...]]  # for training, for testing, and the names of the classes


class Archive(NamedTuple):
    """How a set is published."""

    files: str  # for a person who wants to fetch it
    read: Callable[[Path, str], Parts | None]
    hub: str  # its place on the Hugging Face hub, as hub.py takes it


def load(root: Path, name: str) -> Data | None:
    """A set from its official files under `root`; None where there are none."""
    read = ARCHIVES[name].read if name in ARCHIVES else _idx_set
    try:
        parts = read(root, name)
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
        if isinstance(error, DataError):
            raise
        anew = f": {ARCHIVES[name].files}" if name in ARCHIVES else ""
        raise DataError(
            f"the files of {name} in {root} must be readable; got {error}. Fetch them anew{anew}"
        ) from error
    if parts is None:
        return None
    train, test, classes = parts
    return assembled(name, "classification", train, test, classes=classes)


def _idx_set(root: Path, name: str) -> Parts | None:
    kinds = ("train-images?idx3", "train-labels?idx1", "t10k-images?idx3", "t10k-labels?idx1")
    files = [next(iter(sorted((root / name).glob(f"{kind}-ubyte*"))), None) for kind in kinds]
    paths = [path for path in files if path is not None]
    if not paths:
        return None
    if len(paths) < len(kinds):
        raise DataError(
            f"a set of idx files must have train-images, train-labels, t10k-images and t10k-labels; got only "
            f"{', '.join(path.name for path in paths)} in {root / name}. Fetch the others too"
        )
    x, y, test_x, test_y = (torch.from_numpy(_idx(path, ndim)) for path, ndim in zip(paths, (3, 1, 3, 1), strict=True))
    return Part(x.unsqueeze(1), y.long()), Part(test_x.unsqueeze(1), test_y.long()), ()


def _idx(path: Path, ndim: int) -> np.ndarray:
    """Two zero bytes, the type (8: uint8), how many dimensions; each as four bytes, highest first; then the data."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        head = file.read(4)
        if head != bytes([0, 0, 8, ndim]):
            raise DataError(
                f"{path} must be an idx file of bytes in {ndim} dimension{'s' * (ndim > 1)}; it begins with {head!r}. "
                "Fetch it anew"
            )
        shape = tuple(map(int, np.frombuffer(file.read(4 * ndim), ">u4", count=ndim)))
        _check_size(path, math.prod(shape))
        return _bytes(path, file.read(math.prod(shape) + 1), shape)  # one more: to see that nothing follows


def _check_size(path: Path, size: int) -> None:
    if size > MOST_BYTES:
        raise DataError(f"{path} must unpack to at most {MOST_BYTES:,} bytes; it announces {size:,}. Fetch it anew")


def _cifar_set(root: Path, name: str) -> Parts | None:
    n = name.removeprefix("cifar")
    unpacked = f"cifar-{n}-batches-bin" if n == "10" else f"cifar-{n}-binary"
    train = [f"data_batch_{i}.bin" for i in range(1, 6)] if n == "10" else ["train.bin"]
    test, names = ("test_batch.bin", "batches.meta.txt") if n == "10" else ("test.bin", "fine_label_names.txt")
    places = (root / name, root)
    for place in (p / form for p in places for form in (unpacked, f"cifar-{n}-binary.tar.gz")):
        if place.exists():
            files = _contents(place, [*train, test, names])
            break
    else:
        for place in (p / form for p in places for form in (f"cifar-{n}-python.tar.gz", f"cifar-{n}-batches-py")):
            if place.exists():
                raise DataError(
                    f"an archive must be read without running it; got {place}, whose Python pickles can run anything. "
                    f"Fetch the binary version: {ARCHIVES[name].files}"
                )
        return None
    lacking = [file for file in (*train, test) if file not in files]
    if lacking:
        raise DataError(f"{place} must hold {', '.join((*train, test))}; it lacks {', '.join(lacking)}")
    labels = 1 if n == "10" else 2  # cifar100: the coarse label, then the fine one

    def part(chosen: list[str]) -> Part:
        rows = np.concatenate([_bytes(place / f, files[f], (-1, labels + 3072)) for f in chosen])
        images = torch.from_numpy(rows[:, labels:].reshape(-1, 3, 32, 32).copy())
        return Part(images, torch.from_numpy(rows[:, labels - 1].astype(np.int64)))

    return part(train), part([test]), tuple(files.get(names, b"").decode().split())


def _contents(place: Path, wanted: list[str]) -> dict[str, bytes]:
    """The files of a folder or a packed archive, in memory."""
    if place.is_dir():
        return {f: (place / f).read_bytes() for f in wanted if (place / f).is_file()}
    with tarfile.open(place) as archive:
        contents = {}
        for member in archive:
            _check_size(place / member.name, member.size)
            file = Path(member.name).name
            stream = archive.extractfile(member) if member.isfile() and file in wanted else None
            if stream is not None:
                contents[file] = stream.read()
        return contents


def _svhn_set(root: Path, name: str) -> Parts | None:
    for place in (root / name, root):
        paths = [place / f"{part}_32x32.mat" for part in ("train", "test")]
        there = [path for path in paths if path.is_file()]
        if len(there) == 1:
            raise DataError(f"svhn must be {' and '.join(p.name for p in paths)}; got {there[0].name} alone in {place}")
        if there:
            break
    else:
        return None
    parts = []
    for path in paths:
        arrays = _mat(path)
        if {"X", "y"} - set(arrays):
            raise DataError(f"{path} must hold X and y; got {', '.join(arrays) or 'neither'}. Fetch it anew")
        images = np.ascontiguousarray(arrays["X"].transpose(3, 2, 0, 1))  # published as [height, width, 3, n]
        labels = arrays["y"].ravel().astype(np.int64) % 10  # the digit 0 is published as 10
        parts.append(Part(torch.from_numpy(images), torch.from_numpy(labels)))
    return parts[0], parts[1], ()


def _mat(path: Path) -> dict[str, np.ndarray]:
    from scipy.io import loadmat, whosmat

    with explained(f"{path} must be a MATLAB file", "Fetch it anew", DataError, Exception):
        for _, shape, _ in whosmat(path):
            _check_size(path, math.prod(shape))
        arrays = loadmat(path, variable_names=["X", "y"])
    return {key: value for key, value in arrays.items() if not key.startswith("__")}


def _bytes(path: Path, content: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """Shape: as asked, -1 for what follows from the length."""
    known = math.prod(n for n in shape if n >= 0)
    whole = len(content) % known == 0 if -1 in shape else len(content) == known
    if not content or not whole:
        raise DataError(f"{path} must hold bytes of the shape {shape}; got {len(content):,} of them. Fetch it anew")
    return np.frombuffer(content, np.uint8).reshape(shape).copy()


def _idx_files(name: str, home: str) -> str:
    return f"{name}/{{train,t10k}}-{{images-idx3,labels-idx1}}-ubyte.gz (from {home})"


_CIFAR = "(from https://www.cs.toronto.edu/~kriz/cifar.html)"
_FASHION, _KMNIST = "https://github.com/zalandoresearch/fashion-mnist", "https://codh.rois.ac.jp/kmnist"
_SVHN = "train_32x32.mat and test_32x32.mat (from http://ufldl.stanford.edu/housenumbers)"

ARCHIVES = {
    "cifar10": Archive(f"cifar-10-binary.tar.gz {_CIFAR}", _cifar_set, "uoft-cs/cifar10"),
    "cifar100": Archive(f"cifar-100-binary.tar.gz {_CIFAR}", _cifar_set, "uoft-cs/cifar100#label=fine_label"),
    "fashion_mnist": Archive(_idx_files("fashion_mnist", _FASHION), _idx_set, "zalando-datasets/fashion_mnist"),
    "kmnist": Archive(_idx_files("kmnist", _KMNIST), _idx_set, "tanganke/kmnist"),
    "mnist": Archive(_idx_files("mnist", "https://yann.lecun.com/exdb/mnist"), _idx_set, "ylecun/mnist"),
    "svhn": Archive(_SVHN, _svhn_set, "ufldl-stanford/svhn#config=cropped_digits"),
}
