"""Items to predict, read from a file and brought to the form of a run's own data.

FILE.csv, FILE.parquet   rows of a table: by the columns' names where the run was trained on such a file, else as
                         many columns of numbers as the run's data has
FILE.npz, FILE.npy       an array of items, [n, ...]; in a file of several, the one named x, X or x_test
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
from ..data.corruptions.filters import luminance
from ..data.folder import KINDS, Images
from ..data.npz import examples as as_examples
from ..data.tables import read_frame
from ..errors import DataError

__all__ = ["read_items"]

TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
ARRAYS = (".npz", ".npy")
NAMES = ("x", "X", "x_test")  # of the array to take where a file holds several


def read_items(path: Path, data: Data) -> tuple[list[Any], Any]:
    """The names of a file's items, and the items as the run's data has them."""
    kind = path.suffix.lower()
    if path.is_dir() or kind in KINDS:
        return _images(path, data)
    if not path.is_file():
        raise DataError(f"what is predicted is a file or a folder of images, however: there is none at {path}")
    if kind in TABLES:
        x = _rows(path, data)
    elif kind in ARRAYS:
        x = _array(path, data)
    else:
        known = ", ".join(sorted({*TABLES, *ARRAYS, *KINDS}))
        raise DataError(f"a file to predict is one of {known}, however: {path.name}; save it as one of them")
    if len(x) == 0:
        raise DataError(f"a file to predict has one item at least, however: {path} has none")
    return list(range(len(x))), x


def _rows(path: Path, data: Data) -> Tensor:
    if data.table is not None:
        return data.table.encode(data.table.read(path))
    if data.is_image:
        raise DataError(f"{data.name} is images, however: {path.name} is a table; give an image, a folder, or an array")
    frame = read_frame(path)
    columns = data.train.x.shape[1]
    if frame.shape[1] != columns:
        raise DataError(
            f"rows have the {columns} columns of {data.name} in their order, however: {path} has {frame.shape[1]} "
            f"({', '.join(map(str, frame.columns[:5]))} ...); leave out what is not an input, the target too"
        )
    numbers = frame.apply(pd.to_numeric, errors="coerce")
    return _finite(torch.tensor(numbers.to_numpy(dtype=np.float64)), path, list(map(str, frame.columns)))


def _array(path: Path, data: Data) -> Tensor:
    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = {path.stem: loaded} if isinstance(loaded, np.ndarray) else {key: loaded[key] for key in loaded.files}
    except Exception as error:  # numpy raises what the bytes happen to look like
        raise DataError(f"{path} is a file of plain numpy arrays, however: {error}") from error
    name = next((n for n in NAMES if n in arrays), None) if len(arrays) != 1 else next(iter(arrays))
    if name is None:
        raise DataError(
            f"{path} holds one array, or one named {', '.join(NAMES)}, however: it holds "
            f"{', '.join(sorted(arrays)) or 'none'}; save the items as x"
        )
    shape = data.train.x.shape[1:]
    array = arrays[name]
    fitting = [x for x in map(as_examples, (array, array[None])) if x.shape[1:] == shape]  # all items, or one alone
    if not fitting:
        raise DataError(
            f"items have the shape {tuple(shape)} of {data.name}, however: {name} of {path.name} is "
            f"{tuple(array.shape)}; bring them to that size"
        )
    x = fitting[0]
    if data.train.x.dtype != torch.uint8 or len(x) == 0:
        return _finite(x.double(), path)
    if x.is_floating_point() or int(x.min()) < 0 or int(x.max()) > 255:
        raise DataError(
            f"items are whole numbers from 0 to 255, as those of {data.name}, however: {name} of {path.name} holds "
            f"{x.dtype} from {float(x.min()):g} to {float(x.max()):g}; scale and round them, then astype(uint8)"
        )
    return x.to(torch.uint8)


def _finite(x: Tensor, path: Path, columns: list[str] | None = None) -> Tensor:
    bad = ~x.isfinite()
    if bad.any():
        place = bad.nonzero()[0].tolist()
        where = f"row {place[0]}" + (f", column {columns[place[1]]}" if columns else "")
        raise DataError(
            f"items are finite numbers, however: {int(bad.sum())} of {path.name} are not, the first in {where}; "
            "complete or remove these rows"
        )
    return x


def _images(path: Path, data: Data) -> tuple[list[str], Any]:
    shape = tuple(data.train.x.shape[1:])
    if not data.is_image:
        raise DataError(f"{data.name} is a table, however: {path} is images; give a .csv, .npz or .npy file")
    if shape[0] not in (1, 3) or shape[1] != shape[2] or data.train.x.dtype != torch.uint8:
        raise DataError(
            f"image files are for runs on square images of bytes, grey or RGB, however: {data.name} has "
            f"{data.train.x.dtype} {shape}; give a .npz or .npy file"
        )
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in KINDS and p.is_file())
        names = [str(p.relative_to(path)) for p in files]
    else:
        files, names = [path] if path.is_file() else [], [path.name]
    if not files:
        raise DataError(f"what is predicted is images ({', '.join(sorted(KINDS))}), however: {path} holds none")
    pictures = Images(files, shape[1])
    return names, pictures if shape[0] == 3 else _Grey(pictures)


class _Grey:
    """Images as one channel. Shape: [n, 1, size, size], uint8."""

    def __init__(self, images: Images):
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: Any) -> Tensor:
        return luminance(self.images[rows]).round().to(torch.uint8)
