"""Masksembles: members share every weight and differ by fixed binary masks on the channels.

Durasov, Bagautdinov, Baque, Fua: Masksembles for Uncertainty Estimation, CVPR 2021.

    layer_m(x) = mask_m * layer(x)        mask_m in {0, 1}^c, drawn once, never trained, not rescaled

A layer of c channels gets M masks with m = int(c / (S (1 - (1 - 1/S)^M))) ones each, drawn together, so that every
channel belongs to some member: M random m-subsets of int(m s') positions, drawn until exactly c of them are used, where
s' solves m s' (1 - (1 - 1/s')^M) = c. The scale S sets how much members overlap: fully at 1, hardly at 6.

Shape: x [batch, ...] -> [members, batch, outputs]; a mask is [members, channels].
Cost: parameters of one network plus M c per masked layer (frozen); mult-adds M times one network's, but what comes
before the first mask (the stem) runs once. `member(i)` leaves out masked channels wherever that changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from ..errors import ConfigError, Refusal, RewriteError
from ..network.copies import name_in, on_meta, tensors_of
from ..network.dependence import Usage
from ..rewrite.walker import Edit, install, layer
from ..rewrite.weighted import (
    Read,
    Scaled,
    Weighted,
    scaled_weight,
    tensor_of,
    weighted_layers,
    widths,
)
from ..thinning.masked import without_masked
from .base import Batch, Builder, Method, Rewritten, setting
from .paths import followed

LEAST = 10  # channels that a layer needs for masks
SIDES = ("outputs", "inputs")


class _Mask(Scaled):
    adds = ("mask", "side")
    side: str
    mask: Tensor

    def adopt(self: Any, network: nn.Module) -> None:
        like = tensor_of(self)
        channels = widths(self)[self.side == "outputs"]
        ones = torch.ones(channels, dtype=like.dtype, device=like.device)
        self.register_parameter("mask", nn.Parameter(ones, requires_grad=False))

    def generate(self, name: str, tensor: Tensor) -> Tensor:
        if self.side == "inputs":
            return tensor if name.endswith("bias") else scaled_weight(self, name, tensor, self.mask, None)
        return tensor * self.mask if name.endswith("bias") else scaled_weight(self, name, tensor, None, self.mask)


@layer
class Masked(_Mask):
    """A layer that is called: a mask on the channels that come out or go in."""

    def forward(self: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        mask = self.mask.view(-1, *(1 for _ in getattr(self, "kernel_size", ())))
        if self.side == "inputs":
            return super().forward(x * mask, *args, **kwargs)  # type: ignore[misc]
        return super().forward(x, *args, **kwargs) * mask  # type: ignore[misc]


@layer
class MaskedRead(Read, _Mask):
    """A layer whose weight is read: by attention, by a fast path, by a subclass's own forward."""


@dataclass(frozen=True, kw_only=True)
class Masksembles(Method):
    """Masked members of any network."""

    arranges_batches = True
    variants = ({"scale": 1.5}, {"scale": 3.0})

    members: int = setting(4, "n, or M: the number of masks")
    scale: float = setting(2.0, "S, from 1 (all members alike) to 6 (hardly any overlap)", least=1, most=6)
    where: str = setting(
        "outputs",
        'of every convolution but the head; or "inputs": of every one but the stem, and of the head',
        choices=SIDES,
    )
    feed: str = setting(
        "repeat",
        'in training: "repeat", every member sees the batch; or "split", each its own part',
        choices=("repeat", "split"),
    )
    plain: tuple[str, ...] = setting((), "layers without a mask: module paths with wildcards", example="*shortcut*")

    def active(self, channels: int) -> int:
        """m: the ones of a mask.

        >>> [Masksembles(members=4, scale=2).active(c) for c in (64, 128, 256, 512, 1024, 2048)]
        [34, 68, 136, 273, 546, 1092]
        """
        covered = self.scale * (1 - (1 - 1 / self.scale) ** self.members)
        # Rounding must not take a channel away, and together the masks must be able to cover every channel.
        return max(int(channels / covered + 1e-9), -(-channels // self.members))

    def masks(self, channels: int, seed: int | Sequence[int]) -> np.ndarray:
        """The masks of one layer, [members, channels]: m ones in each row, at least one in each column."""
        ones = self.active(channels)
        if ones == channels:
            return np.ones((self.members, channels))
        positions = max(channels, int(ones * self._overlap(channels, ones) + 1e-9))
        rng = np.random.default_rng(seed)
        while True:
            ranks = rng.random((self.members, positions)).argsort(1)
            masks = np.zeros((self.members, positions))
            np.put_along_axis(masks, ranks[:, :ones], 1, axis=1)
            masks = masks[:, masks.any(0)]
            if masks.shape[1] == channels:
                return masks

    def _overlap(self, channels: int, ones: int) -> float:
        """s': by bisection on the closed-form width, which grows with s'."""
        low, high = 1.0, 4 * self.scale
        for _ in range(60):
            middle = (low + high) / 2
            if ones * middle * (1 - (1 - 1 / middle) ** self.members) < channels:
                low = middle
            else:
                high = middle
        return high

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Rewritten:
        usage = followed(network, example, fix="use Deep, which rewrites no layer")
        weighted = weighted_layers("Masksembles", network, example, usage, self.plain, _Mask.adds)
        layers = self._masked(weighted, usage)
        if not layers:
            reason = f"there must be a layer whose {self.where} can be masked; got none"
            raise RewriteError("Masksembles", [Refusal("", reason, "add a hidden layer, or leave fewer layers plain")])
        sizes = {w.path: widths(w.module)[self.where == "outputs"] for w in layers}
        self._refuse_narrow(sizes)
        kinds = {True: "Masked", False: "MaskedRead"}
        edits = [Edit(w.path, {"side": self.where}, kinds[w.called]) for w in layers]
        return _Masking(network, edits, self, sizes)

    def _masked(self, layers: list[Weighted], usage: Usage) -> list[Weighted]:
        """The layers of the papers: every convolution; where only the stem is one, or none, every weighted layer."""

        def among(w: Weighted, paths: list[str]) -> bool:
            return w.path in paths or (not w.called and w.path.rpartition(".")[0] in paths)

        def convolution(w: Weighted) -> bool:
            return isinstance(w.module, nn.modules.conv._ConvNd)

        edge = usage.heads if self.where == "outputs" else usage.stems
        convolutional = any(convolution(w) and not among(w, usage.stems) for w in layers)
        chosen = [w for w in layers if not convolutional or convolution(w) or among(w, usage.heads)]
        return [w for w in chosen if not among(w, edge)]

    def _refuse_narrow(self, sizes: dict[str, int]) -> None:
        narrow = {path: c for path, c in sizes.items() if c < LEAST and self.active(c) < c}
        if narrow:
            widths_here = ", ".join(f"{c} {self.where} at {path or 'the network'}" for path, c in narrow.items())
            raise ConfigError(
                f"a mask must have at least {LEAST} channels; got {widths_here}. Make them {LEAST} wide, "
                f"or leave them without a mask: Masksembles(plain={tuple(narrow)!r})"
            )

    def batch(self, x: Any, y: Any, generator: torch.Generator | None = None) -> Batch:
        """The batch for all, or consecutive equal parts of it; where it does not divide, its first rows come again."""
        if self.feed == "repeat":
            return super().batch(x, y, generator)
        rows = next(t for t in tree_flatten(x)[0] if isinstance(t, Tensor)).shape[0]
        again = torch.arange(-rows % self.members) % rows

        def part(t: Tensor) -> Tensor:
            t = torch.cat([t, t[again.to(t.device)]]) if len(again) else t
            return t.unflatten(0, (self.members, -1))

        x, y = tree_map_only(Tensor, part, (x, y))
        return Batch(x, y, per_member=True)

    def alone(self) -> Masksembles:
        return replace(self, members=1)

    def finish(self, network: nn.Module, ensemble: Any, index: int) -> nn.Module:
        """Without the channels that this member never uses, wherever that changes nothing."""
        masks = {e.path: ensemble.network.get_submodule(e.path).mask[index] for e in ensemble.edits}
        return without_masked(network, masks, self.where, ensemble.example)


class _Masking(Rewritten):
    """Draws the masks of a layer for all members at once, so that together they cover it."""

    def __init__(self, network: nn.Module, edits: Sequence[Edit], method: Masksembles, sizes: dict[str, int]):
        names = {name_in(path, "mask") for path in sizes}
        super().__init__(network, edits, owns=lambda name, tensor: name in names)
        self.method, self.sizes = method, sizes
        self.masks: dict[str, np.ndarray] = {}  # path -> [members, channels]; none on the meta device

    def begin(self, seeds: Sequence[int]) -> None:
        if not on_meta(self.network):
            self.masks = {p: self.method.masks(c, (seeds[-1], k)) for k, (p, c) in enumerate(self.sizes.items())}

    def member(self, index: int, seed: int) -> nn.Module:
        network = super().member(index, seed)
        old = tensors_of(network)
        rows = {name_in(path, "mask"): torch.as_tensor(masks[index]) for path, masks in self.masks.items()}
        install(network, {name: row.to(old[name]) for name, row in rows.items()})
        return network
