"""JPEG there and back, as libjpeg does it, without the file: what entropy coding keeps need not be coded.

Baseline, 4:2:0 chroma, the integer ("islow") transform, triangle ("fancy") upsampling of chroma: the defaults of
Pillow. All arithmetic is in integers, so images agree with libjpeg's bit for bit.

The one-dimensional transform is a product with a matrix of 13-bit fixed-point constants followed by one rounding
shift, and the inverse is a product with its transpose. Products are taken in float64, which holds them exactly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .filters import Draws

__all__ = ["jpeg_compression"]

# Annex K of the standard, row by row.
LUMA = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMA = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)


def jpeg_compression(x: Tensor, draws: Draws, quality: int) -> Tensor:
    """Shape: [n, c, h, w] uint8 with one channel or three, kept."""
    height, width = x.shape[-2:]
    pixels = x.double()
    if x.shape[1] == 1:
        return _coded(pixels, LUMA, quality).to(torch.uint8)
    luma, blue, red = _to_ycc(pixels)
    luma = _coded(luma, LUMA, quality)
    half = -(-width // 2)
    blue, red = (_coded(_halved(c), CHROMA, quality)[..., :half] for c in (blue, red))
    blue, red = (_upsampled(c)[..., :height, :width] - 128 for c in (blue, red))
    return torch.cat(_to_rgb(luma, blue, red), 1).clamp(0, 255).to(torch.uint8)


def _fixed(x: float) -> int:
    return int(x * 65536 + 0.5)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Divide by 2^bits, rounded down."""
    return (x / 2**bits).floor()


def _to_ycc(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r, g, b = x.split(1, 1)
    half, middle = 2**15, 128 * 2**16 + 2**15 - 1
    luma = _fixed(0.299) * r + _fixed(0.587) * g + _fixed(0.114) * b + half
    blue = -_fixed(0.16874) * r - _fixed(0.33126) * g + _fixed(0.5) * b + middle
    red = _fixed(0.5) * r - _fixed(0.41869) * g - _fixed(0.08131) * b + middle
    return _shifted(luma, 16), _shifted(blue, 16), _shifted(red, 16)


def _to_rgb(luma: Tensor, blue: Tensor, red: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    half = 2**15
    return (
        luma + _shifted(_fixed(1.402) * red + half, 16),
        luma + _shifted(-_fixed(0.34414) * blue - _fixed(0.71414) * red + half, 16),
        luma + _shifted(_fixed(1.772) * blue + half, 16),
    )


def _padded(x: Tensor, height: int, width: int) -> Tensor:
    """Repeat the last row and column up to the given size."""
    rows, columns = (
        torch.arange(new, device=x.device).clamp(max=old - 1)
        for new, old in zip((height, width), x.shape[-2:], strict=True)
    )
    return x[..., rows, :][..., columns]


def _halved(x: Tensor) -> Tensor:
    """The mean of 2 x 2 pixels; libjpeg adds 1 and 2 in turn before it divides by 4.

    Columns are filled up to whole blocks before, rows after: the rounding of the fill differs. Shape: [n, 1, h/2, 8 k].
    """
    height, width = x.shape[-2] + x.shape[-2] % 2, -(-x.shape[-1] // 16) * 16
    x = _padded(x, height, width)
    total = x[..., ::2, ::2] + x[..., 1::2, ::2] + x[..., ::2, 1::2] + x[..., 1::2, 1::2]
    return _shifted(total + 1 + torch.arange(width // 2, device=x.device) % 2, 2)


def _upsampled(x: Tensor) -> Tensor:
    """Twice the size: 3/4 of the near and 1/4 of the far pixel, along each axis. Shape: [n, 1, 2h, 2w]."""
    if x.shape[-1] <= 2:
        return x.repeat_interleave(2, -1).repeat_interleave(2, -2)
    above = torch.cat([x[..., :1, :], x[..., :-1, :]], -2)
    below = torch.cat([x[..., 1:, :], x[..., -1:, :]], -2)
    rows = torch.stack([3 * x + above, 3 * x + below], -2).flatten(-3, -2)
    before = torch.cat([rows[..., :1], rows[..., :-1]], -1)
    after = torch.cat([rows[..., 1:], rows[..., -1:]], -1)
    return torch.stack([_shifted(3 * rows + before + 8, 4), _shifted(3 * rows + after + 7, 4)], -1).flatten(-2)


def _coded(x: Tensor, table: tuple[tuple[int, ...], ...], quality: int) -> Tensor:
    """One component through transform, quantisation and back. Shape: [n, 1, h, w], kept."""
    height, width = x.shape[-2:]
    down, across = -(-height // 8), -(-width // 8)
    blocks = _padded(x, 8 * down, 8 * across).view(-1, down, 8, across, 8).transpose(2, 3) - 128
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    steps = ((x.new_tensor(table) * scale + 50) / 100).floor().clamp(1, 255)
    matrix = _transform().to(x)

    def rounded(x: Tensor, bits: int) -> Tensor:
        return _shifted(x + 2 ** (bits - 1), bits)

    # Rows, then columns there; columns, then rows back. There and back are 8 times the orthonormal transform each.
    coefficients = rounded(rounded(blocks @ matrix.T, 11).mT @ matrix.T, 15).mT
    levels = ((coefficients.abs() + 4 * steps) / (8 * steps)).floor() * coefficients.sign()
    blocks = rounded(rounded((levels * steps).mT @ matrix, 11).mT @ matrix, 18) + 128
    return blocks.clamp(0, 255).transpose(2, 3).reshape(-1, 1, 8 * down, 8 * across)[..., :height, :width]


def _transform() -> Tensor:
    """libjpeg's integer DCT (Loeffler, Ligtenberg and Moschytz 1989), 2^13 times the true one. Shape: [8, 8]."""
    x = torch.eye(8, dtype=torch.float64)
    s0, s1, s2, s3 = (x[i] + x[7 - i] for i in range(4))
    d0, d1, d2, d3 = (x[i] - x[7 - i] for i in range(4))
    out = [x[0]] * 8
    out[0], out[4] = 8192 * (s0 + s3 + s1 + s2), 8192 * (s0 + s3 - s1 - s2)
    both = 4433 * (s1 - s2 + s0 - s3)
    out[2], out[6] = both + 6270 * (s0 - s3), both - 15137 * (s1 - s2)
    common = 9633 * (d3 + d1 + d2 + d0)
    outer, inner = -7373 * (d3 + d0), -20995 * (d2 + d1)
    odd, even = common - 16069 * (d3 + d1), common - 3196 * (d2 + d0)
    out[7], out[5] = 2446 * d3 + outer + odd, 16819 * d2 + inner + even
    out[3], out[1] = 25172 * d1 + inner + odd, 12299 * d0 + outer + even
    return torch.stack(out)
