"""Files of rows, csv or parquet, as frames whose columns have names of their own; whole, or so many rows at a time."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import DataError
from .names import listed

STDIN = Path("-")  # csv rows from standard input


def read_frame(path: Path, sep: str | None = None, decimal: str = ".", *, parquet: bool = False) -> pd.DataFrame:
    """A csv or parquet file as one frame."""
    return next(read_frames(path, sep, decimal, parquet=parquet))


def read_frames(
    path: Path,
    sep: str | None = None,
    decimal: str = ".",
    *,
    parquet: bool = False,
    rows: int | None = None,
    text: Collection[str] = (),
) -> Iterator[pd.DataFrame]:
    """A csv or parquet file as frames of so many rows; one frame at least, which may be empty.

    Args:
        rows: of a frame; None: all in one.
        text: columns of a csv file whose cells stay as they are written: 007 is no number there.
    """
    if path != STDIN and not path.is_file():
        raise DataError(f"a table must be a csv or parquet file; there is none at {path}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frames = _parquet(path, rows) if is_parquet(path, parquet) else _csv(path, sep, decimal, rows, text)
            for frame in frames:
                frame.columns = pd.Index([str(column).strip() for column in frame.columns], dtype=object)
                _check_names(path, [*frame.columns])
                yield frame
    except ImportError as error:
        raise DataError(
            f"parquet files must be read by pyarrow, which cannot be imported ({error}). Install it: pip install "
            "'multum[parquet]', or save the table as csv"
        ) from error
    except (ValueError, OSError, EOFError, pd.errors.ParserWarning) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path} must be a table, every row as long as the line of names, saved as UTF-8 (or parquet); got "
            f"{str(error).strip()}"
        ) from error


def is_parquet(path: Path, said: bool) -> bool:
    """Whether a table is read as parquet: where its name says so, or its ending."""
    return said or path.suffix.lower() in (".parquet", ".pq")


def check_columns(path: Path, test: pd.DataFrame, train: pd.DataFrame) -> None:
    """Refuse a test file with other columns than the training file's."""
    absent = [c for c in train.columns if c not in test.columns]
    new = [c for c in test.columns if c not in train.columns]
    if absent or new:
        said = [f"lacks {listed(absent)}"] * bool(absent) + [f"has {listed(new)} besides"] * bool(new)
        raise DataError(
            f"a test file must have the columns of the training file; {path} {' and '.join(said)}. "
            "Name them alike, or drop=COLUMN"
        )


def _check_names(path: Path, names: list[str]) -> None:
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise DataError(f"every column must have a name of its own; {path} has more than one {listed(double)}")


def _parquet(path: Path, rows: int | None) -> Iterator[pd.DataFrame]:
    if rows is None:
        frame = pd.read_parquet(path)
        yield frame.reset_index(drop=not any(frame.index.names))
        return
    from pyarrow import parquet

    file, start = parquet.ParquetFile(path), 0
    for batch in file.iter_batches(rows):
        frame = batch.to_pandas()
        frame = frame.reset_index(drop=not any(frame.index.names))
        yield frame.set_index(pd.RangeIndex(start, start + len(frame)))
        start += len(frame)
    if start == 0:
        yield file.schema_arrow.empty_table().to_pandas()


def _csv(path: Path, sep: str | None, decimal: str, rows: int | None, text: Collection[str]) -> Iterator[pd.DataFrame]:
    source: Any = _Kept(sys.stdin.buffer) if path == STDIN else path
    if sep is None:
        sep = max(",;|\t", key=lambda mark: len(pd.read_csv(_again(source), sep=mark, nrows=0).columns))
    sep = {"tab": "\t", "\\t": "\t"}.get(sep, sep)
    spaces: dict[str, Any] = {"sep": sep, "skipinitialspace": sep != "\t"}
    # pandas would call a second column "a" by the name "a.1".
    head = pd.read_csv(_again(source), header=None, nrows=1, dtype=str, keep_default_na=False, **spaces)
    _check_names(path, [name for name in map(str.strip, head.iloc[0]) if name])
    written = {name: str for name in head.iloc[0] if name.strip() in text}
    more: dict[str, Any] = {"index_col": False, "low_memory": False, "na_values": ["?"], "dtype": written or None}
    if rows is None:
        yield pd.read_csv(source, decimal=decimal, **spaces, **more)
        return
    with pd.read_csv(source, decimal=decimal, chunksize=rows, **spaces, **more) as frames:
        yield from frames


def _again(source: Any) -> Any:
    """What the line of names is read from, more than once."""
    return io.BytesIO(source.head) if isinstance(source, _Kept) else source


class _Kept(io.RawIOBase):
    """A stream that was read up to the end of its first line, and can still be read from its beginning."""

    def __init__(self, stream: Any):
        self.head, self.stream = stream.readline(), stream
        self.left = self.head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self.left[: len(buffer)] or self.stream.read(len(buffer))
        self.left = self.left[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)
