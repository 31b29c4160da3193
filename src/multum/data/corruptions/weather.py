"""Weather in front of the image: snow, frost, fog; and drops of water or mud on the lens.

The relief of water follows OpenCV's operations on 8-bit images, batched.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .filters import Draws, blur, correlate, luminance, motion, to_bytes, unit, zoomed

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

# Of spatter.
WATER, MUD = (175, 238, 238), (63, 42, 20)
LOW, HIGH = 50, 150  # of the edge detector
FAR = 20.0  # distances to an edge are cut off here


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
    """The weighted sum of the image and painted frost; see `multum.data.corruptions` on what it is painted after."""
    ice = _painted_frost(x, draws)
    ice = ice if x.shape[1] == 3 else luminance(ice)
    return (keep * x + weight * ice).clamp(0, 255).to(torch.uint8)


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
