"""Any network at a fraction or a multiple of its width, consistently: plan, check, apply.

    width(C) = ceil(factor * C), rounded up to whole convolution groups and attention heads

Residual additions, concatenations, flattening, depthwise and grouped convolutions, squeeze-excite, norms and attention
heads follow from `channels.py`; input and output sizes stay. Trained weights are kept as slices when asked.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..checks import number, whole
from ..errors import ExampleError, Refusal, RewriteError, first_line
from ..network.attributes import attributes_for, width_attributes
from ..network.copies import on_meta, own_tensors, run, tensors_of, trial_copy
from ..network.trace import follow
from ..rewrite.walker import Edit, names_of
from .channels import Channels, trace_channels
from .plan import Thinning, compare_wiring
from .subgroups import DENSE, find_subgroups

log = logging.getLogger("multum")


def thin(
    network: nn.Module,
    factor: float | Fraction,
    example: Any,
    *,
    init: str = "fresh",
    gamma: int = 1,
    seed: int = 0,
) -> nn.Module:
    """A copy of the network at `factor` of its width; the given network is not changed.

    Args:
        factor: 0 < factor <= 1, the share of channels to keep; widths round up.
        example: one example batch.
        init: "fresh" re-runs every layer's initialisation; "pretrained" keeps slices of the given weights, channels
            chosen by the seed.
        gamma: groups in the layers, where 64 input channels per group remain.

    >>> net = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 2))
    >>> thin(net, 0.5, torch.zeros(1, 3))[0]
    Linear(in_features=3, out_features=4, bias=True)
    """
    if not isinstance(factor, Fraction):
        number("factor", factor, above=0, most=1)
    share = Fraction(factor).limit_denominator(1_000_000)
    number("factor", float(share), above=0, most=1, fix="It is the share of channels that stays, such as 0.5")
    plan = plan_thinning(network, example, lambda channels: math.ceil(share * channels), gamma=gamma)
    return plan.build(network, init=init, seed=seed)


def widen(network: nn.Module, factor: float | Fraction, example: Any, *, seed: int = 0) -> nn.Module:
    """A copy of the network, `factor` times as wide, freshly initialised; the given network is left alone.

    Args:
        factor: 1 or more; widths round up.
        example: one example batch.

    >>> net = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 2))
    >>> widen(net, 1.5, torch.zeros(1, 3))[0]
    Linear(in_features=3, out_features=11, bias=True)
    """
    times = Fraction(number("factor", factor, least=1)).limit_denominator(1_000_000)
    try:
        plan = plan_thinning(network, example, lambda channels: math.ceil(times * channels))
        return plan.build(network, init="fresh", seed=seed)
    except RewriteError as error:
        raise RewriteError("widening", error.refusals) from error


def drop_channels(network: nn.Module, channels: Channels, gone: np.ndarray, example: Any) -> nn.Module:
    """A copy of the network without these classes of channels, everything else as it was.

    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> channels = trace_channels(net, torch.zeros(1, 3))
    >>> drop_channels(net, channels, channels.segments[0].classes[:3], torch.zeros(1, 3))[0]
    Linear(in_features=3, out_features=5, bias=True)
    """
    keep = tuple(int((~np.isin(s.classes, gone)).sum()) for s in channels.segments)
    draft = Thinning(channels, keep, example)
    plan = replace(draft, edits=tuple(_edits(network, draft).values()))
    kept = {
        name: [np.flatnonzero(~np.isin(labels, gone)) for labels in dims] for name, dims in channels.classes.items()
    }
    return plan.apply(network, kept)


def plan_thinning(
    network: nn.Module,
    example: Any,
    width: Callable[[int], int],
    *,
    gamma: int = 1,
    min_channels: int = 64,
    dense: tuple[str, ...] = DENSE,
) -> Thinning:
    """Trace the network, decide every width, and prove that the network runs at them; or raise one RewriteError.

    Args:
        width: channels of one member's layer, from the channels of the base network's.
        gamma: subgroups of every layer, lowered where fewer than `min_channels` input channels per group or an
            uneven split would remain; never in the stem, the head, or what `dense` names ("Class.child" or a path).
    """
    whole("gamma", gamma)
    meta = on_meta(network)
    x = tree_map_only(Tensor, lambda t: t[:3].to("meta") if meta else t[:3].clone(), example)
    expected = _Runs(output_of(network, x), _training_error(network, x) is None)
    channels = trace_channels(network, x)
    _refuse(channels)
    alone = [max(1, math.ceil(width(s.width) / s.multiplicity)) for s in channels.segments]
    try:
        plan = _proven(network, Thinning(channels, tuple(alone), x), gamma, min_channels, dense, expected)
    except RewriteError:
        alike = _equal_widths(channels, alone)
        if alike == alone:
            raise
        plan = _proven(network, Thinning(channels, tuple(alike), x), gamma, min_channels, dense, expected)
    _tell_what_stays(channels, plan, width)
    return plan


def _refuse(channels: Channels) -> None:
    reason = "this parameter is not used when the network runs on the example"
    unused = [Refusal(name, reason, "remove it, or give an example that uses it") for name in channels.unused]
    if channels.refusals or unused:
        raise RewriteError("thinning", [*channels.refusals, *unused])


def _equal_widths(channels: Channels, keep: list[int]) -> list[int]:
    """Widths that are equal in the given network, made equal again: an embedding and its heads, both whole heads.

    Code such as `x.reshape(batch, tokens, channels)` after attention needs that; other code would only lose by it.
    """
    shared: dict[int, int] = {}
    for s in channels.segments:
        shared[s.width] = math.lcm(shared.get(s.width, 1), s.multiplicity)
    out = []
    for s, n in zip(channels.segments, keep, strict=True):
        whole = math.ceil(n * s.multiplicity / shared[s.width]) * shared[s.width]
        rounded = whole // s.multiplicity
        out.append(min(len(s.classes), rounded) if n <= len(s.classes) else rounded)
    return out


def _tell_what_stays(channels: Channels, plan: Thinning, width: Callable[[int], int]) -> None:
    changed = any(n != len(s.classes) for s, n in zip(channels.segments, plan.keep, strict=True))
    if channels.wide and width(1024) != 1024:
        log.log(
            logging.INFO if changed else logging.WARNING,
            "multum keeps the width of %s: inside the network something else has that very size",
            ", ".join(channels.wide),
        )


def _proven(
    network: nn.Module, draft: Thinning, gamma: int, min_channels: int, dense: tuple[str, ...], expected: _Runs
) -> Thinning:
    """The plan with its edits; the thinner network has run, its output as before, its channels wired as before."""
    edits = _edits(network, draft)
    plan = replace(draft, edits=tuple(edits.values()))
    kept = plan.choose()
    thinner = plan.apply(network, kept)
    calls = _run(thinner, plan.example, expected)
    refusals = compare_wiring(thinner, plan.example, plan.channels, kept)
    if refusals:
        raise RewriteError("thinning", refusals)
    subgroups = find_subgroups(network, draft.channels, edits, gamma, min_channels, dense, calls)
    if subgroups:
        plan = replace(plan, edits=tuple(edits.values()), subgroups=subgroups)
        _run(plan.apply(network, kept), plan.example, expected)
    return plan


def _edits(network: nn.Module, draft: Thinning) -> dict[str, Edit]:
    """The attributes that change, by the path of their module."""
    old = {name: tuple(t.shape) for name, t in tensors_of(network).items()}
    shapes, norms = draft.shapes(), draft.norm_shapes()
    for first, names in names_of(network).items():
        for name in names:
            old[name] = old[first]
            if first in shapes:
                shapes[name] = shapes[first]
    edits = {}
    for path, module in network.named_modules():
        prefix = f"{path}." if path else ""
        mine = {n: shapes[prefix + n] for n in own_tensors(module) if prefix + n in shapes}
        if norms.get(path):
            mine = {"weight": norms[path]}
        attributes = attributes_for(module, mine) if mine else {}
        if not attributes:
            widths: dict[int, set[int]] = defaultdict(set)
            for name, shape in shapes.items():
                if name.startswith(prefix):
                    for a, b in zip(old[name], shape, strict=True):
                        widths[a].add(b)
            attributes = width_attributes(module, widths)
        changed = {k: v for k, v in attributes.items() if getattr(module, k, None) != v}
        if changed:
            edits[path] = Edit(path, changed)
    return edits


class _Place:
    """Where a run is, and where it has been."""

    def __init__(self) -> None:
        self.path = ""
        self.calls: set[str] = set()

    def enter(self, path: str, inputs: Any) -> None:
        self.calls.add(path)


class _Runs(NamedTuple):
    """What the given network does with the example."""

    output: Tensor
    trains: bool


def _run(thinner: nn.Module, x: Any, expected: _Runs) -> set[str]:
    """The modules that ran; a network that does not run at its new widths, or gives another output, is refused."""
    place = _Place()
    follow(thinner, place)
    fix = "name this width in the module's own code by the input's shape, or use Deep instead of other widths"
    try:
        out = output_of(thinner, x)
    except Exception as error:  # a user's network may raise anything
        reason = f"at other widths it does not run: {first_line(error)}"
        raise RewriteError("thinning", [Refusal(place.path, reason, fix)]) from error
    if out.shape != expected.output.shape:
        reason = f"the output would change from {tuple(expected.output.shape)} to {tuple(out.shape)}"
        raise RewriteError("thinning", [Refusal("", reason, fix)])
    problem = _training_error(thinner, x) if expected.trains else None
    if problem is not None:
        reason = f"at other widths it does not run in training: {first_line(problem)}"
        raise RewriteError("thinning", [Refusal(place.path, reason, fix)]) from problem
    return place.calls


def _training_error(network: nn.Module, x: Any) -> Exception | None:
    """What a network raises in training mode, on a copy."""
    try:
        with torch.no_grad(), torch.random.fork_rng():
            run(trial_copy(network).train(), tree_map_only(Tensor, torch.clone, x))
    except Exception as error:  # a user's network may raise anything
        return error
    return None


def output_of(network: nn.Module, x: Any) -> Tensor:
    """What the network gives for an example in eval mode, on a copy, so that nothing moves; clear errors otherwise."""
    with torch.no_grad():
        out = run(trial_copy(network).eval(), tree_map_only(Tensor, torch.clone, x))
    if not isinstance(out, Tensor):
        raise ExampleError(f"a member's network must return one tensor; got {type(out).__name__}")
    return out
