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
import torch.nn.functional as F
from torch import Tensor

from ..errors import DataError, check_known
from ..files import explained
from . import archives, npz
from .corruptions.filters import luminance
from .names import selection, with_selection
from .parts import Data, Part, assembled, split
from .preparation import standards
from .sines import sines

MOST_DIGITS = 18  # of a number of examples: Python refuses to read thousands of digits
# A source is a module whose load(place, name, seed) reads `KIND:place`; it is imported when it is asked for.
SOURCES = {"csv": ".tables", "folder": ".folder", "hf": ".hub", "npz": ".npz", "parquet": ".tables"}
FEWEST_CLASSES = 4
_AT_ONCE = 512


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
            selected(data, choice, chosen) if choice in ("hold_out", "only") else _first_examples(data, choice, *chosen)
        )
    with explained(f"{_short(name)} must be data that can be read", kind=DataError):
        return _loaded(name, seed)


def load_examples(name: str, *, seed: int = 0) -> Tensor:
    """The test examples of a data set without their targets, which an OOD set may not even have."""
    whole, choice, chosen = selection(name)
    if choice == "test":
        return load_examples(whole, seed=seed)[: _number_of(choice, *chosen)]
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
    check_known(kind, SOURCES, f"a data set must be {_kinds()}", DataError, got=_short(name))
    return importlib.import_module(SOURCES[kind], __package__).load(place, name, seed)


def _named(name: str, seed: int) -> Data:
    """NAME.npz first, then the official archive, then the hub."""
    path = folder() / f"{name}.npz"
    if path.is_file():
        return npz.load(str(path), name, seed)
    data = archives.load(folder(), name)
    if data is not None:
        return data
    known = {*_EMBEDDED, *archives.ARCHIVES, *(p.stem for p in folder().glob("*.npz"))}
    check_known(name, known, f"a data set must be {_kinds()}", DataError, got=_short(name))
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
        check_known(name, known, f"{choice} must name classes of {data.name}", DataError)
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


def _first_examples(data: Data, choice: str, number: str) -> Data:
    """The data with its "first" training examples alone, standardised by them; or with its first "test" examples."""
    chosen = data.test if choice == "test" else data.train
    part = chosen.rows(torch.arange(min(_number_of(choice, number), len(chosen))))
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


def _number_of(choice: str, number: str) -> int:
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


def default_ood(name: str, data: Data) -> tuple[str, tuple[str, ...]]:
    """Names for data without its last classes (a fifth of them, one at least) and for the OOD set that these make.

    With too few classes, or none, the data stays whole and there is no OOD set.

    >>> from multum.data.sources import load_data
    >>> default_ood("digits", load_data("digits")), default_ood("diabetes", load_data("diabetes"))
    (('digits#hold_out=8+9', ('digits#only=8+9',)), ('diabetes', ()))
    """
    if data.task != "classification" or data.outputs < FEWEST_CLASSES:
        return name, ()
    held_out = data.class_names[-max(1, round(data.outputs / 5)) :]
    return with_selection(name, "hold_out", held_out), (with_selection(name, "only", held_out),)


def ood_sets(names: Sequence[str], like: Data) -> dict[str, Any]:
    """The test examples of data sets by name, in the shape of the known ones."""
    return {name: resized_like(load_examples(name), like) for name in names}


def resized_like(x: Any, like: Data) -> Tensor:
    """OOD examples in the shape of the known ones; unchanged where the shape is the same.

    Images are scaled (bilinear, with antialiasing) until they cover the known height and width, and the middle is cut
    out; a grey image becomes three equal channels, and a coloured one grey as 0.299 red + 0.587 green + 0.114 blue.
    uint8 stays uint8. Tables are never changed.

    Shape: [n, channels, height, width] of any size in, of the known size out.
    """
    shape = like.train.x.shape[1:]
    if x.shape[1:] == shape:
        return x
    if x.ndim != 4 or len(shape) != 3 or {x.shape[1], shape[0]} - {1, 3}:
        raise DataError(
            f"OOD examples must be images of 1 or 3 channels, or have the shape {tuple(shape)} of {like.name}; got "
            f"{tuple(x.shape[1:])}. Choose another OOD set"
        )
    return torch.cat([_resized(x[start : start + _AT_ONCE], shape) for start in range(0, len(x), _AT_ONCE)])


def _resized(x: Tensor, shape: torch.Size) -> Tensor:
    images = luminance(x.float()) if x.shape[1] > shape[0] else x.float()
    height, width = shape[1:]
    scale = max(height / x.shape[2], width / x.shape[3])
    size = (max(height, round(x.shape[2] * scale)), max(width, round(x.shape[3] * scale)))
    if size != tuple(x.shape[2:]):
        images = F.interpolate(images, size, mode="bilinear", antialias=True)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    images = images[:, :, top : top + height, left : left + width]
    if x.dtype == torch.uint8:
        images = images.round().clamp(0, 255).to(torch.uint8)
    return images.expand(-1, shape[0], -1, -1).contiguous()
