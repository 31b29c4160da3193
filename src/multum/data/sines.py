"""The synthetic regression of MIMO's Figure 2, a function of Blundell et al. (2015)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import DataError
from .parts import Data, Part, assembled

NOISE = 0.02
HIGHEST = 0.5


def sines(seed: int, *, train: int = 64, test: int = 3000) -> Data:
    """One training set of the function and the test set that all seeds share, where bias and variance are taken.

        y = x + 0.3 sin(2 pi (x + e)) + 0.3 sin(4 pi (x + e)) + e,    e ~ N(0, 0.02^2),    x uniform on [0, 0.5]

    **Shape**: x ``[examples, 1]``, y ``[examples]``.

    >>> data, other = sines(0), sines(1)
    >>> len(data.train), len(data.test)
    (64, 3000)
    >>> torch.equal(data.test.y, other.test.y), torch.equal(data.train.y, other.train.y)
    (True, False)
    """
    if seed < 0:
        raise DataError(f"seed must be a whole number >= 0; got seed={seed}")
    return assembled("sines", "regression", _drawn(train, seed + 1), _drawn(test, 0))


def _drawn(examples: int, seed: int) -> Part:
    generator = torch.Generator().manual_seed(seed)
    x = HIGHEST * torch.rand(examples, 1, generator=generator, dtype=torch.float64)
    noise = NOISE * torch.randn(examples, 1, generator=generator, dtype=torch.float64)
    return Part(x, waves(x, noise).squeeze(1))


def waves(x: Tensor, noise: Tensor) -> Tensor:
    """The function itself. Shape: kept."""
    phase = 2 * torch.pi * (x + noise)
    return x + 0.3 * phase.sin() + 0.3 * (2 * phase).sin() + noise
