"""What each step sees: order, augmentation and the method's own batches, all from counters and one seed.

Every random choice comes from a generator seeded by (seed, purpose, counters), so a resumed run needs no position but
the epoch and the step, and every process of a distributed run draws the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data import augment
from ..data.sources import Data
from ..ensemble import Ensemble
from ..errors import TrainingError
from .recipe import Recipe

__all__ = ["Batches", "Step", "stream"]


def stream(seed: int, *what: Any) -> torch.Generator:
    """A generator that depends on nothing but the seed and these names and numbers."""
    digest = hashlib.sha256("/".join(map(str, (seed, *what))).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)


class Step(NamedTuple):
    """One step's input. Shape: x [batch, ...] or [members, batch, ...]; `rows` are indices into the training part."""

    x: Any
    y: Tensor
    per_member: bool
    rows: Tensor


class Batches:
    """The batches of a run. Shape: `per_epoch` steps in an epoch; the last may be smaller, of two rows at least."""

    def __init__(self, data: Data, recipe: Recipe, ensemble: Ensemble, fabric: Any):
        self.data, self.recipe, self.ensemble, self.fabric = data, recipe, ensemble, fabric
        n, size = len(data.train), recipe.batch_size
        if size < fabric.world_size or size % fabric.world_size:
            raise TrainingError(
                f"batch_size is a multiple of the {fabric.world_size} processes, however: batch_size={size}"
            )
        rest = n % size - n % size % fabric.world_size
        # A last batch of one row would break batch norm and say little.
        self.per_epoch = n // size + (rest >= max(2, fabric.world_size))
        if self.per_epoch == 0:
            raise TrainingError(f"a training part has two items at least, however: {data.name} has {n}")
        smooths = recipe.label_smoothing or recipe.mixup or recipe.cutmix
        if data.task == "regression" and smooths:
            raise TrainingError("label_smoothing, mixup and cutmix are for classification, however: this is regression")
        if not data.is_image and (recipe.crop or recipe.flip or recipe.cutout or recipe.cutmix):
            raise TrainingError(f"crop, flip, cutout and cutmix are for images, however: {data.name} is a table")

    def epoch(self, epoch: int, first: int = 0, member: int | None = None) -> Iterator[Step]:
        """The steps of an epoch from step `first` on; `member` sees them alone."""
        recipe = self.recipe
        own = recipe.order == "own"
        members = ([member] if member is not None else list(range(self.ensemble.members))) if own else [None]
        n = len(self.data.train)
        orders = [torch.randperm(n, generator=stream(recipe.seed, "order", epoch, *_named(m))) for m in members]
        for i in range(first, self.per_epoch):
            rows = [o[i * recipe.batch_size : (i + 1) * recipe.batch_size] for o in orders]
            rows = [r[: len(r) - len(r) % self.fabric.world_size] for r in rows]
            seen = [self._seen(r, epoch, i, m) for r, m in zip(rows, members, strict=True)]
            if own and member is None:
                x, y = (torch.stack([s[k] for s in seen]) for k in (0, 1))
                yield self._placed(Step(x, y, True, torch.stack(rows)))
            else:
                (x, y), generator = seen[0], stream(recipe.seed, "batch", epoch, i)
                batch = self.ensemble.method.batch(x, y, generator) if member is None else (x, y, False)
                yield self._placed(Step(*batch, rows=rows[0]))

    def plain(self, part: str = "train", size: int = 512) -> Iterator[Tensor]:
        """Prepared items in order, without augmentation."""
        x = getattr(self.data, part).x
        for start in range(0, len(x), size):
            yield self.fabric.to_device(self.data.prepare(x[start : start + size]))

    def _seen(self, rows: Tensor, epoch: int, i: int, member: int | None) -> tuple[Tensor, Tensor]:
        recipe, data = self.recipe, self.data
        x, y = data.prepare(data.train.x[rows]), data.targets(data.train.y[rows])
        draw = stream(recipe.seed, "augment", epoch, i, *_named(member))
        if recipe.crop:
            x = augment.crop(x, recipe.crop, draw)
        if recipe.flip:
            x = augment.flip(x, draw)
        if recipe.cutout:
            x = augment.cutout(x, recipe.cutout, draw)
        if recipe.label_smoothing or recipe.mixup or recipe.cutmix:
            y = F.one_hot(y, data.outputs).float()
            y = y * (1 - recipe.label_smoothing) + recipe.label_smoothing / data.outputs
        if recipe.mixup and recipe.cutmix:
            mixed = augment.mixup if torch.rand((), generator=draw) < 0.5 else augment.cutmix
            x, y = mixed(x, y, recipe.mixup if mixed is augment.mixup else recipe.cutmix, draw)
        elif recipe.mixup:
            x, y = augment.mixup(x, y, recipe.mixup, draw)
        elif recipe.cutmix:
            x, y = augment.cutmix(x, y, recipe.cutmix, draw)
        return x, y

    def _placed(self, step: Step) -> Step:
        """This process's share of the rows, on its device."""
        world, rank, dim = self.fabric.world_size, self.fabric.global_rank, 1 if step.per_member else 0
        if world > 1:
            share = torch.arange(rank, step.y.shape[dim], world)
            step = step._replace(x=step.x.index_select(dim, share), y=step.y.index_select(dim, share))
        return step._replace(x=self.fabric.to_device(step.x), y=self.fabric.to_device(step.y))


def _named(member: int | None) -> tuple:
    return () if member is None else ("member", member)
