"""Weights that are computed, not stored: a bank that all members share, and layers that make their weight from it.

`weight` (`in_proj_weight` of attention) becomes a property of the layer. So whatever reads it sees the generated one:
the plain layer's forward, a user's subclass, nn.MultiheadAttention, which never calls its output projection, and the
fast path of nn.TransformerEncoderLayer.

A bank is a child of the first layer that it feeds: there, nothing that runs its own children (nn.Sequential) meets it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import Refusal, RewriteError
from .walker import Edit, computed, layer

_CONV, _ATTENTION = nn.modules.conv._ConvNd, nn.MultiheadAttention


@dataclass(frozen=True)
class Slot:
    """A weight that can be generated: `name` ("weight" or "in_proj_weight") of the module at `path`."""

    path: str
    name: str
    kind: str  # the class of torch that the module is or inherits from
    shape: tuple[int, ...]
    groups: int  # of a convolution
    inputs: int  # the dimension of the input channels: 1, or 0 where the convolution is transposed
    fan_in: int
    where: str  # dtype and device: one bank holds one kind of numbers

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def key(self) -> tuple:
        """Equal for layers of the same type and shape."""
        return self.kind, self.shape, self.groups, self.where


@dataclass(frozen=True)
class Slots:
    """What a network offers. Shape: `twins` maps the path of a layer to the earlier one whose very weight it has."""

    slots: tuple[Slot, ...]
    twins: dict[str, str]
    weights: int  # numbers in all weights of linear, convolution and attention layers, also in those that stay plain

    def with_twins(self, paths: Collection[str]) -> set[str]:
        """These layers, and those that have the very weight of one of them."""
        return {*paths, *(twin for twin, first in self.twins.items() if first in paths)}


def weight_slots(network: nn.Module, method: str) -> Slots:
    """The trainable weights of all linear, convolution and attention layers, in the network's order.

    What stays plain: frozen weights, weights under a parametrization (spectral norm), and a weight that something else
    (an embedding) has too.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3), nn.Linear(3, 3).requires_grad_(False))
    >>> [slot.path for slot in weight_slots(net, "doctest").slots], weight_slots(net, "doctest").weights
    (['0', '2'], 24)
    """
    holders: dict[int, list[tuple[str, str, nn.Module]]] = defaultdict(list)
    for path, module in network.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                holders[id(parameter)].append((path, name, module))
    slots, twins, counted = [], {}, {}
    refusals: list[Refusal] = []
    for path, module in network.named_modules():
        if isinstance(module, _ATTENTION) and module.in_proj_weight is None:
            reason = "the queries, keys and values of this attention have a weight each, which is not generated"
            refusals.append(Refusal(path, reason, "leave out kdim and vdim, or write the projections as nn.Linear"))
        name = "in_proj_weight" if isinstance(module, _ATTENTION) else "weight"
        weight = module._parameters.get(name)
        if weight is None or not isinstance(module, (nn.Linear, _CONV, _ATTENTION)):
            continue
        counted[id(weight)] = weight.numel()
        first, *others = holders[id(weight)]
        alike = all(isinstance(m, (nn.Linear, _CONV)) and n == "weight" for _, n, m in holders[id(weight)])
        if not weight.requires_grad or (others and not alike):
            continue
        if first[0] != path:
            twins[path] = first[0]
        else:
            slots.append(_slot(path, name, module, weight))
    if refusals:
        raise RewriteError(method, refusals)
    return Slots(tuple(slots), twins, sum(counted.values()))


def _slot(path: str, name: str, module: nn.Module, weight: Tensor) -> Slot:
    kind = next(c.__name__ for c in type(module).__mro__ if c.__module__.startswith("torch.nn.modules."))
    kind = "Linear" if isinstance(module, nn.Linear) else kind
    groups = module.groups if isinstance(module, _CONV) else 1
    inputs = 0 if isinstance(module, _CONV) and module.transposed else 1
    kernel = math.prod(weight.shape[2:])
    fan_in = kernel * (weight.shape[1] if inputs == 1 else weight.shape[0] // groups)
    return Slot(path, name, kind, tuple(weight.shape), groups, inputs, fan_in, f"{weight.dtype} {weight.device}")


def bank_path(first: Slot) -> str:
    return f"{first.path}.bank" if first.path else "bank"


def combine(coefficients: Tensor, templates: Tensor) -> Tensor:
    """A linear combination of templates. Shape: [n] and [n, ...] -> [...].

    A matrix-vector product: `multum.cost` counts the layers that a member runs, and not how their weights are made.
    """
    return torch.mv(templates.flatten(1).t(), coefficients).view(templates.shape[1:])


@layer
class Bank(nn.Module):
    """What the layers of a group make their weights of. Shape: `templates` as given; the first layer places it."""

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.templates = nn.Parameter(torch.zeros(shape))

    def extra_repr(self) -> str:
        return f"{tuple(self.templates.shape)}"


class Generated:
    """A layer whose weight is made from a bank; `adds` names what it has besides the plain layer."""

    plain: type[nn.Module]
    source: str  # path of the bank
    bank: Bank
    adds: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the weight: attention's queries, keys and values have one in common."""
        return "in_proj_weight" if isinstance(self, _ATTENTION) else "weight"

    weight, in_proj_weight = computed("weight"), computed("in_proj_weight")

    def compute(self, name: str) -> Tensor:
        if name != self.name:
            raise AttributeError(name)  # nn.Module's own lookup, and its message, follow
        return self.generate()

    def adopt(self: Any, network: nn.Module) -> None:
        old = self._parameters.pop(self.name)
        bank = network.get_submodule(self.source)
        bank.to(device=old.device, dtype=old.dtype)
        self.__dict__["bank"] = bank  # not a child: the bank has one place in the network
        self.prepare(old)

    def prepare(self, old: Tensor) -> None:
        """Register the tensors that the layer adds, on the device and in the dtype of the plain weight."""
        raise NotImplementedError

    def generate(self) -> Tensor:
        """The weight, in the shape of the plain layer's."""
        raise NotImplementedError

    def fold(self: Any) -> None:
        target, weight = self.name, self.generate().detach().clone()
        for name in ("bank", "source", *self.adds):
            for place in (self.__dict__, self._parameters, self._buffers):
                place.pop(name, None)
        self.__class__ = self.plain
        _put_first(self, target, nn.Parameter(weight))


@layer
class Twin:
    """A layer with the very weight of another, which is generated: tied it was, tied it stays."""

    first: str
    plain: type[nn.Module]

    def adopt(self: Any, network: nn.Module) -> None:
        del self._parameters["weight"]
        self.__dict__["twin"] = network.get_submodule(self.first)

    @property
    def weight(self: Any) -> Tensor:
        return self.twin.weight

    def fold(self: Any) -> None:
        # The first comes first in the network's order, so its weight is a parameter again.
        weight = self.twin.weight
        del self.__dict__["twin"], self.__dict__["first"]
        self.__class__ = self.plain
        _put_first(self, "weight", weight)


def _put_first(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Register a parameter where the plain layer has it: before the bias."""
    rest = dict(module._parameters)
    module._parameters.clear()
    module.register_parameter(name, parameter)
    module._parameters.update(rest)


def twin_edits(offered: Slots, generated: Collection[str]) -> list[Edit]:
    """The edits of the layers whose weight is that of a generated one."""
    return [Edit(path, {"first": first}, "Twin") for path, first in offered.twins.items() if first in generated]
