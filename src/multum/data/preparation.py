"""What prediction needs of a data set: how raw examples become a network's input, and outputs become answers.

It is taken from the training part once and kept with the run, so that answers never depend on what became of the data.

Numbers of a table become normal ones, by their quantiles: no value is far out, however long a column's tail is.

    prepared = Phi^-1(F(x)),    F the distribution function of the column in the training part

That is scikit-learn's `QuantileTransformer` with a normal outcome, fitted with as many quantiles as TabM's authors
take; what it computes is computed here on tensors, so that a batch on any device is scaled as a table is. One thing
differs: a value that many rows share, such as 0, gets the middle of its levels also where it is the least or the
largest, as with the noise that others add for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .parts import Part
    from .tables import Table


MOST_QUANTILES, FEWEST_QUANTILES = 1000, 10
ROWS_PER_QUANTILE = 30
MOST_ROWS = 200_000  # that stand for all where there are more
MOST_IMAGES = 1024  # of a folder, whose mean and spread stand for all
EDGE = 1e-7  # nearest that a share comes to 0 or 1, as in scikit-learn: 5.2 standard deviations


@dataclass(frozen=True, eq=False)
class Scaling:
    """Which columns are scaled, and their quantiles. Shape: `quantiles` [columns, levels], float64, ascending."""

    columns: tuple[int, ...]
    quantiles: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Raw rows with these columns scaled, the others as they are. Shape: [..., all columns], kept."""
        quantiles = self.quantiles.to(x.device)
        where = torch.tensor(self.columns, device=x.device)
        values = x.index_select(-1, where).double().movedim(-1, 0)
        flat = values.reshape(len(self.columns), -1).contiguous()
        # A value that stands for many quantiles gets the middle of their levels: from below and from above.
        share = (_share(quantiles, flat) + 1 - _share(-quantiles.flip(1), -flat)) / 2
        normal = torch.special.ndtri(share.clamp(EDGE, 1 - EDGE)).view(values.shape).movedim(0, -1)
        return x.double().index_copy(-1, where, normal)

    def as_dict(self) -> dict[str, Any]:
        """In plain values, to the bit."""
        return {"columns": list(self.columns), "quantiles": self.quantiles.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scaling:
        """What `as_dict` gave."""
        return cls(tuple(values["columns"]), torch.tensor(values["quantiles"], dtype=torch.float64))


def _share(quantiles: Tensor, x: Tensor) -> Tensor:
    """The level of each value, linear between quantiles. Shape: [columns, levels], [columns, n] -> [columns, n]."""
    levels = quantiles.shape[1]
    right = torch.searchsorted(quantiles, x, right=True).clamp(1, levels - 1)
    low, high = quantiles.gather(1, right - 1), quantiles.gather(1, right)
    part = torch.where(high > low, (x - low) / (high - low), (x >= high).double()).clamp(0, 1)
    return (right - 1 + part) / (levels - 1)


def fit_scaling(x: Any, numbers: list[int]) -> Scaling | None:
    """The quantiles of a training part's numbers; None where there are none, or too few rows to tell."""
    rows = len(x)
    if not numbers or rows < FEWEST_QUANTILES * ROWS_PER_QUANTILE:
        return None
    from sklearn.preprocessing import QuantileTransformer

    chosen = torch.arange(rows)
    if rows > MOST_ROWS:
        chosen = torch.randperm(rows, generator=torch.Generator().manual_seed(0))[:MOST_ROWS].sort().values
    values = x[chosen][:, numbers].double().numpy()
    count = max(FEWEST_QUANTILES, min(len(values) // ROWS_PER_QUANTILE, MOST_QUANTILES))
    fitted = QuantileTransformer(n_quantiles=count, output_distribution="normal", subsample=None).fit(values)
    return Scaling(tuple(numbers), torch.from_numpy(fitted.quantiles_.T.copy()).contiguous())


def standards(train: Part, task: str, table: Table | None = None) -> dict[str, Any]:
    """Mean and spread of each channel or column, as `Data.prepare` takes them, and of a regression's targets.

    Numbers of a table are scaled by their quantiles where it has rows enough to tell them.
    """
    x = train.x
    if train.lazy and x.sampled:
        x = x[torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:MOST_IMAGES]]
    mean, std = _moments(x)
    scaling = None
    if table is None:
        mean, std = mean.float(), std.float()
    else:
        scaling = fit_scaling(x, [place for place, indicator in enumerate(table.indicators) if not indicator])
        # Columns of zeros and ones stay: a rare category would become a huge number.
        stays = torch.tensor(table.indicators) if scaling is None else torch.ones_like(mean, dtype=torch.bool)
        mean, std = torch.where(stays, 0.0, mean), torch.where(stays, 1.0, std)
    std = torch.where(std > 0, std, torch.ones_like(std))  # a constant column carries nothing and stays 0
    inputs = {"mean": mean, "std": std, "scaling": scaling}
    if task == "classification":
        return inputs
    if train.y.ndim > 1:
        spreads = train.y.std(0) if len(train) > 1 else torch.zeros_like(train.y[0])
        target_std = torch.where(spreads > 0, spreads, torch.ones_like(spreads))
        return {**inputs, "target_mean": train.y.mean(0), "target_std": target_std}
    spread = float(train.y.std()) if len(train) > 1 else 0.0
    return {**inputs, "target_mean": float(train.y.mean()), "target_std": spread if spread > 0 else 1.0}


def _moments(x: Any, rows: int = 4096) -> tuple[Tensor, Tensor]:
    """In float64, piece by piece: it takes eight times the bytes of an image."""
    dims = (0, 2, 3) if x.ndim == 4 else (0,)
    scale = 255.0 if x.dtype == torch.uint8 else 1.0
    count = x.shape[0] * (x.shape[2] * x.shape[3] if x.ndim == 4 else 1)
    mean = sum(part.double().sum(dims, keepdim=True) for part in x.split(rows)) / count
    square = sum((part.double() - mean).square().sum(dims, keepdim=True) for part in x.split(rows))
    std = (square / max(count - 1, 1)).sqrt()
    return (mean / scale)[0], (std / scale)[0]


class Reading:
    """What data and its preparation both know: how examples are read, and what classes and targets are called."""

    @property
    def numbers(self: Any) -> tuple[int, ...] | None:
        """The positions of a table's columns that are no zeros and ones; None where that is not known."""
        if self.table is None:
            return None
        return tuple(place for place, indicator in enumerate(self.table.indicators) if not indicator)

    @property
    def is_image(self: Any) -> bool:
        return len(self.shape) == 3

    @property
    def class_names(self: Any) -> tuple[str, ...]:
        """A name for every class: its own, else its number."""
        return self.classes or tuple(str(k) for k in range(self.outputs))

    @property
    def named_targets(self: Any) -> tuple[str, ...]:
        """A name for every target: its own, else its number."""
        return self.target_names or tuple(str(k) for k in range(self.targets_count or 0))

    def prepare(self: Any, x: Tensor) -> Tensor:
        """Raw examples as a network's input: float32, standardised. Shape: kept, any leading dimensions."""
        if self.mean is None or self.std is None:
            return x
        mean, std = self.mean.to(x.device), self.std.to(x.device)
        x = x if self.scaling is None else self.scaling(x)
        x = x.float() / 255 if x.dtype == torch.uint8 else x.to(mean.dtype)
        return ((x - mean) / std).float()

    def targets(self: Any, y: Tensor) -> Tensor:
        """Raw targets as the loss takes them."""
        if self.task == "classification" or self.mean is None:
            return y
        mean, std = self.target_mean, self.target_std
        return (y - mean).float() / (std.float() if isinstance(std, Tensor) else std)


@dataclass(frozen=True, eq=False)
class Preparation(Reading):
    """What standardises examples and targets, and what classes are called.

    Shape: `mean` and `std` broadcast against one example; `outputs` is the number of classes, or 2 (mean, raw variance)
    for regression, whose targets are standardised by `target_mean` and `target_std`, a number or one per target.
    """

    name: str
    task: str
    outputs: int
    shape: tuple[int, ...]  # of one raw example
    dtype: torch.dtype  # of raw examples; images of bytes are scaled to 0..1 first
    mean: Tensor | None  # None: examples are a network's input as they are
    std: Tensor | None
    target_mean: Any = 0.0  # a number, or one per target as a list or tensor
    target_std: Any = 1.0
    target_names: tuple[str, ...] = ()  # of several targets, where they have some
    classes: tuple[str, ...] = ()  # names of the classes, where they have some
    counts: tuple[float, ...] = ()  # training examples of each class
    table: Table | None = None  # how rows of a csv or parquet file become examples
    scaling: Scaling | None = None  # of numbers by their quantiles, before they are standardised

    def __post_init__(self) -> None:
        for name in ("target_mean", "target_std"):
            if isinstance(getattr(self, name), (list, tuple)):
                object.__setattr__(self, name, torch.tensor(getattr(self, name), dtype=torch.float64))

    @property
    def positive(self) -> int:
        """Of two classes the positive one: the rarer in training, or the second where both are equally many."""
        return 0 if len(self.counts) == 2 and self.counts[0] < self.counts[1] else 1

    @property
    def targets_count(self) -> int | None:
        """How many numbers a regression predicts; None where there are classes."""
        if self.task == "classification":
            return None
        return self.target_mean.numel() if isinstance(self.target_mean, Tensor) else 1

    def example(self, n: int = 2) -> Tensor:
        """A prepared batch of the right shape, of zeros."""
        return self.prepare(torch.zeros(n, *self.shape, dtype=self.dtype))

    def as_dict(self) -> dict[str, Any]:
        """In plain values, to the bit."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preparation:
        """What `as_dict` gave."""
        read = {name: _read(value) for name, value in values.items()}
        read |= {name: tuple(read[name]) for name in ("shape", "target_names", "classes", "counts")}
        if read["table"] is not None:
            from .tables import Table

            read["table"] = Table.from_dict(read["table"])
        scaling = read.get("scaling")  # absent in folders of before there was one
        read["scaling"] = None if scaling is None else Scaling.from_dict(scaling)
        return cls(**{**read, "dtype": getattr(torch, read["dtype"])})


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return {"dtype": _plain(value.dtype), "shape": list(value.shape), "values": value.flatten().tolist()}
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if hasattr(value, "as_dict"):
        return value.as_dict()
    return list(value) if isinstance(value, tuple) else value


def _read(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"dtype", "shape", "values"}:
        return torch.tensor(value["values"], dtype=getattr(torch, value["dtype"])).view(value["shape"])
    return value
