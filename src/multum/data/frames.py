"""Files of rows, csv or parquet, as frames whose columns have names of their own."""

from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd

from ..errors import DataError

__all__ = ["listed", "read_frame"]

SHOWN = 8  # names in a list that a person reads


def read_frame(path: Path, sep: str | None = None, decimal: str = ".", *, parquet: bool = False) -> pd.DataFrame:
    """A csv or parquet file as a frame whose columns have names of their own."""
    if not path.is_file():
        raise DataError(f"a table must be a csv or parquet file; there is none at {path}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = _read(path, sep, decimal, parquet or path.suffix.lower() in (".parquet", ".pq"))
    except DataError:
        raise
    except ImportError as error:
        raise DataError(
            f"parquet files must be read by pyarrow, which cannot be imported ({error}). Install it: pip install "
            "'multum[parquet]', or save the table as csv"
        ) from error
    except (ValueError, OSError, EOFError, pd.errors.ParserWarning) as error:
        raise DataError(
            f"{path} must be a table, every row as long as the line of names, saved as UTF-8 (or parquet); got "
            f"{str(error).strip()}"
        ) from error
    frame.columns = pd.Index([str(column).strip() for column in frame.columns], dtype=object)
    _check_names(path, [*frame.columns])
    return frame


def _check_names(path: Path, names: list[str]) -> None:
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise DataError(f"every column must have a name of its own; {path} has more than one {listed(double)}")


def _read(path: Path, sep: str | None, decimal: str, parquet: bool) -> pd.DataFrame:
    if parquet:
        frame = pd.read_parquet(path)
        return frame.reset_index(drop=not any(frame.index.names))
    if sep is None:
        sep = max(",;|\t", key=lambda mark: len(pd.read_csv(path, sep=mark, nrows=0).columns))
    sep = {"tab": "\t", "\\t": "\t"}.get(sep, sep)
    spaces = sep != "\t"
    # pandas would call a second column "a" by the name "a.1".
    head = pd.read_csv(path, sep=sep, header=None, nrows=1, dtype=str, skipinitialspace=spaces, keep_default_na=False)
    _check_names(path, [name for name in map(str.strip, head.iloc[0]) if name])
    more = {"index_col": False, "low_memory": False, "skipinitialspace": spaces, "na_values": ["?"]}
    return pd.read_csv(path, sep=sep, decimal=decimal, **more)


def listed(names: list[str] | tuple[str, ...]) -> str:
    """The first of them, and how many more."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
