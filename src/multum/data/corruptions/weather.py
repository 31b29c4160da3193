"""Weather in front of the image: snow, frost, fog."""

from __future__ import annotations

import torch
from torch import Tensor

from .filters import Draws, luminance, motion, to_bytes, unit, zoomed

__all__ = ["fog", "frost", "snow"]


def snow(
    x: Tensor,
    draws: Draws,
    mean: float,
    sd: float,
    zoom: float,
    threshold: float,
    radius: int,
    blur_sd: float,
    keep: float,
) -> Tensor:
    """Whiten the image and add a layer of streaks and the layer's rotation by 180 degrees."""
    n, _, height, width = x.shape
    layer = zoomed(mean + sd * draws.normal(n, 1, height, width).double(), zoom)
    flakes = to_bytes(torch.where(layer < threshold, 0.0, layer))
    streaks = unit(motion(flakes, radius, blur_sd, draws.uniform(-135, -45, n)))
    x_unit = unit(x)
    white = torch.maximum(x_unit, luminance(x_unit) * 1.5 + 0.5)
    return to_bytes(keep * x_unit + (1 - keep) * white + streaks + streaks.flip(-2, -1))


def fog(x: Tensor, draws: Draws, amount: float, decay: float) -> Tensor:
    """Add a plasma of the given amount, scaled back to the image's largest value."""
    n, _, height, width = x.shape
    x_unit = unit(x)
    largest = x_unit.amax((1, 2, 3), keepdim=True)
    size = 1 << (max(height, width) - 1).bit_length()
    cloud = _plasma(draws, n, size, decay)[:, None, :height, :width]
    return to_bytes((x_unit + amount * cloud) * largest / (largest + amount))


def _plasma(draws: Draws, n: int, size: int, decay: float) -> Tensor:
    """Diamond-square maps on a torus, scaled to 0..1; noise shrinks by decay^2 from level to level.

    Shape: [n, size, size]; `size` is a power of two.
    """
    heights = torch.zeros(n, size, size, dtype=torch.float64, device=draws.device)
    step, wobble = size, 100.0
    while step >= 2:
        half, cells = step // 2, size // step
        corners, middles = heights[:, ::step, ::step], heights[:, half::step, half::step]
        beside = corners + corners.roll(-1, 1)

        def noisy(total: Tensor, cells: int = cells, wobble: float = wobble) -> Tensor:
            return total / 4 + wobble**2 * draws.uniform(-1, 1, n, cells, cells)

        middles.copy_(noisy(beside + beside.roll(-1, 2)))
        heights[:, ::step, half::step] = noisy(middles + middles.roll(1, 1) + corners + corners.roll(-1, 2))
        heights[:, half::step, ::step] = noisy(middles + middles.roll(1, 2) + corners + corners.roll(-1, 1))
        step, wobble = half, wobble / decay
    heights -= heights.amin((1, 2), keepdim=True)
    return heights / heights.amax((1, 2), keepdim=True)


def frost(x: Tensor, draws: Draws, keep: float, weight: float) -> Tensor:
    raise NotImplementedError
