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

from ..errors import Refusal, RewriteError, first_line
from ..network.copies import fold_rows, on_meta, run, trial_copy, two_rows
from ..network.trace import follow
from ..rewrite.folded import KINDS, MimoHead
from ..rewrite.walker import Edit, fold, names_of
from .base import Batch, Builder, Method, Rewritten, setting
from .paths import followed, known_path, module_path


@dataclass(frozen=True, kw_only=True)
class Mimo(Method):
    """M subnetworks in one network."""

    arranges_batches = True
    training_only = ("rho", "repeats")
    variants = ({"rho": 0.5}, {"repeats": 2})

    members: int = setting(3, "M")
    rho: float = setting(
        0.0, "rho: share of the rows in which all members get the same example while training", least=0, most=1
    )
    repeats: int = setting(
        1, "batch repetition: how often every example appears in one step (4 on CIFAR, 2 on ImageNet)"
    )
    stem: str | None = setting(
        None, "path of the layer that takes the M inputs; None: the first weighted layer", check=module_path
    )
    head: str | None = setting(
        None, "path of the layer that gives the M outputs; None: the last weighted layer", check=module_path
    )

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Rewritten:
        if self.members == 1:
            return _Folded(network, (), lambda name, tensor: False)
        stem, head = self._edges(network, example)
        _check_layers(network, stem, head)
        edits = [Edit(stem, {"members": self.members}, "MimoStem"), Edit(head, {"members": self.members}, "MimoHead")]
        birth = _Folded(network, edits, lambda name, tensor: False, fresh=(stem, head))
        self._check_rows(birth.member(0, 0), example)
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

    def unfold(self, network: nn.Module, index: int) -> nn.Module:
        """A member sees one input, and gives one output."""
        for module in network.modules():
            if isinstance(module, MimoHead):
                module.row = index
        return fold(network)

    def sharers(self, ensemble: Any) -> dict[str, int | Tensor]:
        """All members use all tensors but the head, of which each has its own rows."""
        heads = [path for path, module in ensemble.network.named_modules() if isinstance(module, MimoHead)]
        counts = super().sharers(ensemble)
        return {name: 1 if name.rpartition(".")[0] in heads else count for name, count in counts.items()}

    def training_macs(self, macs: int, members: int) -> int:
        return macs * self.repeats

    def _edges(self, network: nn.Module, example: Any) -> tuple[str, str]:
        """The paths of stem and head: the fields', else read off one example's way through the network."""
        named = {"stem": self.stem, "head": self.head}
        for name, path in named.items():
            if path is not None:
                known_path(name, path, network)
        if self.stem is not None and self.head is not None:
            return self.stem, self.head
        usage = followed(network, example, "name both layers, as in Mimo(stem=path, head=path)")
        ends = {"stem": usage.stems, "head": usage.heads}
        refusals = [
            Refusal(
                ", ".join(ends[name]),
                f"there must be one {place} weighted layer, the {name}; got {len(ends[name])}",
                f"name the one to use, as in Mimo({name}={(ends[name] or ['path'])[0]!r})"
                + ("; or a later layer that joins them all" if name == "stem" else ""),
            )
            for name, place in (("stem", "first"), ("head", "last"))
            if named[name] is None and len(ends[name]) != 1
        ]
        if refusals:
            raise RewriteError("Mimo", refusals)
        return self.stem or ends["stem"][0], self.head or ends["head"][0]

    def _check_rows(self, folded: nn.Module, example: Any) -> None:
        """Each member's rows pass through on their own, in training and in eval, or an error says where they do not."""
        plain = [self.unfold(trial_copy(folded), i).eval() for i in range(self.members)]
        meta = on_meta(folded)  # there only shapes can be compared
        x = two_rows(example)
        noisy = tree_map_only(Tensor, _noisy, x)
        if not meta and _attempt(plain[0], noisy)[0] is not None:  # else noise is not an input of this network
            x = noisy
        alone = [_attempt(network, x)[0] for network in plain[: 1 if meta else None]]
        for training in (False,) if meta else (True, False):
            out, path, reason = _attempt(trial_copy(folded).train(training), fold_rows(x, self.members))
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
                "members * batch rows before the stem and behind the head, and batch rows between them, must not meet "
                f"or mix; got {reason}"
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
    try:
        with torch.no_grad(), torch.random.fork_rng():
            return run(network, x), "", ""
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
            rule, fix = f"be a convolution or a linear layer; got {type(module).__name__}", "put one there"
        elif getattr(module, "groups", 1) != 1:
            rule, fix = f"mix all its channels; got groups={module.groups}", "use groups=1"
        elif tied:
            rule, fix = f"have tensors of its own; got {tied[0]}, which is tied", "untie it"
        elif not all(p.requires_grad for p in module.parameters()):
            rule, fix = "be trainable, as it is widened and starts anew; got it frozen", "unfreeze it"
        elif stem == head:
            rule, fix = "be another layer than the other end; got one layer for both", "use Deep"
        else:
            continue
        refusals.append(
            Refusal(path, f"the {name} must {rule}", f"{fix}, or name another layer, as in Mimo({name}=path)")
        )
    if refusals:
        raise RewriteError("Mimo", refusals)
