"""Augmentation of whole batches of image tensors, on their device, from one generator: no Python loop over images.

Random numbers come from a `Draw`: drawn on the CPU, so that every device sees the same ones, and for all members'
batches at once, so that a member that trains alone gets the numbers it would get among the others.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import needed
from ..operators import define_missing

# RandAugment (Cubuk, Zoph, Shlens, Le, NeurIPS 2020) by torchvision's functions. Images that drew the same operation
# and sign go through it together: at most 23 calls per round, whatever the batch.
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


class Draw:
    """Random numbers for the rows of one batch, or of every member's batch, or of one member's among them.

    Shape: rows are member-major, [members * batch]; with `only` the numbers are that member's rows of the same draw,
    and with `part` those of some rows of each batch of `whole_batch` rows.

    >>> every = Draw(torch.Generator().manual_seed(0), members=3).uniform(6)
    >>> second = Draw(torch.Generator().manual_seed(0), members=3, only=1).uniform(2)
    >>> torch.equal(every[2:4], second)
    True
    """

    def __init__(
        self,
        generator: torch.Generator,
        members: int = 1,
        only: int | None = None,
        part: slice | None = None,
        whole_batch: int | None = None,
    ):
        self.generator, self.members, self.whole_batch = generator, members, whole_batch
        self.taken = (slice(None) if only is None else slice(only, only + 1), part or slice(None))
        self.batches = members if only is None else 1

    def uniform(self, rows: int) -> Tensor:
        """Numbers of [0, 1). Shape: [rows]."""
        return torch.rand(self._shape(rows), generator=self.generator)[self.taken].flatten()

    def whole(self, below: int, rows: int) -> Tensor:
        """Whole numbers 0 .. below - 1. Shape: [rows]."""
        return torch.randint(below, self._shape(rows), generator=self.generator)[self.taken].flatten()

    def partners(self, rows: int) -> Tensor:
        """Another row of the same batch for every row: a permutation inside each batch. Shape: [rows]."""
        shape = self._shape(rows)
        order = torch.rand(shape, dtype=torch.float64, generator=self.generator).argsort(1)[self.taken[0]]
        return (order + shape[1] * torch.arange(self.batches)[:, None]).flatten()

    def beta(self, alpha: float, rows: int) -> Tensor:
        """One draw of Beta(alpha, alpha) per batch, as a ratio of gamma variables. Shape: [rows]."""
        concentration = torch.full((self.members, 2), float(alpha), dtype=torch.float64)
        a, b = torch._standard_gamma(concentration, generator=self.generator)[self.taken[0]].unbind(1)
        weight = torch.where(a + b > 0, a / (a + b), torch.full_like(a, 0.5))
        return weight.repeat_interleave(rows // self.batches)

    def coin(self) -> bool:
        """One throw for all batches."""
        return bool(torch.rand((), generator=self.generator) < 0.5)

    def _shape(self, rows: int) -> tuple[int, int]:
        return self.members, self.whole_batch or rows // self.batches


def flip(x: Tensor, draw: Draw) -> Tensor:
    """Mirror every image left to right with probability 1/2. Shape: [n, c, h, w], kept."""
    mirrored = draw.uniform(len(x)).to(x.device) < 0.5
    return torch.where(mirrored.view(-1, 1, 1, 1), x.flip(-1), x)


def crop(x: Tensor, padding: int, draw: Draw, fill: Tensor | None = None) -> Tensor:
    """Pad and cut a random window of the old size. Shape: [n, c, h, w], kept; fill [c, 1, 1], None for zeros."""
    n, channels, height, width = x.shape
    top, left = (draw.whole(2 * padding + 1, n).to(x.device) for _ in "tl")
    if fill is None:
        padded = F.pad(x, [padding] * 4)
    else:
        padded = fill.to(x).expand(n, channels, height + 2 * padding, width + 2 * padding).contiguous()
        padded[..., padding : padding + height, padding : padding + width] = x
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(n, device=x.device), :, top, left].contiguous()


def cutout(x: Tensor, size: int, draw: Draw) -> Tensor:
    """Set a square of `size` around a random centre to zero; it may reach over the edge. Shape: [n, c, h, w], kept."""
    sides = torch.full((len(x),), size)
    return x * ~_box(x, sides, sides, draw)


def mixup(x: Tensor, y: Tensor, alpha: float, draw: Draw) -> tuple[Tensor, Tensor]:
    """Convex combinations of pairs, one weight ~ Beta(alpha, alpha) per batch.

    Shape: x [n, ...], y [n, classes] (probabilities), kept.
    """
    weight, other = draw.beta(alpha, len(x)), draw.partners(len(x)).to(x.device)

    def mixed(t: Tensor) -> Tensor:
        w = weight.to(t).view(-1, *(1 for _ in t.shape[1:]))
        return w * t + (1 - w) * t[other]

    return mixed(x), mixed(y)


def cutmix(x: Tensor, y: Tensor, alpha: float, draw: Draw) -> tuple[Tensor, Tensor]:
    """A box of every image comes from another one; targets are mixed by the box's true area.

    Shape: x [n, c, h, w], y [n, classes] (probabilities), kept.
    """
    n, _, height, width = x.shape
    side = (1 - draw.beta(alpha, n)).sqrt()
    other = draw.partners(n).to(x.device)
    box = _box(x, (height * side).long(), (width * side).long(), draw)
    share = box.flatten(1).double().mean(1).to(y.dtype).view(-1, 1)
    return torch.where(box, x[other], x), (1 - share) * y + share * y[other]


def _box(x: Tensor, heights: Tensor, widths: Tensor, draw: Draw) -> Tensor:
    """A random box of each image as a mask. Shape: [n, 1, h, w]."""
    n, _, height, width = x.shape
    inside = []
    for lengths, size in ((heights, height), (widths, width)):
        low = (draw.whole(size, n) - lengths // 2).view(-1, 1)
        place = torch.arange(size).view(1, -1)
        inside.append((place >= low) & (place < low + lengths.view(-1, 1)))
    return (inside[0].unsqueeze(2) & inside[1].unsqueeze(1)).unsqueeze(1).to(x.device)


def image_functions() -> Any:
    """torchvision's functions of images, or an error that says how to get them."""
    define_missing()
    rule, fix = "randaugment must have torchvision", "Fix: pip install torchvision"
    return needed("torchvision.transforms.v2", rule, fix).functional


def randaugment(x: Tensor, operations: int, magnitude: float, draw: Draw) -> Tensor:
    """`operations` random operations of strength `magnitude` of 10 on every image. Shape: uint8 [n, c, h, w], kept."""
    functions, x = image_functions(), x.clone()
    for _ in range(operations):
        which, sign = draw.whole(len(OPERATIONS), len(x)), draw.uniform(len(x)) < 0.5
        for k, (apply, largest, both) in enumerate(OPERATIONS.values()):
            for negative in (False, True) if both else (False,):
                rows = torch.nonzero((which == k) & ((sign == negative) if both else True)).flatten().to(x.device)
                if len(rows):
                    strength = largest * magnitude / 10
                    x[rows] = apply(functions, x[rows], -strength if negative else strength)
    return x
