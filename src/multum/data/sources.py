"""Data sets by name: raw tensors in memory, and how a batch of them becomes a network's input.

digits, diabetes        ship with scikit-learn and need nothing
NAME                    NAME.npz under $MULTUM_DATA (default: the user's cache folder)
npz:FILE                the user's own arrays: x_train, y_train, x_test, y_test
folder:DIR              class folders of images of any size and number; see folder.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, did_you_mean
from ..parsing import assignments
from .folder import Images, read_folder

__all__ = ["Data", "Part", "folder", "load_data", "load_items", "split"]

LOOKED_AT = 1024  # images of a folder whose mean and spread stand for all


@dataclass(frozen=True)
class Part:
    """Items and their targets. Shape: x [n, ...] (images stay uint8), y [n]; `x[rows]` is a tensor."""

    x: Any  # a tensor, or image files that are decoded when they are indexed
    y: Tensor

    def __len__(self) -> int:
        return len(self.x)

    @property
    def lazy(self) -> bool:
        """Whether items are read when they are asked for."""
        return isinstance(self.x, Images)

    def rows(self, index: Tensor) -> Part:
        return Part(self.x.take(index) if self.lazy else self.x[index], self.y[index])


@dataclass(frozen=True)
class Data:
    """A data set in parts that never mix, with what standardises it, taken from the training part alone.

    Shape: `mean` and `std` broadcast against one item; `outputs` is the number of classes, or 2 (mean, raw variance)
    for regression, whose targets are standardised by `target_mean` and `target_std`.
    """

    name: str
    task: str
    train: Part
    test: Part
    outputs: int
    mean: Tensor | None  # None: items are a network's input as they are
    std: Tensor | None
    validation: Part | None = None
    target_mean: float = 0.0
    target_std: float = 1.0
    classes: tuple[str, ...] = ()  # names of the classes, where they have some

    @classmethod
    def given(cls, x: Tensor, y: Tensor, task: str) -> Data:
        """A user's own tensors: inputs as the network takes them, and targets."""
        if len(x) != len(y):
            raise DataError(f"items and targets are equally many, however: {len(x)} and {len(y)}")
        labels = task == "classification" and not y.is_floating_point() and len(y) > 0
        outputs = int(y.max()) + 1 if labels else y.shape[-1] if task == "classification" and y.ndim > 1 else 2
        return cls("given", task, Part(x, y), Part(x[:0], y[:0]), outputs, mean=None, std=None)

    @property
    def is_image(self) -> bool:
        return self.train.x.ndim == 4

    def prepare(self, x: Tensor) -> Tensor:
        """Raw items as a network's input: float, standardised. Shape: kept, any leading dimensions."""
        if self.mean is None or self.std is None:
            return x
        x = x.float() / 255 if x.dtype == torch.uint8 else x.float()
        return (x - self.mean.to(x.device)) / self.std.to(x.device)

    def targets(self, y: Tensor) -> Tensor:
        """Raw targets as the loss takes them."""
        if self.task == "classification" or self.mean is None:
            return y
        return (y - self.target_mean).float() / self.target_std

    def example(self, n: int = 2) -> Tensor:
        """A prepared batch of the first items."""
        return self.prepare(self.train.x[:n])

    def with_validation(self, share: float, seed: int) -> Data:
        """Hold out a part of the training set, stratified by class."""
        kept, held = split(self.train, share, seed, self.task)
        return replace(self, train=kept, validation=held)


def split(part: Part, share: float, seed: int, task: str) -> tuple[Part, Part]:
    """Two parts of one, the second with about `share` of it; class by class where there are classes."""
    if not 0 < share < 1:
        raise DataError(f"a held-out share lies between 0 and 1, however: {share}")
    generator = torch.Generator().manual_seed(seed)
    if task == "classification":
        groups = [torch.nonzero(part.y == label).flatten() for label in part.y.unique()]
    else:
        groups = [torch.arange(len(part))]
    held = []
    for rows in groups:
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        held.append(shuffled[: round(share * len(rows))])
    chosen = torch.zeros(len(part), dtype=torch.bool)
    chosen[torch.cat(held)] = True
    if not chosen.any() or chosen.all():
        raise DataError(f"both parts of a split have items, however: {len(part)} items at a share of {share}")
    return part.rows(~chosen), part.rows(chosen)


def load_data(name: str, *, seed: int = 0) -> Data:
    """A data set by name; see the top of this file.

    Args:
        seed: of the held-out test part, for sets that have none of their own.

    >>> data = load_data("digits")
    >>> data.task, len(data.train), tuple(data.train.x.shape[1:])
    ('classification', 1258, (1, 8, 8))
    """
    if name in _EMBEDDED:
        return _EMBEDDED[name](seed)
    if name.startswith("npz:"):
        return _from_npz(Path(name[4:]).expanduser(), name, seed)
    if name.startswith("folder:"):
        return _from_folder(name, seed)
    path = folder() / f"{name}.npz"
    if not path.is_file():
        known = {*_EMBEDDED, *(p.stem for p in folder().glob("*.npz"))}
        raise DataError(
            f"a data set is embedded, or NAME.npz in {folder()}, or npz:FILE, or folder:DIR, however: {name!r} is "
            "none of them. " + did_you_mean(name, known)
        )
    return _from_npz(path, name, seed)


def load_items(name: str, *, seed: int = 0) -> Tensor:
    """The test items of a data set without their targets, which a foreign set may not even have."""
    path = Path(name[4:]).expanduser() if name.startswith("npz:") else folder() / f"{name}.npz"
    if name not in _EMBEDDED and path.is_file():
        with np.load(path, allow_pickle=False) as file:
            if "x_test" in file.files:
                return _items(file["x_test"])
    return load_data(name, seed=seed).test.x


def folder() -> Path:
    """Where named data sets lie: $MULTUM_DATA, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "multum"
    return Path(os.environ.get("MULTUM_DATA") or default)


def _digits(seed: int) -> Data:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = torch.tensor(np.round(x * 255 / 16), dtype=torch.uint8).view(-1, 1, 8, 8)
    train, test = split(Part(images, torch.tensor(y, dtype=torch.int64)), 0.3, seed, "classification")
    return _assembled("digits", "classification", train, test)


def _diabetes(seed: int) -> Data:
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    both = Part(torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64))
    return _assembled("diabetes", "regression", *split(both, 0.3, seed, "regression"))


_EMBEDDED: dict[str, Callable[[int], Data]] = {"diabetes": _diabetes, "digits": _digits}


def _from_npz(path: Path, name: str, seed: int) -> Data:
    if not path.is_file():
        raise DataError(f"npz:FILE names a file, however: there is none at {path}")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (ValueError, OSError) as error:
        raise DataError(f"{path} is a file of plain numpy arrays, however: {error}") from error
    if {"x_train", "y_train", "x_test", "y_test"} <= set(arrays):
        train = Part(_items(arrays["x_train"]), _labels(arrays["y_train"]))
        test = Part(_items(arrays["x_test"]), _labels(arrays["y_test"]))
    elif {"X", "y", "train_idx", "test_idx"} <= set(arrays):
        both = Part(_items(arrays["X"]), _labels(arrays["y"]))
        i = seed % len(arrays["train_idx"])
        train, test = (both.rows(torch.as_tensor(arrays[k][i], dtype=torch.int64)) for k in ("train_idx", "test_idx"))
    elif {"y", "part"} <= set(arrays) and {"x_num", "x_num_T"} & set(arrays):
        both, test_rows = Part(_table(arrays), _labels(arrays["y"])), torch.as_tensor(arrays["part"] == 2)
        train, test = both.rows(~test_rows), both.rows(test_rows)
    else:
        raise DataError(
            f"{path} holds x_train, y_train, x_test, y_test (or X, y, train_idx, test_idx; or x_num, x_cat, y, part), "
            f"however: it holds {', '.join(sorted(arrays))}"
        )
    if len(train.x) != len(train.y) or len(test.x) != len(test.y):
        raise DataError(f"items and targets of {path} are equally many, however: {len(train.x)} and {len(train.y)}")
    return _assembled(name, "regression" if train.y.is_floating_point() else "classification", train, test)


def _from_folder(name: str, seed: int) -> Data:
    path, _, rest = name.removeprefix("folder:").partition("#")
    fields = assignments(part for part in rest.split(",") if part)
    size = fields.pop("size", None)
    if fields:
        other = next(iter(fields))
        raise DataError(f"a folder has the field size, however: {other!r} was given. {did_you_mean(other, ['size'])}")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
        raise DataError(f"size is a whole number of pixels >= 1, however: size={size!r}")
    classes, parts = read_folder(Path(path).expanduser(), size)
    if "all" in parts:
        train, test = split(Part(*parts["all"]), 0.2, seed, "classification")
    else:
        train, test = Part(*parts["train"]), Part(*parts["test"])
    looked = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:LOOKED_AT]
    data = _assembled(name, "classification", train, test, train.x[looked])
    return replace(data, outputs=len(classes), classes=tuple(classes))


def _items(x: np.ndarray) -> Tensor:
    """Images as [n, channels, height, width], tables as [n, columns]."""
    t = torch.as_tensor(x)
    if t.ndim == 3:
        return t.unsqueeze(1)
    if t.ndim == 4 and t.shape[-1] in (1, 3) and t.shape[1] not in (1, 3):
        return t.permute(0, 3, 1, 2).contiguous()
    return t


def _table(arrays: dict[str, np.ndarray]) -> Tensor:
    """Numbers as they are, then a column of zeros and ones per category."""
    numbers = torch.as_tensor(arrays["x_num"] if "x_num" in arrays else arrays["x_num_T"].T.copy())
    codes = torch.as_tensor(arrays["x_cat"]).long() if "x_cat" in arrays else numbers[:, :0].long()
    return torch.cat([numbers.float(), *(torch.nn.functional.one_hot(c).float() for c in codes.unbind(1))], 1)


def _labels(y: np.ndarray) -> Tensor:
    t = torch.as_tensor(y)
    return t.double() if t.is_floating_point() else t.long()


def _assembled(name: str, task: str, train: Part, test: Part, looked_at: Tensor | None = None) -> Data:
    mean, std = _moments(train.x if looked_at is None else looked_at)
    if not bool(torch.isfinite(mean).all()) or not bool(torch.isfinite(train.y.double()).all()):
        raise DataError(f"{name} holds finite numbers, however: some are NaN or infinite; clean them first")
    if task == "classification" and int(train.y.min()) < 0:
        raise DataError(f"the classes of {name} are 0, 1, 2, ..., however: {int(train.y.min())} is among them")
    data = Data(
        name=name,
        task=task,
        train=train,
        test=test,
        outputs=2 if task == "regression" else int(train.y.max()) + 1,
        mean=mean,
        std=torch.where(std > 0, std, torch.ones_like(std)),  # a constant column carries nothing and stays 0
    )
    if task == "regression":
        spread = float(train.y.std())
        return replace(data, target_mean=float(train.y.mean()), target_std=spread if spread > 0 else 1.0)
    return data


def _moments(x: Tensor, rows: int = 4096) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel or column, piece by piece: float64 takes eight times the bytes."""
    dims = (0, 2, 3) if x.ndim == 4 else (0,)
    scale = 255.0 if x.dtype == torch.uint8 else 1.0
    count = x.shape[0] * (x.shape[2] * x.shape[3] if x.ndim == 4 else 1)
    mean = sum(part.double().sum(dims, keepdim=True) for part in x.split(rows)) / count
    square = sum((part.double() - mean).square().sum(dims, keepdim=True) for part in x.split(rows))
    std = (square / max(count - 1, 1)).sqrt()
    return (mean / scale)[0].float(), (std / scale)[0].float()
