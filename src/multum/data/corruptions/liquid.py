"""Drops of water or mud on the lens. The relief of water follows OpenCV's operations on 8-bit images, batched."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .filters import Draws, blur, correlate, luminance, to_bytes, unit

__all__ = ["spatter"]

WATER, MUD = (175, 238, 238), (63, 42, 20)
LOW, HIGH = 50, 150  # of the edge detector
FAR = 20.0  # distances to an edge are cut off here


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
    drops = (
        torch.where(liquid < threshold, 0.0, liquid) * 255
    ).floor().float() % 256  # values above 1 wrap in the reference
    shine = drops * _relief(drops)
    largest = shine.amax((2, 3), keepdim=True)
    return to_bytes(x_unit + colour * strength * shine / largest.clamp(min=1))


def _relief(drops: Tensor) -> Tensor:
    """Lit from one side: the equalised distance to the drops' edges through a slanted derivative. 0..255."""
    distance = _distance(_edges(drops))
    box = distance.new_full((3, 3), 1 / 9)
    level = _equalised((correlate(distance, box) + 1e-4).floor())
    slant = correlate(level, level.new_tensor([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])).clamp(0, 255)
    return correlate(slant, box).round()


def _beside(padded: Tensor, down: int, right: int, like: Tensor) -> Tensor:
    """What lies `down` and `right` of each pixel, in an image with a frame."""
    (height, width), frame = like.shape[-2:], (padded.shape[-1] - like.shape[-1]) // 2
    return padded[..., frame + down : frame + down + height, frame + right : frame + right + width]


def _edges(x: Tensor) -> Tensor:
    """Canny's edges: peaks of the Sobel gradient along its direction, above HIGH or joined to one above HIGH."""
    padded = F.pad(x, [1] * 4, mode="replicate")
    side = {(i, j): _beside(padded, i, j, x) for i in (-1, 0, 1) for j in (-1, 0, 1)}
    right = side[-1, 1] + 2 * side[0, 1] + side[1, 1] - side[-1, -1] - 2 * side[0, -1] - side[1, -1]
    down = side[1, -1] + 2 * side[1, 0] + side[1, 1] - side[-1, -1] - 2 * side[-1, 0] - side[-1, 1]
    size = right.abs() + down.abs()
    padded = F.pad(size, [1] * 4)
    side = {(i, j): _beside(padded, i, j, x) for i in (-1, 0, 1) for j in (-1, 0, 1)}
    peak_across = (size > side[0, -1]) & (size >= side[0, 1])
    peak_down = (size > side[-1, 0]) & (size >= side[1, 0])
    peak_falling = (size > side[-1, -1]) & (size > side[1, 1])
    peak_rising = (size > side[-1, 1]) & (size > side[1, -1])
    flat = down.abs() * 32768 < right.abs() * 13573  # below 22.5 degrees, in OpenCV's fixed point
    steep = down.abs() * 32768 > right.abs() * (13573 + 65536)
    diagonal = torch.where(right * down < 0, peak_rising, peak_falling)
    peak = (size > LOW) & torch.where(flat, peak_across, torch.where(steep, peak_down, diagonal))
    edges = peak & (size > HIGH)
    while True:
        grown = peak & (F.max_pool2d(edges.to(x.dtype), 3, 1, 1) > 0)
        if torch.equal(grown, edges):
            return edges
        edges = grown


def _distance(edges: Tensor) -> Tensor:
    """The length of the shortest way to an edge, at most FAR, in OpenCV's 5 x 5 chamfer steps. Shape: kept.

    Steps (1, 0), (1, 1) and (2, 1) cost 1, 1.4 and 2.1969, so the way to a point `a` by `b` <= `a` away costs
    max(a + 0.1969 b, 0.7969 a + 0.6031 b), which grows with either: of each row only its nearest edge counts.
    """
    height, width = edges.shape[-2:]
    none = width + int(FAR)
    column = torch.arange(width, device=edges.device)
    left = torch.where(edges, column, -none).cummax(-1).values
    right = -torch.where(edges, -column, -width - none).flip(-1).cummax(-1).values.flip(-1)
    across = torch.minimum(column - left, right - column).float()
    nearest = across.clamp(max=FAR)
    steep, diagonal, flat = 0.1969 * across, 0.6031 * across, 0.7969 * across
    for down in range(1, min(height, int(FAR))):
        if down >= nearest.max():
            break  # a way costs at least the rows it crosses
        way = (across + 0.1969 * down).maximum(flat + 0.6031 * down)
        way = way.maximum(diagonal + 0.7969 * down).maximum(steep + down)
        nearest[..., down:, :] = torch.minimum(nearest[..., down:, :], way[..., :-down, :])
        nearest[..., :-down, :] = torch.minimum(nearest[..., :-down, :], way[..., down:, :])
    return nearest


def _equalised(level: Tensor) -> Tensor:
    """Spread whole levels 0..FAR over 0..255 by their histogram; an image of one level stays as it is."""
    counts = torch.stack([(level == v).sum((1, 2, 3)) for v in range(int(FAR) + 1)], 1)  # [n, levels]
    up_to = counts.cumsum(1)
    first = up_to.gather(1, (up_to > 0).long().argmax(1, keepdim=True))
    rest = up_to[:, -1:] - first
    table = ((up_to - first).clamp(min=0) * (255.0 / rest.clamp(min=1))).round().to(level)
    spread = table.gather(1, level.long().flatten(1)).view_as(level)
    return torch.where((rest == 0).view(-1, 1, 1, 1), level, spread)
