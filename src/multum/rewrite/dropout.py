"""Dropout with one random generator per member, and one more for what the members share.

A dropout layer whose input depends on the member owns its member's number (a buffer with a member axis) and draws from
that member's generator; a layer in a trunk that all members share has no number and draws one mask for all. Every
executor reads the same generators in the same order, so they agree in training too.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .walker import MemberLayer, variant

_SOURCES: weakref.WeakValueDictionary[int, Randomness] = weakref.WeakValueDictionary()
_HANDLES = itertools.count(1)


class Randomness:
    """The generators of an ensemble: one per member and one for what they share.

    Shape: `seeds` has members + 1 entries, the last for the shared part.
    """

    def __init__(self, seeds: list[int]):
        self.seeds = list(seeds)
        self.generators: dict[str, list[torch.Generator]] = {}
        # An operator may take a number but no Python object: the number finds the generators again.
        self.handle = next(_HANDLES)
        _SOURCES[self.handle] = self

    def on(self, device: torch.device) -> list[torch.Generator]:
        key = str(torch.device(device.type, device.index or 0) if device.type != "cpu" else device)
        if key not in self.generators:
            self.generators[key] = [torch.Generator(device).manual_seed(seed) for seed in self.seeds]
        return self.generators[key]

    def shared_state(self) -> dict[str, Tensor]:
        return {device: generators[-1].get_state() for device, generators in self.generators.items()}

    def restore_shared(self, state: dict[str, Tensor]) -> None:
        """Rewind the shared generator, so that the next member of a loop draws the same shared masks."""
        for device, generators in self.generators.items():
            if device in state:
                generators[-1].set_state(state[device])
            else:
                generators[-1].manual_seed(self.seeds[-1])

    def __reduce__(self) -> Any:
        return _restored, (self.seeds, self.state())

    def state(self) -> dict[str, Tensor]:
        """All generator states by device, [members + 1, bytes]."""
        return {device: torch.stack([g.get_state() for g in gs]) for device, gs in self.generators.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for device, rows in state.items():
            for generator, row in zip(self.on(torch.device(device)), rows, strict=True):
                generator.set_state(row.clone())  # torch 2.13 crashes on a view into a larger tensor


def _restored(seeds: list[int], state: dict[str, Tensor]) -> Randomness:
    new = Randomness(seeds)
    new.load_state(state)
    return new


def draw_mask(mask: Tensor, p: float, generator: torch.Generator, quick: bool) -> Tensor:
    """Fill a contiguous tensor with 0, where something is dropped, and 1.

    Args:
        quick: for predictions, where masks cost as much as the network: on a CPU one number of the generator seeds a
            stream of numbers (`_numbers`), in a tenth of the time of torch's own, in the order of `in_order`.
    """
    if not quick or mask.device.type != "cpu":
        return mask.bernoulli_(1 - p, generator=generator)
    ordered, limit = in_order(mask), _last_dropped(p)
    kept = np.concatenate([numbers > limit for numbers in _numbers(mask.numel(), generator)])
    ordered.copy_(torch.from_numpy(kept).view(ordered.shape))
    return mask


def drop(x: Tensor, p: float, generator: torch.Generator, out: Tensor) -> None:
    """Write x times the quick mask of its elements, in one pass. Shape: [elements] of float32 on a CPU, contiguous."""
    halves, limit = (t.view(torch.int32).tensor_split(2) for t in (x, out)), _last_dropped(p)
    for bits, part, numbers in zip(*halves, _numbers(len(x), generator), strict=True):
        torch.ops.aten.threshold_backward.grad_input(bits, torch.from_numpy(numbers), limit, grad_input=part)


def in_order(x: Tensor) -> Tensor:
    """A view of x in whose order quick masks are drawn: images channels last, as the fastest convolutions have them."""
    return x.permute(0, 2, 3, 1) if x.ndim == 4 else x


def _numbers(count: int, generator: torch.Generator) -> list[np.ndarray]:
    """A random int32 for every element: of the first half of the elements, and of the second.

    The numbers of the second half lie two bytes behind those of the first, so that each shares 16 of its 32 bits with
    another one and half of them need not be drawn. Rates are exact to 2^-33 all the same, and two elements correlate by
    less than 2^-16, since lower bits matter only where the upper 16 are those of the limit.
    """
    half = (count + 1) // 2
    seed = torch.empty((), dtype=torch.int64).random_(generator=generator)
    stream = np.random.SFC64(int(seed)).random_raw(half // 2 + 1).view(np.uint8)
    places = (slice(0, 4 * half), slice(2, 2 + 4 * (count - half)))
    return [stream[place].view(np.int32) for place in places]


def _last_dropped(p: float) -> int:
    """The largest int32 that means dropped."""
    return max(round(p * 2**32) - 1, 0) - 2**31


def _mask_shape(shape: Any, channelwise: bool) -> list[int]:
    return [*shape[:2], *(1 for _ in shape[2:])] if channelwise else list(shape)


@torch.library.custom_op("multum::keep", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def keep(x: Tensor, p: float, channelwise: bool, member: Tensor | None, handle: int, quick: bool) -> Tensor:
    """The mask of what dropout keeps, 0 or 1, from the generator of `member` (None: the shared one)."""
    return _kept(x, p, channelwise, member, handle, quick)


def _kept(x: Tensor, p: float, channelwise: bool, member: Tensor | None, handle: int, quick: bool) -> Tensor:
    mask = torch.empty(_mask_shape(x.shape, channelwise), dtype=x.dtype, device=x.device)
    if x.is_meta:
        return mask
    generators = _SOURCES[handle].on(x.device)
    return draw_mask(mask, p, generators[-1 if member is None else int(member)], quick)


def _unwatched(x: Tensor) -> bool:
    """Whether nobody must see an operator: no vmap, no tracer, no compiler."""
    if torch.compiler.is_compiling():  # first: a compiler cannot follow what is asked next
        return False
    modes = torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()
    mapped = torch._C._functorch.peek_interpreter_stack() is not None
    return type(x) is Tensor and not (modes or mapped)


@keep.register_fake
def _(x: Tensor, p: float, channelwise: bool, member: Tensor | None, handle: int, quick: bool) -> Tensor:
    return x.new_empty(_mask_shape(x.shape, channelwise))


keep.register_autograd(lambda ctx, grad: (None,) * 6)


@keep.register_vmap
def _(info: Any, in_dims: Any, x: Tensor, p: float, channelwise: bool, member: Any, handle: int, quick: bool) -> Any:
    x_dim, member_dim = in_dims[0], in_dims[3]
    one = x if x_dim is None else x.select(x_dim, 0)
    if member_dim is None:
        return keep(one, p, channelwise, member, handle, quick), None
    return keep_each(one, p, channelwise, member.movedim(member_dim, 0), handle, quick), 0


@torch.library.custom_op("multum::keep_each", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def keep_each(x: Tensor, p: float, channelwise: bool, members: Tensor, handle: int, quick: bool) -> Tensor:
    """The masks of several members for the x of one. Shape: [members, ...]."""
    masks = torch.empty([len(members), *_mask_shape(x.shape, channelwise)], dtype=x.dtype, device=x.device)
    if not x.is_meta:
        generators = _SOURCES[handle].on(x.device)
        for mask, i in zip(masks, members.tolist(), strict=True):
            draw_mask(mask, p, generators[i], quick)
    return masks


@keep_each.register_fake
def _(x: Tensor, p: float, channelwise: bool, members: Tensor, handle: int, quick: bool) -> Tensor:
    return x.new_empty([len(members), *_mask_shape(x.shape, channelwise)])


keep_each.register_autograd(lambda ctx, grad: (None,) * 6)


class Drawing:
    """A layer that draws a mask of its own for its member; an ensemble gives it its generators and its number."""

    always = False  # also in eval mode, where members are samples of one network
    training: bool
    randomness: Randomness
    member: Tensor | None

    def forget(self) -> None:
        """Be a layer of a plain network again."""
        fields: Any = self.__dict__
        fields["_buffers"].pop("member", None)
        fields["_non_persistent_buffers_set"].discard("member")
        for name in ("randomness", "always"):
            fields.pop(name, None)

    def draw(self, x: Tensor, p: float, channelwise: bool) -> Tensor | None:
        """The mask of what `x` keeps; None where nothing is dropped."""
        if not (self.training or self.always) or p == 0:
            return None
        # Samples of one network are trained as one network: the same mask for all, computed once.
        member = None if self.training and self.always else self.member
        x = x.detach()
        draw = _kept if _unwatched(x) else keep  # the operator takes as long as a small mask
        return draw(x, p, channelwise, member, self.randomness.handle, not self.training)


class MemberDropout(Drawing, MemberLayer, nn.modules.dropout._DropoutNd):
    """Dropout of one member. Shape: any; the mask is [B, C, 1, ...] where whole channels are dropped."""

    @property
    def channelwise(self) -> bool:
        return not isinstance(self, (nn.Dropout, nn.AlphaDropout))

    def fold(self) -> None:
        super().fold()
        Drawing.forget(self)

    def forward(self, x: Tensor) -> Tensor:
        mask = self.draw(x, self.p, self.channelwise)
        if mask is None:
            return x
        return x * mask if self.p == 1 else self.combine(x, mask)

    def combine(self, x: Tensor, mask: Tensor) -> Tensor:
        return x * (mask / (1 - self.p))


class MemberAlphaDropout(MemberDropout):
    """Dropped values become the saturation of SELU, then an affine map restores mean 0 and variance 1."""

    def combine(self, x: Tensor, mask: Tensor) -> Tensor:
        low = -1.7580993408473766
        a = ((1 - self.p) * (1 + self.p * low**2)) ** -0.5
        return a * (x * mask + low * (1 - mask)) - a * low * self.p


_NATIVE: tuple[type[nn.Module], ...] = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_ALPHA: tuple[type[nn.Module], ...] = (nn.AlphaDropout, nn.FeatureAlphaDropout)
DROPOUTS = {plain: variant(MemberDropout, plain) for plain in _NATIVE}
DROPOUTS |= {plain: variant(MemberAlphaDropout, plain) for plain in _ALPHA}
