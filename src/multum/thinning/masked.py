"""A plain network without the channels that a member's masks take out, wherever that changes nothing.

    outputs masked   a channel is 0 where it is made; it can go if it is still 0 where it is used
    inputs masked    a channel is ignored where it is used; it can go whatever happens to it on the way

Which channels belong together is read off a run (`channels.py`). What a network does to them between two layers is not
known in general (a sigmoid turns 0 into 1/2), so every removal is proven by running both networks in float64, with
perturbed weights; a network that cannot be followed, or a removal that cannot be proven, leaves zeros in the weights.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..errors import RewriteError
from ..network.copies import drawn, skeleton, tensors_of
from .channel_rules import argument
from .channels import Channels, ChannelTracer, Segment, run_on_meta
from .slots import slots_of, varies
from .thin import drop_channels, output_of

log = logging.getLogger("multum")

_EXTREMES = {"amax", "amin", "max", "min", "aminmax", "median", "nanmedian", "kthvalue", "mode", "any", "all"}
TOLERANCE = 1e-12  # in float64, relative to the largest output


def without_masked(network: nn.Module, masks: Mapping[str, Tensor], side: str, example: Any) -> nn.Module:
    """The network, or a smaller one that computes the same.

    Args:
        network: plain, the masks folded into its weights.
        masks: path of a layer -> 0 or 1 for each of its channels.
        side: "outputs" or "inputs" of these layers.
        example: shapes of a batch; values do not matter.
    """
    tensors = tensors_of(network)
    if any(t.is_meta for t in tensors.values()):
        return network
    x = drawn(example, next(t for t in tensors.values() if t.is_floating_point()))
    try:
        tracer, out = run_on_meta(lambda: _Watching(network), network, x)
    except RewriteError as error:
        log.info("multum leaves masked channels in the member: %s", error)
        return network
    channels: Channels = tracer.finish(out)
    if channels.refusals:
        return network
    dead = [classes for s in channels.segments if len(classes := _dead(network, channels, s, masks, side))]
    if not dead:
        return network
    gone = _proven(network, channels, dead, masks, x)
    return drop_channels(network, channels, gone, x) if len(gone) else network


class _Watching(ChannelTracer):
    """Also keeps the channels whose largest is taken: for some inputs only, that is the 0 of a masked one."""

    def result(self, func: Any, args: tuple, kwargs: dict, outputs: list[Tensor | None]) -> list[Any]:
        if func.overloadpacket.__name__ in _EXTREMES and len([t for t in args if isinstance(t, Tensor)]) == 1:
            dims = argument(func, args, kwargs, "dim")
            dims = [dims] if isinstance(dims, int) else dims or range(args[0].ndim)
            gone = {d % args[0].ndim for d in dims}
            self.freeze_slots([slot for slot in slots_of(args[0]) if varies(slot) & gone])
        return super().result(func, args, kwargs, outputs)


def _dead(
    network: nn.Module, channels: Channels, segment: Segment, masks: Mapping[str, Tensor], side: str
) -> np.ndarray:
    """The classes of a segment that the masks take out; none where something else would have to agree."""
    none = np.zeros(0, dtype=np.int64)
    known = ("inputs", "outputs", "norm") if side == "inputs" else ("inputs", "outputs")
    alive, masked = set(), False
    for name, d in segment.where:
        path, _, last = name.rpartition(".")
        role = _role(network.get_submodule(path), last, d)
        if role not in known or (role == side and path not in masks):
            return none
        if role == side:
            labels, masked = channels.classes[name][d], True
            # One index of a grouped weight stands for a channel of every group.
            open_ = (masks[path].detach().view(-1, len(labels)) != 0).any(0).cpu().numpy()
            alive.update(labels[open_].tolist())
    dead = np.array([k for k in segment.classes.tolist() if k not in alive], dtype=np.int64)
    return dead[: len(segment.classes) - 1] if masked else none  # a layer keeps at least one channel


def _role(module: nn.Module, name: str, dim: int) -> str:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return "norm"
    if not isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)) or name not in ("weight", "bias"):
        return "other"
    first, second = ("inputs", "outputs") if getattr(module, "transposed", False) else ("outputs", "inputs")
    return "outputs" if name == "bias" else (first, second, "other")[min(dim, 2)]


def _proven(
    network: nn.Module, channels: Channels, dead: list[np.ndarray], masks: Mapping[str, Tensor], x: Any
) -> np.ndarray:
    """All classes together if they can go; otherwise those of the segments that can go on their own."""
    none = np.zeros(0, dtype=np.int64)
    try:
        double = _perturbed(network, masks)
        x = tree_map_only(Tensor, lambda t: t.double() if t.is_floating_point() else t, x)
        expected = output_of(double, x)
    except Exception as error:  # a network that insists on float32, a device without float64
        log.info("multum leaves masked channels in the member, as it does not run in float64: %s", error)
        return none

    def changes_nothing(gone: np.ndarray) -> bool:
        try:
            out = output_of(drop_channels(double, channels, gone, x), x)
        except Exception:  # a network that cannot run with fewer channels may raise anything
            return False
        far = (out - expected).abs().max() if out.shape == expected.shape else torch.inf
        return bool(far <= TOLERANCE * expected.abs().max().clamp_min(1))

    every = np.concatenate(dead)
    if changes_nothing(every):
        return every
    some = np.concatenate([none, *(d for d in dead if changes_nothing(d))])
    return some if len(some) and changes_nothing(some) else none


def _perturbed(network: nn.Module, masks: Mapping[str, Tensor]) -> nn.Module:
    """A copy in float64 with slightly other weights, 0 only where masked: a head of zeros would hide everything."""
    new = skeleton(network, lambda t: t.detach().to(torch.float64 if t.is_floating_point() else t.dtype, copy=True))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, p in new.named_parameters():
            if p.is_floating_point():
                noise = 0.1 * torch.randn(p.shape, generator=generator, dtype=p.dtype).to(p.device)
                masked = name.rpartition(".")[0] in masks
                p.add_(noise * (p if masked else p.square().mean().sqrt().clamp_min(0.1)))
    return new
