"""Networks by name, with the inputs and outputs of a data set."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from torch import nn

from .. import models
from ..data.preparation import Preparation
from ..data.sources import Data
from ..errors import FileError
from ..models.sources import NETWORK, read_text
from .defaults import default_model

log = logging.getLogger("multum")


def full_name(model: str | Callable[..., nn.Module] | None, data: Data | Preparation, folder: Path) -> str:
    """The name that is recorded in a folder: one that suits the data for None, with a hash for one's own network.

    A name that has its hash is one that a comparison has recorded: its text is in its folder, or in the cell's.
    """
    if isinstance(model, str) and (own := models.own_name(model)) and own.digest:
        _recall_network(model, folder) or _recall_network(model, folder.parent)
    return default_model(data) if model is None else models.full_name(model)


def keep_network(model: str, folder: Path) -> None:
    """Write the text of one's own network into a folder, so that the folder stands alone."""
    own = models.own_name(model)
    if own is not None and own.digest is not None:
        models.keep(own.digest, folder)


def _recall_network(model: str, folder: Path) -> bool:
    """Whether a folder keeps the text of this network; it then can be built."""
    own = models.own_name(model)
    source = None if own is None else models.recall(folder)
    return own is not None and source is not None and source.digest == own.digest


def kept_builder(model: str, data: Data | Preparation, folder: Path) -> Callable[[], nn.Module] | None:
    """What builds the network of a run again; None where its saved model names it."""
    own = models.own_name(model)
    if own is None:
        return builder_for(model, data) if models.is_resized(model) else None
    if not _recall_network(model, folder):
        there = "another text" if (folder / NETWORK).is_file() else "none"
        raise FileError(
            f"{folder} must keep the text of {own.place} that was trained, as {NETWORK} with the hash {own.digest}; "
            f"got {there}. Put it back"
        )
    return builder_for(model, data)


def announce_network(model: str, folder: Path) -> None:
    """Say that a command runs the text that a run folder keeps, and whether its file has changed since."""
    if not _recall_network(model, folder):
        return
    source = models.recall(folder)
    assert source is not None
    origins = [Path(place) / source.place for place in source.folders[1:]]
    changed = [place for place in origins if place.is_file() and read_text(place) != source.text]
    since = f"; {changed[0]} has changed since, and is not used" if changed else ""
    log.warning("running %s, the network of this run%s", folder / NETWORK, since)


def builder_for(text: str | None, data: Data | Preparation) -> Callable[[], nn.Module]:
    """What builds a model by name, with the inputs and outputs of the data; None: one that suits the data.

    Any model takes `thin`, a share of its width, or `wide`, a multiple: `resnet18:thin=0.5`.

    >>> from multum.data.sources import load_data
    >>> builder_for("mlp:hidden=8+8", load_data("diabetes"))().hidden[0].in_features
    10
    >>> builder_for("small-cnn:thin=0.5", load_data("digits"))().conv1.out_channels
    8
    """
    return models.builder(text or default_model(data), data.shape, data.outputs, numbers=data.numbers)
