"""Images from the Hugging Face hub, `hf:NAME`, where its package `datasets` is installed (multum[hub]).

    image=COLUMN, label=COLUMN    else the first column of images, and the first of class labels
    config=NAME                   which of several sets under one name
    split=NAME                    this split alone, of which 0.2 is held out; else train, and test or validation

Everything is decoded into memory once: images of one size stay as they are, others go by the rule of folder.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..checks import needed
from ..errors import DataError, check_known
from ..files import explained
from .folder import LARGEST, squared
from .names import place_and_fields
from .npz import examples
from .parts import Data, Part, assembled, split

MOST_BYTES = 2**33
_AT_ONCE = 256


def load(place: str, name: str, seed: int) -> Data:
    """A set of images by its name on the hub."""
    where, fields = place_and_fields(place, "a set on the hub", ["image", "label", "config", "split"])
    splits = _fetched(where, fields.get("config"))
    first = fields.get("split") or ("train" if "train" in splits else next(iter(splits)))
    check_known(first, splits, f"split must name a split of hf:{where}", DataError)
    others = () if "split" in fields else ("test", "validation", "valid", "val")
    chosen = [splits[first], *[splits[key] for key in others if key in splits and key != first][:1]]
    image = _column(chosen[0], where, "image", fields.get("image"), "Image")
    label = _column(chosen[0], where, "label", fields.get("label"), "ClassLabel")
    classes = tuple(getattr(chosen[0].features[label], "names", None) or ())
    if not classes and isinstance(chosen[0][:1][label][0], str):
        classes = tuple(sorted({*chosen[0][label]}))
    look = _look(chosen[0][:1][image][0], sum(len(rows) for rows in chosen), where, image)
    images = [_images(rows, image, look) for rows in chosen]
    if any(x is None for x in images):
        look = look._replace(side=min(LARGEST, *look.size))
        images = [_images(rows, image, look) for rows in chosen]
    parts = [Part(x, _labels(rows, label, classes)) for x, rows in zip(images, chosen, strict=True)]
    train, test = parts if len(parts) == 2 else split(parts[0], 0.2, seed, "classification")
    return assembled(name, "classification", train, test, classes=classes, drawn=len(parts) == 1)


def _fetched(where: str, config: str | None) -> dict[str, Any]:
    fix = "Install it: pip install 'multum[hub]'"
    datasets = needed("datasets", f"hf:{where} must be read by the package datasets", fix, DataError)
    fix = (
        "Check the name (and config=...) and the network, or fetch it once where there is one: it then stays on this "
        "disk"
    )
    with explained(f"hf:{where} must be on the Hugging Face hub", fix, DataError, Exception):
        return dict(datasets.load_dataset(where, *([config] if config else [])))


def _column(rows: Any, where: str, field: str, wanted: str | None, kind: str) -> str:
    """The column a field names, else the first of its kind, else the one of its name."""
    of_kind = [name for name, feature in rows.features.items() if type(feature).__name__ == kind]
    column = wanted or next(iter([*of_kind, field]))
    if column not in rows.features:
        kinds = ", ".join(f"{name} ({type(feature).__name__})" for name, feature in rows.features.items())
        rule = (
            f"{field} must name a column of hf:{where}" if wanted else f"hf:{where} must have a column of type {kind}"
        )
        raise DataError(f"{rule}; it has {kinds}. Use {field}=COLUMN, or for a table parquet:FILE")
    return column


class _Look(NamedTuple):
    """What every image is made to look like: grey or coloured, of this size, or square where `side` is given."""

    mode: str
    size: tuple[int, int]
    side: int | None = None


def _look(picture: Any, count: int, where: str, column: str) -> _Look:
    """What the first of so many images looks like, where all of them fit into memory."""
    if not hasattr(picture, "convert"):
        raise DataError(f"image must name a column of images; got {column} of hf:{where}, a {type(picture)}")
    mode = "L" if picture.mode in ("1", "L") else "RGB"
    needed = count * len(mode) * picture.size[0] * picture.size[1]
    if needed > MOST_BYTES:
        raise DataError(
            f"a set from the hub must fit into {MOST_BYTES / 2**30:.0f} GB of memory; hf:{where} takes about "
            f"{needed / 2**30:.0f} GB. Save its images to class folders and use folder:DIR"
        )
    return _Look(mode, picture.size)


def _images(rows: Any, column: str, look: _Look) -> Tensor | None:
    """Shape: [n, channels, height, width], uint8; None where sizes differ and no side is given."""
    pieces = []
    for start in range(0, len(rows), _AT_ONCE):
        pictures = [picture.convert(look.mode) for picture in rows[start : start + _AT_ONCE][column]]
        if look.side is not None:
            pieces.append(torch.stack([squared(picture, look.side) for picture in pictures]))
        elif any(picture.size != look.size for picture in pictures):
            return None
        else:
            pieces.append(examples(np.stack([np.asarray(picture) for picture in pictures])))
    return torch.cat(pieces)


def _labels(rows: Any, column: str, classes: tuple[str, ...]) -> Tensor:
    try:
        labels = [classes.index(y) if isinstance(y, str) else int(y) for y in rows[column]]
    except (TypeError, ValueError) as error:
        raise DataError(f"every example must have a class of the training part; got in {column}: {error}") from error
    return torch.tensor(labels, dtype=torch.int64)
