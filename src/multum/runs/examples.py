"""Examples to predict, read from a file and brought to the form of a run's own data.

FILE.csv, FILE.parquet   rows of a table: by the columns' names where the run was trained on such a file, else as
                         many columns of numbers as the run's data has
FILE.npz, FILE.npy       an array of examples, [n, ...]; in a file of several, the one named x, X or x_test
an image, or a folder    prepared like the images of `folder:DIR`, grey where the run's are
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..data import Data
from ..data.folder import KINDS, Images
from ..data.frames import read_frame
from ..data.npz import examples as as_examples
from ..data.npz import read_arrays
from ..errors import DataError

__all__ = ["read_examples"]

TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
ARRAYS = (".npz", ".npy")
NAMES = ("x", "X", "x_test")  # of the array to take where a file holds several


def read_examples(path: Path, data: Data) -> tuple[list[Any], Any]:
    """The names of a file's examples, and the examples as the run's data has them."""
    kind = path.suffix.lower()
    if path.is_dir() or kind in KINDS:
        return _images(path, data)
    if not path.is_file():
        raise DataError(f"examples must be in a file or a folder of images; got none at {path}. Check its name")
    if kind in TABLES:
        x = _rows(path, data)
    elif kind in ARRAYS:
        x = _array(path, data)
    else:
        known = ", ".join(sorted({*TABLES, *ARRAYS, *KINDS}))
        raise DataError(f"a file of examples must be one of {known}; got {path.name}. Save it as one of them")
    if len(x) == 0:
        raise DataError(f"a file must hold one example at least; got {path}, which has none. Add some")
    return list(range(len(x))), x


def _rows(path: Path, data: Data) -> Tensor:
    if data.table is not None:
        return data.table.encode(data.table.read(path))
    if data.is_image:
        raise DataError(f"examples of {data.name} must be images; got the table {path.name}. Give images or an array")
    frame = read_frame(path)
    columns = data.train.x.shape[1]
    if frame.shape[1] != columns:
        raise DataError(
            f"rows must have the {columns} columns of {data.name} in their order; got {frame.shape[1]} in {path} "
            f"({', '.join(map(str, frame.columns[:5]))} ...). Leave out what is not an input, the target too"
        )
    numbers = frame.apply(pd.to_numeric, errors="coerce")
    return _finite(torch.tensor(numbers.to_numpy(dtype=np.float64)), path, list(map(str, frame.columns)))


def _array(path: Path, data: Data) -> Tensor:
    arrays = read_arrays(path)
    name = next((n for n in NAMES if n in arrays), None) if len(arrays) != 1 else next(iter(arrays))
    if name is None:
        raise DataError(
            f"{path} must hold one array, or one named {', '.join(NAMES)}; got {', '.join(sorted(arrays)) or 'none'}. "
            "Save the examples as x"
        )
    shape = data.train.x.shape[1:]
    array = arrays[name]
    # Many examples, or one alone.
    fitting = [x for x in map(as_examples, (array, array[None])) if x.shape[1:] == shape]
    if not fitting:
        raise DataError(
            f"examples must have the shape {tuple(shape)} of {data.name}; got {tuple(array.shape)}: {name} in "
            f"{path.name}. Resize them"
        )
    x = fitting[0]
    if data.train.x.dtype != torch.uint8 or len(x) == 0:
        return _finite(x.double(), path)
    if x.is_floating_point() or int(x.min()) < 0 or int(x.max()) > 255:
        raise DataError(
            f"examples must be whole numbers from 0 to 255, as those of {data.name}; got {x.dtype} from "
            f"{float(x.min()):g} to {float(x.max()):g} in {path.name}. Scale and round them, then astype(uint8)"
        )
    return x.to(torch.uint8)


def _finite(x: Tensor, path: Path, columns: list[str] | None = None) -> Tensor:
    bad = ~x.isfinite()
    if bad.any():
        place = bad.nonzero()[0].tolist()
        where = f"row {place[0]}" + (f", column {columns[place[1]]}" if columns else "")
        raise DataError(
            f"examples must be finite numbers; got {int(bad.sum())} in {path.name} that are not, the first in {where}. "
            "Complete or remove these rows"
        )
    return x


def _images(path: Path, data: Data) -> tuple[list[str], Any]:
    shape = tuple(data.train.x.shape[1:])
    if not data.is_image:
        raise DataError(
            f"examples of {data.name} must be rows of a table; got images, {path}. Give a .csv, .npz or .npy"
        )
    if shape[0] not in (1, 3) or shape[1] != shape[2] or data.train.x.dtype != torch.uint8:
        raise DataError(
            f"image files must be for a run on square images of bytes, grey or RGB; got a run on {data.name}, "
            f"{data.train.x.dtype} {shape}. Give a .npz or .npy file"
        )
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in KINDS and p.is_file())
        names = [str(p.relative_to(path)) for p in files]
    else:
        files, names = [path] if path.is_file() else [], [path.name]
    if not files:
        raise DataError(f"{path} must hold images ({', '.join(sorted(KINDS))}); got none. Check its name")
    return names, Images(files, shape[1], channels=shape[0])
