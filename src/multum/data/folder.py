"""Class folders of images: files that are decoded when a batch asks for them, so that no set is too large.

    DIR/CLASS/FILE                        a share of 0.2 is held out for testing, class by class
    DIR/train/CLASS/FILE, DIR/test/...    the user's own parts; `val` or `validation` instead of `test` will do

Every image becomes RGB of one size: turned as its EXIF says, its shorter side scaled to `size` (bilinear, with
antialiasing), then the middle size x size cut out. `size` is 224, or the shorter side of the first image if that is
smaller, or what `folder:DIR#size=64` says. Where all of them take less than half a gigabyte, an image is decoded once
and stays in memory; above that all are decoded once, by as many threads as there are cores, into a file from which
batches are read (maps.py); without room for it on the disk, each is decoded whenever a batch asks for it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, first_line
from ..files import explained
from .corruptions.filters import luminance
from .lazy import Lazy
from .maps import Mapped, NewFile, cached_array, digest_of, has_room
from .names import place_and_fields
from .parts import Data, Part, assembled, check_files, split

KINDS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
LARGEST = 224
CACHED_BYTES = 2**29
DECODED_AT_ONCE = 1024

log = logging.getLogger("multum")


class Images(Lazy):
    """Image files in the place of a tensor. Shape: [n, channels, size, size], uint8; `images[rows]` decodes those rows.

    Args:
        cache: where decoded images stay; None: nowhere.
        channels: 3, or 1 for the luminance.
    """

    dtype = torch.uint8
    sampled = True

    def __init__(self, files: Sequence[Path], size: int, cache: dict[Path, Tensor] | None = None, *, channels: int = 3):
        self.files, self.size, self.cache, self.channels = tuple(files), size, cache, channels

    @property
    def shape(self) -> torch.Size:  # type: ignore[override]
        return torch.Size((len(self.files), self.channels, self.size, self.size))

    def __getitem__(self, rows: Any) -> Tensor:
        chosen = self.take(rows).files
        if not chosen:
            return torch.empty(0, *self.shape[1:], dtype=torch.uint8)
        return torch.stack(list(_pool().map(self._image, chosen)))

    def take(self, rows: Any) -> Images:
        """These files, still not decoded."""
        index = torch.arange(len(self.files))[rows].flatten().tolist()
        return Images([self.files[i] for i in index], self.size, self.cache, channels=self.channels)

    def contents(self) -> Iterator[bytes]:
        """The bytes of every file, one after another."""
        for file in self.files:
            with explained(f"every image must be readable, and {file} is not", kind=DataError):
                yield file.read_bytes()

    def unreadable(self) -> list[str]:
        """What is wrong with files that cannot be decoded."""
        return [reason for reason in _pool().map(self._failure, self.files) if reason]

    def _failure(self, file: Path) -> str:
        try:
            if self.cache is not None:
                self._image(file)
            else:
                with _opened(file) as picture:
                    picture.draft("RGB", (self.size, self.size))  # of a JPEG, all is read but less computed
                    picture.load()
        except DataError as error:
            return f"{file} ({first_line(error.__cause__ or error)})"
        return ""

    def _image(self, file: Path) -> Tensor:
        if self.cache is None:
            return self._decode(file)
        if file not in self.cache:
            self.cache[file] = self._decode(file)
        return self.cache[file]

    def _decode(self, file: Path) -> Tensor:
        from PIL import ImageOps

        with _opened(file) as picture:
            image = squared(ImageOps.exif_transpose(picture).convert("RGB"), self.size)
        return image if self.channels == 3 else luminance(image[None])[0].round().to(torch.uint8)


def squared(picture: Any, size: int) -> Tensor:
    """A Pillow image by the rule at the top of this file. Shape: [channels, size, size], uint8."""
    from PIL.Image import Resampling

    scale = size / min(picture.size)
    width, height = (max(size, round(side * scale)) for side in picture.size)
    left, top = (width - size) // 2, (height - size) // 2
    picture = picture.resize((width, height), Resampling.BILINEAR).crop((left, top, left + size, top + size))
    return torch.from_numpy(np.atleast_3d(np.array(picture))).permute(2, 0, 1)


def load(place: str, name: str, seed: int) -> Data:
    """The data set of a folder: `folder:DIR` or `folder:DIR#size=64`."""
    where, fields = place_and_fields(place, "a folder", ["size"])
    size = fields.get("size")
    if size is not None and not (size.isdecimal() and len(size) <= 5 and int(size) >= 1):
        raise DataError(f"size must be a number of pixels from 1 to 99999; got size={size[:40]}")
    classes, parts = _read_folder(Path(where).expanduser(), int(size) if size else None)
    train, test = parts if len(parts) == 2 else split(parts[0], 0.2, seed, "classification")
    try:
        return assembled(name, "classification", train, test, classes=tuple(classes), drawn=len(parts) == 1)
    except DataError:
        check_files(name, train, test)  # where it was one broken file, there may be more
        raise


def _read_folder(path: Path, size: int | None) -> tuple[list[str], list[Part]]:
    """Class names, and the parts: for training and for testing, or one where there are no parts."""
    if not path.is_dir():
        raise DataError(f"folder:DIR must name a folder of class folders; there is no folder at {path}")
    folders = [path]
    if (path / "train").is_dir():
        tests = [path / name for name in ("test", "val", "validation") if (path / name).is_dir()]
        if not tests:
            raise DataError(f"{path} must hold a folder test, val or validation beside train; got none of them")
        folders = [path / "train", tests[0]]
    classes = sorted(_class_folders(folders[0]))
    if len(classes) < 2:
        raise DataError(f"{folders[0]} must hold a folder per class, two at least; got {', '.join(classes) or 'none'}")
    files = [_files(folder, classes) for folder in folders]
    size = size or _default_size(files[0][0][0])
    bytes_ = sum(len(paths) for paths, _ in files) * 3 * size * size
    cache: dict[Path, Tensor] | None = {} if bytes_ <= CACHED_BYTES else None
    images = [Images(paths, size, cache) for paths, _ in files]
    parts = [Part(x, torch.tensor(y, dtype=torch.int64)) for x, (_, y) in zip(images, files, strict=True)]
    if cache is not None or not has_room(bytes_):
        return classes, parts
    try:
        return classes, [Part(x, part.y) for x, part in zip(_decoded(images, path), parts, strict=True)]
    except DataError:
        check_files(f"folder:{path}", *parts)  # where it was one broken file, there may be more
        raise


def _decoded(parts: Sequence[Images], folder: Path) -> list[Mapped]:
    """All images of these parts, decoded into one file the first time."""
    whole = Images([file for part in parts for file in part.files], parts[0].size)
    stats = [(file, file.stat()) for file in whole.files]
    # Names, sizes and times stand for the content: to read all files each time would take as long as to decode them.
    key = digest_of(whole.size, [(str(f.relative_to(folder)), s.st_size, s.st_mtime_ns) for f, s in stats])

    def fill(new: NewFile) -> None:
        log.info("decoding %d images of %s once, into %.1f GB on the disk", len(whole), folder, new.nbytes / 1e9)
        for start in range(0, len(whole), DECODED_AT_ONCE):
            rows = slice(start, start + DECODED_AT_ONCE)
            new.write(rows, whole[rows].numpy())

    file = cached_array(key, tuple(whole.shape), np.uint8, fill)
    ends = np.cumsum([len(part) for part in parts]).tolist()
    return [
        Mapped(file, torch.arange(end - len(part), end), sampled=True) for part, end in zip(parts, ends, strict=True)
    ]


def _class_folders(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")}


def _files(folder: Path, classes: list[str]) -> tuple[list[Path], list[int]]:
    unknown = sorted(_class_folders(folder) - set(classes))
    if unknown:
        raise DataError(f"{folder} must have the classes of the training part; got {', '.join(unknown)} besides")
    files, labels = [], []
    for label, name in enumerate(classes):
        images = sorted(p for p in (folder / name).rglob("*") if p.suffix.lower() in KINDS and p.is_file())
        if not images and (folder / name).is_dir():
            raise DataError(
                f"a class folder must hold images ({', '.join(sorted(KINDS))}); got none in {folder / name}"
            )
        files += images
        labels += [label] * len(images)
    return files, labels


def _default_size(file: Path) -> int:
    with _opened(file) as picture:
        return min(LARGEST, *picture.size)


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """A Pillow image; what goes wrong while it is open is the file's fault."""
    from PIL import Image

    try:
        with Image.open(file) as picture:
            yield picture
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"every image must be readable; got {file}: {error}. Repair or remove the file") from error


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1), thread_name_prefix="multum-decode")
