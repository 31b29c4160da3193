"""MixtureEnsembles: every layer of every member is a linear combination of templates that all share.

Anonymous: MixtureEnsembles: Leveraging Parameter Sharing for Efficient Ensembles, 2021 (under review); its parameter
groups are those of Savarese & Maire 2019 and of Plummer et al. 2020 (ShapeShifter networks, SSN).

    theta_{j,i} = sum_{l in t_j} alpha_{j,l,i} T_l        weight of layer j in member i, |t_j| = K

Layers of one type and shape form a group g. Of a budget of P weights the plain layers are paid first; the rest is split
over the groups by their share f_g of the grouped weights:

    n_g = floor(f_g * rest / numel_g) templates,    K_g = min(K, n_g);    n_g = 1 needs no coefficient

Shared: templates, and every layer whose shape no other has (the stem, the classifier with its bias). Own: coefficients,
norms with their statistics, and the biases of generated layers. Templates are He-normal, and the coefficients of a
member's group [layers, K] orthogonal; so the given weights of grouped layers are replaced, all others are kept.

If no two layers share a shape, every layer gets a bank of at least 2 templates, about twice the weights; multum warns.

Shape: x [batch, ...] -> [members, batch, outputs]. Cost: P weights; M times the mult-adds of one network.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import ConfigError, NetworkError
from ..figures.formats import fixed_width
from ..network.copies import on_meta
from ..rewrite.generated import Slot, Slots, bank_path, twin_edits, weight_slots
from ..rewrite.norm import is_norm
from ..rewrite.templates import COEFFICIENTS, TEMPLATES, template_users, windows
from ..rewrite.walker import Edit, seeded
from .base import Builder, Method, Rewritten, setting

log = logging.getLogger("multum")


class _Group(NamedTuple):
    slots: tuple[Slot, ...]
    templates: int  # n
    mixed: int  # K

    @property
    def numel(self) -> int:
        return self.slots[0].numel


class _Allocation(NamedTuple):
    """How a budget is spent. Shape: sizes in numbers; `blob` is the flat vector's, None where groups have banks."""

    offered: Slots
    groups: tuple[_Group, ...]
    plain: int
    budget: int
    blob: int | None
    capped: bool  # whether the budget pays for templates that no layer would combine

    @property
    def used(self) -> int:
        return self.plain + (sum(g.templates * g.numel for g in self.groups) if self.blob is None else self.blob)

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(slot.path for group in self.groups for slot in group.slots)


@dataclass(frozen=True, kw_only=True)
class Mixture(Method):
    """Members that mix shared templates, within a budget of parameters."""

    undecayed_names = (COEFFICIENTS,)
    knobs = {"budget": (1.0, 0.5)}

    members: int = setting(4, "M")
    budget: float | int = setting(
        1.0,
        "P: weights of all members together; 1.5 times the base network's, or 15_000_000 of them",
        above=0,
        fix="Use a number of weights such as 15_000_000, or a multiple of the base network's such as 1.0",
    )
    templates: int = setting(5, "K: templates that a layer combines")
    assignment: str = setting(
        "cyclic",
        't_j: "cyclic" uses every template equally; "blocks" of K, as SSN\'s code does',
        choices=("cyclic", "blocks"),
    )
    disjoint: bool = setting(
        False, "members get templates of their own until all are handed out (the paper on ImageNet)"
    )
    mode: str = setting(
        "groups",
        '"groups" of equal layers; "blob": one flat vector for all layers, for low budgets',
        choices=("groups", "blob"),
    )
    singles: str = setting(
        "plain",
        'layers whose shape no other has: "plain" and shared, or "banks" as the thin variant',
        choices=("plain", "banks"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.disjoint and self.mode == "blob":
            raise ConfigError("disjoint templates must be those of a group's bank; got mode='blob'. Use mode='groups'")

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Rewritten:
        allocation = self._allocate(network)
        if allocation.used > allocation.budget:
            log.warning(
                "no two layers of this network share a shape, so there is nothing to mix between layers: every layer "
                "gets a bank of 2 templates, and the weights cost %.3g times the base network's",
                allocation.used / allocation.offered.weights,
            )
        if allocation.capped:
            log.warning(
                "the budget of %s weights pays for more templates than the layers can combine: %s weights are left; "
                "use %sa smaller budget, or more templates for each layer",
                f"{allocation.budget:,}",
                f"{allocation.budget - allocation.used:,}",
                "singles='banks', which gives every layer a bank, " if self.singles == "plain" else "",
            )
        return _Banks(network, self, allocation)

    def sized(self, share: float, room: float | None) -> Mixture | None:
        return None if room is None else replace(self, budget=round(room * share, 4))

    def sharers(self, ensemble: Any) -> dict[str, int | Tensor]:
        return super().sharers(ensemble) | (template_users(ensemble.network) if self.disjoint else {})

    def _allocate(self, network: nn.Module) -> _Allocation:
        offered = weight_slots(network, "Mixture")
        if not offered.slots:
            raise NetworkError(
                "Mixture must have the trainable weights of linear or convolution layers to mix; got none. "
                "Unfreeze some, or use Deep"
            )
        alike: dict[tuple, list[Slot]] = defaultdict(list)
        for slot in offered.slots:
            alike[slot.key].append(slot)
        blob, alone = self.mode == "blob", len(alike) == len(offered.slots)
        mixed = [g for g in alike.values() if blob or alone or self.singles == "banks" or len(g) > 1]
        sizes, numels = [len(g) for g in mixed], [g[0].numel for g in mixed]
        grouped = sum(size * numel for size, numel in zip(sizes, numels, strict=True))
        plain = offered.weights - grouped
        budget = self.budget if isinstance(self.budget, int) else int(self.budget * offered.weights)
        paid: list[int] | None = None
        if alone and not blob and self.members > 1 and isinstance(self.budget, float) and self.budget == 1:
            counts = [2] * len(mixed)
        elif blob:
            counts = [(budget - plain) // numel for numel in numels]
        else:
            paid = [size * (budget - plain) // grouped for size in sizes]
            # More templates than all layers together combine would never be used, nor trained.
            combined = self.templates * (self.members if self.disjoint else 1)
            counts = [min(n, size * combined) for n, size in zip(paid, sizes, strict=True)]
        groups = tuple(_Group(tuple(g), n, min(self.templates, n)) for g, n in zip(mixed, counts, strict=True))
        if min(counts) < 1 or (self.members > 1 and max(counts) < 2):
            # One template of every group; and two of some group, so that members differ.
            one = max(numels) if blob else -(-grouped // min(sizes))
            two = (2 * min(numels) if blob else -(-2 * grouped // max(sizes))) if self.members > 1 else 0
            self._refuse(offered, budget, plain + max(one, two))
        if self.members > 1 and not any(g.templates > 1 and g.mixed * len(g.slots) > 1 for g in groups):
            raise ConfigError(
                "templates must be >= 2 where no two layers share a shape; got templates=1. Use 2 or more"
            )
        needed = sum(len(g.slots) * g.mixed * g.numel for g in groups)
        size = min(budget - plain, needed) if blob else None
        return _Allocation(offered, groups, plain, budget, size, capped=paid is not None and counts != paid)

    def _refuse(self, offered: Slots, budget: int, least: int) -> None:
        multiple = math.ceil(1000 * least / offered.weights) / 1000
        per = "the largest layer" if self.mode == "blob" else "one template of every group of layers"
        blob = "" if self.mode == "blob" else ", or mode='blob' with less"
        raise ConfigError(
            f"budget must pay for the layers that stay plain, for {per}, and for two templates somewhere, without "
            f"which members would be alike; got budget={self.budget!r}, which is {budget:,} weights. The smallest that "
            f"works is budget={least} (or {multiple} times this network's weights){blob}"
        )

    def _numbers(self, group: _Group, member: int) -> list[list[int]]:
        """The templates of every layer of a group: one pointer runs over the layers, and over members if disjoint."""
        n, k, first = group.templates, group.mixed, member * len(group.slots) if self.disjoint else 0
        turns, cyclic = range(first, first + len(group.slots)), self.assignment == "cyclic"
        starts = [t * k % n if cyclic else t % (n // k) * k for t in turns]
        return [[(start + i) % n for i in range(k)] for start in starts]

    def _starts(self, allocation: _Allocation) -> dict[str, int]:
        """Where every layer's templates begin in the flat vector, in the network's order."""
        size, pointer, starts = allocation.blob or 0, 0, {}
        mixed = {slot.path: group.mixed for group in allocation.groups for slot in group.slots}
        for slot in allocation.offered.slots:
            length = mixed[slot.path] * slot.numel
            overruns = self.assignment == "blocks" and pointer + length > size
            starts[slot.path] = 0 if overruns else pointer
            pointer = (starts[slot.path] + length) % size
        return starts

    def _edits(self, allocation: _Allocation) -> list[Edit]:
        edits: list[Edit] = []
        if allocation.blob is not None:
            source, starts = bank_path(allocation.offered.slots[0]), self._starts(allocation)
            edits.append(Edit(source, {"shape": [allocation.blob]}, "Bank"))
        for group in allocation.groups:
            if allocation.blob is None:
                source = bank_path(group.slots[0])
                edits.append(Edit(source, {"shape": [group.templates, *group.slots[0].shape]}, "Bank"))
            for slot, numbers in zip(group.slots, self._numbers(group, 0), strict=True):
                reads: dict[str, Any] = {"source": source, "numbers": numbers}
                if allocation.blob is not None:
                    reads = {"source": source, "start": starts[slot.path], "count": group.mixed}
                    reads |= {"shape": list(slot.shape), "mixes": group.templates > 1}
                edits.append(Edit(slot.path, reads, "Mixed" if allocation.blob is None else "Carved"))
        return [*edits, *twin_edits(allocation.offered, allocation.paths)]

    def describe(self, network: nn.Module, example: Any = None) -> str:
        """The allocation as a table: groups of layers, their templates, and what is left of the budget.

        >>> net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3))
        >>> print(Mixture(members=4).describe(net))
        group         layers  shape  n  K  parameters
        Linear             2    8x8  2  2         128
        plain layers       2                       56
        used                                      184
        budget                                    184
        left                                        0
        184 is 1.000 times the base network's weights; every member owns 4 coefficients, its norms and biases
        """
        plan = self._allocate(network)
        rows = [("group", "layers", "shape", "n", "K", "parameters")]
        for g in plan.groups:
            size = f"{g.templates * g.numel:,}" if plan.blob is None else ""
            shape = "x".join(map(str, g.slots[0].shape))
            rows.append((g.slots[0].kind, str(len(g.slots)), shape, str(g.templates), str(g.mixed), size))
        plain = str(len(plan.offered.slots) - len(plan.paths))
        sums = [("blob", "", plan.blob), ("plain layers", plain, plan.plain or None), ("used", "", plan.used)]
        sums += [("budget", "", plan.budget), ("left", "", plan.budget - plan.used)]
        rows += [(name, count, "", "", "", f"{size:,}") for name, count, size in sums if size is not None]
        coefficients = sum(len(g.slots) * g.mixed for g in plan.groups if g.templates > 1)
        summary = (
            f"{plan.used:,} is {plan.used / plan.offered.weights:.3f} times the base network's weights; every member "
            f"owns {coefficients} coefficients, its norms and biases"
        )
        return "\n".join([*fixed_width(rows), summary])


class _Banks(Rewritten):
    """Members of one rewritten network: the first draws the templates, every one its coefficients."""

    def __init__(self, network: nn.Module, method: Mixture, allocation: _Allocation):
        self.method, self.allocation = method, allocation
        generated = allocation.offered.with_twins(allocation.paths)
        norms = {path for path, module in network.named_modules() if is_norm(module)}
        owned = {COEFFICIENTS, "bias", "in_proj_bias", *([TEMPLATES] if method.disjoint else [])}

        def owns(name: str, tensor: Tensor) -> bool:
            path, _, last = name.rpartition(".")
            return path in norms or (path in generated and last in owned)

        super().__init__(network, method._edits(allocation), owns)

    def member(self, index: int, seed: int) -> nn.Module:
        network = super().member(index, seed)
        if on_meta(network):
            return network
        with seeded(seed), torch.no_grad():
            if index == 0:
                self._draw_templates(network)
            for group in self.allocation.groups:
                self._draw_coefficients(network, group, index)
        return network

    def _draw_templates(self, network: nn.Module) -> None:
        for slot in (s for s in self.allocation.offered.slots if s.path in self.allocation.paths):
            module: Any = network.get_submodule(slot.path)
            templates, std = module.bank.templates, math.sqrt(2 / slot.fan_in)
            if self.allocation.blob is not None:
                # As in SSN: where layers of several sizes read the same numbers, the last one sets their scale.
                for window in windows(templates, module.start, module.count * slot.numel):
                    window.normal_(0, std)
            elif module.source == bank_path(slot):
                templates.normal_(0, std)

    def _draw_coefficients(self, network: nn.Module, group: _Group, index: int) -> None:
        if group.templates == 1:
            return
        rows = nn.init.orthogonal_(torch.empty(len(group.slots), group.mixed, dtype=torch.float64))
        for slot, row, numbers in zip(group.slots, rows, self.method._numbers(group, index), strict=True):
            module: Any = network.get_submodule(slot.path)
            module.weight_coefficients.copy_(row)
            if self.method.disjoint:
                module.weight_templates.copy_(torch.tensor(numbers))
