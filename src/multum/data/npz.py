"""Data sets as numpy arrays, `npz:FILE` or NAME.npz, in one of three layouts:

    x_train, y_train, x_test, y_test       the parts
    X, y, train_idx, test_idx              rows of each part, one line of indices per seed
    x_num (or x_num_T), x_cat, y, part     a table: numbers, codes of categories, and where part == 2 the test rows

Whole numbers in y are classes, others are what a regression predicts.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from .parts import Data, Part, assembled

__all__ = ["items", "load", "read_test_items"]


def load(place: str, name: str, seed: int) -> Data:
    """The data set of a file."""
    path = Path(place).expanduser()
    if not path.is_file():
        raise DataError(f"npz:FILE names a file, however: there is none at {path}")
    arrays = _arrays(path)
    if {"x_train", "y_train", "x_test", "y_test"} <= set(arrays):
        train = Part(items(arrays["x_train"]), _labels(arrays["y_train"]))
        test = Part(items(arrays["x_test"]), _labels(arrays["y_test"]))
    elif {"X", "y", "train_idx", "test_idx"} <= set(arrays):
        both = Part(items(arrays["X"]), _labels(arrays["y"]))
        i = seed % len(arrays["train_idx"])
        train, test = (both.rows(torch.as_tensor(arrays[k][i], dtype=torch.int64)) for k in ("train_idx", "test_idx"))
    elif {"y", "part"} <= set(arrays) and {"x_num", "x_num_T"} & set(arrays):
        both, test_rows = Part(_table(arrays), _labels(arrays["y"])), torch.as_tensor(arrays["part"] == 2)
        train, test = both.rows(~test_rows), both.rows(test_rows)
    else:
        raise DataError(
            f"{path} holds x_train, y_train, x_test, y_test (or X, y, train_idx, test_idx; or x_num, x_cat, y, part), "
            f"however: it holds {', '.join(sorted(arrays))}"
        )
    return assembled(name, "regression" if train.y.is_floating_point() else "classification", train, test)


def read_test_items(path: Path) -> Tensor | None:
    """The items of `x_test` alone, where there are some."""
    found = _arrays(path, only="x_test")
    return items(found["x_test"]) if found else None


def items(x: np.ndarray) -> Tensor:
    """Images as [n, channels, height, width], tables as [n, columns]."""
    t = _tensor(x)
    if t.ndim == 3:
        return t.unsqueeze(1)
    if t.ndim == 4 and t.shape[-1] in (1, 3) and t.shape[1] not in (1, 3):
        return t.permute(0, 3, 1, 2).contiguous()
    return t


def _arrays(path: Path, only: str | None = None) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files if only in (None, key)}
    except (ValueError, OSError, TypeError, zipfile.BadZipFile) as error:  # TypeError: one bare array
        raise DataError(f"{path} is a file of plain numpy arrays, however: {error}") from error


def _table(arrays: dict[str, np.ndarray]) -> Tensor:
    """Numbers as they are, then a column of zeros and ones per category."""
    numbers = torch.as_tensor(arrays["x_num"] if "x_num" in arrays else arrays["x_num_T"].T.copy())
    codes = torch.as_tensor(arrays["x_cat"]).long() if "x_cat" in arrays else numbers[:, :0].long()
    return torch.cat([numbers.float(), *(torch.nn.functional.one_hot(c).float() for c in codes.unbind(1))], 1)


def _labels(y: np.ndarray) -> Tensor:
    t = _tensor(y)
    return t.double() if t.is_floating_point() else t.long()


def _tensor(x: np.ndarray) -> Tensor:
    if x.dtype.kind not in "biuf":
        raise DataError(f"arrays hold numbers, classes as 0, 1, 2, ..., however: one holds {x.dtype}")
    return torch.as_tensor(x)
