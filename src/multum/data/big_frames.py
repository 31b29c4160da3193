"""A table that is too large for memory: its columns in one file, its rows encoded into another, both read in parts.

The file is parsed twice, some rows at a time: once to see what each column holds (a number in all rows, true or false,
or text), once to write the columns. After that a column is read when it is asked for, and no more than one at a time;
the text of a column is kept as a list of its different words. What a column becomes is the rule of columns.py, applied
to the whole column, and so the same as for a table in memory, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..errors import DataError
from ..files import read_json, write_json
from . import maps
from .columns import as_words
from .frames import is_parquet, read_frame, read_frames
from .maps import Mapped, MappedFile, NewFile, cache_path, cached_array, digest_of, has_room

ROWS_AT_ONCE = 2**16

Chunks = Callable[[Collection[str]], Iterable[pd.DataFrame]]  # of a file, given the columns that stay text


@dataclass(frozen=True, eq=False)
class BigFrame:
    """As much of a DataFrame as a table needs. Shape: `file` [columns, rows], codes of words where a column is text."""

    key: str
    file: MappedFile
    places: dict[str, int]  # of the columns, in the file
    kinds: dict[str, str]
    words: dict[str, list[str]]
    rows: np.ndarray

    @property
    def columns(self) -> list[str]:
        return list(self.places)

    @property
    def iloc(self) -> _ByPosition:
        return _ByPosition(self)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, what: str | list[str] | pd.Series) -> Any:
        """A column, some of them in memory, or the rows where a column of truth values is true."""
        if isinstance(what, list):
            return pd.DataFrame({name: self[name] for name in what})
        return self.column(what, self.rows) if isinstance(what, str) else self.iloc[what.to_numpy()]

    def drop(self, columns: str | Iterable[str], errors: str = "raise") -> BigFrame:
        dropped = {columns} if isinstance(columns, str) else set(columns)
        return replace(self, places={name: place for name, place in self.places.items() if name not in dropped})

    def column(self, name: str, rows: np.ndarray) -> pd.Series:
        """These rows of a column, labelled by their numbers in the file."""
        values = self.file.read(torch.from_numpy(rows), self.places[name]).numpy()
        kind = self.kinds[name]
        if kind == "number":
            return pd.Series(values, index=rows, name=name)
        if kind == "truth":
            return pd.Series(values.astype(bool), index=rows, name=name)
        codes = values.astype(np.int64)
        if kind == "category":
            return pd.Series(pd.Categorical.from_codes(codes, self.words[name]), index=rows, name=name)
        return pd.Series(np.array([*self.words[name], np.nan], dtype=object)[codes], index=rows, name=name)

    def chunks(self) -> Iterator[pd.DataFrame]:
        for start in range(0, len(self.rows), ROWS_AT_ONCE):
            rows = self.rows[start : start + ROWS_AT_ONCE]
            yield pd.DataFrame({name: self.column(name, rows) for name in self.places})


@dataclass(frozen=True)
class _ByPosition:
    frame: BigFrame

    def __getitem__(self, chosen: np.ndarray) -> BigFrame:
        return replace(self.frame, rows=self.frame.rows[chosen])


def read_table(path: Path, sep: str | None, decimal: str, *, parquet: bool) -> Any:
    """A csv or parquet file as a frame; a large one is read in parts and stays on the disk."""
    if not path.is_file() or not _is_large(path, is_parquet(path, parquet)):
        return read_frame(path, sep, decimal, parquet=parquet)
    how: dict[str, Any] = {"sep": sep, "decimal": decimal, "parquet": parquet}
    return _read_big(path, how, lambda text: read_frames(path, **how, rows=ROWS_AT_ONCE, text=text))


def _is_large(path: Path, parquet: bool) -> bool:
    """Whether a table in memory would be: parsing text takes several times the size of the file."""
    if not parquet:
        return path.stat().st_size > maps.IN_MEMORY // 4
    try:
        from pyarrow import parquet as reader

        what = reader.read_metadata(path)
    except (ImportError, OSError, ValueError):  # whoever reads it says what is wrong
        return False
    return 8 * what.num_rows * what.num_columns > maps.IN_MEMORY


def _read_big(path: Path, options: Any, chunks: Chunks) -> BigFrame:
    """The columns of a file, written to the disk the first time.

    Args:
        options: everything besides the file's content that the columns depend on.
        chunks: reads the file.
    """
    key = digest_of("columns", options, file=path)
    described = cache_path(key).with_suffix(".json")
    if not described.is_file() or not cache_path(key).is_file():
        kinds, rows = _kinds(chunks)
        needed = 8 * len(kinds) * rows
        if not has_room(2 * needed):
            raise DataError(
                f"{path} must fit twice on the disk as numbers, {2 * needed / 1e9:.1f} GB in all; got less room in "
                f"{described.parent}. Free some, or set MULTUM_DATA to another disk"
            )
        words: dict[str, list[str]] = {}
        cached_array(key, (len(kinds), rows), np.float64, lambda new: words.update(_write(new, kinds, chunks)))
        write_json(described, {"kinds": kinds, "words": words})
    what = read_json(described)
    file = cached_array(key, (), np.float64, lambda new: None)
    places = {name: place for place, name in enumerate(what["kinds"])}
    return BigFrame(key, file, places, what["kinds"], what["words"], np.arange(file.shape[1]))


def encoded(table: Any, frame: pd.DataFrame | BigFrame) -> Any:
    """The rows of a frame as examples: a tensor, or a mapped file where the frame is a large one."""
    if isinstance(frame, pd.DataFrame):
        return table.encode(frame)
    used = frame.drop(set(frame.columns) - {column.name for column in table.columns})

    def fill(new: NewFile) -> None:
        done = 0
        for chunk in used.chunks():
            new.write(slice(done, done + len(chunk)), table.encode(chunk).numpy())
            done += len(chunk)

    key = digest_of("rows", frame.key, table.columns, frame.rows.tobytes())
    return Mapped(cached_array(key, (len(frame), len(table.names)), np.float64, fill))


def ids_of(table: Any, frame: pd.DataFrame | BigFrame) -> Tensor:
    """What tells the rows of a frame apart. Shape: int64 [rows]."""
    pieces = [frame] if isinstance(frame, pd.DataFrame) else frame.chunks()
    return torch.cat([table.ids(piece) for piece in pieces])


def _kinds(chunks: Chunks) -> tuple[dict[str, str], int]:
    """What each column holds, by all rows, and how many rows there are."""
    seen: dict[str, set[str]] = {}
    rows = 0
    for chunk in chunks(()):
        rows += len(chunk)
        for name in chunk.columns:
            seen.setdefault(name, set()).add(_kind(chunk[name]))
    return {name: _together(kinds) for name, kinds in seen.items()}, rows


def _kind(series: pd.Series) -> str:
    if isinstance(series.dtype, pd.CategoricalDtype):
        return "category"
    if pd.api.types.is_bool_dtype(series.dtype):
        return "truth" if not series.isna().any() else "text"
    if pd.api.types.is_numeric_dtype(series.dtype):
        return "number" if series.notna().any() else "missing"
    return "text"


def _together(kinds: set[str]) -> str:
    """A column is what it is in all chunks, those without a cell aside; if they differ it is text."""
    present = kinds - {"missing"}
    if not present:
        return "number"
    kind = present.pop() if len(present) == 1 else "text"
    return "text" if kind == "truth" and "missing" in kinds else kind


def _write(new: NewFile, kinds: Mapping[str, str], chunks: Chunks) -> dict[str, list[str]]:
    """Write the columns; the words of those that are text, in the order of their codes."""
    codes: dict[str, dict[str, int]] = {name: {} for name, kind in kinds.items() if kind in ("text", "category")}
    done = 0
    # As text a cell is what is written there: "01" is another category than "1".
    for chunk in chunks([name for name, kind in kinds.items() if kind == "text"]):
        for place, (name, known) in enumerate(kinds.items()):
            where = place, slice(done, done + len(chunk))
            if known in ("number", "truth"):
                new.write(where, chunk[name].to_numpy(dtype=np.float64, na_value=np.nan))
                continue
            cells, words = as_words(chunk[name])
            numbers = [codes[name].setdefault(word, len(codes[name])) for word in words]
            new.write(where, np.array([*numbers, -1])[cells])
        done += len(chunk)
    return {name: list(words) for name, words in codes.items()}
