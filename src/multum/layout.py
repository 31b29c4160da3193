"""What an ensemble knows of its network, computed once: what every tensor is for, and which executors can run it.

usage      what depends on the member, by following the own tensors through one run
layers     multum's own norm and dropout take the place of the native ones
names      own tensors, members' numbers, moving buffers, norms that pool
refusals   the executors that cannot run it, by trying them when they are asked for
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from .executors import EXECUTORS
from .network.copies import (
    fold_rows,
    name_in,
    on_meta,
    own_tensors,
    run,
    skeleton,
    tensors_of,
    trial_copy,
    two_rows,
)
from .network.dependence import Usage, trace_members
from .rewrite.dropout import DROPOUTS, Drawing, Randomness
from .rewrite.norm import NORMS

log = logging.getLogger("multum")


@dataclass(frozen=True)
class Layout:
    """The names of a network's tensors and modules by the part they play, and the executors that refuse it."""

    own: tuple[str, ...]  # tensors with a member axis
    numbers: tuple[str, ...]  # the members' numbers that dropout layers own; not parameters, never saved
    moving: tuple[str, ...]  # shared buffers that a forward pass in training changes
    pooled: tuple[str, ...]  # norms whose shared statistics see every member, under an executor that pools
    samples: tuple[str, ...]  # the dropout layers, where they alone tell the members apart
    has_trunk: bool  # whether some weighted layer is computed once for all members
    shared_draws: bool  # whether some dropout has one mask for all members
    refusals: Mapping[str, str] = field(default_factory=dict)  # executor -> why it cannot run this network
    refusals_per_member: Mapping[str, str] = field(default_factory=dict)  # ... where every member has its own input

    @property
    def stacked(self) -> tuple[str, ...]:
        """Everything with a member axis."""
        return self.own + self.numbers


def lay_out(
    network: nn.Module,
    own: Collection[str],
    members: int,
    example: Any,
    randomness: Randomness,
    *,
    folded: bool = False,
    moving: Iterable[str] | None = None,
) -> Layout:
    """Make `network`, whose own tensors are stacked already, the network of an ensemble, in place.

    Args:
        moving: its `moving_buffers`, where they are known.
    """
    own = tuple(name for name in tensors_of(network) if name in set(own))
    rows = fold_rows(two_rows(example), members) if folded else two_rows(example)
    first = first_member(network, own)
    # Networks that share no weight depend on their member everywhere, and need not be followed.
    apart = bool(own) and {name for name, _ in network.named_parameters()} <= set(own)
    one_row = rows if folded else tree_map_only(Tensor, lambda t: t[:1], example)
    usage = None if apart else _usage(first, own, one_row)
    moving = moving_buffers(first, rows) if moving is None else moving

    _install_natives(network, randomness, members, usage)
    drawing = {path: m for path, m in network.named_modules() if isinstance(m, Drawing)}
    numbers = tuple(name_in(path, "member") for path, m in drawing.items() if m.member is not None)
    layout = Layout(
        own=own,
        numbers=numbers,
        moving=tuple(name for name in moving if name not in set(own)),
        pooled=_pooled_norms(network, set(own), usage),
        samples=() if own or not all(m.always for m in drawing.values()) else tuple(drawing),
        has_trunk=(usage is not None and usage.has_trunk) or any(m.always for m in drawing.values()),
        shared_draws=any(m.always or m.member is None for m in drawing.values()),
    )
    if not layout.stacked:
        return layout
    refusals = Refusals(network, layout, two_rows(example), per_member=False)
    # What is computed once for all members no longer is when each of them brings an input of its own.
    differs = layout.has_trunk or (usage is None and not apart)
    per_member = Refusals(network, layout, two_rows(example), per_member=True, before=refusals) if differs else refusals
    # An executor that may be the default must not turn out to refuse in the middle of the work.
    device = next(iter(tensors_of(network).values())).device.type
    for name, executor in EXECUTORS.items():
        if any(executor.suits(device, training, layout.has_trunk) for training in (True, False)):
            per_member.get(name)
    return replace(layout, refusals=refusals, refusals_per_member=per_member)


class Refusals(Mapping[str, str]):
    """Why executors cannot run a network, by name; each is tried when first asked for.

    Args:
        x: two rows of the example.
        before: refusals that hold here, too.
    """

    def __init__(
        self, network: nn.Module, layout: Layout, x: Any, *, per_member: bool, before: Mapping[str, str] | None = None
    ):
        self.network, self.layout, self.x, self.per_member = network, layout, x, per_member
        self.before = {} if before is None else before
        self.reasons: dict[str, str | None] = {}
        self.dtype = _dtype(network)

    def reason(self, name: str) -> str | None:
        if name not in self.reasons:
            self.reasons[name] = self.before.get(name) or self.tried(name)
        return self.reasons[name]

    def tried(self, name: str) -> str | None:
        """The network may have moved since, to another device or dtype, and may have other members."""
        tensors = tensors_of(self.network)
        members = len(tensors[self.layout.stacked[0]])
        device, dtype = tensors[self.layout.stacked[0]].device, _dtype(self.network)
        x = tree_map_only(Tensor, lambda t: t.to(device, dtype if t.dtype == self.dtype else None), self.x)
        if self.per_member:
            x = tree_map_only(Tensor, lambda t: t.expand(members, *t.shape), x)
        modes = (False,) if self.layout.samples and not self.per_member else (True, False)
        names = self.layout.stacked, self.layout.moving
        plain = torch.autocast("cpu" if device.type == "meta" else device.type, enabled=False)
        with plain, _disable_current_modes():  # a counter of operations, say, must not count these
            return EXECUTORS[name].refusal(self.network, *names, x, members, self.per_member, modes)

    def __getitem__(self, name: str) -> str:
        reason = self.reason(name) if name in EXECUTORS else None
        if reason is None:
            raise KeyError(name)
        return reason

    def __iter__(self) -> Iterator[str]:
        return (name for name in EXECUTORS if self.reason(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _dtype(network: nn.Module) -> torch.dtype | None:
    """Of the network's first number."""
    return next((t.dtype for t in tensors_of(network).values() if t.is_floating_point()), None)


def first_member(network: nn.Module, stacked: Iterable[str]) -> nn.Module:
    """The one-member network with the first member's tensors, as views: for looking, not for training."""
    tensors = tensors_of(network)
    own = {id(tensors[name]) for name in stacked}
    return skeleton(network, lambda t: (t[0] if id(t) in own else t).detach())


def moving_buffers(network: nn.Module, example: Any) -> list[str]:
    """The buffers that a forward pass in training changes: running statistics, power iterations, counters.

    Args:
        example: at least two rows, as batch norm cannot train on one.
    """
    names = [n for n, _ in network.named_buffers()]
    modules = [(m, path) for path, m in network.named_modules() if isinstance(m, nn.modules.batchnorm._NormBase)]
    norms = {name for module, path in modules for name in own_tensors(module, path)}
    if not set(names) - norms or on_meta(network):
        return [n for n in names if n in norms]
    trial = trial_copy(network).train()
    before = {n: b.clone() for n, b in trial.named_buffers()}
    with torch.no_grad(), torch.random.fork_rng():
        run(trial, example)
    after = dict(trial.named_buffers())
    return [n for n in names if n in norms or n not in after or not torch.equal(before[n], after[n])]


def _install_natives(network: nn.Module, randomness: Randomness, members: int, usage: Usage | None) -> None:
    """multum's own norm and dropout take the place of the native ones; every other layer stays as it is."""
    device = next((t.device for t in tensors_of(network).values()), None)
    for path, module in network.named_modules():
        if type(module) in NORMS:
            module.__class__ = NORMS[type(module)]
        elif type(module) in DROPOUTS:
            module.__class__ = DROPOUTS[type(module)]
        if isinstance(module, Drawing):
            module.__dict__["randomness"] = randomness
            depends = usage is None or path in usage.inputs or module.always
            number = torch.arange(members, device=device) if depends else None
            module.register_buffer("member", number, persistent=False)  # type: ignore[attr-defined]


def _pooled_norms(network: nn.Module, own: set[str], usage: Usage | None) -> tuple[str, ...]:
    """The batch norms that all members share although their inputs differ."""
    pooled = []
    for path, module in network.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (usage is None or path in usage.inputs):
            mine = own_tensors(module, path)
            statistics = {name for name, t in mine.items() if not isinstance(t, nn.Parameter)} or set(mine)
            if statistics and not own & statistics:
                pooled.append(path)
    return tuple(pooled)


def _usage(network: nn.Module, own: Collection[str], example: Any) -> Usage | None:
    try:
        return trace_members(network, set(own), example)
    except Exception as error:  # whatever a user's network raises on noted tensors, it can still run
        log.info("multum could not follow what depends on the member (%s); every dropout mask is per member", error)
        return None
