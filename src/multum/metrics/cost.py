"""What one prediction costs: parameters and mult-adds, counted by following the members through the network.

    macs       multiply-adds of convolutions and linear layers (also of weights used by hand); batch 1
    torchinfo  macs, plus biases at every position, plus every norm's and other layer's parameters once
    flops      2 * macs + 2 * params

A layer counts once per member where its input or its weight depends on the member, and once where it does not.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..ensemble import Ensemble
from ..errors import check_known
from ..figures.formats import fixed_width
from ..network.copies import fold_rows
from ..network.dependence import trace_members

CONVENTIONS = ("macs", "torchinfo", "flops")


@dataclass(frozen=True)
class Part:
    """The cost of one module, all members together."""

    path: str
    layer: str
    params: int
    macs: int
    times: int  # how often it runs per prediction: 1 in a shared trunk, else the number of members


@dataclass(frozen=True)
class Cost:
    """The cost of one prediction of all members.

    Shape: `parts` has one row per module with parameters or mult-adds; `attention` are the mult-adds of products of two
    activations, which `macs` leaves out by convention.
    """

    params: int
    trainable: int
    macs: int
    torchinfo: int
    attention: int
    members: int
    parts: tuple[Part, ...]

    @property
    def flops(self) -> int:
        """2 * macs + 2 * params, as in the MIMO paper's footnote."""
        return 2 * self.macs + 2 * self.params

    def mult_adds(self, convention: str = "macs") -> int:
        """Mult-adds by the name of the convention: "macs", "torchinfo" or "flops"."""
        check_known(convention, CONVENTIONS, f"convention must be one of {', '.join(CONVENTIONS)}")
        return getattr(self, convention)

    def rows(self) -> list[tuple[str, str, int, int, int]]:
        """(path, layer, params, macs, times) of every part, ready for a table."""
        return [(p.path, p.layer, p.params, p.macs, p.times) for p in self.parts]

    def __str__(self) -> str:
        head = ("module", "layer", "params", "mult-adds", "times")
        rows = [(p or "(network)", k, f"{n:,}", f"{m:,}", str(t)) for p, k, n, m, t in self.rows()]
        rows.append(("total", f"{self.members} members", f"{self.params:,}", f"{self.macs:,}", ""))
        return "\n".join(fixed_width([head, *rows], left=2))


def cost(network: Ensemble | nn.Module, *, example: Any) -> Cost:
    """Parameters and mult-adds of one prediction of an ensemble, or of a plain network.

    Args:
        example: one example batch; one row of it is counted.

    >>> import torch
    >>> counted = cost(nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 2)), example=torch.zeros(1, 3))
    >>> counted.params, counted.macs
    (50, 40)
    """
    row = tree_map_only(Tensor, lambda t: t[:1], example)
    members, own, single = 1, set(), network
    if isinstance(network, Ensemble):
        members, own, single = network.members, {*network.own, *network.numbers}, network.single()
        row = fold_rows(row, members) if network.folded else row
    usage = trace_members(single, own, row)

    macs: dict[str, int] = defaultdict(int)
    positions: dict[str, int] = defaultdict(int)
    attention = 0
    for work in usage.work:
        times = members if work.per_member else 1
        if work.kind == "attention":
            attention += work.macs * times
        else:
            macs[work.path] += work.macs * times
            positions[work.path] += work.positions
    parts, torchinfo = [], 0
    first_names = dict(single.named_parameters())
    for path, module in single.named_modules():
        mine = dict(module.named_parameters(path, recurse=False))
        buffers = dict(module.named_buffers(path, recurse=False))
        times = members if own & {*mine, *buffers} or path in usage.inputs else 1
        params = sum(p.numel() * (members if n in own else 1) for n, p in mine.items() if n in first_names)
        size = sum(p.numel() for p in mine.values())
        if isinstance(module, nn.modules.conv._ConvNd):
            bias = module.bias.numel() if module.bias is not None else 0
            torchinfo += macs[path] + bias * positions[path] * times
        else:
            torchinfo += size * times * usage.calls.get(path, 0)
        if params or macs[path]:
            parts.append(Part(path, type(module).__name__, params, macs[path], times))
    return Cost(
        params=sum(p.numel() for p in network.parameters()),
        trainable=sum(p.numel() for p in network.parameters() if p.requires_grad),
        macs=sum(macs.values()),
        torchinfo=torchinfo,
        attention=attention,
        members=members,
        parts=tuple(parts),
    )
