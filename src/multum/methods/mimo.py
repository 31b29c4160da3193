"""MIMO: one network that takes M inputs at once and gives M predictions, so that one pass is an ensemble.

Havasi, Jenatton, Fort, Liu, Snoek, Lakshminarayanan, Dai, Tran: Training independent subnetworks for robust prediction,
ICLR 2021.

    p_1(y_1), ..., p_M(y_M) = f(x_1, ..., x_M)        training: M examples, each answered by its own output
    p(y | x) = 1/M sum_m p_m(y | x, ..., x)           prediction: one example, M times

The first layer takes M * C_in channels, the last gives M * outputs, all between is shared; no tensor has a member axis.
The network is fed with its members folded into the batch, so that what comes before the first layer (normalisation)
and after the last (log-softmax) needs no change:

    [M*B, C, ...]  stem: -> [B, M*C, ...] -> body [B, ...] -> head: [B, M*K] -> [M*B, K]

Shape: x [batch, ...] -> [members, batch, outputs]; with per_member=True x is [members, batch, ...], one input for each.
Cost: one pass; (M-1) * (C_in * C_0 * kernel + width * K + K) parameters more than one network.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from ..errors import ConfigError, Refusal, RewriteError, first_line
from ..network.attributes import attributes_for
from ..network.copies import arguments, fold_rows, trial_copy, two_rows
from ..network.trace import follow
from ..rewrite.walker import Edit, fold, layer, names_of
from .base import Batch, Builder, Method, Rewritten, followed, known_path, whole

__all__ = ["Mimo", "MimoHead", "MimoStem"]

KINDS = (nn.modules.conv._ConvNd, nn.Linear)


class _Wide:
    """A layer M times as wide on one side. Shape: that side's channels are M blocks, member 0's first."""

    members: int
    plain: type[nn.Module]
    weight: nn.Parameter
    bias: nn.Parameter | None

    def put(self, **tensors: Tensor | None) -> None:
        """These tensors in place of the old ones, and the widths that follow from them."""
        for name, new in tensors.items():
            if new is not None:
                old = getattr(self, name)
                setattr(self, name, nn.Parameter(new.detach().clone(), requires_grad=old.requires_grad))
        shape = tuple(self.weight.shape)
        for name, width in attributes_for(self, {"weight": shape}).items():  # type: ignore[arg-type]
            setattr(self, name, width)

    def become_plain(self) -> None:
        self.__class__ = self.plain  # type: ignore[assignment]
        for name in ("members", "row"):
            self.__dict__.pop(name, None)


@layer
class MimoStem(_Wide):
    """The first layer: every row sees the inputs of all members."""

    def adopt(self, network: nn.Module) -> None:
        self.put(weight=torch.cat([self.weight] * self.members, self.side))

    @property
    def side(self) -> int:
        return 0 if getattr(self, "transposed", False) else 1

    def forward(self, x: Tensor) -> Tensor:
        x = x.unflatten(0, (self.members, -1))  # [M, B, ...]
        if isinstance(self, nn.Linear):
            return super().forward(x.movedim(0, -2).flatten(-2))  # [B, ..., M*C]
        return super().forward(x.movedim(0, 1).flatten(1, 2))  # type: ignore[misc]  # [B, M*C, ...]

    def fold(self) -> None:
        """Where all members see one input, their kernels add up."""
        self.put(weight=torch.stack(self.weight.chunk(self.members, self.side)).sum(0))
        self.become_plain()


@layer
class MimoHead(_Wide):
    """The last layer: all members' outputs, then one row for each member."""

    row = 0  # the member that is left when the layer is folded

    def adopt(self, network: nn.Module) -> None:
        weight, bias = self.weight, self.bias
        self.put(
            weight=torch.cat([weight] * self.members, self.side),
            bias=None if bias is None else torch.cat([bias] * self.members),
        )

    @property
    def side(self) -> int:
        return 1 if getattr(self, "transposed", False) else 0

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)  # type: ignore[misc]
        channel = x.ndim - 1 if isinstance(self, nn.Linear) else 1
        return x.unflatten(channel, (self.members, -1)).movedim(channel, 0).flatten(0, 1)

    def fold(self) -> None:
        weight, bias = self.weight, self.bias
        self.put(
            weight=weight.chunk(self.members, self.side)[self.row],
            bias=None if bias is None else bias.chunk(self.members)[self.row],
        )
        self.become_plain()


@dataclass(frozen=True, kw_only=True)
class Mimo(Method):
    """M subnetworks in one network."""

    members: int = 3  # M
    rho: float = 0.0  # rho: share of the rows in which all members get the same example while training
    repeats: int = 1  # batch repetition: how often every example appears in one step (4 on CIFAR, 2 on ImageNet)
    stem: str | None = None  # path of the layer that takes the M inputs; None: the first weighted layer
    head: str | None = None  # path of the layer that gives the M outputs; None: the last weighted layer

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("repeats", self.repeats, least=1)
        if isinstance(self.rho, bool) or not isinstance(self.rho, (int, float)) or not 0 <= self.rho <= 1:
            near = min(max(self.rho, 0), 1) if isinstance(self.rho, (int, float)) and self.rho == self.rho else 0
            raise ConfigError(f"rho is a share with 0 <= rho <= 1, however: rho={self.rho!r}; the nearest is {near:g}")
        for name in ("stem", "head"):
            path = getattr(self, name)
            if path is not None and (not isinstance(path, str) or not path):
                raise ConfigError(f"{name} is the path of a module such as 'conv1', or None, however: {name}={path!r}")

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Rewritten:
        if self.members == 1:
            return _Folded(network, (), lambda name, tensor: False)
        stem, head = self._edges(network, example)
        _check_layers(network, stem, head)
        edits = [Edit(stem, {"members": self.members}, "MimoStem"), Edit(head, {"members": self.members}, "MimoHead")]
        birth = _Folded(network, edits, lambda name, tensor: False, fresh=(stem, head))
        self._check_rows(birth.member(0), example)
        return birth

    def alone(self) -> Mimo:
        return replace(self, members=1)

    def batch(self, x: Any, y: Any, generator: torch.Generator | None = None) -> Batch:
        """Rows of M examples each, drawn from one batch.

        Every member sees every example `repeats` times; in a share rho of the rows, rounded up, all see the same one.

        Shape: x [B, ...], y [B, ...] -> [members, B * repeats, ...]; tuples and dicts of tensors too.
        """
        first = next(t for t in tree_flatten(x)[0] if isinstance(t, Tensor))
        device = torch.device("cpu") if generator is None else generator.device
        rows = first.shape[0] * self.repeats
        mixed = math.floor(rows * (1 - self.rho) + 1e-6)

        main = torch.randperm(rows, generator=generator, device=device) % first.shape[0]
        keys = torch.rand(self.members, mixed, dtype=torch.float64, generator=generator, device=device)
        index = torch.cat([main[:mixed][keys.argsort(1)], main[mixed:].expand(self.members, -1)], 1)
        x, y = tree_map_only(Tensor, lambda t: t[index.to(t.device)], (x, y))
        return Batch(x, y, per_member=True)

    def unfold(self, network: nn.Module, i: int) -> nn.Module:
        """Member i as a plain network, made in place of the folded one: it sees one input, and gives one output."""
        for module in network.modules():
            if isinstance(module, MimoHead):
                module.row = i
        return fold(network)

    def _edges(self, network: nn.Module, example: Any) -> tuple[str, str]:
        """The paths of stem and head: as told, else found by following one example through the network."""
        told = {"stem": self.stem, "head": self.head}
        for name, path in told.items():
            if path is not None:
                known_path(name, path, network)
        if self.stem is not None and self.head is not None:
            return self.stem, self.head
        usage = followed(network, example, "name both layers, as in Mimo(stem=path, head=path)")
        found = {"stem": usage.stems, "head": usage.heads}
        refusals = [
            Refusal(
                ", ".join(found[name]),
                f"Mimo needs one {place} weighted layer, the {name}, however: there are {len(found[name])}",
                f"name the one to use, as in Mimo({name}={(found[name] or ['path'])[0]!r})"
                + ("; or a later layer that joins them all" if name == "stem" else ""),
            )
            for name, place in (("stem", "first"), ("head", "last"))
            if told[name] is None and len(found[name]) != 1
        ]
        if refusals:
            raise RewriteError("Mimo", refusals)
        return self.stem or found["stem"][0], self.head or found["head"][0]

    def _check_rows(self, one: nn.Module, example: Any) -> None:
        """Each member's rows pass through on their own, in training and in eval, or an error says where they do not."""
        plain = [self.unfold(trial_copy(one), i).eval() for i in range(self.members)]
        meta = any(t.is_meta for t in one.parameters())  # there only shapes can be compared
        x = two_rows(example)
        noisy = tree_map_only(Tensor, _noisy, x)
        if not meta and _attempt(plain[0], noisy)[0] is not None:  # else noise is not an input of this network
            x = noisy
        alone = [_attempt(network, x)[0] for network in plain[: 1 if meta else None]]
        for training in (False,) if meta else (True, False):
            out, path, reason = _attempt(trial_copy(one).train(training), fold_rows(x, self.members))
            if reason:
                break
        else:
            expected = torch.cat(alone * (self.members // len(alone)))
            if out.shape != expected.shape:
                reason = f"the outputs are {tuple(out.shape)}, not {tuple(expected.shape)}"
            elif not meta and bool(expected.isfinite().all()):
                distance = (out - expected).abs().max() / expected.abs().max().clamp_min(1e-30)
                if not distance <= 10 * torch.finfo(out.dtype).eps ** 0.5:
                    reason = "a member's outputs depend on the rows of another"
        if reason:
            what = (
                "before the stem and behind the head there are members * batch rows, between them batch rows, "
                f"counted by the first dimension, however: here they meet or mix ({reason})"
            )
            fix = (
                "let the raw input reach no layer past the stem (no skip around it, no batch size read from it), "
                "keep the batch first, or name another layer, as in Mimo(stem=path, head=path)"
            )
            raise RewriteError("Mimo", [Refusal(path, what, fix)])


class _Folded(Rewritten):
    folded = True


def _attempt(network: nn.Module, x: Any) -> tuple[Any, str, str]:
    """The output; or None, and where and why there is none."""
    place = SimpleNamespace(path="", enter=lambda path, inputs: None)
    follow(network, place)
    args, kwargs = arguments(x)
    try:
        with torch.no_grad(), torch.random.fork_rng():
            return network(*args, **kwargs), "", ""
    except Exception as error:  # a user's network may raise anything
        return None, place.path, f"{type(error).__name__}: {first_line(error)}"


def _noisy(t: Tensor) -> Tensor:
    """An example of zeros would hide which row is which."""
    noise = torch.rand(t.shape, generator=torch.Generator().manual_seed(0))
    return t + noise.to(t) if t.is_floating_point() else t


def _check_layers(network: nn.Module, stem: str, head: str) -> None:
    """Everything about the two layers that Mimo cannot widen, in one error."""
    refusals = []
    for name, path in (("stem", stem), ("head", head)):
        module: Any = network.get_submodule(path)
        mine = {f"{path}.{n}" for n, _ in module.named_parameters(recurse=False)}
        tied = [first for first, names in names_of(network).items() if len(names) > 1 and mine & set(names)]
        if not isinstance(module, KINDS) or "weight" not in module._parameters:
            found, fix = f"is a convolution or a linear layer, however: {type(module).__name__}", "put one there"
        elif getattr(module, "groups", 1) != 1:
            found, fix = f"mixes all its channels, however: groups={module.groups}", "use groups=1"
        elif tied:
            found, fix = f"has tensors of its own, however: {tied[0]} is tied", "untie it"
        elif not all(p.requires_grad for p in module.parameters()):
            found, fix = "is widened and starts anew, however: it is frozen", "unfreeze it with requires_grad_(True)"
        elif stem == head:
            found, fix = "is another layer than the other end, however: they are one", "use Deep"
        else:
            continue
        refusals.append(Refusal(path, f"the {name} {found}", f"{fix}, or name another layer, as in Mimo({name}=path)"))
    if refusals:
        raise RewriteError("Mimo", refusals)
