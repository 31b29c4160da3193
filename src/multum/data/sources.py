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
training items) or `#test=N` (the first N test items).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, did_you_mean
from . import archives, npz
from .names import selection
from .parts import Data, Part, assembled, first_items, number_of, selected, split
from .sines import sines

__all__ = ["Data", "Part", "folder", "load_data", "load_items", "split"]

# Modules whose load(place, name, seed) reads `KIND:place`; imported when they are asked for: pandas takes a second.
_KINDS = {"csv": "tables", "folder": "folder", "hf": "hub", "npz": "npz", "parquet": "tables"}


def load_data(name: str, *, seed: int = 0) -> Data:
    """A data set by name; see the top of this file.

    Args:
        seed: of the held-out test part, for sets that have none of their own.

    >>> data = load_data("digits")
    >>> data.task, len(data.train), tuple(data.train.x.shape[1:])
    ('classification', 1258, (1, 8, 8))
    """
    whole, choice, chosen = selection(name)
    if choice:
        data = load_data(whole, seed=seed)
        return selected(data, choice, chosen) if choice in ("hold_out", "only") else first_items(data, choice, *chosen)
    if name in _EMBEDDED:
        return _EMBEDDED[name](seed)
    kind, colon, place = name.partition(":")
    if not colon:
        return _named(name, seed)
    if kind not in _KINDS:
        kinds = ", ".join(f"{known}:" for known in _KINDS)
        raise DataError(f"a data set begins with {kinds} or is a name, however: {name!r}. {did_you_mean(kind, _KINDS)}")
    return importlib.import_module(f".{_KINDS[kind]}", __package__).load(place, name, seed)


def load_items(name: str, *, seed: int = 0) -> Tensor:
    """The test items of a data set without their targets, which a foreign set may not even have."""
    whole, choice, chosen = selection(name)
    if choice == "test":
        return load_items(whole, seed=seed)[: number_of(choice, *chosen)]
    path = Path(name[4:]).expanduser() if name.startswith("npz:") else folder() / f"{name}.npz"
    if name not in _EMBEDDED and path.is_file():
        items = npz.read_test_items(path)
        if items is not None:
            return items
    return load_data(name, seed=seed).test.x


def folder() -> Path:
    """Where named data sets lie: $MULTUM_DATA, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "multum"
    return Path(os.environ.get("MULTUM_DATA") or default)


def _named(name: str, seed: int) -> Data:
    """NAME.npz first, then the official archive, then the hub."""
    path = folder() / f"{name}.npz"
    if path.is_file():
        return npz.load(str(path), name, seed)
    found = archives.load(folder(), name)
    if found is not None:
        return found
    if name not in archives.ARCHIVES:
        known = {*_EMBEDDED, *archives.ARCHIVES, *(p.stem for p in folder().glob("*.npz"))}
        raise DataError(
            f"a data set is embedded, or NAME.npz in {folder()}, or npz:FILE, folder:DIR, csv:FILE#target=COLUMN, "
            f"hf:NAME, however: {name!r} is none of them. {did_you_mean(name, known)}"
        )
    from . import hub

    try:
        return hub.load(hub.KNOWN[name], name, seed)
    except DataError as error:
        raise DataError(
            f"{name} is {name}.npz or {archives.ARCHIVES[name].files} in {folder()}, or comes from the Hugging Face "
            f"hub, however: no such file is there, and {error}"
        ) from error


def _digits(seed: int) -> Data:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = torch.tensor(np.round(x * 255 / 16), dtype=torch.uint8).view(-1, 1, 8, 8)
    train, test = split(Part(images, torch.tensor(y, dtype=torch.int64)), 0.3, seed, "classification")
    return assembled("digits", "classification", train, test)


def _diabetes(seed: int) -> Data:
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    both = Part(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64))
    return assembled("diabetes", "regression", *split(both, 0.3, seed, "regression"))


_EMBEDDED: dict[str, Callable[[int], Data]] = {"diabetes": _diabetes, "digits": _digits, "sines": sines}
