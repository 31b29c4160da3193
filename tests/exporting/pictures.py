"""Image files as users have them: of several sizes; in colour, grey, with a palette, transparent, turned by EXIF."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("plain", "ring, wide", "Ωmega")


def draw_folder(place: Path, each: int, seed: int = 0) -> Path:
    """A folder of class folders."""
    draw = np.random.default_rng(seed)
    for k, name in enumerate(CLASSES):
        (place / name).mkdir(parents=True)
        for i in range(each):
            width, height = draw.integers(7, 30, 2)
            pixels = draw.integers(0, 160, (height, width, 3))
            pixels[..., k] += 95
            image = Image.fromarray(pixels.astype(np.uint8))
            kind = ("RGB", "L", "RGBA", "P", "JPEG")[i % 5]
            if kind == "RGBA":
                image.putalpha(int(draw.integers(255)))
            elif kind in ("L", "P"):
                image = image.convert(kind)
            exif = Image.Exif()
            exif[274] = int(draw.integers(1, 9))  # how the camera was held
            image.save(place / name / f"{i}.{'jpg' if kind == 'JPEG' else 'png'}", exif=exif)
    return place
