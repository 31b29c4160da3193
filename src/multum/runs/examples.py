"""Examples to predict, read from a file and brought to the form of a run's own, so many at a time.

FILE.csv, FILE.parquet   rows of a table: by the columns' names where the run was trained on such a file, else as
                         many columns of numbers as the run's data has; `-` is csv from standard input
FILE.npz, FILE.npy       an array of examples, [n, ...]; in a file of several, the one named x, X or x_test
an image, or a folder    prepared like the images of `folder:DIR`, grey where the run's are

Of a csv, parquet or npy file and of images, only the examples at hand are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..data.folder import KINDS, Images
from ..data.frames import STDIN, read_frames
from ..data.maps import MappedFile
from ..data.npz import examples as as_examples
from ..data.npz import read_arrays
from ..data.preparation import Preparation
from ..errors import DataError

__all__ = ["Examples", "read_examples", "takes_image_files"]

TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
ARRAYS = (".npz", ".npy")
NAMES = ("x", "X", "x_test")  # of the array to take where a file holds several


@dataclass(frozen=True)
class Examples:
    """The examples of a file: pairs of their names and a tensor of them; how many, where that is known beforehand."""

    pieces: Iterator[tuple[list[Any], Tensor]]
    count: int | None = None


def read_examples(path: Path, preparation: Preparation, at_once: int = 4096) -> Examples:
    """The examples of a file, as the run's data has them."""
    kind = path.suffix.lower()
    if path != STDIN and (path.is_dir() or kind in KINDS):
        return _images(path, preparation, at_once)
    if path != STDIN and not path.is_file():
        raise DataError(f"examples must be in a file or a folder of images; got none at {path}. Check its name")
    if kind in TABLES or path == STDIN:
        return Examples(_numbered(_rows(path, preparation, at_once), path))
    if kind not in ARRAYS:
        known = ", ".join(sorted({*TABLES, *ARRAYS, *KINDS}))
        raise DataError(f"a file of examples must be one of {known}; got {path.name}. Save it as one of them")
    array = _array(path, preparation)
    pieces = (_checked(array[i : i + at_once], i, path, preparation) for i in range(0, len(array), at_once))
    return Examples(_numbered(pieces, path), len(array))


def _numbered(pieces: Iterator[Tensor], path: Path) -> Iterator[tuple[list[Any], Tensor]]:
    start = 0
    for x in pieces:
        if len(x):
            yield list(range(start, start + len(x))), x
        start += len(x)
    if start == 0:
        raise DataError(f"a file must hold one example at least; got {path}, which has none. Add some")


def _rows(path: Path, preparation: Preparation, at_once: int) -> Iterator[Tensor]:
    name, table = preparation.name, preparation.table
    if preparation.is_image:
        raise DataError(f"examples of {name} must be images; got the table {path.name}. Give images or an array")
    if table is not None:
        yield from map(table.encode, table.frames(path, at_once))
        return
    columns = preparation.shape[0]
    for frame in read_frames(path, rows=at_once):
        if frame.shape[1] != columns:
            raise DataError(
                f"rows must have the {columns} columns of {name} in their order; got {frame.shape[1]} in {path} "
                f"({', '.join(map(str, frame.columns[:5]))} ...). Leave out what is not an input, the target too"
            )
        numbers = torch.tensor(frame.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64))
        yield _finite(numbers, path, int(frame.index[0]) if len(frame) else 0, list(map(str, frame.columns)))


def _array(path: Path, preparation: Preparation) -> np.ndarray:
    """Shape: [n, ...]; a single example becomes one of many."""
    arrays = read_arrays(path)
    name = next((n for n in NAMES if n in arrays), None) if len(arrays) != 1 else next(iter(arrays))
    if name is None:
        raise DataError(
            f"{path} must hold one array, or one named {', '.join(NAMES)}; got {', '.join(sorted(arrays)) or 'none'}. "
            "Save the examples as x"
        )
    values = arrays[name]
    values = values.rows.numpy() if isinstance(values, MappedFile) else values
    for array in (values, values[None]):
        if array.ndim > 1 and tuple(as_examples(np.zeros((1, *array.shape[1:]))).shape[1:]) == preparation.shape:
            return array
    raise DataError(
        f"examples must have the shape {preparation.shape} of {preparation.name}; got {arrays[name].shape}: {name} in "
        f"{path.name}. Resize them"
    )


def _checked(array: np.ndarray, start: int, path: Path, preparation: Preparation) -> Tensor:
    x = as_examples(np.array(array))
    if preparation.dtype != torch.uint8:
        return _finite(x.double(), path, start)
    if x.is_floating_point() or int(x.min()) < 0 or int(x.max()) > 255:
        raise DataError(
            f"examples must be whole numbers from 0 to 255, as those of {preparation.name}; got {x.dtype} from "
            f"{float(x.min()):g} to {float(x.max()):g} in {path.name}. Scale and round them, then astype(uint8)"
        )
    return x.to(torch.uint8)


def _finite(x: Tensor, path: Path, start: int, columns: list[str] | None = None) -> Tensor:
    bad = ~x.isfinite()
    if bad.any():
        place = bad.nonzero()[0].tolist()
        where = f"row {start + place[0]}" + (f", column {columns[place[1]]}" if columns else "")
        raise DataError(
            f"examples must be finite numbers; got {int(bad.sum())} in {path.name} that are not, the first in {where}. "
            "Complete or remove these rows"
        )
    return x


def takes_image_files(preparation: Preparation) -> bool:
    """Whether image files can be brought to the form of a run's examples."""
    shape = preparation.shape
    square = preparation.is_image and shape[0] in (1, 3) and shape[1] == shape[2]
    return square and preparation.dtype == torch.uint8


def _images(path: Path, preparation: Preparation, at_once: int) -> Examples:
    shape, name = preparation.shape, preparation.name
    if not preparation.is_image:
        raise DataError(f"examples of {name} must be rows of a table; got images, {path}. Give a .csv, .npz or .npy")
    if not takes_image_files(preparation):
        raise DataError(
            f"image files must be for a run on square images of bytes, grey or RGB; got a run on {name}, "
            f"{preparation.dtype} {shape}. Give a .npz or .npy file"
        )
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix.lower() in KINDS and p.is_file())
        names = [str(p.relative_to(path)) for p in files]
    else:
        files, names = [path] if path.is_file() else [], [path.name]
    if not files:
        raise DataError(f"{path} must hold images ({', '.join(sorted(KINDS))}); got none. Check its name")
    images = Images(files, shape[1], channels=shape[0])
    few = min(at_once, 512)  # decoded images are large
    starts = range(0, len(files), few)
    return Examples(((names[i : i + few], images[i : i + few]) for i in starts), len(files))
