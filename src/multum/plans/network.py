"""The network that a plan is for: one's own with an example, or a name with the shape of its examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .. import models
from ..checks import whole
from ..data.sources import load_data
from ..errors import ConfigError
from ..metrics.speed import repeated
from ..models.registry import FOR_ROWS
from ..runs.networks import builder_for
from .counting import Base

SHAPE, CLASSES = (3, 32, 32), 10  # of the images that most papers measure on


def base_of(
    network: nn.Module | str,
    example: Any,
    data: str | None,
    shape: Sequence[int] | str | None,
    classes: int | None,
    task: str,
    targets: int | None,
    batch_size: int,
) -> tuple[Base, list[str]]:
    """The network and its example batch of this size; and what was taken for granted."""
    whole("batch_size", batch_size)
    notes: list[str] = []
    if isinstance(network, nn.Module):
        if example is None:
            raise ConfigError("a network must come with an example batch; got none. Use plan(net, example=x)")
        built = network
    elif data is not None:
        source = load_data(data)
        built, example = _built(builder_for(network, source)), source.example()
        task, targets = source.task, source.targets_count
    elif example is not None:
        built = _built(models.builder(network, example.shape[1:], classes or CLASSES))
    else:
        if shape is None:
            if network.partition(":")[0] in FOR_ROWS:
                raise ConfigError(f"{network} must have the shape of its rows; got none. Use --data, or --shape 20")
            notes.append(
                f"examples are {'x'.join(map(str, SHAPE))} in {classes or CLASSES} classes: say --data or --shape"
            )
        sizes = SHAPE if shape is None else _sizes(shape)
        built, example = _built(models.builder(network, sizes, classes or CLASSES)), torch.zeros(1, *sizes)
    device = next((p.device for p in built.parameters()), torch.device("cpu"))
    return Base(built, repeated(example, batch_size, device), task, targets), notes


def model_name(network: nn.Module | str) -> str | None:
    """The name of a network that has one."""
    recipe = getattr(network, "recipe", None)
    return network if isinstance(network, str) else recipe["name"] if isinstance(recipe, dict) else None


def _built(build: Any) -> nn.Module:
    with torch.random.fork_rng():
        return build()


def _sizes(shape: Sequence[int] | str) -> tuple[int, ...]:
    """
    >>> _sizes("3x32x32"), _sizes((20,))
    ((3, 32, 32), (20,))
    """
    parts = shape.lower().split("x") if isinstance(shape, str) else list(shape)
    try:
        return tuple(whole("shape", int(part)) for part in parts)
    except ValueError:
        raise ConfigError(f"`shape` must be that of one example, such as 3x32x32 or 20; got {shape!r}") from None
