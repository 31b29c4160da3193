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
from .parts import Data, Part, assembled

__all__ = ["ARCHIVES", "Archive", "load"]


class Archive(NamedTuple):
    """How a set is published."""

    files: str  # for a person who wants to fetch it
    read: Callable[[Path, str], tuple[Part, Part, tuple[str, ...]] | None]


def load(root: Path, name: str) -> Data | None:
    """A set from its official files under `root`; None where there are none."""
    read = ARCHIVES[name].read if name in ARCHIVES else _idx_set
    try:
        found = read(root, name)
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
        if isinstance(error, DataError):
            raise
        anew = f": {ARCHIVES[name].files}" if name in ARCHIVES else ""
        raise DataError(
            f"the files of {name} in {root} can be read, however: {error}; fetch them anew{anew}"
        ) from error
    if found is None:
        return None
    train, test, classes = found
    return assembled(name, "classification", train, test, classes=classes)


def _idx_set(root: Path, name: str) -> tuple[Part, Part, tuple[str, ...]] | None:
    parts = []
    for part in ("train", "t10k"):
        arrays = []
        for kind in ("images?idx3", "labels?idx1"):
            found = sorted((root / name).glob(f"{part}-{kind}-ubyte*"))
            if found:
                arrays.append(_idx(found[0]))
        parts.append(arrays)
    if not any(parts):
        return None
    if any(len(arrays) < 2 for arrays in parts):
        raise DataError(
            f"a set of idx files has train-images, train-labels, t10k-images and t10k-labels, however: {root / name} "
            "lacks some of them; fetch them too"
        )
    train, test = (Part(torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y).long()) for x, y in parts)
    return train, test, ()


def _idx(path: Path) -> np.ndarray:
    """Two zero bytes, the type (8: uint8), how many dimensions; each as four bytes, highest first; then the data."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if content[:3] != b"\0\0\x08":
        raise DataError(f"{path} is an idx file of bytes, however: it begins with {content[:4]!r}; fetch it anew")
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return _bytes(path, content[4 + 4 * content[3] :], tuple(map(int, shape)))


def _cifar_set(root: Path, name: str) -> tuple[Part, Part, tuple[str, ...]] | None:
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
                    f"archives are read without running them, however: {place} holds Python pickles, which can run "
                    f"anything; fetch the binary version: {ARCHIVES[name].files}"
                )
        return None
    lacking = [file for file in (*train, test) if file not in files]
    if lacking:
        raise DataError(f"{place} holds {', '.join((*train, test))}, however: {', '.join(lacking)} is not there")
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
        members = {Path(member.name).name: member for member in archive if member.isfile()}
        streams = {f: archive.extractfile(members[f]) for f in wanted if f in members}
        return {f: stream.read() for f, stream in streams.items() if stream is not None}


def _svhn_set(root: Path, name: str) -> tuple[Part, Part, tuple[str, ...]] | None:
    for place in (root / name, root):
        paths = [place / f"{part}_32x32.mat" for part in ("train", "test")]
        there = [path for path in paths if path.is_file()]
        if len(there) == 1:
            raise DataError(
                f"svhn is {' and '.join(p.name for p in paths)}, however: {place} has {there[0].name} alone"
            )
        if there:
            break
    else:
        return None
    parts = []
    for path in paths:
        arrays = _mat(path)
        if {"X", "y"} - set(arrays):
            raise DataError(f"{path} holds X and y, however: it does not; fetch it anew")
        images = np.ascontiguousarray(arrays["X"].transpose(3, 2, 0, 1))  # published as [height, width, 3, n]
        labels = arrays["y"].ravel().astype(np.int64) % 10  # the digit 0 is published as 10
        parts.append(Part(torch.from_numpy(images), torch.from_numpy(labels)))
    return parts[0], parts[1], ()


def _mat(path: Path) -> dict[str, np.ndarray]:
    from scipy.io import loadmat

    try:
        return loadmat(path, variable_names=["X", "y"])
    except Exception as error:  # a broken file may raise anything in there
        raise DataError(f"{path} is a MATLAB file, however: {error}; fetch it anew") from error


def _bytes(path: Path, content: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """Shape: as asked, -1 for what follows from the length."""
    known = math.prod(n for n in shape if n >= 0)
    whole = len(content) % known == 0 if -1 in shape else len(content) == known
    if not content or not whole:
        raise DataError(f"{path} is complete, however: its {len(content)} bytes are no {shape}; fetch it anew")
    return np.frombuffer(content, np.uint8).reshape(shape).copy()


def _idx_files(name: str, home: str) -> str:
    return f"{name}/{{train,t10k}}-{{images-idx3,labels-idx1}}-ubyte.gz (from {home})"


_CIFAR = "(from https://www.cs.toronto.edu/~kriz/cifar.html)"

ARCHIVES = {
    "cifar10": Archive(f"cifar-10-binary.tar.gz {_CIFAR}", _cifar_set),
    "cifar100": Archive(f"cifar-100-binary.tar.gz {_CIFAR}", _cifar_set),
    "fashion_mnist": Archive(_idx_files("fashion_mnist", "https://github.com/zalandoresearch/fashion-mnist"), _idx_set),
    "kmnist": Archive(_idx_files("kmnist", "https://codh.rois.ac.jp/kmnist"), _idx_set),
    "mnist": Archive(_idx_files("mnist", "https://yann.lecun.com/exdb/mnist"), _idx_set),
    "svhn": Archive("train_32x32.mat and test_32x32.mat (from http://ufldl.stanford.edu/housenumbers)", _svhn_set),
}
