"""Where a network holds its tensors: looked up once, so that reading or exchanging them costs next to nothing."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["Holders", "holders_of", "tensors_named"]


class Place(NamedTuple):
    """A tensor's name, and the dictionary and attribute that hold it."""

    name: str
    dictionary: dict[str, Any]
    attribute: str


class Holders:
    """Of the tensors of some names, or of all parameters."""

    def __init__(self, network: nn.Module, names: tuple[str, ...] | None):
        modules = dict(network.named_modules(remove_duplicate=False))
        self.links = [(m._modules, key, child) for m in modules.values() for key, child in m._modules.items()]
        if names is None:
            names = tuple(name for name, _ in network.named_parameters())
        self.places = [_place(modules, name) for name in names]
        # Another name of a tied tensor is exchanged with the first one.
        first = {id(place.dictionary[place.attribute]): place for place in self.places}
        known = {(id(place.dictionary), place.attribute) for place in self.places}
        self.ties = [
            Place(first[id(tensor)].name, dictionary, attribute)
            for module in dict.fromkeys(modules.values())
            for dictionary in (module._parameters, module._buffers)
            for attribute, tensor in dictionary.items()
            if id(tensor) in first and (id(dictionary), attribute) not in known
        ]

    def stand(self) -> bool:
        """Whether the network's modules are still the same."""
        return all(children.get(key) is child for children, key, child in self.links) and all(
            attribute in dictionary for _, dictionary, attribute in self.places
        )

    def tensors(self) -> dict[str, Tensor]:
        return {name: dictionary[attribute] for name, dictionary, attribute in self.places}

    @contextmanager
    def exchanged(self, tensors: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """A context in which the network holds these tensors; what it then holds in their place, afterwards."""
        before = [(dictionary, attribute, dictionary[attribute]) for _, dictionary, attribute in self.places]
        before += [(dictionary, attribute, dictionary[attribute]) for _, dictionary, attribute in self.ties]
        after: dict[str, Tensor] = {}
        for place in (self.places, self.ties):
            for name, dictionary, attribute in place:
                dictionary[attribute] = tensors[name]
        try:
            yield after
        finally:
            after.update(self.tensors())
            for dictionary, attribute, tensor in before:
                dictionary[attribute] = tensor


def _place(modules: dict[str, nn.Module], name: str) -> Place:
    path, _, attribute = name.rpartition(".")
    module = modules[path]
    return Place(name, module._parameters if attribute in module._parameters else module._buffers, attribute)  # type: ignore[arg-type]


_HOLDERS: weakref.WeakKeyDictionary[nn.Module, dict[Any, Holders]] = weakref.WeakKeyDictionary()


def holders_of(network: nn.Module, names: tuple[str, ...] | None) -> Holders:
    """Where this network holds the tensors of these names (None: all its parameters)."""
    known = _HOLDERS.setdefault(network, {})
    if names not in known or not known[names].stand():
        known[names] = Holders(network, names)
    return known[names]


def tensors_named(network: nn.Module, names: tuple[str, ...] | None) -> dict[str, Tensor]:
    """The parameters and buffers of these names (None: all parameters)."""
    if not torch.compiler.is_compiling():
        return holders_of(network, names).tensors()
    if names is None:
        return dict(network.named_parameters())
    modules = {path: network.get_submodule(path) for path in {name.rpartition(".")[0] for name in names}}
    places = [_place(modules, name) for name in names]
    return {name: dictionary[attribute] for name, dictionary, attribute in places}
