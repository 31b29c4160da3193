"""Data sets as numpy arrays, `npz:FILE` or NAME.npz, in one of three layouts:

    x_train, y_train, x_test, y_test       the parts
    X, y, train_idx, test_idx              rows of each part, one line of indices per seed
    x_num (or x_num_T), x_cat, y, part     a table: numbers, codes of categories, and where part == 2 the test rows;
                                           with `meta`, names of its columns and words (see npz_table.py)

Whole numbers in y are classes, others are what a regression predicts.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from ..files import explained
from .maps import Mapped, MappedFile, read_npz
from .parts import Data, Part, assembled

Arrays = dict[str, np.ndarray | MappedFile]


def load(place: str, name: str, seed: int) -> Data:
    """The data set of a file."""
    path = Path(place).expanduser()
    if not path.is_file():
        raise DataError(f"npz:FILE must name a file; there is none at {path}")
    arrays = read_arrays(path)
    if {"x_train", "y_train", "x_test", "y_test"} <= set(arrays):
        train, test = (_part(arrays, f"x_{part}", f"y_{part}") for part in ("train", "test"))
    elif {"X", "y", "train_idx", "test_idx"} <= set(arrays):
        both = _part(arrays, "X", "y")
        train, test = (both.rows(_rows(arrays, key, seed, len(both))) for key in ("train_idx", "test_idx"))
    elif {"y", "part"} <= set(arrays) and {"x_num", "x_num_T"} & set(arrays):
        numbers, codes = _columns(arrays)
        part, y = _numbers(arrays, "part", 1), _numbers(arrays, "y", 1)
        if len(part) != len(numbers):
            raise DataError(f"part must have a number for each of the {len(numbers)} rows; got {len(part)}")
        if "meta" in arrays:
            from .npz_table import load_table

            return load_table(path, name, arrays["meta"], numbers, codes, y, part)
        arrays["x"] = _encoded(numbers, codes)
        both = _part(arrays, "x", "y")
        train, test = both.rows(part != 2), both.rows(part == 2)
    else:
        raise DataError(
            f"{path} must hold plain numpy arrays: x_train, y_train, x_test, y_test (or X, y, train_idx, test_idx; or "
            f"x_num, x_cat, y, part); got {', '.join(sorted(arrays)) or 'no arrays'}"
        )
    return assembled(name, "regression" if train.y.is_floating_point() else "classification", train, test)


def read_test_examples(path: Path) -> Tensor | None:
    """The examples of `x_test` alone, where there are some."""
    arrays = read_arrays(path, only="x_test")
    return examples(arrays["x_test"])[:] if arrays else None


def examples(x: np.ndarray | MappedFile) -> Any:
    """Images as [n, channels, height, width], tables as [n, columns]; a mapped file stays one."""
    return Mapped(x, arrange=_arranged) if isinstance(x, MappedFile) else _arranged(_tensor(x))


def _arranged(t: Tensor) -> Tensor:
    if t.ndim == 3:
        return t.unsqueeze(1)
    if t.ndim == 4 and t.shape[-1] in (1, 3) and t.shape[1] not in (1, 3):
        return t.permute(0, 3, 1, 2).contiguous()
    return t


def read_arrays(path: Path, only: str | None = None) -> Arrays:
    """The arrays of a .npz file by name, or the one of a .npy file by the file's; large ones stay on the disk."""
    # numpy and zipfile raise what the bytes happen to look like
    with explained(f"{path} must hold plain numpy arrays", "Save it with np.save", DataError, Exception):
        if zipfile.is_zipfile(path):
            return read_npz(path, only)
        return {path.stem: np.load(path, mmap_mode="r", allow_pickle=False)}


def _part(arrays: Arrays, x: str, y: str) -> Part:
    targets = _numbers(arrays, y, 1)
    if arrays[x].ndim < 2:
        raise DataError(f"{x} must have the shape [examples, ...]; got {arrays[x].shape}")
    return Part(examples(arrays[x]), targets.double() if targets.is_floating_point() else targets.long())


def _rows(arrays: Arrays, key: str, seed: int, length: int) -> Tensor:
    """The line of indices of a seed."""
    lines = _numbers(arrays, key, 2)
    if lines.is_floating_point() or lines.numel() == 0 or not 0 <= int(lines.min()) <= int(lines.max()) < length:
        what = "none" if lines.numel() == 0 else f"{lines.dtype} from {lines.min()} to {lines.max()}"
        raise DataError(f"{key} must hold indices of the {length} rows of X, a line per seed; got {what}")
    return lines[seed % len(lines)].long()


def _columns(arrays: Arrays) -> tuple[Tensor, Tensor]:
    """The numbers and the codes of a table. Shape: [rows, numbers], [rows, categories]."""
    numbers = _numbers(arrays, "x_num", 2) if "x_num" in arrays else _numbers(arrays, "x_num_T", 2).T
    codes = _numbers(arrays, "x_cat", 2).long() if "x_cat" in arrays else numbers[:, :0].long()
    if len(codes) != len(numbers) or (codes < 0).any():
        raise DataError(
            f"x_cat must hold codes 0, 1, 2, ... for each of the {len(numbers)} rows; got {tuple(codes.shape)} codes"
            f"{' with negative ones' * bool((codes < 0).any())}"
        )
    return numbers, codes


def _encoded(numbers: Tensor, codes: Tensor) -> np.ndarray:
    """Numbers as they are, then a column of zeros and ones per category."""
    indicators = (torch.nn.functional.one_hot(column).float() for column in codes.unbind(1))
    return torch.cat([numbers.float(), *indicators], 1).numpy()


def _numbers(arrays: Arrays, key: str, ndim: int) -> Tensor:
    if arrays[key].ndim != ndim:
        raise DataError(f"{key} must have {ndim} dimension{'s' * (ndim > 1)}; got the shape {arrays[key].shape}")
    return _tensor(arrays[key])


def _tensor(x: np.ndarray | MappedFile) -> Tensor:
    """torch knows no other byte orders, no numbers of more than 64 bits, and of unsigned ones only bytes well."""
    if isinstance(x, MappedFile):
        return x.rows.clone()
    if x.dtype.kind not in "biuf":
        raise DataError(f"arrays must hold numbers, classes as 0, 1, 2, ...; got {x.dtype}")
    dtype = x.dtype.newbyteorder("=")
    if dtype.kind == "f" and dtype.itemsize > 8:
        dtype = np.dtype(np.float64)
    elif dtype.kind == "u" and dtype.itemsize > 1:
        dtype = np.dtype(np.int64)
    return torch.as_tensor(x.astype(dtype, copy=False))
