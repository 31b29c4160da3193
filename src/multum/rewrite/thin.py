"""Any network at a fraction of its width, consistently: plan, check, apply.

    width(C) = ceil(factor * C), rounded up to whole convolution groups and attention heads

Residual additions, concatenations, flattening, depthwise and grouped convolutions, squeeze-excite, norms and attention
heads follow from `channels.py`; input and output sizes stay. Trained weights are kept as slices when asked.
"""

from __future__ import annotations

import fnmatch
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..errors import ConfigError, ExampleError, MultumError, Refusal, RewriteError
from .channels import Channels, trace_channels
from .trace import arguments, follow, skeleton, tensors_of
from .walker import Edit, apply, attributes_for, names_of, reset, seeded, width_attributes

__all__ = ["DENSE", "Thinning", "output_of", "plan_thinning", "thin"]

# "No subgroups on the first layer of ResNet's blocks" (Packed-Ensembles, appendix); WRN blocks do take them.
DENSE = ("BasicBlock.conv1", "Bottleneck.conv1")


def thin(
    network: nn.Module,
    factor: float | Fraction,
    example: Any,
    *,
    init: str = "fresh",
    gamma: int = 1,
    seed: int = 0,
) -> nn.Module:
    """A copy of the network at `factor` of its width; the given network is left alone.

    Args:
        factor: 0 < factor <= 1, the share of channels to keep; widths round up.
        example: one example batch.
        init: "fresh" re-runs every layer's initialisation; "pretrained" keeps slices of the given weights, channels
            chosen by the seed.
        gamma: groups in the convolutions, where 64 input channels per group remain.

    >>> net = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 2))
    >>> thin(net, 0.5, torch.zeros(1, 3))[0]
    Linear(in_features=3, out_features=4, bias=True)
    """
    share = Fraction(factor).limit_denominator(1_000_000)
    if not 0 < share <= 1:
        raise ConfigError(f"factor is a share of the width, 0 < factor <= 1, however: factor={factor}")
    plan = plan_thinning(network, example, lambda channels: math.ceil(share * channels), gamma=gamma)
    return plan.build(network, init=init, seed=seed)


@dataclass(frozen=True)
class Thinning:
    """How one network becomes thinner. Shape: `keep[i]` classes of `channels.segments[i]` stay."""

    channels: Channels
    keep: tuple[int, ...]
    edits: tuple[Edit, ...]
    subgroups: dict[str, tuple[int, int]]  # weight name -> (groups before, gamma), where gamma > 1

    def choose(self, seed: int | None = None) -> dict[str, list[np.ndarray]]:
        """The indices that stay, for every dimension of every tensor: the first ones, or a seeded choice."""
        rng = None if seed is None else np.random.default_rng(seed)
        stays = {0}
        for segment, n in zip(self.channels.segments, self.keep, strict=True):
            chosen = segment.classes[:n] if rng is None else rng.choice(segment.classes, n, replace=False)
            stays.update(chosen.tolist())
        keepers = np.array(sorted(stays))
        return {
            name: [np.flatnonzero(np.isin(labels, keepers)) for labels in dims]
            for name, dims in self.channels.classes.items()
        }

    def cut(self, tensors: dict[str, Tensor], kept: dict[str, list[np.ndarray]]) -> dict[str, Tensor]:
        """Slices of the given tensors; a convolution that gets subgroups keeps the blocks on its diagonal."""
        out = {}
        for name, dims in kept.items():
            tensor = tensors[name].detach()
            for d, indices in enumerate(dims):
                if len(indices) < tensor.shape[d]:
                    tensor = tensor.index_select(d, torch.as_tensor(indices, device=tensor.device))
            if name in self.subgroups:
                tensor = diagonal_blocks(tensor, *self.subgroups[name])
            out[name] = tensor.clone(memory_format=torch.contiguous_format)
        return out

    def build(
        self, network: nn.Module, *, init: str, seed: int, builder: Callable[[], nn.Module] | None = None
    ) -> nn.Module:
        """One thin network. "fresh": its own initialisation under `seed`; "pretrained": a seeded choice of channels.

        What no layer initialises itself (tokens, positions) is a slice of what `builder` makes, or of the given values.
        """
        if init not in ("fresh", "pretrained"):
            raise ConfigError(f'init is "fresh" or "pretrained", however: init={init!r}')
        given = tensors_of(network)
        fresh = init == "fresh"
        if fresh:
            self._refuse_frozen(network)
        new = skeleton(network, lambda t: t.detach())
        apply(new, self.edits, self.cut(given, self.choose(None if fresh else seed)))
        if not fresh or any(t.is_meta for t in given.values()):
            return new
        with seeded(seed):
            left = reset(new)
            if left and builder is not None:
                source = tensors_of(builder())
                values = self.cut(source, {n: k for n, k in self.choose(None).items() if n in source})
                apply(new, (), {name: values[name] for name in left if name in values})
        return new

    def _refuse_frozen(self, network: nn.Module) -> None:
        changed = {
            name
            for s, n in zip(self.channels.segments, self.keep, strict=True)
            if n < len(s.classes)
            for name, _ in s.where
        }
        frozen = [name for name, p in network.named_parameters() if name in changed and not p.requires_grad]
        if frozen:
            raise RewriteError(
                "thinning with fresh weights",
                [
                    Refusal(
                        name,
                        "it is frozen, but at another width it would start from random values and stay so",
                        'use init="pretrained", which keeps slices of it, or unfreeze it',
                    )
                    for name in frozen
                ],
            )


def diagonal_blocks(weight: Tensor, groups: int, gamma: int) -> Tensor:
    """[out, in/groups, ...] -> [out, in/(groups*gamma), ...]: what each subgroup's outputs see of its own inputs."""
    out, inner, *kernel = weight.shape
    # g b o c i ...: groups, subgroup of the outputs, its outputs, subgroup of the inputs, its inputs
    blocks = weight.view(groups, gamma, out // (groups * gamma), gamma, inner // gamma, *kernel)
    return torch.stack([blocks[:, b, :, b] for b in range(gamma)], dim=1).reshape(out, inner // gamma, *kernel)


def plan_thinning(
    network: nn.Module,
    example: Any,
    width: Callable[[int], int],
    *,
    gamma: int = 1,
    min_channels: int = 64,
    dense: tuple[str, ...] = DENSE,
) -> Thinning:
    """Trace the network, decide every width, and prove that the thinner network runs; or raise one RewriteError.

    Args:
        width: channels of one member's layer, from the channels of the base network's.
        gamma: subgroups of every convolution, lowered where fewer than `min_channels` input channels per group or an
            uneven split would remain; never in the stem, the head, or what `dense` names ("Class.child" or a path).
    """
    if not isinstance(gamma, int) or gamma < 1:
        raise ConfigError(f"gamma is a whole number of subgroups >= 1, however: gamma={gamma!r}")
    x = tree_map_only(Tensor, lambda t: t[:2], example)
    expected = output_of(network, x)
    channels = trace_channels(network, x)
    refusals = list(channels.refusals)
    refusals += [
        Refusal(
            name,
            "this parameter is not used when the network runs on the example",
            "remove it, or give an example that uses it",
        )
        for name in channels.unused
    ]
    if refusals:
        raise RewriteError("thinning", refusals)
    keep = tuple(max(1, min(len(s.classes), math.ceil(width(s.width) / s.multiplicity))) for s in channels.segments)
    draft = Thinning(channels, keep, (), {})
    shapes = {name: tuple(len(k) for k in dims) for name, dims in draft.choose().items()}
    edits, subgroups = _edits(network, channels, shapes, gamma, min_channels, dense)
    plan = Thinning(channels, keep, edits, subgroups)
    _prove(network, plan, x, expected)
    return plan


def _edits(
    network: nn.Module,
    channels: Channels,
    shapes: dict[str, tuple[int, ...]],
    gamma: int,
    min_channels: int,
    dense: tuple[str, ...],
) -> tuple[tuple[Edit, ...], dict[str, tuple[int, int]]]:
    old = {name: tuple(t.shape) for name, t in tensors_of(network).items()}
    for first, names in names_of(network).items():
        for name in names:
            old[name] = old[first]
            if first in shapes:
                shapes[name] = shapes[first]
    classes = channels.classes
    edits, subgroups = [], {}
    for path, module, parent, child in _with_parents(network):
        prefix = f"{path}." if path else ""
        own = [n for n, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))]
        mine = {n: shapes[prefix + n] for n in own if prefix + n in shapes}
        attributes = attributes_for(module, mine) if mine else {}
        if isinstance(module, nn.modules.conv._ConvNd) and not module.transposed and "weight" in mine:
            weight = classes.get(prefix + "weight")
            named = any(
                pattern == f"{type(parent).__name__}.{child}" or fnmatch.fnmatchcase(path, pattern) for pattern in dense
            )
            edge = weight is None or not weight[1].any() or not weight[0].any()
            if not named and not edge:
                fits = subgroups_that_fit(
                    attributes["in_channels"] // attributes["groups"],
                    attributes["out_channels"] // attributes["groups"],
                    gamma,
                    min_channels,
                )
                if fits > 1:
                    subgroups[prefix + "weight"] = (attributes["groups"], fits)
                    attributes["groups"] *= fits
        elif not mine:
            widths: dict[int, set[int]] = defaultdict(set)
            for name, shape in shapes.items():
                if name.startswith(prefix):
                    for a, b in zip(old[name], shape, strict=True):
                        widths[a].add(b)
            attributes = width_attributes(module, widths)
        changed = {k: v for k, v in attributes.items() if getattr(module, k, None) != v}
        if changed:
            edits.append(Edit(path, changed))
    return tuple(edits), subgroups


def subgroups_that_fit(inputs: int, outputs: int, gamma: int, min_channels: int) -> int:
    """gamma_j of Packed-Ensembles: lowered until it divides both sides and leaves `min_channels` inputs per group.

    >>> subgroups_that_fit(192, 192, 4, 64), subgroups_that_fit(32, 64, 2, 64)
    (3, 1)
    """
    while gamma > 1 and (inputs % gamma or outputs % gamma or inputs // gamma < min_channels):
        gamma -= 1
    return gamma


def _with_parents(network: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Module | None, str]]:
    modules = dict(network.named_modules())
    for path, module in modules.items():
        parent, _, child = path.rpartition(".")
        yield path, module, modules.get(parent) if path else None, child


class _Place:
    """Where a run is."""

    path = ""

    def enter(self, path: str, inputs: Any) -> None:
        """Only the path matters."""


def _prove(network: nn.Module, plan: Thinning, x: Any, expected: Tensor) -> None:
    """Run the thinner network: every width as planned, the output as before."""
    meta = any(t.is_meta for t in tensors_of(network).values())
    trial = skeleton(network, lambda t: t.detach())
    apply(trial, plan.edits, plan.cut(tensors_of(network), plan.choose()))
    place = _Place()
    follow(trial, place)
    fix = "name this width in the module's own code by the input's shape, or use Deep instead of a thinner network"
    try:
        found = output_of(trial, x, check=not meta)
    except (MultumError, RuntimeError, ValueError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise RewriteError(
            "thinning", [Refusal(place.path, f"the thinner network does not run: {reason}", fix)]
        ) from error
    if found.shape != expected.shape:
        raise RewriteError(
            "thinning",
            [Refusal("", f"the output would change from {tuple(expected.shape)} to {tuple(found.shape)}", fix)],
        )


def output_of(network: nn.Module, x: Any, check: bool = True) -> Tensor:
    """What the network gives for an example in eval mode, on a copy, so that nothing moves; clear errors otherwise."""
    trial = skeleton(network, lambda t: t.detach() if isinstance(t, nn.Parameter) else t.detach().clone()).eval()
    args, kwargs = arguments(x)
    with torch.no_grad():
        out = trial(*args, **kwargs)
    if not isinstance(out, Tensor):
        raise ExampleError(f"a member's network returns one tensor, however: it returns {type(out).__name__}")
    return out
