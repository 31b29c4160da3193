"""Economical hypernetwork ensembles: members are embeddings from which a shared hypernetwork generates weights.

Sacramento, von Oswald, Kobayashi, Henning, Grewe: Economical ensembles with hypernetworks, 2020.

    W^(l) = theta^(g) e^(l)         theta [D, Cout, Cin/S, k, k] of a group of layers,  e [D, S] of a layer
    e_i = e_0 + sigma * rms(e_0) * eps,  eps ~ N(0, 1)        member i at its birth

S chunks lie one behind the other along the input channels: chunk s is input channels s*Cin/S ... (s+1)*Cin/S - 1, made
by column s of e. One network trains for T0 epochs; then `give_birth` makes N members around it, which own embeddings,
norms (with the same relative noise) and a head. Phase 2 trains one member per step (see `turn`): its loss is its own,
so that a sum over members is a sum over steps. A member sees 1/N of those steps: the paper's new heads ("reset") need
many of them, at a rate that has not decayed by then; by default members begin with the head that has been trained.
Shared norms have one set of running statistics, although each member was trained with those of its own batches:
members become much worse, and OOD data stands out (docs/results/hypernet/table3.md). Use own norms for accuracy.

Wide ResNets follow the paper's Table S1: n blocks per stage, S = 2 for square convolutions, D = 2(2n-1), D = 2n-1 for
shortcuts and for the first convolution of stage 1, D = 10 for the stem. Elsewhere a group is all layers with the same
type and template shape, S = 2 where the input channels are even and 1 where they are odd, and D = max(2, sum of S over
its layers), so that theta has the size of the weights it makes. Heads are never generated; the biases of generated
layers, which the paper does not have, go with the norms; all else (tokens, recurrent layers, frozen weights) is shared.

theta is He-normal, the embeddings pseudo-orthogonal: generated layers lose their given weights, all others keep theirs.

Shape: x [batch, ...] -> [1, batch, outputs] before birth, [members, batch, outputs] after.
Cost: about one network's weights, plus N small embeddings, norms and heads; N times the mult-adds of one network.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..building import member_seeds
from ..errors import ConfigError, Refusal, RewriteError
from ..models.wide_resnet import WideResNet
from ..network.copies import on_meta, tensors_of
from ..rewrite.generated import Generated, Slot, Twin, bank_path, twin_edits, weight_slots
from ..rewrite.norm import is_norm
from ..rewrite.templates import EMBEDDING
from ..rewrite.walker import Edit, seeded
from .base import Builder, Method, Rewritten, setting
from .paths import followed


class _Part(NamedTuple):
    slot: Slot
    chunks: int  # S

    @property
    def template(self) -> tuple[int, ...]:
        shape = list(self.slot.shape)
        shape[self.slot.inputs] //= self.chunks
        return tuple(shape)


class _Group(NamedTuple):
    parts: tuple[_Part, ...]
    size: int  # D


@dataclass(frozen=True, kw_only=True)
class Hypernet(Method):
    """Members that are small embeddings of one shared hypernetwork, born late in training."""

    takes_turns = True
    undecayed_names = (EMBEDDING,)
    training_only = ("birth_epoch", "sigma", "heads", "head_noise", "nested")
    variants = ({"birth_epoch": 0.4}, {"birth_epoch": 0.8})
    knobs = {"compression": (1.0, 2.0)}

    members: int = setting(4, "N")
    birth_epoch: float | int = setting(
        0.6, "T0: a share of the epochs (the paper's 120 of 200), or an epoch; 0 is the start"
    )
    sigma: float = setting(0.25, "sigma: noise at birth, relative to the rms of what it is added to", least=0)
    norm: str = setting(
        "own",
        '"own" per member, born with noise; "shared" by all (the paper\'s setting for OOD detection)',
        choices=("own", "shared"),
    )
    heads: str | None = setting(
        None,
        'W_i^(L) at birth: "reset" (the paper) or "copy"; None: "copy" if more than heads is own',
        choices=("reset", "copy"),
    )
    head_noise: bool = setting(False, "whether heads get the noise too, as in the public code")
    ablation: str | None = setting(
        None,
        'own heads alone ("LL"), heads and norms ("LL+BN"); "scratch" births at the start',
        choices=("LL", "LL+BN", "scratch"),
    )
    compression: float = setting(
        1.0, "the factor >= 1 by which D shrinks: 2 gives the paper's 15.6 M for WRN-28-10", least=1
    )
    nested: bool = setting(True, "nested SGD: members step in turn, theta once per turn of all by their gradients")

    def __post_init__(self) -> None:
        super().__post_init__()
        share = isinstance(self.birth_epoch, float) and 0 <= self.birth_epoch < 1
        if not share and not (type(self.birth_epoch) is int and self.birth_epoch >= 0):
            raise ConfigError(
                "birth_epoch must be a share of the epochs, 0 <= share < 1, or a whole number of epochs; got "
                f"birth_epoch={self.birth_epoch!r}. The paper's is 0.6"
            )
        if self.ablation == "LL+BN" and self.norm == "shared":
            raise ConfigError("ablation='LL+BN' must have own norms; got norm='shared'. Use ablation='LL'")

    def birth_after(self, epochs: int) -> int | None:
        """T0 as a number of epochs; None where members are born at the start.

        >>> Hypernet().birth_after(200), Hypernet(birth_epoch=160).birth_after(300)
        (120, 160)
        """
        if self._at_start:
            return None
        if isinstance(self.birth_epoch, float):
            return max(1, min(round(self.birth_epoch * epochs), epochs - 1))
        if self.birth_epoch >= epochs:
            raise ConfigError(
                f"members must be born before the last epoch; got birth_epoch={self.birth_epoch} of {epochs}. Use "
                f"{round(0.6 * epochs)} or 0.6"
            )
        return self.birth_epoch

    def turn(self, ensemble: Any, step: int, generator: torch.Generator) -> int | None:
        """The member of a step: any one, or in nested SGD one after the other; all while there is only one."""
        if ensemble.members == 1:
            return None
        return step % ensemble.members if self.nested else int(torch.randint(ensemble.members, (), generator=generator))

    def shared_step_every(self, members: int) -> int:
        return members if self.nested else 1

    @property
    def _at_start(self) -> bool:
        return self.ablation == "scratch" or self.birth_epoch == 0 or self.members == 1

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Rewritten:
        heads = _heads(network, example)
        weights = weight_slots(network, "Hypernet")
        taken = {path for twin in weights.twins.items() for path in twin if set(twin) & heads}
        slots = [slot for slot in weights.slots if slot.path not in heads | taken]
        if not slots:
            reason = "a linear or convolution layer besides the head must be trainable; got none to generate"
            raise RewriteError("Hypernet", [Refusal("", reason, "use Multihead, or Deep")])
        blocks = len(network.layer1) if isinstance(network, WideResNet) else 0
        groups = _table_s1(blocks, slots, self.compression) if blocks else _by_shape(slots, self.compression)
        edits: list[Edit] = []
        for group in groups:
            source = bank_path(group.parts[0].slot)
            edits.append(Edit(source, {"shape": [group.size, *group.parts[0].template]}, "Bank"))
            for slot, chunks in group.parts:
                reads = {"source": source, "chunks": chunks, "inputs": slot.inputs}
                edits.append(Edit(slot.path, reads, "Embedded"))
        paths = {slot.path for slot in slots}
        edits += twin_edits(weights, paths)
        return _Late(network, edits, self._ownership(network, heads, weights.with_twins(paths)), self, groups)

    def _ownership(self, network: nn.Module, heads: set[str], generated: set[str]) -> Callable[[str, Tensor], bool]:
        norms = {path for path, module in network.named_modules() if is_norm(module)}
        embeddings = self.ablation in (None, "scratch")
        own_norms = self.ablation == "LL+BN" or (embeddings and self.norm == "own")

        def owns(name: str, tensor: Tensor) -> bool:
            path, _, last = name.rpartition(".")
            if path in heads:
                return True
            if last == EMBEDDING:
                return embeddings
            return own_norms and (path in norms or (path in generated and last in ("bias", "in_proj_bias")))

        return owns

    def give_birth(self, ensemble: Any, seed: int | None = None) -> None:
        """Make the N members of a trained one: shared tensors and what they have learned stay as they are.

        Args:
            seed: of the noise and the new heads; None takes the ensemble's own seeds.
        """
        planned = ensemble.method.members
        if ensemble.members != 1 or planned == 1 or self.members != planned:
            raise ConfigError(
                f"members must be born once, of one; got {ensemble.members} of {planned} already. Build a new ensemble"
            )
        seeds = ensemble.randomness.seeds if seed is None else member_seeds(seed, self.members)
        base = {name: t.detach()[0] for name, t in ensemble.tensors(ensemble.own).items()}
        born = []
        for i in range(self.members):
            with seeded(seeds[i] + 1):  # + 1: not the numbers that the first member was initialised with
                born.append(self._specialist(ensemble.network, base))
        ensemble.regrow({name: torch.stack([tensors[name] for tensors in born]) for name in base})

    def _specialist(self, network: nn.Module, base: dict[str, Tensor]) -> dict[str, Tensor]:
        """What one member owns, from what the first one had, under torch's generator."""
        own = {}
        resets = self.heads == "reset" or (self.heads is None and self.ablation == "LL")
        for name, tensor in base.items():
            path, _, last = name.rpartition(".")
            module = network.get_submodule(path)
            parameter = module._parameters.get(last)
            trains = parameter is not None and parameter.requires_grad
            head = not isinstance(module, (Generated, Twin)) and not is_norm(module)
            new = tensor.clone()
            if head and trains and resets:
                _reset_head(new, last)
            if trains and (self.head_noise or not head):
                new += self.sigma * new.pow(2).mean().sqrt() * torch.randn_like(new)
            own[name] = new
        return own


def _reset_head(tensor: Tensor, name: str) -> None:
    """He-normal weights, zero biases; anything else (a token beside a weight that is used by hand) stays."""
    if "weight" in name and tensor.ndim > 1:
        nn.init.kaiming_normal_(tensor, nonlinearity="relu")
    elif "bias" in name:
        tensor.zero_()


class _Late(Rewritten):
    """One member at the start; the N members at once where they are born there."""

    def __init__(self, network: nn.Module, edits: Sequence[Edit], owns: Any, method: Hypernet, groups: list[_Group]):
        super().__init__(network, edits, owns)
        self.method, self.groups = method, groups
        self.born = None if method._at_start else 1

    def begin(self, seeds: Sequence[int]) -> None:
        self.first_seed = seeds[0]  # of what all members start from

    def member(self, index: int, seed: int) -> nn.Module:
        network = super().member(index, seed)
        if on_meta(network):
            return network
        with seeded(self.first_seed), torch.no_grad():
            for group in self.groups:
                self._draw(network, group)
        if self.born is None and self.method.members > 1:
            own = {name: t.detach() for name, t in tensors_of(network).items() if self.owns(name, t)}
            with seeded(seed + 1), torch.no_grad():
                for name, value in self.method._specialist(network, own).items():
                    own[name].copy_(value)
        return network

    def _draw(self, network: nn.Module, group: _Group) -> None:
        modules: list[Any] = [network.get_submodule(part.slot.path) for part in group.parts]
        fan_in = max(part.slot.fan_in for part in group.parts)
        modules[0].bank.templates.normal_(0, math.sqrt(2 / fan_in))
        alike = defaultdict(list)
        for part, module in zip(group.parts, modules, strict=True):
            alike[part.slot.shape].append(module)
        for same in alike.values():
            shape = same[0].weight_embedding.shape
            rows = nn.init.orthogonal_(torch.empty(len(same), shape.numel(), dtype=torch.float64))
            for module, row in zip(same, rows.view(-1, *shape), strict=True):
                module.weight_embedding.copy_(row / row.norm(dim=0).mean())


def _heads(network: nn.Module, example: Any) -> set[str]:
    """Paths of the layers that no weighted layer follows."""
    heads = followed(network, example, "take what reads values in Python out of forward").heads
    if not heads:
        reason = "a weighted layer must lead to the network's output; got none that could be the head"
        raise RewriteError("Hypernet", [Refusal("", reason, "make the layers that forward uses its own modules")])
    return set(heads)


def _table_s1(blocks: int, slots: list[Slot], compression: float) -> list[_Group]:
    """The paper's Table S1, and its rule for any depth and width."""
    half = max(1, int((2 * blocks - 1) / compression))
    groups: dict[tuple, list[_Part]] = defaultdict(list)
    for slot in slots:
        ratio = slot.shape[0] / slot.shape[1]
        if slot.path == "conv1":
            role, chunks, size = "stem", 1, max(1, int(10 / compression))
        elif slot.path.endswith("shortcut"):
            role, chunks, size = "shortcut", 1, half
        else:
            role, chunks, size = "block", math.ceil(2 / ratio), half if ratio > 2 else 2 * half
        part = _Part(slot, chunks)
        groups[size, role, part.template, slot.where].append(part)
    return [_Group(tuple(parts), size) for (size, *_), parts in groups.items()]


def _by_shape(slots: list[Slot], compression: float) -> list[_Group]:
    """Groups of the same type and template shape, theta as large as the weights it makes."""
    groups: dict[tuple, list[_Part]] = defaultdict(list)
    for slot in slots:
        part = _Part(slot, 2 if slot.shape[slot.inputs] % 2 == 0 else 1)
        groups[slot.kind, slot.groups, part.template, slot.where].append(part)
    return [_Group(tuple(parts), max(2, int(sum(p.chunks for p in parts) / compression))) for parts in groups.values()]
