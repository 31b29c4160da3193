"""Drops of water or mud on the lens. The relief of water follows OpenCV's operations on 8-bit images, batched."""

from __future__ import annotations

import torch
from torch import Tensor

from .filters import Draws, blur, bordered, correlate, luminance, to_bytes, unit

__all__ = ["spatter"]

WATER, MUD = (175, 238, 238), (63, 42, 20)
LOW, HIGH = 50, 150  # of the edge detector
FAR = 20.0  # distances to an edge are cut off here
# Chamfer steps and their lengths: OpenCV's 5 x 5 approximation of the Euclidean distance.
STEPS = [
    (down, right, {1: 1.0, 2: 1.4, 5: 2.1969}[down**2 + right**2])
    for down in range(-2, 3)
    for right in range(-2, 3)
    if down**2 + right**2 in (1, 2, 5)
]


def spatter(
    x: Tensor, draws: Draws, mean: float, sd: float, blur_sd: float, threshold: float, strength: float, mud: int
) -> Tensor:
    n, channels, height, width = x.shape
    liquid = blur(mean + sd * draws.normal(n, 1, height, width).double(), blur_sd)
    x_unit = unit(x)
    colour = unit(torch.tensor(MUD if mud else WATER, dtype=torch.uint8, device=x.device)).view(1, 3, 1, 1)
    colour = colour if channels == 3 else luminance(colour)
    if mud:
        cover = blur((liquid > threshold).double(), strength)
        cover = torch.where(cover < 0.8, 0.0, cover)
        return to_bytes(x_unit * (1 - cover) + colour * cover)
    drops = to_bytes(torch.where(liquid < threshold, 0.0, liquid)).double()
    shine = drops * _relief(drops)
    largest = shine.amax((2, 3), keepdim=True)
    return to_bytes(x_unit + colour * strength * shine / largest.clamp(min=1))


def _relief(drops: Tensor) -> Tensor:
    """Lit from one side: the equalised distance to the drops' edges through a slanted derivative. 0..255."""
    distance = _distance(_edges(drops))
    box = distance.new_full((3, 3), 1 / 9)
    level = _equalised((correlate(distance, box) + 1e-6).floor())
    slant = correlate(level, level.new_tensor([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])).clamp(0, 255)
    return correlate(slant, box).round()


def _shift(x: Tensor, down: int, right: int, border: str) -> Tensor:
    """What lies `down` and `right` of each pixel; outside the image the edge is repeated, or there is 0 or `FAR`."""
    height, width = x.shape[-2:]
    rows = torch.arange(height, device=x.device) + down
    columns = torch.arange(width, device=x.device) + right
    there = x[..., bordered(rows, height, "nearest"), :][..., bordered(columns, width, "nearest")]
    if border == "nearest":
        return there
    inside = ((rows >= 0) & (rows < height)).view(-1, 1) & ((columns >= 0) & (columns < width))
    return torch.where(inside, there, 0)
