"""Data in memory or in files: parts that never mix, what standardises them, and how a part is split in two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import DataError, did_you_mean
from .names import with_selection

if TYPE_CHECKING:
    from .tables import Table

__all__ = ["Data", "Part", "assembled", "first_items", "number_of", "selected", "split"]

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
        return hasattr(self.x, "files")

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
    table: Table | None = None  # how rows of a csv or parquet file become items

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

    @property
    def class_names(self) -> tuple[str, ...]:
        """A name for every class: its own, else its number."""
        return self.classes or tuple(str(k) for k in range(self.outputs))

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


def assembled(
    name: str, task: str, train: Part, test: Part, *, classes: tuple[str, ...] = (), table: Table | None = None
) -> Data:
    """Checked data with the mean and the spread of its training part."""
    for part, place in ((train, "training"), (test, "test")):
        _check(name, task, part, place)
    mean, std = _standards(train, table)
    if task == "regression":
        scale = _target_standards(train)
        return Data(name, task, train, test, 2, mean, std, target_mean=scale[0], target_std=scale[1], table=table)
    unseen = sorted({*test.y.unique().tolist()} - {*train.y.unique().tolist()})
    if unseen:
        words = ", ".join(classes[k] if k < len(classes) else str(k) for k in unseen)
        raise DataError(
            f"every class of {name} occurs in its training part, however: {words} occurs in the test part alone; "
            "move some of its items over, or leave it out"
        )
    return Data(
        name, task, train, test, len(classes) or int(train.y.max()) + 1, mean, std, classes=classes, table=table
    )


def _check(name: str, task: str, part: Part, place: str) -> None:
    if len(part.x) != len(part.y):
        raise DataError(
            f"items and targets of {name} are equally many, however: the {place} part has {len(part.x)} and "
            f"{len(part.y)}"
        )
    if len(part) == 0:
        raise DataError(f"both parts of {name} have items, however: the {place} part has none")
    floating = [t for t in (part.x, part.y) if not part.lazy and t.is_floating_point()]
    if not all(bool(torch.isfinite(piece).all()) for t in floating for piece in t.split(65536)):
        raise DataError(f"{name} holds finite numbers, however: some are NaN or infinite; clean them first")
    if task == "classification" and int(part.y.min()) < 0:
        raise DataError(f"the classes of {name} are 0, 1, 2, ..., however: {int(part.y.min())} is among them")


def selected(data: Data, choice: str, classes: Sequence[str]) -> Data:
    """The data with `only` these classes, or with all but them ("hold_out"), labels numbered anew; classes by name."""
    if data.task != "classification":
        raise DataError(f"{choice} chooses among classes, however: {data.name} is regression")
    known = data.class_names
    for name in classes:
        if name not in known:
            raise DataError(
                f"{choice} names classes of {data.name}, however: {name!r} is none. {did_you_mean(name, known)}"
            )
    kept = [k for k in range(data.outputs) if (known[k] in classes) == (choice == "only")]
    if not kept:
        raise DataError(f"a choice of classes leaves some, however: {choice}={'+'.join(classes)} leaves none")
    renumbered = torch.full((data.outputs,), -1)
    renumbered[kept] = torch.arange(len(kept))

    def of(part: Part) -> Part:
        found = part.rows(renumbered[part.y] >= 0)
        return Part(found.x, renumbered[found.y])

    train = of(data.train)
    if len(train) == 0:
        raise DataError(
            f"a choice of classes leaves items, however: {choice}={'+'.join(classes)} leaves none to train on"
        )
    mean, std = (None, None) if data.mean is None else _standards(train, data.table)
    names = tuple(known[k] for k in kept)
    test = of(data.test)
    table = data.table and replace(data.table, classes=names, rows=(len(train), len(test)))
    return replace(
        data,
        name=with_selection(data.name, choice, classes),
        train=train,
        test=test,
        validation=None if data.validation is None else of(data.validation),
        outputs=len(kept),
        mean=mean,
        std=std,
        classes=names,
        table=table,
    )


def first_items(data: Data, choice: str, number: str) -> Data:
    """The data with its "first" training items alone, and standardised by them; or with its first "test" items."""
    named = with_selection(data.name, choice, [number])
    chosen = data.test if choice == "test" else data.train
    part = chosen.rows(torch.arange(min(number_of(choice, number), len(chosen))))
    if choice == "test":
        table = data.table and replace(data.table, rows=(len(data.train), len(part)))
        return replace(data, name=named, test=part, table=table)
    table = data.table and replace(data.table, rows=(len(part), len(data.test)))
    if data.task == "classification":
        lost = sorted({*data.train.y.unique().tolist()} - {*part.y.unique().tolist()})
        if lost:
            words = ", ".join(data.class_names[k] for k in lost[:3])
            raise DataError(
                f"the first items have all classes, however: first={number} of {data.name} has none of {words}; "
                "take more, or shuffle the file"
            )
    changed: dict[str, Any] = {}
    if data.mean is not None:
        changed["mean"], changed["std"] = _standards(part, data.table)
    if data.task == "regression" and data.mean is not None:
        changed["target_mean"], changed["target_std"] = _target_standards(part)
    return replace(data, name=named, train=part, table=table, **changed)


def number_of(choice: str, number: str) -> int:
    """How many items a name asks for."""
    if not number.isdecimal() or int(number) < 1:
        raise DataError(f"{choice}=N takes so many items, 1 or more, however: {choice}={number}")
    return int(number)


def _target_standards(train: Part) -> tuple[float, float]:
    spread = float(train.y.std()) if len(train) > 1 else 0.0
    return float(train.y.mean()), spread if spread > 0 else 1.0


def _standards(train: Part, table: Table | None = None) -> tuple[Tensor, Tensor]:
    """Mean and spread of each channel or column, in the scale that `Data.prepare` sees; 0 and 1 for zeros and ones."""
    x = train.x
    if train.lazy:
        x = x[torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:LOOKED_AT]]
    mean, std = _moments(x)
    std = torch.where(std > 0, std, torch.ones_like(std))  # a constant column carries nothing and stays 0
    if table is not None:  # a rare category would become a huge number
        indicator = torch.tensor(table.indicators)
        mean, std = torch.where(indicator, 0.0, mean), torch.where(indicator, 1.0, std)
    return mean, std


def _moments(x: Tensor, rows: int = 4096) -> tuple[Tensor, Tensor]:
    """Piece by piece: float64 takes eight times the bytes."""
    dims = (0, 2, 3) if x.ndim == 4 else (0,)
    scale = 255.0 if x.dtype == torch.uint8 else 1.0
    count = x.shape[0] * (x.shape[2] * x.shape[3] if x.ndim == 4 else 1)
    mean = sum(part.double().sum(dims, keepdim=True) for part in x.split(rows)) / count
    square = sum((part.double() - mean).square().sum(dims, keepdim=True) for part in x.split(rows))
    std = (square / max(count - 1, 1)).sqrt()
    return (mean / scale)[0].float(), (std / scale)[0].float()
