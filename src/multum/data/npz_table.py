"""Tables as numpy arrays that say what their columns are called: `meta`, a JSON text beside x_num, x_cat, y and part.

    {"num": [names of x_num], "cat": [names of x_cat], "categories": {name: [words of the codes]}, "target": name}

Without words, categories and classes are called by their codes; the words of the classes are those of "_target" or of
the target's name. They become a `Table` like that of a csv file, which encodes further rows, from csv files too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..errors import DataError
from .columns import fit_columns
from .parts import Data, Part, assembled
from .tables import Table

MISSING = ("", "?")  # words for cells that are missing, as in csv files


def load_table(path: Path, name: str, meta: Any, numbers: Tensor, codes: Tensor, y: Tensor, part: Tensor) -> Data:
    """The data set of these arrays. Shape: numbers [rows, n], codes [rows, m], y [rows], part [rows], 2 for testing."""
    described = _described(path, meta)
    words = _entry(described, "categories", dict, {})
    target = _entry(described, "target", str, "target")
    names = [_names(path, described, key, x.shape[1]) for key, x in (("num", numbers), ("cat", codes))]
    columns: dict[str, Any] = {column: numbers[:, i].double().numpy() for i, column in enumerate(names[0])}
    columns |= {column: _category(column, codes[:, i], words.get(column)) for i, column in enumerate(names[1])}
    if len(columns) < numbers.shape[1] + codes.shape[1] or target in columns:
        every = ", ".join([*names[0], *names[1], target])
        raise DataError(f"every column of {path} must have a name of its own; got {every}. Correct meta")
    task = "regression" if y.is_floating_point() else "classification"
    classes = _classes(y, words.get("_target", words.get(target))) if task == "classification" else ()
    frame = pd.DataFrame({**columns, target: np.array(classes, dtype=object)[y] if classes else y.double().numpy()})
    frames = [frame[(part != 2).numpy()], frame[(part == 2).numpy()]]
    fitted, left_out = fit_columns(path, frames[0].drop(columns=target))
    table = Table(
        file=path,
        targets=(target,),
        task=task,
        why="as the type of y says",
        classes=classes,
        columns=fitted,
        left_out=left_out,
        rows=(len(frames[0]), len(frames[1])),
    )
    targets = y.long() if classes else y.double()
    chosen = (targets[part != 2], targets[part == 2])
    parts = [Part(table.encode(rows), mine, table.ids(rows)) for rows, mine in zip(frames, chosen, strict=True)]
    return assembled(name, task, *parts, classes=classes, table=table)


def _described(path: Path, meta: Any) -> Mapping[str, Any]:
    try:
        described = json.loads(str(meta))
    except ValueError as error:
        raise DataError(
            f"meta of {path} must be a JSON text; got {str(meta)[:60]!r}. Leave it out, or correct it"
        ) from error
    if not isinstance(described, dict):
        raise DataError(f"meta of {path} must be a JSON object; got {type(described).__name__}. Leave it out")
    return described


def _entry(described: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = described.get(key, default)
    if not isinstance(value, kind):
        raise DataError(f"{key!r} of meta must be {kind.__name__}; got {value!r:.60}. Leave it out, or correct it")
    return value


def _names(path: Path, described: Mapping[str, Any], key: str, columns: int) -> list[str]:
    names = [str(name) for name in _entry(described, key, list, [])]
    if len(names) != columns:
        raise DataError(f"{key!r} of meta of {path} must name the {columns} columns of x_{key}; got {len(names)} names")
    return names


def _category(column: str, codes: Tensor, words: Any) -> pd.Categorical:
    known = _words(column, words, int(codes.max()) + 1 if len(codes) else 0)
    present = [word for word in known if word not in MISSING]
    place = torch.tensor([present.index(word) if word in present else -1 for word in known])
    return pd.Categorical.from_codes(place[codes].numpy(), present)


def _classes(y: Tensor, words: Any) -> tuple[str, ...]:
    if int(y.min()) < 0:
        raise DataError(f"the classes must be numbered 0, 1, 2, ...; got {int(y.min())} in y")
    return tuple(_words("y", words, int(y.max()) + 1))


def _words(column: str, words: Any, codes: int) -> Sequence[str]:
    if words is None:
        return [str(code) for code in range(codes)]
    if not isinstance(words, list) or len(words) < codes or len({*map(str, words)}) < len(words):
        raise DataError(
            f"the words of {column!r} in meta must be one for each of its {codes} codes; got {words!r:.60}. Correct it"
        )
    return [str(word) for word in words]
