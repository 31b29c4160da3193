"""Corruptions of single pixels: noise of four kinds, and changes of brightness, contrast and saturation."""

from __future__ import annotations

import torch
from torch import Tensor

from .filters import Draws, to_bytes, unit

__all__ = ["brightness", "contrast", "gaussian_noise", "impulse_noise", "saturate", "shot_noise", "speckle_noise"]


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
