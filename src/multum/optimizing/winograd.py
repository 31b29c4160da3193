"""Convolutions of 3x3 pixels by a quarter of the products: Winograd's F(4x4, 3x3) (Lavin and Gray, CVPR 2016).

    y = A^T [ (G w G^T) * (B^T d B) ] A

for every tile d of 6x6 pixels, which gives 4x4 outputs y by 36 products in place of 144; products are summed over input
channels, so that each of the 36 places is one matrix product over all tiles. A weight takes four times its memory, and
an output has about one digit less than by plain sums.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["convolve", "transformed"]

_B = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0]]
_B += [[0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]]
_G = [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]  # in 24ths
_A = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]


def _twice(matrix: list[list[int]]) -> Tensor:
    """On rows and columns at once."""
    once = torch.tensor(matrix, dtype=torch.float64)
    return torch.kron(once, once)


_TILES = 256  # at once: more do not stay in the cache from one step to the next, and their memory is new each time
_IN, _WEIGHT, _OUT = _twice(_B), _twice(_G) / 24**2, _twice(_A)


def transformed(weight: Tensor) -> Tensor:
    """Shape: [outputs, inputs, 3, 3] -> [36, inputs, outputs]."""
    places = _WEIGHT.to(weight.device) @ weight.double().flatten(2).permute(2, 1, 0).flatten(1)
    return places.to(weight.dtype).view(36, weight.shape[1], weight.shape[0])


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, padding: list[int], other: Tensor | None, relu: bool
) -> Tensor:
    """A convolution, and what is added to it, and a relu. Shape: x [batch, inputs, H, W], weight by `transformed`."""
    (up, across), (batch, inputs, height, width), channels = padding, x.shape, weight.shape[2]
    height, width = height + 2 * up - 2, width + 2 * across - 2  # of the output
    rows, columns = -(-height // 4), -(-width // 4)
    below, right = 4 * rows - height + up, 4 * columns - width + across
    padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, across, right, up, below))
    y = x.new_empty((batch, rows, 4, columns, 4, channels))
    some = max(_TILES // (rows * columns), 1)
    for part, out in zip(padded.split(some), y.split(some), strict=True):
        tiles = part.unfold(1, 6, 4).unfold(2, 6, 4).permute(4, 5, 0, 1, 2, 3)  # [6, 6, part, rows, columns, inputs]
        places = torch.mm(_IN.to(x), tiles.reshape(36, -1)).view(36, -1, inputs)
        outputs = torch.mm(_OUT.to(x), torch.bmm(places, weight).view(36, -1))
        ordered = outputs.view(4, 4, len(part), rows, columns, channels).permute(2, 3, 0, 4, 1, 5)
        out.copy_(ordered) if bias is None else torch.add(ordered, bias, out=out)
    y = y.view(batch, 4 * rows, 4 * columns, channels)[:, :height, :width].permute(0, 3, 1, 2)
    y = y if other is None else y.add_(other)
    return (y.relu_() if relu else y).contiguous(memory_format=torch.channels_last)
