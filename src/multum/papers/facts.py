"""Sizes of the papers' data sets, so that a Run can be built and priced where the data is not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..data.names import selection
from ..errors import DataError, did_you_mean

__all__ = ["FACTS", "UCI", "Facts", "facts_of"]


@dataclass(frozen=True)
class Facts:
    """Shape of one example, outputs of a network for it, and examples to train on."""

    shape: tuple[int, ...]
    outputs: int
    train: int
    test: int

    def alike(self) -> Facts:
        """The same for all data that networks cannot tell apart by its shape."""
        return replace(self, train=0, test=0)

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3


# name: columns, training and test rows of a split, splits
UCI = {
    "boston": (13, 455, 51, 20),
    "concrete": (8, 927, 103, 20),
    "energy": (8, 691, 77, 20),
    "kin8nm": (8, 7373, 819, 20),
    "naval": (16, 10741, 1193, 20),
    "power": (4, 8611, 957, 20),
    "protein": (9, 41157, 4573, 5),
    "wine_red": (11, 1439, 160, 20),
    "yacht": (6, 277, 31, 20),
}

FACTS = {
    "cifar10": Facts((3, 32, 32), 10, 50_000, 10_000),
    "cifar100": Facts((3, 32, 32), 100, 50_000, 10_000),
    "fashion_mnist": Facts((1, 28, 28), 10, 60_000, 10_000),
    "imagenet": Facts((3, 224, 224), 1000, 1_281_167, 50_000),
    "sines": Facts((1,), 2, 64, 3000),
    **{f"uci_{name}": Facts((columns,), 2, train, test) for name, (columns, train, test, _) in UCI.items()},
}


def facts_of(data: str) -> Facts:
    """The sizes of a data set by name.

    >>> facts_of("cifar100").outputs
    100
    """
    name = selection(data)[0]
    if name not in FACTS:
        raise DataError(f"an item's data must have known sizes; got {data!r}. {did_you_mean(name, FACTS)}")
    return FACTS[name]
