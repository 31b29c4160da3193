"""Data as people have it, in the place of a data set by name:

    (x, y)                     tensors, numpy arrays, or a pandas frame and series; y holds classes 0, 1, ... or numbers
    Dataset                    of torch, map-style: dataset[i] is (x, y)
    DataLoader                 over one: its data set, collate_fn, batch_size and workers; the order is multum's own
    (training, validation)     two of the last two
    IterableDataset, or a DataLoader over one: batches as they come, as many an epoch as its length says

What is drawn at random inside a data set, and how exactly a run resumes on it, says rows.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    default_collate,
)

from ..errors import DataError
from .parts import Data, Part
from .rows import READ_AT_ONCE, Rows, Stream, examples_of, in_default_precision, kind_of

PAIRS = "(x, y) of tensors, numpy arrays or pandas objects; a torch Dataset or DataLoader; or multum.load_data(...)"


class Given(NamedTuple):
    """A user's data, and the batch size that came with it."""

    data: Data
    batch_size: int | None = None


def as_data(given: Any, task: str) -> Given:
    """Whatever a user trains or measures on; its test part is the training part where there is no other."""
    if isinstance(given, Data):
        return Given(given)
    if isinstance(given, (Dataset, DataLoader)):
        part, size = _part(given, task)
        return Given(_assembled(part, task), size)
    if isinstance(given, (tuple, list)) and len(given) == 2:
        if all(isinstance(each, (Dataset, DataLoader)) for each in given):
            (train, size), (validation, _) = (_part(each, task) for each in given)
            if isinstance(validation.x, Stream):
                raise DataError("a validation part must be map-style; got a stream. Give a Dataset with rows")
            return Given(replace(_assembled(train, task), validation=validation), size)
        if _is_frame(given[0]) and _is_frame(given[1]) and not given[0].index.equals(given[1].index):
            raise DataError("x and y must have one index; got others. Align them: y = y.loc[x.index]")
        x, y = as_tensor(given[0], "x"), _targets(as_tensor(given[1], "y"), task)
        return Given(_assembled(Part(x, y), task))
    raise DataError(f"data must be {PAIRS}; got {kind_of(given)}. {_hint(given)}")


def as_test_data(given: Any, task: str) -> Data:
    """Whatever a user measures on; a stream is read to its end, and kept."""
    if isinstance(given, (tuple, list)) and any(isinstance(each, (Dataset, DataLoader)) for each in given):
        raise DataError(f"data to measure on must be {PAIRS}; got {len(given)} data sets. Give one of them")
    data = as_data(given, task).data
    if not isinstance(data.test.x, Stream):
        return data
    x, y = (torch.cat(each) for each in zip(*data.test.x.epoch(), strict=True))
    return _assembled(Part(x, _targets(y, task)), task)


def as_tensor(values: Any, what: str = "x") -> Tensor:
    """A tensor as it is; an array or frame as a tensor, its numbers in torch's default precision.

    >>> as_tensor(np.array([[1.0, 2.0]]))
    tensor([[1., 2.]])
    """
    if isinstance(values, Tensor):
        return values
    if _is_frame(values):
        values = _numbers_of_frame(values, what)
    if not isinstance(values, np.ndarray):
        raise DataError(
            f"{what} must be a tensor, a numpy array or a pandas object; got {kind_of(values)}. {_hint(values)}"
        )
    if values.dtype.kind not in "biuf" or values.ndim == 0:
        raise DataError(
            f"{what} must be an array of numbers, a row per example; got {values.dtype} of shape {values.shape}. "
            f"Convert it, as in {what}.astype('float32'); classes are numbered 0, 1, 2, ..."
        )
    if values.dtype.kind == "u" and values.dtype.itemsize > 1:
        values = values.astype(np.int64)
    return in_default_precision(torch.from_numpy(np.ascontiguousarray(values.astype(values.dtype.newbyteorder("=")))))


def batches_of(given: Any, size: int | None = None) -> Iterator[Tensor]:
    """The examples of a Dataset or DataLoader without their targets, batch by batch, in the data set's order."""
    loader = _loader(given)
    if _is_stream(given):
        yield from (examples_of(batch) for batch in loader)
        return
    rows = Rows(loader, range(len(loader.dataset)))  # type: ignore[arg-type]
    size = size or loader.batch_size or READ_AT_ONCE
    yield from rows.batches(torch.arange(len(rows)).split(size), seed=0, epoch=0)


def _is_frame(values: Any) -> bool:
    """Whether this is a DataFrame or a Series, without importing pandas for it."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(values, (pandas.DataFrame, pandas.Series))


def _part(given: Any, task: str) -> tuple[Part, int | None]:
    """The part of a Dataset or DataLoader, and its batch size."""
    loader = _loader(given)
    size = loader.batch_size if isinstance(given, DataLoader) else None
    if _is_stream(given):
        return Part(Stream(loader), torch.empty(0)), size
    if len(loader.dataset) == 0:  # type: ignore[arg-type]
        raise DataError("a data set must have examples; got none")
    tensors = _tensors_inside(loader.dataset) if loader.collate_fn is default_collate else None
    if tensors is not None:
        if len(tensors) != 2:
            raise DataError(f"a TensorDataset must hold x and y; got {len(tensors)} tensors")
        return Part(tensors[0], _targets(tensors[1], task)), size
    rows = Rows(loader, range(len(loader.dataset)))  # type: ignore[arg-type]
    return Part(rows, _targets(rows.targets(), task)), size


def _loader(given: Any) -> DataLoader:
    if not isinstance(given, DataLoader):
        return DataLoader(given, batch_size=READ_AT_ONCE)
    if not _is_stream(given):
        sampler = given.batch_sampler if type(given.batch_sampler) not in (BatchSampler, NoneType) else given.sampler
        if type(sampler) not in (SequentialSampler, RandomSampler) or getattr(sampler, "replacement", False):
            raise DataError(
                f"a DataLoader must leave the order to multum; got one with a {type(sampler).__name__}. Give its rows "
                "alone, as torch.utils.data.Subset(dataset, rows), without a sampler"
            )
    return given


def _is_stream(given: Any) -> bool:
    return isinstance(given.dataset if isinstance(given, DataLoader) else given, IterableDataset)


def _tensors_inside(dataset: Any) -> tuple[Tensor, ...] | None:
    """The tensors of a TensorDataset, or of a subset of one: no row of them needs to be fetched."""
    if isinstance(dataset, TensorDataset):
        return dataset.tensors
    if type(dataset) is Subset and (whole := _tensors_inside(dataset.dataset)) is not None:
        index = torch.as_tensor(dataset.indices, dtype=torch.int64)
        return tuple(t[index] for t in whole)
    return None


def _targets(y: Tensor, task: str) -> Tensor:
    """Classes as int64, numbers in torch's default precision."""
    if task == "classification":
        if not y.is_floating_point():
            return y.long()
        if y.ndim == 1:
            whole = bool((y == y.round()).all())
            raise DataError(
                f"classes must be whole numbers 0, 1, 2, ...; got {y.dtype}"
                + (". Convert them, as in y.long() or y.astype(int)" if whole else ". Is it task='regression'?")
            )
        return y
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    return y if y.is_floating_point() else y.to(torch.get_default_dtype())


def _assembled(part: Part, task: str) -> Data:
    """Inputs as the network takes them: nothing is standardised."""
    if isinstance(part.x, Stream):
        return Data("given", task, part, part, outputs=0, mean=None, std=None)
    return replace(Data.given(part.x, part.y, task), test=part)


def _numbers_of_frame(frame: Any, what: str) -> np.ndarray:
    """A frame's columns as an array of numbers; refuses words, categories, dates and missing cells, with the fix."""
    import pandas as pd

    whole = frame.to_frame() if isinstance(frame, pd.Series) else frame
    numeric = {str(name): pd.api.types.is_numeric_dtype(kind) for name, kind in whole.dtypes.items()}
    words = [name for name, fine in numeric.items() if not fine]
    if words:
        fix = "Encode them, as pandas.get_dummies(frame) does; multum.load_data('csv:FILE#target=COLUMN') does it too"
        if isinstance(frame, pd.Series):
            fix = "Number the classes: y = y.astype('category').cat.codes"
        raise DataError(f"{what} must have columns of numbers; got {', '.join(words[:8])}, which are not. {fix}")
    missing = [str(name) for name in whole.columns if whole[name].isna().any()]
    if missing:
        raise DataError(
            f"{what} must have a number in every cell; got missing ones in {', '.join(missing[:8])}. Fill them, as "
            "frame.fillna(frame.median()) does, or drop the rows"
        )
    if all(isinstance(kind, np.dtype) for kind in whole.dtypes):
        return frame.to_numpy()
    floating = any(map(pd.api.types.is_float_dtype, whole.dtypes))  # pandas' own types, such as Int64
    return frame.to_numpy(dtype=np.float64 if floating else np.int64)


def _hint(value: Any) -> str:
    if isinstance(value, str):
        return f"A data set by name is multum.load_data({value!r})"
    if isinstance(value, (list, tuple)):
        return "Make an array of it: numpy.asarray(values)"
    if _is_frame(value):
        return "Give its target too: (frame.drop(columns='target'), frame['target'])"
    return "Make tensors of it"
