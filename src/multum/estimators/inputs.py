"""X, y and weights as scikit-learn's users give them, checked by scikit-learn's own rules, and as multum's data.

rows       numpy arrays, lists, pandas and polars frames, of numbers, categories and missing cells: see columns.py
images     arrays [n, height, width] or [n, channels, height, width], of bytes or of numbers
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import _check_sample_weight, _check_y, check_array, validate_data
from torch import Tensor

from ..data.columns import fit_columns
from ..data.parts import Data, Part, split
from ..data.preparation import Preparation, standards
from ..data.tables import Table
from ..errors import DataError

__all__ = ["Examples", "checked_rows", "checked_targets", "checked_weights", "data_of", "encoded", "more_data", "taken"]

MOST_CHANNELS = 4  # of images that may have them last


class Examples(NamedTuple):
    """Examples that were checked: a frame or images, targets as tensors, and weights where there are some."""

    rows: Any
    y: Tensor
    weights: Tensor | None = None

    def normalised(self) -> Examples:
        """With weights that are 1 on average; None where all are alike."""
        if self.weights is None or bool((self.weights == self.weights[0]).all()):
            return self._replace(weights=None)
        return self._replace(weights=self.weights / self.weights.mean())


def checked_rows(estimator: Any, X: Any, *, reset: bool) -> pd.DataFrame | Tensor:
    """X as a frame whose columns have the names of those in training, or images; sets or compares what is known."""
    if _is_frame(X):
        names = [*map(str, getattr(X, "columns", ()))]
        if len(set(names)) < len(names):
            raise DataError(f"every column of X must have a name of its own; got {', '.join(names)}. Rename them")
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        frame = _as_pandas(X)
        if not len(frame):
            raise DataError("X must have rows; found 0 sample(s) while a minimum of 1 is required")
    elif hasattr(X, "collect_schema"):
        raise DataError("X must be a frame that is there; got a lazy one. Use X.collect()")
    else:
        array = check_array(
            X, dtype=None, ensure_all_finite="allow-nan", allow_nd=True, estimator=estimator, input_name="X"
        )
        if array.ndim > 2:
            return _images(estimator, array, reset)
        validate_data(estimator, array, reset=reset, skip_check_array=True)
        frame = pd.DataFrame(array)
    names = [*map(str, getattr(estimator, "feature_names_in_", (f"x{i}" for i in range(estimator.n_features_in_))))]
    return frame.set_axis(names, axis=1)


def checked_targets(estimator: Any, y: Any, *, numbers: bool) -> np.ndarray:
    """y as an array: numbers of one target or several, or classes as they are called."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None. Give the targets"
        )
    y = _check_y(y.to_numpy() if _is_frame(y) else y, multi_output=numbers, y_numeric=numbers, estimator=estimator)
    if y.dtype == object:
        kinds = {"words" if isinstance(value, str) else "numbers" for value in y.tolist()}
        if len(kinds) > 1:
            raise ValueError("classes must be all words or all numbers; got both in y. Use y.astype(str)")
        y = y if kinds == {"words"} else np.array(y.tolist())
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def checked_weights(sample_weight: Any, rows: Any) -> Tensor | None:
    """Weights of the examples, none negative and some positive. Shape: [rows], float64."""
    if sample_weight is None:
        return None
    size = np.empty(len(rows))
    weights = _check_sample_weight(sample_weight, size, dtype=np.float64, ensure_non_negative=True, copy=True)
    if not weights.any():
        raise ValueError("sample_weight must be positive for some examples; got zero sample weights for all")
    return torch.from_numpy(weights)


def data_of(
    examples: Examples, held_out: Examples | None, task: str, classes: tuple[str, ...], share: float, seed: int
) -> Data:
    """The data of a fit: what is held out is split off first, so that it has no part in what is learned of columns."""
    if held_out is None and share > 0:
        every = Part(torch.arange(len(examples.y)), examples.y, weights=examples.weights)
        parts = split(every, share, seed, task)
        examples, held_out = (Examples(taken(examples.rows, part.x), part.y, part.weights) for part in parts)
    table = None if isinstance(examples.rows, Tensor) else _table(examples.rows, task, classes)
    train = _part(examples, table)
    width = train.y.shape[1] if train.y.ndim > 1 else 1
    return Data(
        "X",
        task,
        train,
        train.rows(slice(0, 0)),
        outputs=len(classes) or 2 * width,
        validation=None if held_out is None else _part(held_out, table),
        classes=classes,
        table=table,
        **standards(train, task, table),
    )


def more_data(preparation: Preparation, examples: Examples) -> Data:
    """The data of a further fit, prepared as the first was."""
    part = _part(examples, preparation.table)
    return replace(Data.of(preparation, part.rows(slice(0, 0))), train=part)


def encoded(rows: Any, table: Table | None) -> Tensor:
    """Rows as raw examples, before they are standardised."""
    if (table is None) != isinstance(rows, Tensor):
        expected, got = ("images", "rows") if table is None else ("rows", "images")
        raise DataError(f"X must hold {expected}, as in training; got {got}. Give it the shape that it had")
    return rows if table is None else table.encode(rows)


def _part(examples: Examples, table: Table | None) -> Part:
    return Part(encoded(examples.rows, table), examples.y, weights=examples.weights)


def _table(frame: pd.DataFrame, task: str, classes: tuple[str, ...]) -> Table:
    columns, left_out = fit_columns(Path("X"), frame, lambda names: f"X.drop(columns={names!r})")
    about: dict[str, Any] = {"file": Path("X"), "targets": ("y",), "task": task, "why": "as the estimator is"}
    return Table(**about, classes=classes, columns=columns, left_out=left_out, rows=(len(frame), 0))


def taken(rows: Any, index: Tensor) -> Any:
    """Some of the rows, or of the images."""
    return rows[index] if isinstance(rows, Tensor) else rows.iloc[index.numpy()]


def _is_frame(X: Any) -> bool:
    """Whether this is a frame or a series of pandas or polars, neither of which is imported for it."""
    polars = sys.modules.get("polars")
    kinds = (pd.DataFrame, pd.Series, *(() if polars is None else (polars.DataFrame, polars.Series)))
    return isinstance(X, kinds)


def _as_pandas(X: Any) -> pd.DataFrame:
    if not hasattr(X, "columns"):
        raise ValueError("Expected 2D array, got a 1D series instead. Give a frame: X.to_frame()")
    if not isinstance(X, pd.DataFrame):
        X = pd.DataFrame({name: X[name].to_numpy() for name in X.columns})  # polars, without pyarrow
    frame = X.reset_index(drop=True)
    for name in frame.select_dtypes("timedelta").columns:
        frame[name] = frame[name].dt.total_seconds()
    return frame


def _images(estimator: Any, array: np.ndarray, reset: bool) -> Tensor:
    """Shape: [n, channels, height, width]."""
    if array.ndim > 4 or array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and np.isnan(array).any()):
        raise DataError(
            "images must be numbers [n, height, width] or [n, channels, height, width], none missing; got "
            f"{array.dtype} of shape {list(array.shape)}. Rows are [n, columns]"
        )
    array = array[:, None] if array.ndim == 3 else array
    if array.shape[-1] <= MOST_CHANNELS < array.shape[1]:
        raise DataError(
            f"images must have their channels first, [n, channels, height, width]; got shape {list(array.shape)}. "
            "Use X.transpose(0, 3, 1, 2)"
        )
    if reset:
        estimator.n_features_in_ = int(np.prod(array.shape[1:]))
        vars(estimator).pop("feature_names_in_", None)
    elif tuple(array.shape[1:]) != estimator.preparation_.shape:
        raise ValueError(
            f"X must have images of shape {[*estimator.preparation_.shape]}, as in training; got "
            f"{list(array.shape[1:])}. Resize them"
        )
    return torch.from_numpy(array.copy() if array.dtype == np.uint8 else array.astype(np.float32))
