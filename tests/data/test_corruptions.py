"""The corruptions against the reference script's images, with its own random numbers, and in distribution.

`reference.npz` beside this file holds two images drawn for it and what hendrycks/robustness' make_cifar_c.py makes of
them at severities 1, 3 and 5 (scikit-image 0.26, OpenCV 5.0, ImageMagick 6.9.11), from one numpy stream with seed 0
over all five severities, without frost. `MULTUM_DATA` may name a folder with more of the same: the first 20 CIFAR-10
test images in cifar10c_reference_20.npz, which come from a stream over the first 40 of cifar10.npz. Both streams can be
replayed, so random corruptions are held to the same standard as deterministic ones: one grey level.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from multum.data import corruptions
from multum.data.corruptions import CORRUPTIONS, EXTRA, SEVERITIES, STANDARD, corrupt
from multum.data.corruptions.filters import Draws
from multum.data.sources import folder
from multum.errors import ConfigError, DataError

# The largest share of values that differ at any severity, measured (torch 2.13, AVX-512 CPU); the difference is one
# grey level everywhere: the reference truncates to uint8, so a last-bit difference in a whole number shows.
DETERMINISTIC = {
    "defocus_blur": 0.0044,
    "zoom_blur": 0.0020,
    "brightness": 0.0283,
    "contrast": 0.0,
    "pixelate": 0.0,
    "jpeg_compression": 0.0,
    "gaussian_blur": 0.0001,
    "saturate": 0.0558,
}
RANDOM = [name for name in CORRUPTIONS if name not in DETERMINISTIC]
REPLAYED = [name for name in RANDOM if name != "frost"]
FROST_WORDS = 921  # 32-bit numbers the reference drew for frost


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def channels_first(x: np.ndarray) -> Tensor:
    return torch.tensor(x).permute(0, 3, 1, 2).contiguous()


def smooth_images(n: int, channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    coarse = torch.rand(n, channels, 6, 6, generator=generator(seed)) * 1.4 - 0.2
    return (F.interpolate(coarse, (height, width), mode="bilinear").clamp(0, 1) * 255).to(torch.uint8)


class Reference(NamedTuple):
    """Clean images, what the reference makes of them by name and severity, and what its stream began with."""

    clean: Tensor
    corrupted: dict[tuple[str, int], Tensor]
    stream: np.ndarray  # all images that it was drawn for
    frost_words: int
    off: dict[str, float] = DETERMINISTIC

    def draws(self) -> dict[tuple[str, int], Replay]:
        return dict(replayed(self.stream, len(self.clean), self.frost_words))


def arrays_of(path: Path, *names: str) -> dict[str, np.ndarray]:
    if not path.is_file():
        pytest.skip(f"{path} is not there: unpack it and set MULTUM_DATA")
    with np.load(path) as file:
        return {key: file[key] for key in names or file.files}


def drawn() -> Reference:
    arrays = arrays_of(Path(__file__).parent / "reference.npz")
    clean = arrays.pop("clean")
    images = {(name, s): channels_first(x[i]) for name, x in arrays.items() for i, s in enumerate((1, 3, 5))}
    return Reference(channels_first(clean), images, clean, 0, DETERMINISTIC | {"brightness": 0.0359})


def cifar10() -> Reference:
    arrays = arrays_of(folder() / "cifar10c_reference_20.npz")
    stream = arrays_of(folder() / "cifar10.npz", "x_test")["x_test"][:40]
    assert (stream[:20] == arrays["x_clean"]).all()
    images = arrays["x_corrupt"].reshape(*arrays["shape"], 32, 32, 3)
    names = [str(name) for name in arrays["names"]]
    assert tuple(names) == CORRUPTIONS
    corrupted = {(n, s): channels_first(images[i, s - 1]) for i, n in enumerate(names) for s in SEVERITIES}
    return Reference(channels_first(arrays["x_clean"]), corrupted, stream, FROST_WORDS)


@pytest.fixture(scope="module", params=[drawn, cifar10], ids=lambda made: made.__name__)
def reference(request: pytest.FixtureRequest) -> Reference:
    return request.param()


@pytest.fixture(scope="module")
def draws(reference: Reference) -> dict[tuple[str, int], Replay]:
    return reference.draws()


def test_papers_average_fifteen() -> None:
    assert STANDARD + EXTRA == CORRUPTIONS and len(STANDARD) == 15
    assert {*EXTRA} == {"speckle_noise", "gaussian_blur", "spatter", "saturate"}


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_deterministic_corruptions_match_the_reference(name: str, reference: Reference) -> None:
    for severity in SEVERITIES:
        if (name, severity) in reference.corrupted:
            ours = corrupt(reference.clean, name, severity, generator())
            off = (ours.int() - reference.corrupted[name, severity].int()).abs()
            assert off.max() <= 1
            assert (off > 0).float().mean() <= reference.off[name]


class Replay(Draws):
    """Hands out the reference's own random numbers instead of a generator's."""

    def __init__(self, *tensors: np.ndarray):
        self.device = torch.device("cpu")
        self.tensors = [torch.tensor(t) for t in tensors]

    def _next(self, *shape: int) -> Tensor:
        assert tuple(self.tensors[0].shape) == shape
        return self.tensors.pop(0)

    def normal(self, *shape: int) -> Tensor:
        return self._next(*shape)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        return self._next(*shape)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        return self._next(*shape)

    def poisson(self, rate: Tensor) -> Tensor:
        return self._next(*rate.shape)


def replayed(x: np.ndarray, keep: int, frost_words: int) -> Iterator[tuple[tuple[str, int], Replay]]:
    """What the reference drew for the first `keep` of its images, in the order in which ours asks for it."""
    stream, n = np.random.RandomState(0), len(x)

    def first(a: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(a[:keep])

    def images(a: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(a[:keep].transpose(0, 3, 1, 2))

    def many(draw: Callable[[], list[np.ndarray]]) -> list[np.ndarray]:
        return [first(np.stack(a)) for a in zip(*(draw() for _ in range(n)), strict=True)]

    def constants(name: str) -> Iterator[tuple[int, tuple]]:
        return zip(SEVERITIES, corruptions._TABLE[name], strict=True)

    for severity in SEVERITIES:
        yield ("gaussian_noise", severity), Replay(images(stream.normal(size=x.shape)))
    for severity, (photons,) in constants("shot_noise"):
        yield ("shot_noise", severity), Replay(images(np.stack([stream.poisson(i / 255.0 * photons) for i in x])))
    for severity in SEVERITIES:
        own = [np.random.default_rng(int(seed)) for seed in stream.randint(0, 2**31, size=n)]
        hit, white = zip(
            *((rng.random(i.shape), rng.random(i.shape)) for rng, i in zip(own, x, strict=True)), strict=True
        )
        yield ("impulse_noise", severity), Replay(images(np.stack(hit)), images(np.stack(white)))
    for severity, (_, _, iterations) in constants("glass_blur"):
        offsets = np.zeros((iterations, 2, keep, 32, 32), dtype=np.int64)
        drawn = stream.randint(-1, 1, size=(n, iterations, 30, 30, 2))[:keep, :, ::-1, ::-1]  # from the bottom right
        offsets[..., 2:, 2:] = drawn.transpose(1, 4, 0, 2, 3)
        yield ("glass_blur", severity), Replay(*offsets)
    for severity in SEVERITIES:
        yield ("motion_blur", severity), Replay(first(stream.uniform(-45, 45, size=n)))
    for severity in SEVERITIES:
        snow = many(lambda: [stream.normal(size=(1, 32, 32)), stream.uniform(-135, -45)])
        yield ("snow", severity), Replay(*snow)
    stream.randint(0, 2**32, size=frost_words, dtype=np.uint32)
    sides = [1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 16, 16, 16]
    for severity in SEVERITIES:
        yield ("fog", severity), Replay(*many(lambda: [stream.uniform(-1, 1, size=(s, s)) for s in sides]))
    for severity, (_, _, affine) in constants("elastic_transform"):
        reach = affine * 32
        elastic = many(lambda r=reach: [stream.uniform(-r, r, size=(3, 2)), stream.uniform(-1, 1, size=(2, 32, 32))])
        yield ("elastic_transform", severity), Replay(*elastic)
    for severity in SEVERITIES:
        yield ("speckle_noise", severity), Replay(images(stream.normal(size=x.shape)))
    for severity in SEVERITIES:
        yield ("spatter", severity), Replay(first(stream.normal(size=(n, 1, 32, 32))))


@pytest.mark.parametrize("name", REPLAYED)
def test_random_corruptions_match_the_reference_given_its_random_numbers(name: str, reference, draws) -> None:
    function, constants = corruptions._FUNCTIONS[name], corruptions._TABLE[name]
    for severity in SEVERITIES:
        if (name, severity) in reference.corrupted:
            ours = function(reference.clean, draws[name, severity], *constants[severity - 1])
            off = (ours.int() - reference.corrupted[name, severity].int()).abs()
            assert off.max() <= 1
            assert (off > 0).float().mean() < 0.001


def statistics(x: Tensor, clean: Tensor) -> Tensor:
    """Mean and mean square of the change, variance within an image, roughness. Shape: [n, 4]."""
    x, clean = x.double(), clean.double()
    change = x - clean
    roughness = (x[..., 1:] - x[..., :-1]).square()
    return torch.stack([t.flatten(1).mean(1) for t in (change, change.square(), roughness)] + [x.flatten(1).var(1)], 1)


@pytest.mark.parametrize(
    ("name", "severity"), [(name, s) for name in RANDOM for s in (SEVERITIES if name == "frost" else (1, 5))]
)
def test_random_corruptions_match_the_reference_in_mean_and_variance(name: str, severity: int) -> None:
    """The reference is one draw of 20 images; 32 of ours say how far such a draw may lie from the mean (4 sd)."""
    clean, corrupted = cifar10()[:2] if name == "frost" or (folder() / "cifar10.npz").is_file() else drawn()[:2]
    repeats = 32
    ours = statistics(
        corrupt(clean.repeat(repeats, 1, 1, 1), name, severity, generator()), clean.repeat(repeats, 1, 1, 1)
    )
    ours = ours.view(repeats, len(clean), -1).mean(1)
    theirs = statistics(corrupted[name, severity], clean).mean(0)
    error = ours.std(0) * (1 + 1 / repeats) ** 0.5
    assert ((theirs - ours.mean(0)).abs() <= 4 * error).all(), (theirs, ours.mean(0), error)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 33, 45), (1, 17, 8)])
def test_jpeg_and_pixelate_are_pillows_at_any_size(shape: tuple[int, int, int]) -> None:
    x = torch.cat([smooth_images(2, *shape), torch.randint(0, 256, (2, *shape), dtype=torch.uint8)])
    (height, width), share, quality = shape[1:], 0.65, 40
    for name in ("jpeg_compression", "pixelate"):
        for ours, image in zip(corrupt(x, name, 5, generator()), x, strict=True):
            picture = Image.fromarray(image.permute(1, 2, 0).squeeze(-1).numpy())
            if name == "pixelate":
                small = picture.resize((int(width * share), int(height * share)), Image.Resampling.BOX)
                theirs = np.array(small.resize((width, height), Image.Resampling.BOX))
            else:
                picture.save(file := io.BytesIO(), "JPEG", quality=quality)
                theirs = np.array(Image.open(file))
            assert torch.equal(ours, torch.tensor(theirs).view(height, width, -1).permute(2, 0, 1))


def test_filters_are_scipys() -> None:
    from scipy import ndimage

    from multum.data.corruptions.filters import blur, zoomed

    x = torch.rand(1, 1, 19, 19, dtype=torch.float64, generator=generator())
    for border in ("nearest", "reflect", "mirror", "wrap"):
        theirs = ndimage.gaussian_filter(x[0, 0].numpy(), 6.0, mode=border, truncate=4)
        assert torch.allclose(blur(x, 6.0, border=border)[0, 0], torch.tensor(theirs), atol=1e-12)
    theirs = ndimage.zoom(x[0, 0, 4:15, 4:15].numpy(), 1.75, order=1)
    assert torch.allclose(zoomed(x, 1.75)[0, 0], torch.tensor(theirs)[:19, :19], atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 8, 8), (1, 40, 24), (3, 9, 64)])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_any_size_and_grey(name: str, shape: tuple[int, int, int]) -> None:
    x = smooth_images(3, *shape)
    before = x.clone()
    if name == "saturate" and shape[0] == 1:
        with pytest.raises(ConfigError, match="saturate must have images in colour; got grey ones"):
            corrupt(x, name, 1, generator())
        return
    for severity in SEVERITIES:
        out = corrupt(x, name, severity, generator())
        assert out.dtype == torch.uint8
        assert out.shape == x.shape
        assert torch.equal(x, before)
        if min(shape[1:]) >= 24:
            assert not torch.equal(out, x)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_generator_decides(name: str) -> None:
    x = smooth_images(300, 3, 16, 16)  # more than one chunk
    source = generator(1)
    out = corrupt(x, name, 4, source)
    assert torch.equal(out, corrupt(x, name, 4, generator(1)))
    if name in DETERMINISTIC:
        assert torch.equal(source.get_state(), generator(1).get_state())
        assert torch.equal(out, corrupt(x, name, 4, generator(2)))
    else:
        assert not torch.equal(out, corrupt(x, name, 4, generator(2)))


@pytest.mark.parametrize("name", RANDOM)
def test_equal_images_are_corrupted_differently(name: str) -> None:
    x = smooth_images(1, 3, 32, 32).expand(20, -1, -1, -1)
    distinct = len(corrupt(x, name, 5, generator()).flatten(1).unique(dim=0))
    assert distinct >= 15  # angles that round to the same steps blur alike


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_a_batch_is_its_images_one_at_a_time(name: str) -> None:
    x = smooth_images(260, 3, 32, 32)
    for severity in SEVERITIES:
        out = corrupt(x, name, severity, generator())
        for i in (0, 1, 100, 255, 256, 259):
            assert torch.equal(out[i : i + 1], corrupt(x[i : i + 1], name, severity, generator()))


def test_no_images_and_scattered_memory() -> None:
    x = smooth_images(4, 3, 32, 32)
    for name in CORRUPTIONS:
        assert corrupt(x[:0], name, 1, generator()).shape == (0, 3, 32, 32)
        assert torch.equal(
            corrupt(x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2), name, 3, generator()),
            corrupt(x, name, 3, generator()),
        )


# Not ever further from the clean image: frost keeps less of the image and elastic_transform bends less and less,
# glass_blur with a wider blur is smoother, saturate first takes colour and then adds it, spatter turns to mud.
NOT_MONOTONE = {"frost", "glass_blur", "elastic_transform", "saturate", "spatter"}


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28)])
@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in NOT_MONOTONE])
def test_severity_grows(name: str, shape: tuple[int, int, int]) -> None:
    x = smooth_images(64, *shape)
    distances = [(corrupt(x, name, s, generator()).float() - x.float()).abs().mean().item() for s in SEVERITIES]
    assert all(later > 0.99 * earlier for earlier, later in itertools.pairwise(distances)), distances
    assert distances[-1] > 1.2 * distances[0]


def test_bad_arguments_are_refused() -> None:
    x = smooth_images(2, 3, 32, 32)
    with pytest.raises(ConfigError, match=r"'gausian_noise'. Did you mean gaussian_noise"):
        corrupt(x, "gausian_noise", 1, generator())
    for severity in (0, 6, -1, 2.0, True):
        with pytest.raises(ConfigError, match="whole number from 1 to 5"):
            corrupt(x, "fog", severity, generator())
    for bad in (x.float(), x[0], x[:, :2], x[:, :, :7], x.unsqueeze(0)):
        with pytest.raises(DataError, match="images to corrupt must be uint8"):
            corrupt(bad, "fog", 1, generator())
