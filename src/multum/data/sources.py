"""Data sets by name: where each kind of name is read, and what every one of them becomes.

digits, diabetes        ship with scikit-learn and need nothing
sines                   a synthetic regression: see sines.py
NAME                    NAME.npz, or the official archive (archives.py), under $MULTUM_DATA (default: the user's cache
                        folder); or from the Hugging Face hub
npz:FILE                the user's own arrays: x_train, y_train, x_test, y_test; see npz.py
folder:DIR              class folders of images of any size and number; see folder.py
csv:FILE#target=COLUMN  a table with numbers, categories and missing cells; parquet too; see tables.py
hf:NAME                 images from the Hugging Face hub; see hub.py

Any of them may end in `#hold_out=CLASS+CLASS` (without these classes), `#only=CLASS+CLASS`, `#first=N` (the first N
training examples) or `#test=N` (the first N test examples).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, did_you_mean
from . import archives, npz
from .names import selection, with_selection
from .parts import Data, Part, assembled, split
from .preparation import standards
from .sines import sines

__all__ = [
    *("SOURCES", "Data", "Part", "first_examples", "folder", "load_data", "load_examples", "number_of", "selected"),
    "split",
]

MOST_DIGITS = 18  # of a number of examples: Python refuses to read thousands of digits
# A source is a module whose load(place, name, seed) reads `KIND:place`; it is imported when it is asked for.
SOURCES = {"csv": ".tables", "folder": ".folder", "hf": ".hub", "npz": ".npz", "parquet": ".tables"}


def load_data(name: str, *, seed: int = 0) -> Data:
    """Load a data set by name, such as `digits` or `csv:FILE#target=COLUMN`.

    Args:
        seed: of the held-out test part, for sets that have none of their own.

    >>> data = load_data("digits")
    >>> data.task, len(data.train), tuple(data.train.x.shape[1:])
    ('classification', 1258, (1, 8, 8))
    """
    whole, choice, chosen = selection(name)
    if choice:
        data = load_data(whole, seed=seed)
        return (
            selected(data, choice, chosen) if choice in ("hold_out", "only") else first_examples(data, choice, *chosen)
        )
    try:
        return _loaded(name, seed)
    except OSError as error:  # a name that no file can have, a folder that may not be read
        raise DataError(f"{_short(name)} must be data that can be read; got {error.strerror or error}") from error


def load_examples(name: str, *, seed: int = 0) -> Tensor:
    """The test examples of a data set without their targets, which an OOD set may not even have."""
    whole, choice, chosen = selection(name)
    if choice == "test":
        return load_examples(whole, seed=seed)[: number_of(choice, *chosen)]
    path = Path(name[4:]).expanduser() if name.startswith("npz:") else folder() / f"{name}.npz"
    if name not in _EMBEDDED and os.path.isfile(path):  # False for a name that no file can have
        examples = npz.read_test_examples(path)
        if examples is not None:
            return examples
    return load_data(name, seed=seed).test.x


def folder() -> Path:
    """Where named data sets lie: $MULTUM_DATA, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "multum"
    return Path(os.environ.get("MULTUM_DATA") or default)


def _loaded(name: str, seed: int) -> Data:
    if name in _EMBEDDED:
        return _EMBEDDED[name](seed)
    kind, colon, place = name.partition(":")
    if not colon:
        return _named(name, seed)
    if kind not in SOURCES:
        raise DataError(f"a data set must be {_kinds()}; got {_short(name)}. {did_you_mean(kind, SOURCES)}")
    return importlib.import_module(SOURCES[kind], __package__).load(place, name, seed)


def _named(name: str, seed: int) -> Data:
    """NAME.npz first, then the official archive, then the hub."""
    path = folder() / f"{name}.npz"
    if path.is_file():
        return npz.load(str(path), name, seed)
    data = archives.load(folder(), name)
    if data is not None:
        return data
    if name not in archives.ARCHIVES:
        known = {*_EMBEDDED, *archives.ARCHIVES, *(p.stem for p in folder().glob("*.npz"))}
        raise DataError(f"a data set must be {_kinds()}; got {_short(name)}. {did_you_mean(name, known)}")
    archive = archives.ARCHIVES[name]
    from . import hub

    try:
        return hub.load(archive.hub, name, seed)
    except DataError as error:
        raise DataError(
            f"{name} must be {name}.npz or {archive.files} in {folder()}, or come from the Hugging Face hub; got no "
            f"such file, and {error}"
        ) from error


def _kinds() -> str:
    return f"{', '.join(sorted(_EMBEDDED))}, NAME for NAME.npz in {folder()}, or {':..., '.join(sorted(SOURCES))}:..."


def _short(name: str) -> str:
    return repr(name if len(name) <= 80 else f"{name[:80]}...")


def selected(data: Data, choice: str, classes: Sequence[str]) -> Data:
    """The data with `only` these classes, or with all but them ("hold_out"), labels numbered anew; classes by name."""
    if data.task != "classification":
        raise DataError(f"{choice} must be used on data with classes; got {data.name}, which is regression")
    known = data.class_names
    for name in classes:
        if name not in known:
            raise DataError(f"{choice} must name classes of {data.name}; got {name!r}. {did_you_mean(name, known)}")
    chosen = [k for k in range(data.outputs) if (known[k] in classes) == (choice == "only")]
    renumbered = torch.full((data.outputs,), -1)
    renumbered[chosen] = torch.arange(len(chosen))

    def of(part: Part) -> Part:
        rows = part.rows(renumbered[part.y] >= 0)
        return replace(rows, y=renumbered[rows.y])

    train, test = of(data.train), of(data.test)
    if len(train) == 0:
        raise DataError(
            f"{choice} must leave examples to train on; got {choice}={'+'.join(classes)}, which leaves none"
        )
    names = tuple(known[k] for k in chosen)
    changes = {"outputs": len(chosen), "classes": names, "validation": data.validation and of(data.validation)}
    return _with_parts(data, with_selection(data.name, choice, classes), train, test, **changes)


def first_examples(data: Data, choice: str, number: str) -> Data:
    """The data with its "first" training examples alone, standardised by them; or with its first "test" examples."""
    chosen = data.test if choice == "test" else data.train
    part = chosen.rows(torch.arange(min(number_of(choice, number), len(chosen))))
    name = with_selection(data.name, choice, [number])
    if choice == "test":
        return _with_parts(data, name, data.train, part)
    lost = {*data.train.y.tolist()} - {*part.y.tolist()} if data.task == "classification" else ()
    if lost:
        words = ", ".join(data.class_names[k] for k in sorted(lost)[:3])
        raise DataError(
            f"the first examples must have all classes; got first={number} of {data.name}, which has none of {words}. "
            "Take more, or shuffle the file"
        )
    return _with_parts(data, name, part, data.test)


def number_of(choice: str, number: str) -> int:
    """How many examples a name asks for."""
    if not number.isdecimal() or len(number) > MOST_DIGITS or int(number) < 1:
        raise DataError(f"{choice}=N must be a number of examples, 1 or more; got {choice}={number[:40]}")
    return int(number)


def _with_parts(data: Data, name: str, train: Part, test: Part, **changes: Any) -> Data:
    """The data with other parts, standardised by its training part if that is another one."""
    if data.mean is not None and train is not data.train:
        changes |= standards(train, data.task, data.table)
    if data.table is not None:
        classes = changes.get("classes", data.table.classes)
        changes["table"] = replace(data.table, classes=classes, rows=(len(train), len(test)))
    return replace(data, name=name, train=train, test=test, **changes)


def _digits(seed: int) -> Data:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = torch.tensor(np.round(x * 255 / 16), dtype=torch.uint8).view(-1, 1, 8, 8)
    train, test = split(Part(images, torch.tensor(y, dtype=torch.int64)), 0.3, seed, "classification")
    return assembled("digits", "classification", train, test, drawn=True)


def _diabetes(seed: int) -> Data:
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    both = Part(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64))
    return assembled("diabetes", "regression", *split(both, 0.3, seed, "regression"), drawn=True)


_EMBEDDED: dict[str, Callable[[int], Data]] = {"diabetes": _diabetes, "digits": _digits, "sines": sines}
