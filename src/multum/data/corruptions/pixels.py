"""Corruptions of the pixels themselves.

single pixels   noise of four kinds; brightness, contrast and saturation
neighbours      blurs and the elastic transform; JPEG and pixelate, which are Pillow's, as in the reference
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .filters import Draws, blur, correlate, motion, resampled, to_bytes, unit, zoom_taps

if TYPE_CHECKING:
    from PIL.Image import Image


def gaussian_noise(x: Tensor, draws: Draws, sd: float) -> Tensor:
    return to_bytes(unit(x) + sd * draws.normal(*x.shape))


def shot_noise(x: Tensor, draws: Draws, photons: float) -> Tensor:
    return to_bytes(draws.poisson(unit(x) * photons) / photons)


def impulse_noise(x: Tensor, draws: Draws, amount: float) -> Tensor:
    """Single values, not whole pixels, become 0 or 255."""
    hit = draws.uniform(0, 1, *x.shape) <= amount
    white = draws.uniform(0, 1, *x.shape) <= 0.5
    return torch.where(hit, white.to(torch.uint8) * 255, x)


def speckle_noise(x: Tensor, draws: Draws, sd: float) -> Tensor:
    x_unit = unit(x)
    return to_bytes(x_unit + x_unit * (sd * draws.normal(*x.shape)))


def brightness(x: Tensor, draws: Draws, amount: float) -> Tensor:
    """Add to V of HSV. Hue and saturation stay, so all channels grow by the same factor; black becomes grey."""
    x_unit = unit(x)
    value = x_unit.amax(1, keepdim=True)
    brighter = (value + amount).clamp(0, 1)
    return to_bytes(torch.where(value > 0, x_unit * (brighter / value), brighter))


def contrast(x: Tensor, draws: Draws, factor: float) -> Tensor:
    """Draw every channel to its mean over the image."""
    x_unit = unit(x)
    mean = x_unit.mean((2, 3), keepdim=True)
    return to_bytes((x_unit - mean) * factor + mean)


def saturate(x: Tensor, draws: Draws, factor: float, offset: float) -> Tensor:
    """S of HSV times `factor` plus `offset`, of images in colour.

    With V and hue kept, a channel's distance to the largest channel grows like S. A grey pixel of a colour image has
    hue 0: any saturation makes it red, as in the reference.
    """
    x_unit = unit(x)
    value = x_unit.amax(1, keepdim=True)
    below = value - x_unit
    saturation = below.amax(1, keepdim=True) / value.clamp(min=1 / 255)
    wanted = (saturation * factor + offset).clamp(0, 1)
    red = x_unit.new_tensor([0.0, 1.0, 1.0]).view(1, 3, 1, 1) * value * wanted
    return to_bytes(value - torch.where(saturation > 0, below * (wanted / saturation), red))


def gaussian_blur(x: Tensor, draws: Draws, sd: float) -> Tensor:
    return to_bytes(blur(unit(x), sd))


def defocus_blur(x: Tensor, draws: Draws, radius: float, alias: float) -> Tensor:
    """Correlate with a disk that a 3 x 3 Gaussian of standard deviation `alias` has softened."""
    side = torch.arange(-8, 9, dtype=torch.float64)
    disk = (side.view(-1, 1) ** 2 + side**2 <= radius**2).double()
    near = torch.exp(-0.5 * torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64) / alias**2)
    near = near / near.sum()
    kernel = correlate((disk / disk.sum()).view(1, 1, 17, 17), torch.outer(near, near))[0, 0].float()  # as in OpenCV
    reach = int((kernel > 0).any(0).nonzero().max()) - 8
    return to_bytes(correlate(unit(x), kernel[8 - reach : 9 + reach, 8 - reach : 9 + reach]))


def glass_blur(x: Tensor, draws: Draws, sd: float, delta: int, iterations: int) -> Tensor:
    """Blur, let every pixel take the value of a random neighbour above or left of it, blur again.

    The reference walks from the bottom right and swaps views, so both ends get the neighbour's value; the neighbour
    is never yet touched. Hence one iteration is one parallel read, and a pixel of the first two rows and columns
    stays. Shape: one offset in {-delta, ..., delta - 1}^2 for each image, pixel and iteration.
    """
    n, channels, height, width = x.shape
    x = to_bytes(blur(unit(x), sd))
    rows = torch.arange(height, device=x.device).view(1, -1, 1)
    columns = torch.arange(width, device=x.device).view(1, 1, -1)
    moves = ((rows > delta) & (columns > delta)).long()
    for _ in range(iterations):
        right, down = draws.integers(-delta, delta, 2, n, height, width)
        places = ((rows + down * moves) * width + columns + right * moves).view(n, 1, -1)
        x = x.flatten(2).gather(2, places.expand(-1, channels, -1)).view_as(x)
    return to_bytes(blur(unit(x), sd))


def motion_blur(x: Tensor, draws: Draws, radius: int, sd: float) -> Tensor:
    return motion(x, radius, sd, draws.uniform(-45, 45, len(x)))


def zoom_blur(x: Tensor, draws: Draws, end: float) -> Tensor:
    """The mean of the image and its centre zooms by 1.00, 1.01, ... below `end`: one sparse product.

    numpy's arange lets `end` itself in where rounding does (1.06 and 1.11), so the reference has those zooms too.
    """
    n, channels, height, width = x.shape
    columns = (x.float() / 255).reshape(n * channels, -1).T.contiguous()
    mean = torch.sparse.mm(_mean_zoom(height, width, end).to(x.device), columns)
    return to_bytes(mean.T).reshape_as(x)


@functools.lru_cache(maxsize=8)
def _mean_zoom(height: int, width: int, end: float) -> Tensor:
    """Shape: sparse [h * w, h * w], float32."""
    factors = np.arange(1, end, 0.01)
    pixels = torch.arange(height * width)
    places, weights = [pixels], [torch.ones(height * width, dtype=torch.float64)]  # the image itself, once more
    for factor in factors:
        (rows, by_row), (columns, by_column) = zoom_taps(height, factor), zoom_taps(width, factor)
        places.append((rows.view(height, 1, 2, 1) * width + columns.view(1, width, 1, 2)).flatten())
        weights.append((by_row.view(height, 1, 2, 1) * by_column.view(1, width, 1, 2)).flatten())
    targets = torch.cat([pixels, pixels.repeat_interleave(4).repeat(len(factors))])
    values = torch.cat(weights) / (len(factors) + 1)
    shape = (height * width,) * 2
    return (
        torch.sparse_coo_tensor(torch.stack([targets, torch.cat(places)]), values, shape, check_invariants=True)
        .coalesce()
        .float()
    )


def elastic_transform(x: Tensor, draws: Draws, alpha: float, sd: float, affine: float) -> Tensor:
    """A random affine map of three points, then a smooth random displacement of every pixel.

    The three constants are shares of the smaller side.
    """
    n, _, height, width = x.shape
    side = min(height, width)
    alpha, sd, affine = alpha * side, sd * side, affine * side
    corners = torch.tensor([[1, 1], [1, -1], [-1, -1]], dtype=torch.float64, device=x.device) * (side // 3)
    corners += torch.tensor([width // 2, height // 2], device=x.device)  # (column, row) of three points
    moved = corners + draws.uniform(-affine, affine, n, 3, 2)
    back = torch.linalg.solve(torch.cat([moved, torch.ones_like(moved[..., :1])], -1), corners.expand(n, 3, 2))
    rows = torch.arange(height, dtype=torch.float64, device=x.device).view(1, -1, 1)
    columns = torch.arange(width, dtype=torch.float64, device=x.device).view(1, 1, -1)
    by_column, by_row, shift = back.view(n, 3, 2, 1, 1).unbind(1)  # [n, (column, row), 1, 1] each
    source = by_column * columns.unsqueeze(1) + by_row * rows.unsqueeze(1) + shift
    x_unit = resampled(x.float() / 255, source[:, 1], source[:, 0], "mirror")
    if alpha == 0:
        return to_bytes(x_unit)
    noise = draws.uniform(-1, 1, n, 2, height, width)
    right, down = (alpha * blur(noise, sd, truncate=3, border="reflect")).unbind(1)
    return to_bytes(resampled(x_unit, rows + down, columns + right, "reflect"))


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
