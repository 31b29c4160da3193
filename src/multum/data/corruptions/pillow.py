"""Corruptions that Pillow makes, as in the reference: a JPEG file and back, and a smaller image and back."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .filters import Draws

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["jpeg_compression", "pixelate"]


def jpeg_compression(x: Tensor, draws: Draws, quality: int) -> Tensor:
    from PIL import Image

    def there_and_back(picture: Image.Image) -> Image.Image:
        file = BytesIO()
        picture.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _each(x, there_and_back)


def pixelate(x: Tensor, draws: Draws, share: float) -> Tensor:
    """A box filter down to `share` of each side, and back."""
    from PIL.Image import Resampling

    height, width = x.shape[-2:]
    small = max(int(width * share), 1), max(int(height * share), 1)
    return _each(x, lambda picture: picture.resize(small, Resampling.BOX).resize((width, height), Resampling.BOX))


def _each(x: Tensor, change: Callable[[Image], Image]) -> Tensor:
    """Change every image of a batch. Shape: [n, c, h, w] uint8 with one channel or three, kept."""
    from PIL import Image

    pictures = x.permute(0, 2, 3, 1).squeeze(-1).cpu().numpy()
    out = np.empty(pictures.shape, np.uint8)
    for pixels, picture in zip(out, pictures, strict=True):
        pixels[:] = change(Image.fromarray(picture))
    out = out.reshape(len(x), *x.shape[2:], x.shape[1]).transpose(0, 3, 1, 2)
    return torch.from_numpy(out).to(x.device)
