"""Every augmentation against a naive twin that treats one image at a time with the same random numbers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from multum.data import augment
from multum.data.augment import OPERATIONS, Draw, image_functions, randaugment


def draw(seed: int = 0, **kwargs) -> Draw:
    return Draw(torch.Generator().manual_seed(seed), **kwargs)


@pytest.fixture
def x() -> Tensor:
    return torch.rand(11, 3, 6, 8, generator=torch.Generator().manual_seed(9))


@pytest.fixture
def y() -> Tensor:
    return F.one_hot(torch.arange(11) % 4, 4).float()


def test_flip(x: Tensor) -> None:
    mirrored = draw().uniform(11) < 0.5
    wanted = torch.stack([image.flip(-1) if m else image for image, m in zip(x, mirrored, strict=True)])
    assert torch.equal(augment.flip(x, draw()), wanted)
    assert 0 < mirrored.sum() < 11


def test_crop(x: Tensor) -> None:
    d = draw()
    tops, lefts = d.whole(5, 11), d.whole(5, 11)
    wanted = []
    for image, top, left in zip(x, tops.tolist(), lefts.tolist(), strict=True):
        padded = torch.zeros(3, 10, 12)
        padded[:, 2:8, 2:10] = image
        wanted.append(padded[:, top : top + 6, left : left + 8])
    assert torch.equal(augment.crop(x, 2, draw()), torch.stack(wanted))
    assert len(set(tops.tolist())) > 1


@pytest.mark.parametrize("size", [1, 2, 3, 5, 20])
def test_cutout(x: Tensor, size: int) -> None:
    d = draw()
    rows, columns = d.whole(6, 11), d.whole(8, 11)
    wanted = x.clone()
    for i in range(11):
        for r in range(6):
            for c in range(8):
                top, left = int(rows[i]) - size // 2, int(columns[i]) - size // 2
                if top <= r < top + size and left <= c < left + size:
                    wanted[i, :, r, c] = 0
    assert torch.equal(augment.cutout(x, size, draw()), wanted)


def test_mixup(x: Tensor, y: Tensor) -> None:
    d = draw()
    weight, other = float(d.beta(0.4, 11)[0]), d.partners(11)
    mixed_x, mixed_y = augment.mixup(x, y, 0.4, draw())
    for i in range(11):
        j = int(other[i])
        torch.testing.assert_close(mixed_x[i], weight * x[i] + (1 - weight) * x[j])
        torch.testing.assert_close(mixed_y[i], weight * y[i] + (1 - weight) * y[j])
    assert sorted(other.tolist()) == list(range(11))


def test_cutmix(x: Tensor, y: Tensor) -> None:
    d = draw(3)
    side = (1 - float(d.beta(1.0, 11)[0])) ** 0.5
    other = d.partners(11)
    height, width = int(6 * side), int(8 * side)
    rows, columns = d.whole(6, 11), d.whole(8, 11)
    mixed_x, mixed_y = augment.cutmix(x, y, 1.0, draw(3))
    mixed = 0
    for i in range(11):
        j, area = int(other[i]), 0
        for r in range(6):
            for c in range(8):
                top, left = int(rows[i]) - height // 2, int(columns[i]) - width // 2
                inside = top <= r < top + height and left <= c < left + width
                area += inside
                assert torch.equal(mixed_x[i, :, r, c], x[j if inside else i, :, r, c])
        share = area / 48
        mixed += 0 < share < 1
        torch.testing.assert_close(mixed_y[i], (1 - share) * y[i] + share * y[j])
    assert mixed


def test_beta_has_the_moments_of_its_law() -> None:
    weights = draw(members=20_000).beta(0.5, 20_000)
    assert float(weights.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(weights.var()) == pytest.approx(1 / (4 * (2 * 0.5 + 1)), abs=0.01)  # Beta(a, a): 1 / (4 (2a + 1))


@pytest.mark.parametrize("apply", ["flip", "crop", "cutout", "mixup", "cutmix", "randaugment"])
def test_a_member_alone_gets_the_numbers_it_gets_among_the_others(apply: str) -> None:
    """And the same seed gives the same, another another."""
    x = torch.randint(256, (12, 3, 6, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    y = F.one_hot(torch.arange(12) % 4, 4).float()

    def run(x: Tensor, y: Tensor, d: Draw) -> Tensor:
        if apply == "randaugment":
            return randaugment(x, 2, 9, d)
        x = x.float()
        fields = {"flip": (), "crop": (2,), "cutout": (3,), "mixup": (0.4,), "cutmix": (1.0,)}[apply]
        if apply in ("mixup", "cutmix"):
            mixed, targets = getattr(augment, apply)(x, y, *fields, d)
            return torch.cat([mixed.flatten(1), targets], 1)
        return getattr(augment, apply)(x, *fields, d)

    every = run(x, y, draw(members=3))
    assert torch.equal(every, run(x, y, draw(members=3)))
    assert not torch.equal(every, run(x, y, draw(1, members=3)))
    for i in range(3):
        rows = slice(4 * i, 4 * i + 4)
        torch.testing.assert_close(run(x[rows], y[rows], draw(members=3, only=i)), every[rows])


@pytest.mark.parametrize("apply", ["flip", "crop", "cutout"])
def test_a_share_of_the_rows_gets_the_numbers_it_gets_in_the_whole_batch(apply: str, x: Tensor) -> None:
    x = x[:10]
    fields = {"flip": (), "crop": (2,), "cutout": (3,)}[apply]
    whole = getattr(augment, apply)(x, *fields, draw(members=2)).view(2, 5, 3, 6, 8)
    for rank in range(2):
        part = slice(rank, None, 2)
        mine = x.view(2, 5, 3, 6, 8)[:, part].flatten(0, 1)
        changed = getattr(augment, apply)(mine, *fields, draw(members=2, part=part, whole_batch=5))
        assert torch.equal(changed.view(2, -1, 3, 6, 8), whole[:, part])


def test_partners_stay_in_their_batch() -> None:
    partners = draw(members=3).partners(12).view(3, 4)
    for i, mine in enumerate(partners):
        assert sorted(mine.tolist()) == list(range(4 * i, 4 * i + 4))


def test_randaugment_is_each_image_through_its_own_operations() -> None:
    functional = image_functions()
    x = torch.randint(256, (40, 3, 9, 9), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    d = draw(5)
    wanted, seen = x.clone(), set()
    for _ in range(2):
        which, sign = d.whole(len(OPERATIONS), 40), d.uniform(40) < 0.5
        for i in range(40):
            name = list(OPERATIONS)[int(which[i])]
            apply, largest, both = OPERATIONS[name]
            strength = largest * 0.6 * (-1 if both and sign[i] else 1)
            wanted[i] = apply(functional, wanted[i : i + 1], strength)[0]
            seen.add(name)
    changed = randaugment(x, 2, 6, draw(5))
    assert changed.dtype == torch.uint8 and torch.equal(changed, wanted)
    assert len(seen) > 10
    assert torch.equal(randaugment(x, 0, 6, draw()), x)


def test_randaugment_without_torchvision_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from multum.errors import ConfigError

    monkeypatch.setitem(sys.modules, "torchvision.transforms.v2", None)
    with pytest.raises(ConfigError, match="pip install torchvision"):
        image_functions()
