"""Training settings that several items share: the papers' own, and the one small setting that two cores can afford."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..data.corruptions import STANDARD
from ..methods import Method
from .base import Row

MOMENTUM = {"optimizer": "sgd", "momentum": 0.9, "nesterov": True}
SGD = {**MOMENTUM, "schedule": "multistep", "crop": 4, "flip": True}

CIFAR = {"C10": "cifar10", "C100": "cifar100"}

# Packed-Ensembles on CIFAR.
_R18 = {**SGD, "nesterov": False, "epochs": 75, "batch_size": 128, "lr": 0.05, "milestones": (25, 50)}
_STEPS = {"milestones": (60, 120, 160), "factor": 0.2}
_DEEP = {**SGD, "epochs": 200, "batch_size": 128, "lr": 0.1, **_STEPS, "weight_decay": 5e-4}
_MEDIUM = {"randaugment": 2, "magnitude": 9, "mixup": 0.5, "cutmix": 0.2, "label_smoothing": 0.1}

# By data and network, as in Table 4.
CIFAR_RECIPES: dict[tuple[str, str], dict[str, Any]] = {
    ("C10", "R18"): {**_R18, "weight_decay": 5e-4, "factor": 0.1},
    ("C10", "R50"): _DEEP,
    ("C10", "WR"): _DEEP,
    ("C100", "R18"): {**_R18, "weight_decay": 1e-4, "factor": 0.2},
    ("C100", "R50"): _DEEP,
    ("C100", "WR"): {**_DEEP, **_MEDIUM},
}

# "ResNet strikes back", procedure A3.
A3 = {
    "optimizer": "lamb",
    "lr": 8e-3,
    "weight_decay": 0.02,
    "batch_size": 2048,
    "epochs": 100,
    "warmup": 5,
    "schedule": "cosine",
    "mixup": 0.1,
    "cutmix": 1.0,
    "randaugment": 2,
    "magnitude": 6,
    "flip": True,
}
IMAGENET_LACKS = "the paper's resized random crops (and A3's 160 pixels and binary cross-entropy) are not in the loop"

# The members' losses are averaged in the code of these methods' papers, and summed in that of all others.
AVERAGED = frozenset({"batchensemble", "masksembles", "mcdropout", "packed"})

CIFAR_C = STANDARD

# Two cores, about six hours for all items together: one small network, images that fit, a schedule that ends. Small
# batches make steps of few images.
CPU_SEEDS = (0, 1, 2)
CPU_SHIFT = ("gaussian_noise", "defocus_blur", "fog", "pixelate")
COMMON: dict[str, Any] = {"model": "wrn-10-1", "seeds": CPU_SEEDS}
CPU = {
    "cifar10": dict(COMMON, data="cifar10", examples=10_000, ood=("svhn",), shift=CPU_SHIFT, shift_examples=500),
    "fashion_mnist": dict(COMMON, data="fashion_mnist", examples=5_000, ood=("mnist#test=2000", "kmnist#test=2000")),
}
CPU_RECIPE = {**SGD, "lr": 0.05, "weight_decay": 5e-4, "batch_size": 32, "schedule": "cosine"}
CPU_EPOCHS = {"cifar10": 5, "fashion_mnist": 10}


def rows(
    methods: Mapping[str, Method],
    recipe: Mapping[str, Any],
    suffix: str = "",
    *,
    by: Mapping[str, str] | None = None,
    varied: Mapping[str, Any] | None = None,
    **common: Any,
) -> tuple[Row, ...]:
    """One row a method, labelled "METHOD, SUFFIX" where there is a suffix, with all else in common.

    Args:
        by: what methods vary, by name: the field that has its value.
        varied: what else the item varies, in common to these rows.
    """

    def row(label: str, method: Method) -> Row:
        own = {name: method.as_dict()[field] for name, field in (by or {}).items()}
        label = ", ".join(filter(None, (label, suffix)))
        whole = {**recipe, **reduction(method)}
        return Row(label=label, method=method, recipe=whole, varied={**own, **(varied or {})}, **common)

    return tuple(row(label, method) for label, method in methods.items())


def reduction(method: Method) -> dict[str, str]:
    """The field of the recipe that says how the paper reduces the members' losses; one network has none.

    >>> from multum import Packed, Single
    >>> reduction(Packed()), reduction(Single())
    ({'reduction': 'mean'}, {})
    """
    return {"reduction": "mean" if method.name in AVERAGED else "sum"} if method.members > 1 else {}


def cpu_rows(
    methods: Mapping[str, Method], data: str = "cifar10", recipe: Mapping[str, Any] | None = None, **changed: Any
) -> tuple[Row, ...]:
    """Rows at the scale of two cores. Items that ask for the same row share its cells, and train them once."""
    return rows(methods, {**CPU_RECIPE, "epochs": CPU_EPOCHS[data], **(recipe or {})}, **{**CPU[data], **changed})
