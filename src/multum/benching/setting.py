"""What all rows of a benchmark have in common: the network, its inputs and outputs, threads and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .. import models
from ..building import ensemble
from ..data.sources import load_data
from ..ensemble import Ensemble
from ..errors import ConfigError
from ..methods import Method
from ..models.registry import FOR_ROWS
from ..parsing import named
from ..runs.networks import default_model

IMAGE, ROW, CLASSES = (3, 32, 32), (64,), 10  # of examples, where nothing else is asked for


@dataclass(frozen=True)
class Setting:
    """A network by name and the examples that it is fed; plain values, so that another process builds the same."""

    model: str
    shape: tuple[int, ...]  # of one example
    outputs: int = CLASSES
    task: str = "classification"
    targets: int | None = None  # of a regression
    numbers: tuple[int, ...] | None = None  # columns of a table that are no zeros and ones
    seed: int = 0

    def network(self) -> nn.Module:
        """One network, built under the seed."""
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return models.builder(self.model, self.shape, self.outputs, numbers=self.numbers)()

    def ensemble(self, method: Method) -> Ensemble:
        """An ensemble of that network; one whose members come with training has one."""
        targets, example = self.targets, self.examples(2)
        return ensemble(self.network(), method, example=example, task=self.task, targets=targets, seed=self.seed)

    def examples(self, batch: int) -> Tensor:
        """A batch of noise."""
        return torch.randn(batch, *self.shape, generator=torch.Generator().manual_seed(self.seed))

    def answers(self, batch: int) -> Tensor:
        """Labels or targets of a batch."""
        generator = torch.Generator().manual_seed(self.seed)
        if self.task == "classification":
            return torch.randint(self.outputs, (batch,), generator=generator)
        several = () if self.targets in (None, 1) else (self.targets,)
        return torch.randn(batch, *several, generator=generator)

    @property
    def criterion(self) -> str:
        """The loss, by the name that `multum.loss` has for it."""
        if self.task == "classification":
            return "cross_entropy"
        return "gaussian_nll" if self.outputs == 2 * (self.targets or 1) else "mse"


def setting_of(model: str | None, shape: Sequence[int] | None, data: str | None, seed: int = 0) -> Setting:
    """The network and its examples, by names: those of the data where there are any, else of the shape.

    >>> setting_of("small-cnn", (1, 8, 8), None).shape, setting_of("mlp", None, None).shape
    ((1, 8, 8), (64,))
    >>> setting_of(None, None, "digits").model
    'cnn'
    """
    if data is None:
        if model is None:
            raise ConfigError("a benchmark must have a network; got none. Use for example --model resnet18")
        fallback = ROW if models.own_name(model) is None and named(model)[0] in FOR_ROWS else IMAGE
        return Setting(model, tuple(shape or fallback), seed=seed)
    if shape is not None:
        raise ConfigError(f"examples must have one shape; got --shape and --data {data}. Leave one out")
    source = load_data(data)
    numbers = None if source.numbers is None else tuple(source.numbers)
    fields: dict[str, Any] = {"task": source.task, "targets": source.targets_count, "numbers": numbers, "seed": seed}
    return Setting(model or default_model(source), tuple(source.shape), source.outputs, **fields)


def listed(batch: str, shape: str | None, mode: str) -> dict[str, Any]:
    """Batch sizes, shape and modes as the command line writes them.

    >>> listed("1,16", "3x32x32", "inference")
    {'batch': [1, 16], 'shape': [3, 32, 32], 'mode': ['inference']}
    """
    sizes = None if shape is None else _wholes("shape", shape, "x", "3x32x32")
    modes = [name.strip() for name in mode.split(",") if name.strip()]
    return {"batch": _wholes("batch", batch, ",", "1,16"), "shape": sizes, "mode": modes}


def _wholes(name: str, text: str, between: str, example: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(between)]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise ConfigError(f"{name} must be whole numbers >= 1, as {example}; got {text!r}")
    return sizes
