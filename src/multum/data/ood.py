"""OOD data: classes held out of training, and other data sets made to fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import DataError
from .corruptions.filters import luminance
from .names import with_selection
from .parts import Data
from .sources import load_examples

__all__ = ["default_ood", "ood_sets", "resized_like"]

FEWEST_CLASSES = 4
_AT_ONCE = 512


def default_ood(name: str, data: Data) -> tuple[str, tuple[str, ...]]:
    """Names for data without its last classes (a fifth of them, one at least) and for the OOD set that these make.

    With too few classes, or none, the data stays whole and there is no OOD set.

    >>> from multum.data.sources import load_data
    >>> default_ood("digits", load_data("digits")), default_ood("diabetes", load_data("diabetes"))
    (('digits#hold_out=8+9', ('digits#only=8+9',)), ('diabetes', ()))
    """
    if data.task != "classification" or data.outputs < FEWEST_CLASSES:
        return name, ()
    held_out = data.class_names[-max(1, round(data.outputs / 5)) :]
    return with_selection(name, "hold_out", held_out), (with_selection(name, "only", held_out),)


def ood_sets(names: Sequence[str], like: Data) -> dict[str, Any]:
    """The test examples of data sets by name, in the shape of the known ones."""
    return {name: resized_like(load_examples(name), like) for name in names}


def resized_like(x: Any, like: Data) -> Tensor:
    """OOD examples in the shape of the known ones; unchanged where the shape is the same.

    Images are scaled (bilinear, with antialiasing) until they cover the known height and width, and the middle is cut
    out; a grey image becomes three equal channels, and a coloured one grey as 0.299 red + 0.587 green + 0.114 blue.
    uint8 stays uint8. Tables are never changed.

    Shape: [n, channels, height, width] of any size in, of the known size out.
    """
    shape = like.train.x.shape[1:]
    if x.shape[1:] == shape:
        return x
    if x.ndim != 4 or len(shape) != 3 or {x.shape[1], shape[0]} - {1, 3}:
        raise DataError(
            f"OOD examples must be images of 1 or 3 channels, or have the shape {tuple(shape)} of {like.name}; got "
            f"{tuple(x.shape[1:])}. Choose another OOD set"
        )
    return torch.cat([_resized(x[start : start + _AT_ONCE], shape) for start in range(0, len(x), _AT_ONCE)])


def _resized(x: Tensor, shape: torch.Size) -> Tensor:
    images = luminance(x.float()) if x.shape[1] > shape[0] else x.float()
    height, width = shape[1:]
    scale = max(height / x.shape[2], width / x.shape[3])
    size = (max(height, round(x.shape[2] * scale)), max(width, round(x.shape[3] * scale)))
    if size != tuple(x.shape[2:]):
        images = F.interpolate(images, size, mode="bilinear", antialias=True)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    images = images[:, :, top : top + height, left : left + width]
    if x.dtype == torch.uint8:
        images = images.round().clamp(0, 255).to(torch.uint8)
    return images.expand(-1, shape[0], -1, -1).contiguous()
