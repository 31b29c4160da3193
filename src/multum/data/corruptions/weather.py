"""Weather in front of the image: snow, frost, fog."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .filters import Draws, blur, luminance, motion, to_bytes, unit, zoomed

__all__ = ["fog", "frost", "snow"]

# Of 32 x 32 windows of the reference's five photographs, as seen through the reference images: mean colour, how the
# colour of a window varies (standard deviation, channels together), standard deviation within a window.
PALETTES = (
    (194, 198, 207, 5, 5, 5, 20),
    (76, 148, 166, 18, 9, 5, 16),
    (145, 158, 171, 7, 8, 9, 29),
    (104, 116, 128, 12, 12, 12, 32),
    (208, 213, 223, 5, 6, 5, 15),
)
# (standard deviation of the blur, share of the variance): fits their correlation at 1 to 16 pixels.
TEXTURE = ((0, 0.59), (1, 0.21), (5, 0.20))


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


def frost(
    x: Tensor, draws: Draws, keep: float, weight: float, *, photographs: Sequence[Tensor] | None = None
) -> Tensor:
    """The weighted sum of the image and frost; see `multum.data.corruptions` on where the frost comes from."""
    ice = _painted_frost(x, draws) if photographs is None else _photographed_frost(x, draws, photographs)
    ice = ice if x.shape[1] == 3 else luminance(ice)
    return (keep * x + weight * ice).clamp(0, 255).to(torch.uint8)


def _photographed_frost(x: Tensor, draws: Draws, photographs: Sequence[Tensor]) -> Tensor:
    """A random window of a random photograph, scaled by 1/5, for each image. Shape: [n, 3, h, w]."""
    n, _, height, width = x.shape
    small = [p.to(x.device)[:, 2::5, 2::5] for p in photographs]  # what linear interpolation by 1/5 reads
    chosen = draws.integers(0, len(small), n)
    spots = draws.uniform(0, 1, 2, n)
    out = torch.empty(n, 3, height, width, dtype=torch.float64, device=x.device)
    for number, photograph in enumerate(small):
        images = torch.nonzero(chosen == number).flatten()
        top, left = (
            (spot[images] * (there - here)).long().clamp(max=there - here)
            for spot, there, here in zip(spots, photograph.shape[1:], (height, width), strict=True)
        )
        rows = top.view(-1, 1, 1) + torch.arange(height, device=x.device).view(1, -1, 1)
        columns = left.view(-1, 1, 1) + torch.arange(width, device=x.device).view(1, 1, -1)
        out[images] = photograph[:, rows, columns].transpose(0, 1).double()
    return out


def _painted_frost(x: Tensor, draws: Draws) -> Tensor:
    """Grain, crystals and patches of ice in the colours of a random palette. Shape: [n, 3, h, w]."""
    n, _, height, width = x.shape
    colour, drift, roughness = x.new_tensor(PALETTES, dtype=torch.float64)[draws.integers(0, len(PALETTES), n)].split(
        [3, 3, 1], 1
    )
    noise = draws.normal(len(TEXTURE), n, 1, height, width).double()
    texture = sum(share**0.5 * _smooth(layer, sd) for (sd, share), layer in zip(TEXTURE, noise, strict=True))
    mean = (colour + drift * draws.normal(n, 1)).view(n, 3, 1, 1)
    return (mean + roughness.view(n, 1, 1, 1) * texture).clamp(0, 255)


def _smooth(noise: Tensor, sd: float) -> Tensor:
    """Blurred noise, scaled back to variance 1, without a seam."""
    if sd == 0:
        return noise
    impulse = torch.zeros_like(noise[:1])
    impulse[..., 0, 0] = 1
    return blur(noise, sd, border="wrap") / blur(impulse, sd, border="wrap").norm()
