"""Arrays that are too large for memory: files that are mapped, and read where a batch asks for rows.

What does not lie on the disk as plain numbers (a packed npz, a table, image files) is written there once, in
`maps/` of the folder of data sets, under a name that is a digest of what it was made from. The files may be removed at
any time, and are made again. Nothing is written where half the free disk would not hold it.

An array below a quarter of a gigabyte is simply read into memory, and of larger ones memory holds about as much at a
time. Both give the same numbers to the bit.
"""

from __future__ import annotations

import mmap
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from ..files import atomic, explained
from .lazy import Lazy

IN_MEMORY = 2**28  # bytes up to which an array is read into memory
RESIDENT = 2**28  # bytes of mapped files that memory holds, about
WRITTEN = 2**26  # bytes that are written to a new file before they are left to the system
SCATTERED = 128  # rows all over a file that are read before it is seen how much of it is in memory
AT_ONCE = 2**24  # bytes that are copied or hashed at a time


class Mapped(Lazy):
    """Rows of a mapped file in the place of a tensor: `x[rows]` reads them. Shape: [n, ...].

    Args:
        index: the rows of the file that these are; None for all.
        arrange: what becomes of rows of the file that were read.
        sampled: whether some rows stand for all where a mean and a spread are taken.
    """

    def __init__(
        self,
        file: MappedFile,
        index: Tensor | None = None,
        arrange: Callable[[Tensor], Tensor] = lambda rows: rows,
        sampled: bool = False,
    ):
        self.file, self.arrange, self.sampled = file, arrange, sampled
        self.index = torch.arange(len(file.rows)) if index is None else index
        self.dtype = file.rows.dtype

    @property
    def shape(self) -> torch.Size:  # type: ignore[override]
        row = self.arrange(torch.empty((1, *self.file.shape[1:]), device="meta"))
        return torch.Size((len(self.index), *row.shape[1:]))

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: Any) -> Tensor:
        return self.arrange(self.file.read(self.index[rows]))

    def take(self, rows: Any) -> Mapped:
        """These rows, still not read."""
        return Mapped(self.file, self.index[rows], self.arrange, self.sampled)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point


class MappedFile:
    """An array in a file. Shape: `rows` [n, ...], of which memory holds no more than was read lately."""

    def __init__(self, path: Path, dtype: np.dtype, shape: tuple[int, ...], offset: int):
        with explained(f"{path} must be readable"), open(path, "rb") as file:
            # A private copy: torch knows no tensors that must not be written, and nobody writes this one.
            self.pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        array = np.frombuffer(self.pages, dtype=dtype, count=prod(shape), offset=offset).reshape(shape)
        self.rows, self.shape, self.ndim = torch.from_numpy(array), shape, len(shape)
        _OPEN.release()
        _OPEN.add(self)

    def read(self, index: Tensor, place: int | None = None) -> Tensor:
        """A copy of these rows, or of these entries of the row at `place`; memory holds some of the file meanwhile."""
        source = self.rows if place is None else self.rows[place]
        if index.ndim == 0:
            return self.read(index[None], place)[0]
        values = torch.empty((len(index), *source.shape[1:]), dtype=source.dtype)
        together = len(index) > 0 and (int(index.max()) - int(index.min())) * source[:1].nbytes <= RESIDENT
        done = 0
        for piece in (index,) if together else index.split(SCATTERED):
            torch.index_select(source, 0, piece, out=values[done : done + len(piece)])
            done += len(piece)
            _OPEN.release()
        return values


class _Open(WeakSet[MappedFile]):
    """The files that are mapped; how much of them memory holds, the system decides: one row may bring megabytes."""

    resident: int | None = None  # bytes of other files, such as libraries

    def release(self) -> None:
        """Give pages back if there are many; the system keeps them as long as nothing else needs the memory."""
        held = _bytes_of_files()
        if held is None or self.resident is None:
            self.resident = held
        elif held - self.resident > RESIDENT:
            for file in self:
                file.pages.madvise(mmap.MADV_DONTNEED)


_OPEN = _Open()


def _bytes_of_files() -> int | None:
    """Bytes of files that the memory of this process holds; None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[2]) * mmap.PAGESIZE
    except OSError:
        return None


def mapped_file(path: Path) -> MappedFile:
    """An array as numpy.save wrote it."""
    with explained(f"{path} must be readable"), open(path, "rb") as file:
        return MappedFile(path, *_npy_header(file), file.tell())


class NewFile:
    """An array in a file that is being written. Shape: `shape`; memory holds no more than was written lately."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: Any):
        self.shape, self.array = shape, np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        self.nbytes, self.written_lately = self.array.nbytes, 0

    def write(self, place: Any, values: np.ndarray) -> None:
        """array[place] = values"""
        self.array[place] = values
        self.written_lately += values.nbytes
        if self.written_lately > WRITTEN:
            self.release()

    def release(self) -> None:
        """Leave what was written to the system."""
        self.array.flush()
        if hasattr(mmap, "MADV_DONTNEED"):
            self.array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
        self.written_lately = 0


def cached_array(key: str, shape: tuple[int, ...], dtype: Any, fill: Callable[[NewFile], None]) -> MappedFile:
    """The array of this key, from the disk; `fill` writes it where it is not there yet.

    Args:
        key: a digest of everything that the values depend on.
    """
    path = cache_path(key)
    if not path.is_file():
        with explained(f"{path.parent} must be writable", "Set MULTUM_DATA to a folder that is"):
            path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as temporary:
            new = NewFile(temporary, shape, dtype)
            fill(new)
            new.release()
            del new
    return mapped_file(path)


def cache_path(key: str) -> Path:
    """Where the array of a key lies, if it is there."""
    return _folder() / f"{key}.npy"


def has_room(size: int) -> bool:
    """Whether half the free disk holds so many bytes more."""
    folder = _folder()
    there = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    return size <= shutil.disk_usage(there).free // 2


def digest_of(*what: Any, file: Path | None = None) -> str:
    """A digest of these values, and of every byte of a file."""
    digest = sha256()
    for value in what:
        digest.update(value if isinstance(value, bytes) else f"{value!r},".encode())
    if file is not None:
        with explained(f"{file} must be readable"), open(file, "rb") as stream:
            for piece in iter(partial(stream.read, AT_ONCE), b""):
                digest.update(piece)
    return digest.hexdigest()[:32]


def read_npz(path: Path, only: str | None = None) -> dict[str, np.ndarray | MappedFile]:
    """The arrays of an npz file, those that are large mapped: where they lie, or unpacked once."""
    arrays: dict[str, np.ndarray | MappedFile] = {}
    with np.load(path, allow_pickle=False) as plain, zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if only not in (None, name):
                continue
            large = member.file_size > IN_MEMORY and member.filename.endswith(".npy")
            mapped = _member(path, archive, member) if large else None
            arrays[name] = plain[name] if mapped is None else mapped
    return arrays


def _member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> MappedFile | None:
    """A large array of an npz file; None where it must be read into memory after all."""
    with archive.open(member) as stream:
        dtype, shape = _npy_header(stream)
        begins = stream.tell()
    if dtype.kind not in "biuf" or not dtype.isnative or (dtype.kind == "u" and dtype.itemsize > 1):
        return None
    if member.compress_type == zipfile.ZIP_STORED:
        with open(path, "rb") as file:
            file.seek(member.header_offset + 26)
            name, extra = (int.from_bytes(file.read(2), "little") for _ in "ne")
        return MappedFile(path, dtype, shape, member.header_offset + 30 + name + extra + begins)
    if not has_room(member.file_size):
        return None

    def unpack(new: NewFile) -> None:
        rows = max(1, AT_ONCE // max(1, dtype.itemsize * prod(shape[1:])))
        with archive.open(member) as packed:
            packed.read(begins)
            for start in range(0, shape[0], rows):
                count = min(rows, shape[0] - start)
                piece = np.frombuffer(packed.read(count * dtype.itemsize * prod(shape[1:])), dtype=dtype)
                new.write(slice(start, start + count), piece.reshape(count, *shape[1:]))

    # The archive's own checksum of the content is in the key: another content has another.
    return cached_array(digest_of(member.filename, member.CRC, member.file_size), shape, dtype, unpack)


def _npy_header(file: IO[bytes]) -> tuple[np.dtype, tuple[int, ...]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if by_columns:
        raise DataError("a large array must be saved row by row; got one by columns. Save numpy.ascontiguousarray(x)")
    return dtype, shape


def _folder() -> Path:
    from .sources import folder  # which reads npz files, and so this module

    return folder() / "maps"
