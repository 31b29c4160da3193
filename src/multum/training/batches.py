"""What each step sees: order, augmentation and the method's own batches, all from counters and one seed.

Every random choice comes from a generator seeded by (seed, purpose, counters), so a resumed run needs no position but
the epoch and the step, and every process of a distributed run draws the same. Each prepares its share of the rows
alone; the whole batch, and keeps its share, where rows are mixed (mixup, cutmix, MIMO).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..data import augment
from ..data.rows import Rows, Stream
from ..data.sources import Data
from ..ensemble import Ensemble
from ..errors import TrainingError
from .recipe import Recipe

T = TypeVar("T")

AT_ONCE = 65_536  # rows that are scaled together, in float64


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
    weights: Tensor | None = None  # of the examples' losses, [batch] or [members, batch]; None: all 1


class Batches:
    """The batches of a run. Shape: `per_epoch` steps in an epoch; the last may be smaller, of two rows at least."""

    def __init__(self, data: Data, recipe: Recipe, ensemble: Ensemble, fabric: Any):
        self.data, self.recipe, self.ensemble, self.fabric = data, recipe, ensemble, fabric
        self.own_order = (recipe.order or ensemble.method.order) == "own"
        # Whether rows of a batch meet, so that every process needs all of them.
        self.mixes = bool(recipe.mixup or recipe.cutmix) or ensemble.method.arranges_batches
        self.black: Tensor | None = None  # what pads images: papers pad them, then standardise
        self.per_epoch = self._count()

    def _count(self) -> int:
        n, size, world = len(self.data.train), self.recipe.batch_size, self.fabric.world_size
        if size < world or size % world:
            raise TrainingError(f"batch_size must be a multiple of the {world} processes; got batch_size={size}")
        # A last batch of one row per process would break batch norm and say little.
        steps = n // size + (n % size >= 2 * world)
        if steps == 0:
            raise TrainingError(
                f"a training part must have two examples per process at least; got {n} in {self.data.name}"
            )
        return steps

    def epoch(self, epoch: int, first: int = 0, member: int | None = None) -> Iterator[Step]:
        """The steps of an epoch from step `first` on; `member` sees them alone."""
        own = self.own_order
        members = self.ensemble.members if own else 1
        each = [None] if not own else [member] if member is not None else list(range(members))
        orders = torch.stack([self._order(epoch, m) for m in each])
        rows = [self._rows(orders, i) for i in range(first, self.per_epoch)]
        batches = zip(
            range(first, self.per_epoch), rows, self._fetched([r.flatten() for r in rows], epoch), strict=True
        )
        steps = (self._step(r, raw, y, epoch, i, members, member) for i, r, (raw, y) in batches)
        return _ahead(steps) if self.data.train.lazy and not isinstance(self.data.train.x, Rows) else steps

    def plain(self, size: int = 512) -> Iterator[Tensor]:
        """The training part as a network's input, in order, without augmentation."""
        x, n = self.data.train.x, len(self.data.train)
        parts = -(-n // size)
        edges = [k * n // parts for k in range(parts + 1)]  # equal parts: batch norm cannot train on a last single row
        if isinstance(x, Rows):
            index = [torch.arange(a, b) for a, b in itertools.pairwise(edges)]
            return (self.place(raw) for raw in x.batches(index, self.recipe.seed, epoch=-1))
        batches = (self.place(self.data.prepare(x[a:b])) for a, b in itertools.pairwise(edges))
        return _ahead(batches) if self.data.train.lazy else batches

    def place(self, x: Any) -> Any:
        """On the ensemble's device, in its precision."""
        return self.fabric.strategy.precision.convert_input(self.fabric.to_device(x))

    def _order(self, epoch: int, member: int | None) -> Tensor:
        name = () if member is None else ("member", member)
        return torch.randperm(len(self.data.train), generator=stream(self.recipe.seed, "order", epoch, *name))

    def _rows(self, orders: Tensor, i: int) -> Tensor:
        """The rows of batch i that this process fetches: its share, or all. Shape: [1 or members, rows]."""
        size, world = self.recipe.batch_size, self.fabric.world_size
        rows = orders[:, i * size : (i + 1) * size]
        return rows[:, : rows.shape[1] - rows.shape[1] % world][:, slice(None) if self.mixes else self._mine]

    @property
    def _mine(self) -> slice:
        """Every world-size-th row, so that shares are equal."""
        return slice(self.fabric.global_rank, None, self.fabric.world_size)

    def _fetched(self, batches: Sequence[Tensor], epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Examples and targets of these rows, as the data set holds them."""
        x, y = self.data.train.x if self._scaled is None else self._scaled, self.data.train.y
        raw = x.batches(batches, self.recipe.seed, epoch) if isinstance(x, Rows) else (x[rows] for rows in batches)
        return ((examples, y[rows]) for examples, rows in zip(raw, batches, strict=True))

    @functools.cached_property
    def _scaled(self) -> Tensor | None:
        """A table whose numbers are scaled by quantiles, as a network takes it: made once, not in every epoch."""
        x = self.data.train.x
        if self.data.scaling is None or not isinstance(x, Tensor):
            return None
        return torch.cat([self.data.prepare(part) for part in x.split(AT_ONCE)])

    def _step(self, rows: Tensor, raw: Tensor, y: Tensor, epoch: int, i: int, members: int, member: int | None) -> Step:
        """Shape: rows [1 or members, rows]."""
        recipe, method, world = self.recipe, self.ensemble.method, self.fabric.world_size
        only = member if self.own_order else None
        part, whole_batch = (slice(None), None) if self.mixes else (self._mine, rows.shape[1] * world)
        draw = augment.Draw(stream(recipe.seed, "augment", epoch, i), members, only, part, whole_batch)
        x, y = self._seen(raw, y, draw)
        weights = self._weights(rows)
        per_member = len(rows) > 1
        if per_member:
            x, y = (t.unflatten(0, rows.shape) for t in (x, y))
        else:
            weights = None if weights is None else weights[0]
            if member is None:
                beside = y if weights is None else (y, weights)
                x, beside, per_member = method.batch(x, beside, stream(recipe.seed, "batch", epoch, i))
                y, weights = (beside, None) if weights is None else beside
        rows = rows if len(rows) > 1 else rows[0]
        if self.mixes and world > 1:
            mine: Any = (slice(None), self._mine) if per_member else self._mine
            x, y, rows = x[mine], y[mine], rows[..., self._mine]
            weights = None if weights is None else weights[mine]
        return Step(x, y, per_member, rows, weights)

    def _weights(self, rows: Tensor) -> Tensor | None:
        """Shape: as rows."""
        weights = self.data.train.weights
        return None if weights is None else self.fabric.to_device(weights[rows])

    def _seen(self, raw: Tensor, y: Tensor, draw: augment.Draw) -> tuple[Tensor, Tensor]:
        """Examples as the network sees them: on the device, prepared, augmented."""
        recipe, data = self.recipe, self.data
        raw, y = self.fabric.to_device(raw), self.fabric.to_device(data.targets(y))
        if recipe.randaugment:
            raw = augment.randaugment(raw, recipe.randaugment, recipe.magnitude, draw)
        x = data.prepare(raw) if self._scaled is None else raw
        if recipe.crop:
            if self.black is None:
                self.black = data.prepare(raw.new_zeros(raw.shape[1:]))[:, :1, :1]
            x = augment.crop(x, recipe.crop, draw, self.black)
        if recipe.flip:
            x = augment.flip(x, draw)
        if recipe.cutout:
            x = augment.cutout(x, recipe.cutout, draw)
        if recipe.label_smoothing or recipe.mixup or recipe.cutmix:
            y = y if y.is_floating_point() else F.one_hot(y, data.outputs).to(torch.get_default_dtype())
            y = y * (1 - recipe.label_smoothing) + recipe.label_smoothing / data.outputs
        if recipe.mixup and (not recipe.cutmix or draw.coin()):
            x, y = augment.mixup(x, y, recipe.mixup, draw)
        elif recipe.cutmix:
            x, y = augment.cutmix(x, y, recipe.cutmix, draw)
        return x, y


class StreamBatches(Batches):
    """The batches of a stream, as they come; they belong to no rows, and an epoch cannot be begun in its middle."""

    def __init__(self, data: Data, recipe: Recipe, ensemble: Ensemble, fabric: Any):
        super().__init__(data, recipe, ensemble, fabric)
        self.own_order = False

    def _count(self) -> int:
        if self.fabric.world_size > 1:
            raise TrainingError("a stream must be read by one process; got several. Give a map-style data set")
        return self.data.train.x.steps

    def epoch(self, epoch: int, first: int = 0, member: int | None = None) -> Iterator[Step]:
        seen = 0
        for i, (raw, y) in enumerate(self.data.train.x.epoch()):
            rows = torch.arange(seen, seen + len(y))
            seen += len(y)
            yield self._step(rows[None], raw, y, epoch, i, 1, member)

    def plain(self, size: int = 512) -> Iterator[Tensor]:
        return (self.place(raw) for raw, _ in self.data.train.x.epoch())


def batches_of(data: Data, recipe: Recipe, ensemble: Ensemble, fabric: Any) -> Batches:
    """The batches of a run on this data."""
    kind = StreamBatches if isinstance(data.train.x, Stream) else Batches
    return kind(data, recipe, ensemble, fabric)


def _ahead(batches: Iterator[T]) -> Iterator[T]:
    """The same batches, the next one made in the background while the present one is used."""
    end: Any = object()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="multum-next-batch") as worker:
        upcoming = worker.submit(next, batches, end)
        while (batch := upcoming.result()) is not end:
            upcoming = worker.submit(next, batches, end)
            yield batch
