"""Foreign items to tell from known ones: classes held out of training, and other sets made to fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import DataError
from .names import with_selection
from .parts import Data, selected
from .sources import load_items

__all__ = ["default_hold_out", "fitted", "foreign_sets", "grey", "hold_out_classes"]

FEWEST_CLASSES = 4
_LUMA = (0.299, 0.587, 0.114)  # of red, green and blue in grey, ITU-R 601
_AT_ONCE = 512


def default_hold_out(name: str, data: Data) -> tuple[str, tuple[str, ...]]:
    """Names for data without its last classes and for the foreign sets they make, as `hold_out_classes` chooses them.

    With too few classes, or none, the data stays whole and there is no foreign set.

    >>> from multum.data.sources import load_data
    >>> default_hold_out("digits", load_data("digits")), default_hold_out("diabetes", load_data("diabetes"))
    (('digits#hold_out=8+9', ('digits#only=8+9',)), ('diabetes', ()))
    """
    if data.task != "classification" or data.outputs < FEWEST_CLASSES:
        return name, ()
    held = [data.class_names[k] for k in _held_out(data, None, 0)]
    return with_selection(name, "hold_out", held), (with_selection(name, "only", held),)


def foreign_sets(names: Sequence[str], like: Data) -> dict[str, Any]:
    """The test items of data sets by name, in the shape of the known ones."""
    return {name: fitted(load_items(name), like) for name in names}


def hold_out_classes(data: Data, count: int | None = None, seed: int = 0) -> tuple[Data, Any, tuple[str, ...]]:
    """Data without some of its classes, the test items of those as a foreign set, and their names.

    Held out are the last `count` classes (default: a fifth of them, rounded, one at least) under seed 0, the `count`
    before those under seed 1, and so on, going round. None of their items stays in any part; labels are numbered anew,
    and mean and spread are those of what stays. (Which categories a table has, and the numbers its missing cells take,
    stay as they are.) The names of the results load the same again:

    >>> from multum.data.sources import load_data, load_items
    >>> known, foreign, names = hold_out_classes(load_data("digits"))
    >>> known.name, known.outputs, names
    ('digits#hold_out=8+9', 8, ('8', '9'))
    >>> torch.equal(foreign, load_items("digits#only=8+9"))
    True
    """
    held = _held_out(data, count, seed)
    foreign = data.test.rows(torch.isin(data.test.y, torch.tensor(held))).x
    names = tuple(data.class_names[k] for k in held)
    return selected(data, "hold_out", names), foreign, names


def _held_out(data: Data, count: int | None, seed: int) -> list[int]:
    if data.task != "classification" or data.outputs < FEWEST_CLASSES:
        what = f"has {data.outputs} classes" if data.task == "classification" else "is regression"
        raise DataError(
            f"classes are held out of {FEWEST_CLASSES} at least, however: {data.name} {what}; name a foreign set"
        )
    count = max(1, round(data.outputs / 5)) if count is None else count
    if not 1 <= count <= data.outputs - 2:
        raise DataError(f"two classes stay and one is held out at least, however: {count} of {data.outputs}")
    last = data.outputs - 1 - seed * count
    return sorted((last - i) % data.outputs for i in range(count))


def fitted(x: Any, like: Data) -> Tensor:
    """Foreign items in the shape of the known ones; unchanged where the shape is the same.

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
            f"foreign items are images of 1 or 3 channels, or of the shape {tuple(shape)} as {like.name}, however: "
            f"{tuple(x.shape[1:])}; choose another foreign set"
        )
    return torch.cat([_resized(x[start : start + _AT_ONCE], shape) for start in range(0, len(x), _AT_ONCE)])


def grey(x: Tensor) -> Tensor:
    """0.299 red + 0.587 green + 0.114 blue. Shape: [n, 3, height, width] to [n, 1, height, width], float."""
    return (x.float() * torch.tensor(_LUMA).view(3, 1, 1)).sum(1, keepdim=True)


def _resized(x: Tensor, shape: torch.Size) -> Tensor:
    found = x.float()
    if x.shape[1] > shape[0]:
        found = grey(found)
    height, width = shape[1:]
    scale = max(height / x.shape[2], width / x.shape[3])
    size = (max(height, round(x.shape[2] * scale)), max(width, round(x.shape[3] * scale)))
    if size != tuple(x.shape[2:]):
        found = F.interpolate(found, size, mode="bilinear", antialias=True)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    found = found[:, :, top : top + height, left : left + width]
    if x.dtype == torch.uint8:
        found = found.round().clamp(0, 255).to(torch.uint8)
    return found.expand(-1, shape[0], -1, -1).contiguous()
