"""Distribution shift: the corruptions of CIFAR-10-C (Hendrycks & Dietterich, ICLR 2019), made from clean images.

15 standard corruptions, which papers average, and 4 extra ones, each at 5 severities, with the constants of CIFAR-10-C,
which are much weaker than ImageNet-C's. Each works on a whole batch of uint8 images, colour or grey, of any size from
8 x 8. Given the reference script's own random numbers, every one of them but frost gives its images within one grey
level (tests/data/test_corruptions.py); JPEG and pixelate, which are Pillow's, bit for bit.

- A grey image is treated as its one channel; coloured frost, water and mud come in their grey. Saturation is a
  property of colour: `saturate` is refused for grey images.
- Lengths are in pixels, as in the reference, except for `elastic_transform`, whose constants are shares of the side.
- The reference's `frost` is made of photographs, which multum does not ship. Here it is painted, with the colours,
  variance and correlation of theirs: a substitute, NOT the reference's frost, so do not compare its numbers with
  published ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import ConfigError, DataError, check_known
from . import pixels, weather
from .filters import Draws

__all__ = ["CORRUPTIONS", "EXTRA", "SEVERITIES", "STANDARD", "check_corruption", "corrupt"]

SEVERITIES = (1, 2, 3, 4, 5)

_FUNCTIONS = {**vars(pixels), **vars(weather)}
# Of each corruption, a function of that name: its arguments for severities 1 to 5; in the benchmark's order.
_TABLE: dict[str, tuple[tuple[float, ...], ...]] = {
    "gaussian_noise": ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
    "shot_noise": ((500,), (250,), (100,), (75,), (50,)),
    "impulse_noise": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((1.06,), (1.11,), (1.16,), (1.21,), (1.26,)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    "contrast": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
    "elastic_transform": ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    "pixelate": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    "jpeg_compression": ((80,), (65,), (58,), (50,), (40,)),
    "speckle_noise": ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,)),
    "gaussian_blur": ((0.4,), (0.6,), (0.7,), (0.8,), (1,)),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
}
CORRUPTIONS = tuple(_TABLE)
STANDARD, EXTRA = CORRUPTIONS[:15], CORRUPTIONS[15:]  # what papers average, and the benchmark's held-out ones
_COLOURED = ("saturate",)  # changes nothing of a grey image
_CHUNK = 256  # images at once: intermediate results stay near the processor, memory stays bounded


def corrupt(x: Tensor, name: str, severity: int, generator: torch.Generator) -> Tensor:
    """Corrupt every image of a batch; the same generator state gives the same images.

    Shape: [n, c, h, w] uint8 with one channel or three, kept.

    Args:
        name: one of `CORRUPTIONS`.
        severity: 1 (weak) to 5.
        generator: of all that is random; the deterministic corruptions leave it alone.

    >>> x = torch.full((2, 3, 32, 32), 100, dtype=torch.uint8)
    >>> corrupt(x, "brightness", 5, torch.Generator())[0, 0, 0, 0].item()
    176
    """
    _check_images(x)
    check_corruption(name, channels=x.shape[1])
    if isinstance(severity, bool | float) or severity not in SEVERITIES:
        raise ConfigError(f"severity must be a whole number from 1 to 5; got {severity!r}")
    function, constants = _FUNCTIONS[name], _TABLE[name]
    draws = Draws(generator, x.device)
    out = torch.empty_like(x)
    for start in range(0, len(x), _CHUNK):
        part = x[start : start + _CHUNK]
        out[start : start + _CHUNK] = function(part, draws, *constants[severity - 1])
    return out


def check_corruption(name: str, channels: int) -> None:
    """Refuse a name that is none, and what does nothing to grey images."""
    check_known(name, _TABLE, f"a corruption must be one of {len(_TABLE)}")
    if name in _COLOURED and channels == 1:
        raise ConfigError(f"{name} must have images in colour; got grey ones, which it does not change. Leave it out")


def _check_images(x: Tensor) -> None:
    if x.dtype != torch.uint8 or x.ndim != 4 or x.shape[1] not in (1, 3) or min(x.shape[2:]) < 8:
        raise DataError(
            "images to corrupt must be uint8 [n, channels, height, width] with 1 or 3 channels and sides of 8 or more; "
            f"got {x.dtype} of shape {tuple(x.shape)}"
        )
