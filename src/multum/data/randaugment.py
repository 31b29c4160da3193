"""RandAugment of whole batches, by torchvision's functions: every image gets operations of its own.

Cubuk, Zoph, Shlens, Le: RandAugment: Practical automated data augmentation with a reduced search space, NeurIPS 2020.
Images that drew the same operation and sign go through it together: at most 23 calls per round, whatever the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import needed
from ..operators import define_missing
from .augment import Draw

__all__ = ["OPERATIONS", "functions", "randaugment"]

# name: (function of torchvision, largest strength, whether it also goes the other way)
OPERATIONS: dict[str, tuple[Any, float, bool]] = {
    "identity": (lambda F, x, v: x, 0.0, False),
    "autocontrast": (lambda F, x, v: F.autocontrast(x), 0.0, False),
    "equalize": (lambda F, x, v: F.equalize(x), 0.0, False),
    "posterize": (lambda F, x, v: F.posterize(x, 8 - round(v)), 4.0, False),
    "solarize": (lambda F, x, v: F.solarize(x, 255 - v), 255.0, False),
    "brightness": (lambda F, x, v: F.adjust_brightness(x, 1 + v), 0.9, True),
    "color": (lambda F, x, v: F.adjust_saturation(x, 1 + v), 0.9, True),
    "contrast": (lambda F, x, v: F.adjust_contrast(x, 1 + v), 0.9, True),
    "sharpness": (lambda F, x, v: F.adjust_sharpness(x, 1 + v), 0.9, True),
    "rotate": (lambda F, x, v: F.rotate(x, v), 30.0, True),
    "shear_x": (lambda F, x, v: F.affine(x, 0.0, [0, 0], 1.0, [v, 0.0]), 16.7, True),
    "shear_y": (lambda F, x, v: F.affine(x, 0.0, [0, 0], 1.0, [0.0, v]), 16.7, True),
    "translate_x": (lambda F, x, v: F.affine(x, 0.0, [round(v * x.shape[-1]), 0], 1.0, [0.0, 0.0]), 0.45, True),
    "translate_y": (lambda F, x, v: F.affine(x, 0.0, [0, round(v * x.shape[-2])], 1.0, [0.0, 0.0]), 0.45, True),
}


def functions() -> Any:
    """torchvision's functions of images, or an error that says how to get them."""
    define_missing()
    return needed(
        "torchvision.transforms.v2.functional", "randaugment must have torchvision", "Fix: pip install torchvision"
    )


def randaugment(x: Tensor, operations: int, magnitude: float, draw: Draw) -> Tensor:
    """`operations` random operations of strength `magnitude` of 10 on every image. Shape: uint8 [n, c, h, w], kept."""
    F, x = functions(), x.clone()
    for _ in range(operations):
        which, sign = draw.whole(len(OPERATIONS), len(x)), draw.uniform(len(x)) < 0.5
        for k, (apply, largest, both) in enumerate(OPERATIONS.values()):
            for negative in (False, True) if both else (False,):
                rows = torch.nonzero((which == k) & ((sign == negative) if both else True)).flatten().to(x.device)
                if len(rows):
                    strength = largest * magnitude / 10
                    x[rows] = apply(F, x[rows], -strength if negative else strength)
    return x
