"""What prediction needs of a data set: how raw examples become a network's input, and outputs become answers.

It is taken from the training part once and kept with the run, so that answers never depend on what became of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .scaling import Scaling

if TYPE_CHECKING:
    from .tables import Table

__all__ = ["Preparation"]


@dataclass(frozen=True, eq=False)
class Preparation:
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
    def numbers(self) -> tuple[int, ...] | None:
        """The positions of a table's columns that are no zeros and ones; None where that is not known."""
        if self.table is None:
            return None
        return tuple(place for place, indicator in enumerate(self.table.indicators) if not indicator)

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    @property
    def class_names(self) -> tuple[str, ...]:
        """A name for every class: its own, else its number."""
        return self.classes or tuple(str(k) for k in range(self.outputs))

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

    @property
    def named_targets(self) -> tuple[str, ...]:
        """A name for every target: its own, else its number."""
        return self.target_names or tuple(str(k) for k in range(self.targets_count or 0))

    def example(self, n: int = 2) -> Tensor:
        """A prepared batch of the right shape, of zeros."""
        return self.prepare(torch.zeros(n, *self.shape, dtype=self.dtype))

    def prepare(self, x: Tensor) -> Tensor:
        """Raw examples as a network's input: float32, standardised. Shape: kept, any leading dimensions."""
        if self.mean is None or self.std is None:
            return x
        mean, std = self.mean.to(x.device), self.std.to(x.device)
        x = x if self.scaling is None else self.scaling(x)
        x = x.float() / 255 if x.dtype == torch.uint8 else x.to(mean.dtype)
        return ((x - mean) / std).float()

    def targets(self, y: Tensor) -> Tensor:
        """Raw targets as the loss takes them."""
        if self.task == "classification" or self.mean is None:
            return y
        mean, std = self.target_mean, self.target_std
        return (y - mean).float() / (std.float() if isinstance(std, Tensor) else std)

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
