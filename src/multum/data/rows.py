"""Examples of torch's data sets in the place of a tensor: fetched by row, or batches as they come.

Whatever a map-style data set draws at random (from torch, numpy or `random`; not from a generator of its own) depends
on the seed, the epoch and the row alone: the same with any number of workers, and on resume to the bit. A stream has no
rows: an interrupted epoch of it starts again, with what the stream gives then.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..errors import DataError, first_line
from .lazy import Lazy

LOOKED_AT = 8  # rows on which `dataset.targets` must be what the data set itself gives
READ_AT_ONCE = 256  # rows, where a loader does not say


class Rows(Lazy):
    """Examples of a map-style data set in the place of a tensor: `rows[index]` fetches them. Shape: [n, ...]."""

    def __init__(self, loader: DataLoader, index: Sequence[int], like: Tensor | None = None):
        self.loader, self.index = loader, index
        self.like = examples_of(self._collated([index[0]]))[0] if like is None else like  # an example
        self.dtype = self.like.dtype

    @property
    def shape(self) -> torch.Size:  # type: ignore[override]
        return torch.Size((len(self.index), *self.like.shape))

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: Any) -> Tensor:
        chosen = self._chosen(rows)
        return examples_of(self._collated(chosen)) if chosen else self.like[None][:0]

    def take(self, rows: Any) -> Rows:
        """These rows, still not fetched."""
        return Rows(self.loader, self._chosen(rows), self.like)

    def batches(self, index: Iterable[Tensor], seed: int, epoch: int) -> Iterator[Tensor]:
        """The examples of each of these lists of rows, fetched ahead by the loader's workers."""
        return (examples_of(batch) for batch in self.pairs(index, seed, epoch))

    def pairs(self, index: Iterable[Tensor], seed: int, epoch: int) -> Iterator[Any]:
        """The same with whatever else the data set gives."""
        theirs = self.loader
        options: dict[str, Any] = {}
        if theirs.num_workers:
            options = {
                "prefetch_factor": theirs.prefetch_factor,
                "multiprocessing_context": theirs.multiprocessing_context,
            }
        loader = DataLoader(
            _Drawn(theirs.dataset, seed, epoch),
            batch_sampler=[self._chosen(rows) for rows in index],
            collate_fn=theirs.collate_fn,
            num_workers=theirs.num_workers,
            worker_init_fn=theirs.worker_init_fn,
            timeout=theirs.timeout,
            generator=torch.Generator(),  # else torch's own would be drawn from
            **options,
        )
        batches = iter(loader)
        while True:
            with _explained():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def targets(self) -> Tensor:
        """The targets: those that the data set lists, where they are what it gives; else all are read once."""
        dataset: Any = self.loader.dataset
        few = torch.linspace(0, len(self) - 1, min(len(self), LOOKED_AT)).long()
        given = _pair(self._collated(self._chosen(few)))[1]
        for name in ("targets", "labels"):
            listed = getattr(dataset, name, None)
            if isinstance(listed, (list, tuple, np.ndarray, Tensor)) and len(listed) == len(self):
                try:
                    values = torch.as_tensor(np.asarray(listed))
                except (TypeError, ValueError):
                    continue
                if values.shape[1:] == given.shape[1:] and torch.equal(values[few].to(given.dtype), given):
                    return values
        slices = torch.arange(len(self)).split(self.loader.batch_size or READ_AT_ONCE)
        return torch.cat([_pair(batch)[1] for batch in self.pairs(slices, seed=0, epoch=0)])

    def _chosen(self, rows: Any) -> list[int]:
        return [self.index[i] for i in torch.arange(len(self.index))[rows].flatten().tolist()]

    def _collated(self, rows: Sequence[int]) -> Any:
        with _explained():
            return self.loader.collate_fn(_Drawn(self.loader.dataset, 0, 0).__getitems__(rows))


class Stream(Lazy):
    """Batches of a loader as they come, in the place of a tensor. Shape: [n, ...], n by the loader's own length."""

    def __init__(self, loader: DataLoader):
        self.loader = loader
        try:
            self.steps = len(loader)
        except TypeError as error:
            raise DataError(
                "a stream must say how many batches an epoch has; got an IterableDataset without a length. "
                "Give it a method __len__ with its number of examples"
            ) from error
        with _explained():
            first, _ = _pair(next(iter(loader)))
        self.dtype, self.shape = first.dtype, torch.Size((self.steps * len(first), *first.shape[1:]))

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of one epoch: inputs and targets."""
        seen = 0
        for batch in islice(self.loader, self.steps):
            yield _pair(batch)
            seen += 1
        if seen < self.steps:
            raise DataError(
                f"an epoch must have the {self.steps} batches that len(loader) says; got {seen} of a stream"
            )


class _Drawn(Dataset):
    """A data set whose random draws are those of (seed, epoch, row)."""

    def __init__(self, dataset: Any, seed: int, epoch: int):
        self.dataset, self.seed, self.epoch = dataset, seed, epoch

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, rows: Sequence[int]) -> list[Any]:
        with _generators_kept():
            return [self._item(row) for row in rows]

    def _item(self, row: int) -> Any:
        digest = sha256(f"{self.seed}/{self.epoch}/{row}".encode()).digest()
        seed = int.from_bytes(digest[:4], "little")
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        return self.dataset[row]


@contextmanager
def _generators_kept() -> Iterator[None]:
    """Training draws from the same generators, and must not notice."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


@contextmanager
def _explained() -> Iterator[None]:
    """What goes wrong while a user's data set is read, in one line."""
    try:
        yield
    except DataError:
        raise
    except TypeError as error:
        if "default_collate" not in str(error):
            raise
        raise DataError(
            f"a data set must give tensors, arrays or numbers; got others ({first_line(error)}). Transform them, as "
            "torchvision.transforms.ToTensor does, or give a DataLoader with a collate_fn"
        ) from error


def _pair(batch: Any) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a collated batch."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not all(isinstance(t, Tensor) for t in batch):
        raise DataError(
            f"a data set must give pairs (x, y); got {_described(batch)}. Give a DataLoader whose collate_fn returns "
            "two tensors, inputs and targets"
        )
    return in_default_precision(batch[0]), batch[1]


def examples_of(batch: Any) -> Tensor:
    """The inputs of a collated batch, with or without targets."""
    x = batch[0] if isinstance(batch, (tuple, list)) and 1 <= len(batch) <= 2 else batch
    if not isinstance(x, Tensor):
        raise DataError(
            f"a data set must give examples as tensors, alone or as (x, y); got {_described(batch)}. Give a DataLoader "
            "whose collate_fn does"
        )
    return in_default_precision(x)


def in_default_precision(t: Tensor) -> Tensor:
    return t.to(torch.get_default_dtype()) if t.dtype == torch.float64 else t


def kind_of(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _described(batch: Any) -> str:
    if isinstance(batch, (tuple, list)):
        return f"a {type(batch).__name__} of {len(batch)}: {', '.join(kind_of(each) for each in batch[:4])}"
    return f"a dict with {', '.join(map(str, list(batch)[:4]))}" if isinstance(batch, dict) else kind_of(batch)
