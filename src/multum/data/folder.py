"""Class folders of images: files that are decoded when a batch asks for them, so that no set is too large.

    DIR/CLASS/FILE                        a share of 0.2 is held out for testing, class by class
    DIR/train/CLASS/FILE, DIR/test/...    the user's own parts; `val` or `validation` instead of `test` will do

Every image becomes RGB of one size: turned as its EXIF says, its shorter side scaled to `size` (bilinear, with
antialiasing), then the middle size x size cut out. `size` is 224, or the shorter side of the first image if that is
smaller, or what `folder:DIR#size=64` says. Where all of them take less than half a gigabyte, an image is decoded once
and kept.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from .names import place_and_fields
from .parts import Data, Part, assembled, split

__all__ = ["Images", "load", "pillow", "read_folder", "squared"]

KINDS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
LARGEST = 224
KEPT_BYTES = 2**29


class Images:
    """Image files in the place of a tensor. Shape: [n, 3, size, size], uint8; `images[rows]` decodes those rows.

    Args:
        kept: where decoded images stay; None: nowhere.
    """

    dtype = torch.uint8
    ndim = 4

    def __init__(self, files: Sequence[Path], size: int, kept: dict[Path, Tensor] | None = None):
        self.files, self.size, self.kept = tuple(files), size, kept

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.files), 3, self.size, self.size))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, rows: Any) -> Tensor:
        chosen = self.take(rows).files
        if not chosen:
            return torch.empty(0, *self.shape[1:], dtype=torch.uint8)
        return torch.stack(list(_pool().map(self._image, chosen)))

    def take(self, rows: Any) -> Images:
        """These files, still not decoded."""
        index = torch.arange(len(self.files))[rows].flatten().tolist()
        return Images([self.files[i] for i in index], self.size, self.kept)

    def _image(self, file: Path) -> Tensor:
        if self.kept is None:
            return self._decode(file)
        if file not in self.kept:
            self.kept[file] = self._decode(file)
        return self.kept[file]

    def _decode(self, file: Path) -> Tensor:
        pil = pillow()
        try:
            with pil.open(file) as image:
                return squared(pil.turned(image).convert("RGB"), self.size)
        except pil.UNREADABLE as error:
            raise _unreadable(file, error) from error


def squared(picture: Any, size: int) -> Tensor:
    """A pillow image by the rule at the top of this file. Shape: [channels, size, size], uint8."""
    scale = size / min(picture.size)
    width, height = (max(size, round(side * scale)) for side in picture.size)
    left, top = (width - size) // 2, (height - size) // 2
    picture = picture.resize((width, height), pillow().BILINEAR).crop((left, top, left + size, top + size))
    return torch.from_numpy(np.atleast_3d(np.array(picture))).permute(2, 0, 1)


def load(place: str, name: str, seed: int) -> Data:
    """The data set of a folder: `folder:DIR` or `folder:DIR#size=64`."""
    path, fields = place_and_fields(place, "a folder", ["size"])
    size = fields.get("size")
    if size is not None and (not size.isdecimal() or int(size) < 1):
        raise DataError(f"size is a whole number of pixels >= 1, however: size={size}")
    classes, parts = read_folder(Path(path).expanduser(), int(size) if size else None)
    if "all" in parts:
        train, test = split(Part(*parts["all"]), 0.2, seed, "classification")
    else:
        train, test = Part(*parts["train"]), Part(*parts["test"])
    return assembled(name, "classification", train, test, classes=tuple(classes))


def read_folder(path: Path, size: int | None = None) -> tuple[list[str], dict[str, tuple[Images, Tensor]]]:
    """Class names, and the images and labels of each part: "train" and "test", or "all" where there are no parts."""
    if not path.is_dir():
        raise DataError(f"folder:DIR names a folder of class folders, however: there is no folder at {path}")
    pillow()
    parts = {"train": path / "train"} if (path / "train").is_dir() else {"all": path}
    if "train" in parts:
        tests = [path / name for name in ("test", "val", "validation") if (path / name).is_dir()]
        if not tests:
            raise DataError(f"beside {path / 'train'} lies a folder test, val or validation, however: there is none")
        parts["test"] = tests[0]
    first = next(iter(parts.values()))
    classes = sorted(d.name for d in first.iterdir() if d.is_dir() and not d.name.startswith("."))
    if len(classes) < 2:
        raise DataError(f"{first} holds a folder per class, two at least, however: it holds {classes or 'none'}")
    files = {name: _files(folder, classes) for name, folder in parts.items()}
    size = size or _default_size(files[next(iter(parts))][0][0])
    total = sum(len(found) for found, _ in files.values()) * 3 * size * size
    kept: dict[Path, Tensor] | None = {} if total <= KEPT_BYTES else None
    return classes, {
        name: (Images(found, size, kept), torch.tensor(y, dtype=torch.int64)) for name, (found, y) in files.items()
    }


def _files(folder: Path, classes: list[str]) -> tuple[list[Path], list[int]]:
    foreign = sorted({d.name for d in folder.iterdir() if d.is_dir() and not d.name.startswith(".")} - set(classes))
    if foreign:
        raise DataError(f"all parts have the classes of the training part, however: {folder} has {', '.join(foreign)}")
    found, labels = [], []
    for label, name in enumerate(classes):
        mine = sorted(p for p in (folder / name).rglob("*") if p.suffix.lower() in KINDS and p.is_file())
        if not mine and (folder / name).is_dir():
            raise DataError(
                f"a class folder holds images ({', '.join(sorted(KINDS))}), however: {folder / name} has none"
            )
        found += mine
        labels += [label] * len(mine)
    return found, labels


def _default_size(file: Path) -> int:
    pil = pillow()
    try:
        with pil.open(file) as image:
            return min(LARGEST, *image.size)
    except pil.UNREADABLE as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> DataError:
    return DataError(f"every image file can be read, however: {file}: {error}; repair or remove it")


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1), thread_name_prefix="multum-decode")


@lru_cache(maxsize=1)
def pillow() -> Any:
    """What multum takes from pillow."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise DataError(
            f"images are read by pillow, however: it cannot be imported ({error}); pip install 'multum[images]'"
        ) from error

    class Pillow:
        open, turned, BILINEAR = (
            staticmethod(Image.open),
            staticmethod(ImageOps.exif_transpose),
            Image.Resampling.BILINEAR,
        )
        UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)

    return Pillow
