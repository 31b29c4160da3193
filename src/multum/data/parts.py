"""Data in memory or in files: parts that never mix, what standardises them, and how a part is split in two."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import DataError
from .identity import example_ids, fingerprint_of
from .maps import Mapped
from .names import listed
from .preparation import Preparation, Reading, Scaling, standards

if TYPE_CHECKING:
    from .tables import Table


PREPARED = {field.name for field in fields(Preparation)} - {"shape", "dtype"}  # what data and preparation both have
LARGEST_VALIDATION = 1000  # examples that a run holds out unless it is asked for more
FEWEST_TO_SPLIT = 100  # a tenth of fewer tells nothing


@dataclass(frozen=True)
class Part:
    """Examples and their targets. Shape: x [n, ...] (images stay uint8), y [n] or [n, targets]; x[rows] is a tensor."""

    x: Any  # a tensor, or image files that are decoded when they are indexed
    y: Tensor
    ids: Tensor | None = None  # int64, what tells examples apart, where their source has something better than x and y
    weights: Tensor | None = None  # of each example's loss, [n]; None: all 1

    def __len__(self) -> int:
        return len(self.x)

    @property
    def lazy(self) -> bool:
        """Whether examples are read when they are asked for."""
        return not isinstance(self.x, Tensor)

    def rows(self, index: Tensor | slice) -> Part:
        ids, weights = (None if each is None else each[index] for each in (self.ids, self.weights))
        return Part(self.x.take(index) if self.lazy else self.x[index], self.y[index], ids, weights)

    def drawn(self, count: int | None, seed: int) -> Part:
        """So many examples at random, in their order; all of them where None."""
        if count is None or count >= len(self):
            return self
        chosen = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:count]
        return self.rows(chosen.sort().values)


@dataclass(frozen=True)
class Data(Reading):
    """A data set with its training, validation and test sets, standardised by the training set.

    Shape: `mean` and `std` broadcast against one example; `outputs` is the number of classes, or 2 (mean, raw variance)
    per target of a regression, whose targets are standardised by `target_mean` and `target_std`: numbers, or of several
    targets [targets] each.
    """

    name: str
    task: str
    train: Part
    test: Part
    outputs: int
    mean: Tensor | None  # None: examples are a network's input as they are
    std: Tensor | None
    validation: Part | None = None
    target_mean: float | Tensor = 0.0
    target_std: float | Tensor = 1.0
    target_names: tuple[str, ...] = ()  # of several targets, where they have some
    classes: tuple[str, ...] = ()  # names of the classes, where they have some
    table: Table | None = None  # how rows of a csv or parquet file become examples
    counts: tuple[float, ...] = ()  # training examples of each class, where the training part is not here
    drawn: bool = False  # whether the test part was drawn from the whole, which came in one part
    scaling: Scaling | None = None  # of a table's numbers by their quantiles, before they are standardised

    @classmethod
    def given(cls, x: Tensor, y: Tensor, task: str) -> Data:
        """A user's own tensors: inputs as the network takes them, and targets."""
        if len(x) != len(y):
            raise DataError(f"x and y must have the same length; got {len(x)} examples and {len(y)} targets")
        labels = task == "classification" and not y.is_floating_point() and len(y) > 0
        outputs = int(y.max()) + 1 if labels else y.shape[-1] if y.ndim > 1 else 1
        outputs *= 2 if task == "regression" else 1
        return cls("given", task, Part(x, y), Part(x[:0], y[:0]), outputs, mean=None, std=None)

    @classmethod
    def of(cls, preparation: Preparation, test: Part) -> Data:
        """A test part alone, to be read as a run reads its own."""
        values = {name: getattr(preparation, name) for name in PREPARED}
        return cls(train=test.rows(slice(0, 0)), test=test, **values)

    @cached_property
    def preparation(self) -> Preparation:
        """What turns raw examples and targets into a network's, and is all that prediction needs."""
        values = {name: getattr(self, name) for name in PREPARED}
        if self.task == "classification":
            values["counts"] = tuple(self.class_counts.tolist())
        return Preparation(shape=self.shape, dtype=self.train.x.dtype, **values)

    @cached_property
    def ids(self) -> dict[str, Tensor]:
        """A number for every example of every part, by its content and target. Shape: int64 [n] each."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: example_ids(part, self.class_names) for name, part in parts.items() if part is not None}

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same examples, targets and class names, wherever they lie and however they are split."""
        return fingerprint_of(self.ids.values(), [self.task, *self.classes])

    @property
    def arrangement(self) -> str:
        """A fingerprint of the parts, each in its order: only runs on the same one can be compared."""
        words = [self.task, *self.classes, *(str(len(ids)) for ids in self.ids.values())]
        return fingerprint_of(self.ids.values(), words, ordered=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one raw example."""
        return tuple(self.train.x.shape[1:])

    @property
    def targets_count(self) -> int | None:
        """How many numbers a regression predicts; None where there are classes."""
        y = self.train.y
        return None if self.task == "classification" else y.shape[1] if y.ndim > 1 else 1

    def for_loss(self, loss: str | None) -> Data:
        """The data with as many outputs as networks need for this loss of a recipe: "mse" takes one per target."""
        return replace(self, outputs=self.targets_count) if loss == "mse" and self.targets_count else self

    @property
    def class_counts(self) -> Tensor:
        """How many training examples each class has, [classes]; of class probabilities, their sums."""
        y = self.train.y
        if self.counts:
            return torch.tensor(self.counts)
        if y.is_floating_point():
            return y.sum(0) if y.ndim > 1 else torch.zeros(self.outputs)  # a stream's targets are not known beforehand
        return y.flatten().bincount(minlength=self.outputs)

    @property
    def positive(self) -> int:
        """Of two classes the positive one: the rarer in training, or the second where both are equally many."""
        return self.preparation.positive

    def example(self, n: int = 2) -> Tensor:
        """A prepared batch of the first examples."""
        return self.prepare(self.train.x[:n])

    def describe(self) -> str:
        """What a file or a folder of the user's holds, for a person; nothing of other data."""
        held_out = f"\n  {len(self.validation)} examples of the training part are held out" if self.validation else ""
        if self.table is not None:
            return self.table.describe() + held_out
        if not (self.train.lazy and self.is_image and self.task == "classification"):
            return ""
        labels = torch.cat([part.y for part in (self.train, self.validation, self.test) if part is not None])
        counts = zip(self.class_names, labels.bincount(minlength=self.outputs).tolist(), strict=True)
        training = len(labels) - len(self.test)
        return (
            f"{self.name}: classification into {self.outputs} classes, {listed([f'{k} ({n})' for k, n in counts])}; "
            f"{training} images for training and {len(self.test)} for testing; each becomes "
            f"{' x '.join(map(str, self.shape))}: its shorter side is scaled to that, and the middle cut out.{held_out}"
        )

    def with_validation(self, share: float, seed: int) -> Data:
        """Hold out a part of the training set, stratified by class."""
        train, validation = split(self.train, share, seed, self.task)
        return replace(self, train=train, validation=validation)


def check_files(name: str, *parts: Part) -> None:
    """Refuse image files that cannot be decoded, naming all of them."""
    broken = [reason for part in parts if part.lazy for reason in part.x.unreadable()]
    if broken:
        count = f"{len(broken)} image{'s' * (len(broken) > 1)} of {name} that cannot be read"
        raise DataError(f"every image must be readable; got {count}: {listed(broken)}. Repair or remove the files")


def default_share(part: Part, task: str) -> float:
    """The share of a training part that a run holds out: a tenth, 1,000 examples at most, of few examples none."""
    share = min(0.1, LARGEST_VALIDATION / len(part)) if len(part) >= FEWEST_TO_SPLIT else 0.0
    counts = part.y.unique(return_counts=True)[1].tolist() if task == "classification" else [len(part)]
    return share if any(round(share * count) for count in counts) else 0.0


def split(part: Part, share: float, seed: int, task: str) -> tuple[Part, Part]:
    """Two parts of one, the second with about `share` of it; class by class where there are classes."""
    if not 0 < share < 1:
        raise DataError(f"a held-out share must satisfy 0 < share < 1; got {share}")
    generator = torch.Generator().manual_seed(seed)
    if task == "classification":
        groups = [torch.nonzero(part.y == label).flatten() for label in part.y.unique()]
    else:
        groups = [torch.arange(len(part))]
    held_out = torch.zeros(len(part), dtype=torch.bool)
    for rows in groups:
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        held_out[shuffled[: round(share * len(rows))]] = True
    if not held_out.any() or held_out.all():
        raise DataError(f"both parts of a split must have examples; got {len(part)} examples and a share of {share}")
    return part.rows(~held_out), part.rows(held_out)


def assembled(
    name: str,
    task: str,
    train: Part,
    test: Part,
    *,
    classes: tuple[str, ...] = (),
    target_names: tuple[str, ...] = (),
    table: Table | None = None,
    drawn: bool = False,
) -> Data:
    """Checked data with the mean and the spread of its training part."""
    for part, place in ((train, "training"), (test, "test")):
        _check(name, task, part, place)
    if train.x.shape[1:] != test.x.shape[1:] or train.x.dtype != test.x.dtype:
        (a, b), (c, d) = ((part.x.dtype, tuple(part.x.shape[1:])) for part in (train, test))
        raise DataError(
            f"examples of both parts of {name} must be alike; got {a} of shape {b} for training and {c} of shape {d} "
            "for testing"
        )
    outputs = 2 * (train.y.shape[1] if train.y.ndim > 1 else 1)
    if task == "classification":
        outputs = len(classes) or int(train.y.max()) + 1
        unseen = sorted({*test.y.unique().tolist()} - {*train.y.unique().tolist()})
        if unseen:
            words = ", ".join(classes[k] if k < len(classes) else str(k) for k in unseen)
            raise DataError(
                f"every class of {name} must occur in its training part; got {words} in the test part alone. "
                "Move some of its examples over, or leave it out"
            )
    more: dict[str, Any] = {"classes": classes, "target_names": target_names, "table": table, "drawn": drawn}
    return Data(name, task, train, test, outputs, **more, **standards(train, task, table))


def _check(name: str, task: str, part: Part, place: str) -> None:
    if len(part.x) != len(part.y):
        raise DataError(
            f"x and y of {name} must have the same length; got {len(part.x)} examples and {len(part.y)} targets in the "
            f"{place} part"
        )
    if len(part) == 0:
        raise DataError(f"both parts of {name} must have examples; got none in the {place} part")
    floating = [t for t in (part.x, part.y) if isinstance(t, (Tensor, Mapped)) and t.is_floating_point()]
    if not all(bool(torch.isfinite(piece).all()) for t in floating for piece in t.split(65536)):
        raise DataError(f"{name} must hold finite numbers; got NaN or infinite ones in the {place} part. Remove them")
    if task == "classification" and int(part.y.min()) < 0:
        raise DataError(f"the classes of {name} must be numbered 0, 1, 2, ...; got {int(part.y.min())}")
