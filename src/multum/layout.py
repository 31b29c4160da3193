"""What an ensemble knows of its network, computed once: what every tensor is for, and which executors can run it.

usage      what depends on the member, by following the own tensors through one run
layers     multum's own norm and dropout take the place of the native ones
names      own tensors, members' numbers, moving buffers, norms that pool
refusals   the executors that cannot run it, by trying them
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
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

__all__ = ["Layout", "first_member", "lay_out", "moving_buffers"]

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
        return (*self.own, *self.numbers)


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
    refusals = _refusals(network, layout, two_rows(example), members, per_member=False)
    layout = replace(layout, refusals=refusals, refusals_per_member=refusals)
    # What is computed once for all members no longer is when each of them brings an input of its own.
    if layout.has_trunk or (usage is None and not apart):
        inputs = tree_map_only(Tensor, lambda t: t.expand(members, *t.shape), two_rows(example))
        more = _refusals(network, layout, inputs, members, per_member=True)
        layout = replace(layout, refusals_per_member=refusals | more)
    return layout


def _refusals(network: nn.Module, layout: Layout, x: Any, members: int, *, per_member: bool) -> dict[str, str]:
    """Why executors cannot run the network, for those that are not known to refuse it."""
    modes = (False,) if layout.samples and not per_member else (True, False)
    trial = (network, layout.stacked, layout.moving, x, members, per_member, modes)
    reasons = {name: e.refusal(*trial) for name, e in EXECUTORS.items() if name not in layout.refusals}
    return {name: reason for name, reason in reasons.items() if reason}


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
