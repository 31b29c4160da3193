"""Columns of a table: what each one is, and how its cells become numbers for a network.

    number      as it is (`Data.prepare` standardises it); a missing cell takes the training median, and where some are
                missing in training, one more column says so with 1
    category    (text, true/false, pandas categories) a column of zeros and ones per value of the training part; missing
                is a value of its own where it occurs there, and an unknown value is all zeros
    left out    constant or all missing in the training part, or text whose values occur less than twice on average
    refused     dates, lists, infinite numbers, and text with more than 255 different values

Text that reads as numbers in every row, with or without commas between thousands, is numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import DataError
from .names import listed

MOST_CATEGORIES = 255
MISSING = "(missing)"
FEWEST_IDS = 20  # rows of which a column may look like ids
_ID = re.compile(r"(?i)(^|[\W_])(id|ids|idx|index|key|no|nr|number|num)$")
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?")
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([ T].*)?|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?"
)


@dataclass(frozen=True)
class Column:
    """One column as the training part has it: a number where `categories` is None."""

    name: str
    categories: tuple[str, ...] | None = None
    missing: bool = False  # whether cells are missing in the training part
    median: float = 0.0

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Column:
        """What `dataclasses.asdict` gave, after JSON too."""
        categories = values["categories"]
        return cls(**{**values, "categories": None if categories is None else tuple(categories)})

    @property
    def names(self) -> tuple[str, ...]:
        """What this column becomes."""
        if self.categories is None:
            return (self.name, f"{self.name} is missing") if self.missing else (self.name,)
        return tuple(f"{self.name}={value}" for value in (*self.categories, *([MISSING] if self.missing else [])))

    @property
    def indicators(self) -> tuple[bool, ...]:
        """Which of them hold zeros and ones."""
        return tuple(self.categories is not None or i > 0 for i in range(len(self.names)))

    def encode(self, series: pd.Series) -> np.ndarray:
        """Shape: [rows, len(names)], float64."""
        if self.categories is None:
            numbers = as_numbers(series)
            numbers.check(self.name, series)
            missing = np.isnan(numbers.values)
            values = np.where(missing, self.median, numbers.values)
            return np.stack([values, missing] if self.missing else [values], axis=1)
        codes, words = as_words(series)
        width = len(self.names)
        place = {word: i for i, word in enumerate(self.categories)}
        # The last entry serves both the code -1 of a missing cell and, as a row of zeros, what is unknown.
        places = np.array([*(place.get(word, width) for word in words), width - 1 if self.missing else width])
        return np.eye(width + 1, width)[places[codes]]


@dataclass(frozen=True)
class Numbers:
    """Cells as numbers. Shape: [rows] each; NaN where a cell is missing, `text` where it is there and no number."""

    values: np.ndarray
    text: np.ndarray

    def check(self, name: str, series: pd.Series) -> None:
        """Refuse cells that are no finite number, naming the first."""
        for bad, rule in ((self.text, "numbers"), (np.isinf(self.values), "finite numbers")):
            if bad.any():
                label, cell = series.index[int(bad.argmax())], series.iloc[int(bad.argmax())]
                row = label + 1 if isinstance(label, (int, np.integer)) else label
                cell = cell.item() if isinstance(cell, np.generic) else cell
                raise DataError(
                    f"the column {name!r} must hold {rule}; got {cell!r} in row {row}. Correct the cell or empty it"
                )


def fit_column(name: str, series: pd.Series) -> Column | str:
    """A column of the training part, or why it is left out; what is refused raises."""
    present = series.dropna()
    missing = len(present) < len(series)
    if len(present) == 0:
        return "all missing"
    if isinstance(present.iloc[0], (list, dict, set, np.ndarray)):
        raise DataError(f"{name}: cells are lists or the like")
    typed = pd.api.types.is_numeric_dtype(series.dtype)
    words = [*dict.fromkeys(map(_word, (present.min(), present.max())))] if typed else as_words(present)[1]
    if not typed and all(_DATE.fullmatch(word) for word in words):
        raise DataError(f"{name}: dates or times, such as {words[0]}; put numbers in their place (a year, days since)")
    if len(words) == 1 and not missing:
        return f"always {words[0]}"
    numbers = as_numbers(series)
    if not numbers.text.any() and not is_category(series):
        if np.isinf(numbers.values).any():
            raise DataError(f"{name}: {int(np.isinf(numbers.values).sum())} infinite numbers; empty the cells")
        values = numbers.values[~np.isnan(numbers.values)]
        if len(values) == 0:
            return "all missing"
        with np.errstate(over="ignore", invalid="ignore"):
            standardised = np.isfinite(values.std())
        if not standardised:
            raise DataError(f"{name}: numbers as large as {np.abs(values).max():.3g}; take their logarithm")
        return Column(name, None, len(values) < len(series), float(np.median(values)))
    if len(words) > len(present) / 2:
        return f"{len(words)} different texts in {len(present)} rows"
    if len(words) > MOST_CATEGORIES:
        raise DataError(f"{name}: {len(words)} different texts, more than {MOST_CATEGORIES}; group them")
    return Column(name, in_order(words), missing)


def fit_columns(
    path: Path, train: pd.DataFrame, dropped: Callable[[list[str]], str] = lambda names: f"drop={'+'.join(names)}"
) -> tuple[tuple[Column, ...], dict[str, str]]:
    """The columns of a training part, and why others are left out; all that are refused in one error.

    Args:
        dropped: how a user leaves columns out.
    """
    columns, left_out, refused = [], {}, {}
    for name in train.columns:
        try:
            column = fit_column(name, train[name])
        except DataError as error:
            refused[name] = str(error)
            continue
        if isinstance(column, str):
            left_out[name] = column
        else:
            columns.append(column)
    if refused:
        lines = "".join(f"\n  - {reason}" for reason in refused.values())
        raise DataError(
            f"columns must hold numbers or categories; {len(refused)} of {path} cannot be used{lines}\n"
            f"or leave them out, beside what you drop already: {dropped(list(refused))}"
        )
    if not columns:
        raise DataError(
            f"a table must have a column to predict from; {path} has none: "
            + (listed([f"{n} ({why})" for n, why in left_out.items()]) or "the target is its only one")
        )
    return tuple(columns), left_out


def decimal_commas(series: pd.Series) -> bool:
    """Whether a column of text would be numbers if the comma were the decimal mark."""
    if pd.api.types.is_numeric_dtype(series.dtype) or is_category(series):
        return False
    words = as_words(series.dropna())[1]
    return bool(words) and all(_COMMA.fullmatch(word) for word in words) and any("," in word for word in words)


def point_out(name: str, series: pd.Series) -> str | None:
    """What a person should look at before training on a column of the training part."""
    if decimal_commas(series):
        grouped = not as_numbers(series).text.any()
        word = next(word for word in as_words(series.dropna())[1] if "," in word)
        seen = f"{word} is read as {_number(word):g}" if grouped else f"{word} is read as text"
        return f"{name}: {seen}; with decimal commas add decimal=,"
    values = as_numbers(series).values
    if len(values) < FEWEST_IDS or not pd.api.types.is_numeric_dtype(series.dtype) or np.isnan(values).any():
        return None
    whole = bool((values == np.round(values)).all()) and len(np.unique(values)) == len(values)
    counted = bool((np.diff(values) > 0).all()) and np.ptp(values) < 2 * len(values)
    if whole and (counted or _ID.search(name)):
        return f"{name}: another whole number in every row, as of an id; drop={name} unless it means something"
    return None


def is_category(series: pd.Series) -> bool:
    """Whether a column is categories by its type, whatever its values."""
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(dtype):
        return True
    return pd.api.types.is_object_dtype(dtype) and pd.api.types.infer_dtype(series, skipna=True) == "boolean"


def as_words(series: pd.Series) -> tuple[np.ndarray, list[str]]:
    """Codes of the cells (-1: missing) and the word each code stands for: 1, 1.0 and "1 " are the same word."""
    codes, values = pd.factorize(series)
    spelled = [_word(value) for value in values]
    words = list(dict.fromkeys(spelled))
    place = {word: i for i, word in enumerate(words)}
    return np.array([*(place[word] for word in spelled), -1])[codes], words


def as_numbers(series: pd.Series) -> Numbers:
    """The cells of a column of any type."""
    if pd.api.types.is_numeric_dtype(series.dtype):
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return Numbers(values, np.zeros(len(values), dtype=bool))
    codes, words = as_words(series)
    parsed = [_number(word) for word in words]
    values = np.array([*(np.nan if n is None else n for n in parsed), np.nan])[codes]
    return Numbers(values, np.array([*(n is None for n in parsed), False])[codes])


def in_order(words: list[str]) -> tuple[str, ...]:
    """Sorted: as numbers where all are numbers, else as text."""
    numbers = [_number(word) for word in words]
    if any(n is None for n in numbers):
        return tuple(sorted(words))
    return tuple(word for _, word in sorted(zip(numbers, words, strict=True), key=lambda pair: pair[0] or 0.0))


def _word(value: Any) -> str:
    whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value)) if whole else str(value).strip()


def _number(word: str) -> float | None:
    try:
        return float(word.replace(",", "") if _GROUPED.fullmatch(word) else word)
    except ValueError:
        return None
