"""Which network, and which recipe, where a user names none: by the kind of the data and its size.

    images up to 16 pixels       cnn                       10 epochs at lr 0.01
    images up to 63 pixels       small-resnet              10 epochs at lr 0.01, batches of 128, random crops
    larger images                resnet18:stem=imagenet    30 epochs at lr 0.002, random crops
    fewer than 1,000 rows        mlp                       10 epochs at lr 0.002, batches of 32
    more rows                    tabular-mlp               10 epochs (two classes) or 30 at lr 0.002, batches of 256
    more than 100,000 rows       the same, 512 wide        batches of 512

All with AdamW and a cosine that ends at 0. Those up to 63 pixels and those of tables were chosen by measurement. No
weights are ever downloaded: a pretrained backbone is a network of one's own, `mynet.py:Net`, that loads them.
"""

from __future__ import annotations

from typing import Any

from ..data.preparation import Preparation
from ..data.sources import Data

SMALL_IMAGE, LARGE_IMAGE = 16, 64  # pixels of the shorter side: up to the first, and from the second
SMALL_TABLE, LARGE_TABLE = 1000, 100_000  # rows: fewer than the first, and more than the second
SMALLEST_POOLED = 4  # pixels that the networks for images need


def default_model(data: Data | Preparation) -> str:
    """The name of a network that suits the data.

    >>> from multum.data.sources import load_data
    >>> default_model(load_data("digits")), default_model(load_data("diabetes"))
    ('cnn', 'mlp')
    """
    if data.is_image and min(data.shape[1:]) >= SMALLEST_POOLED:
        side = min(data.shape[1:])
        return "cnn" if side <= SMALL_IMAGE else "small-resnet" if side < LARGE_IMAGE else "resnet18:stem=imagenet"
    rows = _rows(data)
    if len(data.shape) != 1 or rows < SMALL_TABLE:
        return "mlp"
    return "tabular-mlp" if rows <= LARGE_TABLE else "tabular-mlp:hidden=512+512+512"


def default_recipe(data: Data) -> dict[str, Any]:
    """Fields of a `Recipe` that suit the data, where a user gives no others.

    >>> from multum.data.sources import load_data
    >>> default_recipe(load_data("digits"))
    {'epochs': 10, 'batch_size': 64, 'lr': 0.01}
    """
    if data.is_image:
        side = min(data.shape[1:])
        if side <= SMALL_IMAGE:
            return {"epochs": 10, "batch_size": 64, "lr": 0.01}
        crop = {"crop": round(side / 14)}
        if side < LARGE_IMAGE:
            return {"epochs": 10, "batch_size": 128, "lr": 0.01, **crop}
        return {"epochs": 30, "batch_size": 64, "lr": 0.002, **crop}
    rows = len(data.train)
    if rows < SMALL_TABLE:
        return {"epochs": 10, "batch_size": 32, "lr": 0.002, "weight_decay": 3e-4}
    return {
        # Two classes of a table are noisy as a rule (adult, higgs): more epochs overfit them.
        "epochs": 10 if data.task == "classification" and data.outputs == 2 else 30,
        "batch_size": 256 if rows <= LARGE_TABLE else 512,
        "lr": 0.002,
        "weight_decay": 3e-4,
        "clip": 1.0,
    }


def _rows(data: Data | Preparation) -> int:
    """Training rows; of a run that is read again 0, whose network has a name."""
    return len(data.train) if isinstance(data, Data) else 0
