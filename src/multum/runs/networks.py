"""Networks by name, with the inputs and outputs of a data set."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from .. import models
from ..data.preparation import Preparation
from ..data.sources import Data
from ..training.batches import stream

__all__ = ["builder_for", "default_model", "model_for"]


def default_model(data: Data | Preparation) -> str:
    """The name of a small model that suits the data."""
    return "small-cnn" if data.is_image else "mlp"


def builder_for(text: str | None, data: Data | Preparation) -> Callable[[], nn.Module]:
    """What builds a model by name, with the inputs and outputs of the data; None: one that suits the data.

    Any model takes `thin`, a share of its width: `resnet18:thin=0.5`.

    >>> from multum.data.sources import load_data
    >>> builder_for("mlp:hidden=8+8", load_data("diabetes"))().hidden[0].in_features
    10
    >>> builder_for("small-cnn:thin=0.5", load_data("digits"))().conv1.out_channels
    8
    """
    return models.builder(text or default_model(data), data.shape, data.outputs)


def model_for(text: str | None, data: Data, seed: int) -> nn.Module:
    """A model by name, with the inputs and outputs of the data, initialised under the seed.

    >>> from multum.data.sources import load_data
    >>> model_for("small-cnn", load_data("digits"), seed=0).conv1.in_channels
    1
    """
    with torch.random.fork_rng():
        torch.manual_seed(stream(seed, "model").initial_seed())
        return builder_for(text, data)()
