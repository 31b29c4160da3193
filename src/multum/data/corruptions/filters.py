"""The operations the corruptions share, each on a whole batch: borders, blurs, zooms, resampling, random draws.

A filter along one axis of a fixed size, border included, is a matrix, and a separable filter of a batch is two
products. Pixels are computed in float64, as the reference does, and truncated to uint8, as it does.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

NEGLIGIBLE = 1e-9  # a filter weight below this moves a pixel by less than a millionth of a grey level
LUMINANCE = (0.299, 0.587, 0.114)


class Draws:
    """Random numbers of one generator, on the device of the images. The tests put the reference's own in its place."""

    def __init__(self, generator: torch.Generator, device: torch.device):
        self.generator = generator
        self.device = device

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.generator.device).to(self.device)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        unit = torch.rand(shape, generator=self.generator, device=self.generator.device)
        return (low + (high - low) * unit).to(self.device)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Between `low` and `high - 1`."""
        return torch.randint(low, high, shape, generator=self.generator, device=self.generator.device).to(self.device)

    def poisson(self, rate: Tensor) -> Tensor:
        return torch.poisson(rate.to(self.generator.device), generator=self.generator).to(self.device)


def unit(x: Tensor) -> Tensor:
    """Pixels 0..255 as 0..1."""
    return x.double() / 255


def to_bytes(x: Tensor) -> Tensor:
    """Values clipped to 0..1 as pixels, truncated and not rounded: the reference's own rule."""
    return (x.clamp(0, 1) * 255).to(torch.uint8)


def luminance(x: Tensor) -> Tensor:
    """The grey of an image, 0.299 red + 0.587 green + 0.114 blue. Shape: [n, c, h, w] -> [n, 1, h, w], floating."""
    if x.shape[1] == 1:
        return x
    x = x if x.is_floating_point() else x.float()
    return (x * x.new_tensor(LUMINANCE).view(1, 3, 1, 1)).sum(1, keepdim=True)


def _bordered(place: Tensor, size: int, border: str) -> Tensor:
    """Where a place outside the image is read.

    nearest: a a | a b c | c c     reflect: b a | a b c | c b
    mirror:  c b | a b c | b a     wrap:    b c | a b c | a b

    >>> _bordered(torch.arange(-2, 5), 3, "mirror").tolist()
    [2, 1, 0, 1, 2, 1, 0]
    """
    if border == "nearest":
        return place.clamp(0, size - 1)
    if border == "wrap":
        return place % size
    period = 2 * size if border == "reflect" else 2 * size - 2
    return torch.minimum(place % period, (period - int(border == "reflect") - place % period))


def _separable(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows @ x @ columns.T, each product taken once for the whole batch. Shape: [..., h, w] -> [..., new h, new w]."""
    return ((x @ columns.T).mT @ rows.T).mT


def _blur_matrix(x: Tensor, size: int, sigma: float, truncate: float, border: str) -> Tensor:
    """A Gaussian along one axis, cut off at `truncate` standard deviations. Shape: [size, size]."""
    radius = int(truncate * sigma + 0.5)
    taps = torch.arange(-radius, radius + 1, device=x.device)
    weights = torch.exp(-0.5 * taps.double() ** 2 / sigma**2) if radius else taps.new_ones(1, dtype=torch.float64)
    weights = (weights / weights.sum()).expand(size, -1)
    places = torch.arange(size, device=x.device).view(-1, 1)
    matrix = weights.new_zeros(size, size)
    return matrix.scatter_add_(1, _bordered(places + taps, size, border), weights).to(x.dtype)


def blur(x: Tensor, sigma: float, *, truncate: float = 4, border: str = "nearest") -> Tensor:
    """A Gaussian blur of every channel. Shape: [n, c, h, w], kept."""
    rows, columns = (_blur_matrix(x, size, sigma, truncate, border) for size in x.shape[-2:])
    return _separable(x, rows, columns)


def correlate(x: Tensor, kernel: Tensor) -> Tensor:
    """Slide a small odd kernel over every channel, borders mirrored. Shape: [n, c, h, w], kept."""
    height, width = x.shape[-2:]
    up, left = (size // 2 for size in kernel.shape)
    rows = _bordered(torch.arange(-up, height + up, device=x.device), height, "mirror")
    columns = _bordered(torch.arange(-left, width + left, device=x.device), width, "mirror")
    padded = x[..., rows, :][..., columns]
    total = torch.zeros_like(x)
    for i, j in torch.nonzero(kernel.abs() > NEGLIGIBLE).tolist():
        total.add_(padded[..., i : i + height, j : j + width], alpha=float(kernel[i, j]))
    return total


def zoom_taps(size: int, factor: float) -> tuple[Tensor, Tensor]:
    """A zoom into the middle of an axis, linear between pixels, cut to the old size.

    Shape: the two places each pixel reads, and their weights, [size, 2] each.
    """
    window = math.ceil(size / factor)
    start, enlarged = (size - window) // 2, round(window * factor)
    spots = torch.arange(enlarged, dtype=torch.float64) * ((window - 1) / (enlarged - 1))
    spots = spots[(enlarged - size) // 2 :][:size].clamp(max=window - 1)
    low = spots.floor().clamp(max=window - 2)
    share = spots - low
    return start + torch.stack([low, low + 1], 1).long(), torch.stack([1 - share, share], 1)


def zoomed(x: Tensor, factor: float) -> Tensor:
    """Zoom into the middle of every channel. Shape: [n, c, h, w], kept."""
    rows, columns = (
        torch.zeros(size, size, dtype=torch.float64).scatter_(1, *zoom_taps(size, factor)).to(x)
        for size in x.shape[-2:]
    )
    return _separable(x, rows, columns)


def motion(x: Tensor, radius: int, sigma: float, angle: Tensor) -> Tensor:
    """ImageMagick's motion blur: half a Gaussian along a line that starts in the pixel, in whole steps.

    Shape: x [n, c, h, w] uint8, kept; angle [n] in degrees, one for each image.
    """
    channels, height, width = x.shape[1:]
    steps = torch.arange(2 * radius + 1, device=x.device)
    weights = torch.exp(-0.5 * steps.double() ** 2 / sigma**2)
    weights = weights / weights.sum()
    radians = torch.deg2rad(angle.double()).view(-1, 1)
    right, down = (torch.ceil(steps * way - 0.5).long() for way in (radians.cos(), radians.sin()))  # [n, steps]
    rows, columns = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    flat = x.flatten(2).float()
    total = torch.zeros_like(flat)
    for step, weight in enumerate(weights.tolist()):
        if weight > NEGLIGIBLE:
            row = _bordered(rows + down[:, step, None], height, "nearest")
            column = _bordered(columns + right[:, step, None], width, "nearest")
            place = (row.unsqueeze(2) * width + column.unsqueeze(1)).flatten(1)
            total.add_(flat.gather(2, place.unsqueeze(1).expand(-1, channels, -1)), alpha=weight)
    # ImageMagick rounds to 16 bits, and the reference's way from there to 8 bits truncates.
    return (total + 0.5 / 257).to(torch.uint8).view_as(x)


def resampled(x: Tensor, rows: Tensor, columns: Tensor, border: str) -> Tensor:
    """Read every image at other places, linear between pixels. Shape: x [n, c, h, w]; rows, columns [n, h, w]."""
    height, width = x.shape[-2:]
    if border == "mirror":
        grid = torch.stack([2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1], -1)
    else:
        grid = torch.stack([(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1], -1)
    return F.grid_sample(x, grid.to(x), padding_mode="reflection", align_corners=border == "mirror")
