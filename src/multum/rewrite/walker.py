"""The one tree walker: how a network is copied, re-initialised, and changed module by module.

A change is data: an :class:`Edit` names a module by its path, the attributes it gets, and the one-member layer it turns
into, if any. `ensemble` makes the edits, `save` writes them down as JSON and `load` applies them again, so nothing is
ever traced twice, and nothing that a file names is imported: a layer's name is looked up among those registered here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import check_known
from ..network.copies import tensors_of

LAYERS: dict[str, type] = {}


def computed(name: str) -> Any:
    """A property for a tensor that a layer makes, by `compute(name)`, and does not hold."""
    return property(lambda self: self.compute(name))


class MemberLayer:
    """A plain layer that has become a layer of one member; `fold()` turns it back."""

    plain: type[nn.Module]
    mixin: type

    def fold(self) -> None:
        self.__class__ = self.plain  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        # A class that `variant` made is no module's attribute: pickles name the two that it is made of.
        return _blank, (self.mixin, self.plain), self.__dict__


def layer(cls: type) -> type:
    """Register a one-member layer.

    A layer that takes the place of a plain one is a mixin: the module keeps its class as a base, its tensors and its
    names. `adopt()` registers the tensors that the layer adds, from torch's generator; `fold()` turns the module back
    into the plain layer that computes the same. An nn.Module (a bank of templates) is added at its path.
    """
    LAYERS[cls.__name__] = cls
    return cls


_VARIANTS: dict[tuple[type, type], type] = {}


def variant(mixin: type, plain: type) -> Any:
    """The class of a plain layer that has become a one-member layer."""
    if (mixin, plain) not in _VARIANTS:
        native = issubclass(mixin, MemberLayer)  # takes the place of a plain layer in every ensemble, and prints as it
        name = plain.__name__ if native else f"{mixin.__name__}{plain.__name__}"
        fields = {"plain": plain, "mixin": mixin, "__module__": mixin.__module__}
        _VARIANTS[mixin, plain] = type(name, (mixin, MemberLayer, plain), fields)
    return _VARIANTS[mixin, plain]


def _blank(mixin: type, plain: type) -> Any:
    """A module of this kind without its attributes, for copies and pickles to fill."""
    kind = variant(mixin, plain)
    return kind.__new__(kind)


def fold(network: nn.Module) -> nn.Module:
    """Turn every one-member layer back into a plain one, in place; banks, which only feed layers, go."""
    for path, module in list(network.named_modules()):
        if type(module) in LAYERS.values():
            parent, _, child = path.rpartition(".")
            delattr(network.get_submodule(parent), child)
        elif isinstance(module, MemberLayer):
            module.fold()
    return network


def is_plain(module: nn.Module) -> bool:
    """Whether a module is no layer of multum's: neither a member's layer nor a bank."""
    return not isinstance(module, MemberLayer) and type(module) not in LAYERS.values()


@dataclass(frozen=True)
class Edit:
    """The attributes that one module gets, and the registered layer it becomes.

    >>> Edit("layer1.0.conv1", {"in_channels": 32, "out_channels": 32})
    Edit(path='layer1.0.conv1', attributes={'in_channels': 32, 'out_channels': 32}, layer=None)
    """

    path: str
    attributes: Mapping[str, Any]
    layer: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "attributes": dict(self.attributes), "layer": self.layer}


def apply(network: nn.Module, edits: Iterable[Edit], tensors: Mapping[str, Tensor]) -> nn.Module:
    """Change the network in place: layers and attributes from the edits, parameters and buffers from `tensors`."""
    modules = dict(network.named_modules())
    for edit in edits:
        attributes = {k: tuple(v) if isinstance(v, list) else v for k, v in edit.attributes.items()}
        if edit.layer is not None:
            check_known(edit.layer, LAYERS, "an edit must name a layer of multum")
        kind = LAYERS[edit.layer] if edit.layer is not None else None
        if kind is not None and issubclass(kind, nn.Module):
            parent, _, child = edit.path.rpartition(".")
            network.get_submodule(parent).add_module(child, kind(**attributes))
            modules = dict(network.named_modules())
            continue
        check_known(edit.path, modules, "an edit must name a module of the network")
        module = modules[edit.path]
        if kind is not None:
            module.__class__ = variant(kind, type(module))
        for name, value in attributes.items():
            setattr(module, name, value)
        if kind is not None:
            module.adopt(network)  # type: ignore[operator]
    install(network, tensors)
    return network


def names_of(network: nn.Module) -> dict[str, list[str]]:
    """First name -> all names of every parameter and buffer; a tied tensor has more than one."""
    first: dict[int, str] = {}
    names: dict[str, list[str]] = {}
    for every in (network.named_parameters(remove_duplicate=False), network.named_buffers(remove_duplicate=False)):
        for name, tensor in every:
            names.setdefault(first.setdefault(id(tensor), name), []).append(name)
    return names


def install(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put new tensors in the place of old ones, of any shape; ties and frozen flags stay."""
    names = names_of(network)
    old = tensors_of(network)
    for first, tensor in tensors.items():
        new: Tensor = tensor
        if isinstance(old[first], nn.Parameter):
            new = nn.Parameter(tensor.detach(), requires_grad=old[first].requires_grad)
        for name in names[first]:
            path, _, attribute = name.rpartition(".")
            # setattr, not the dict: recurrent layers keep a list of their weights and must hear of the change.
            setattr(network.get_submodule(path), attribute, new)


def reset(network: nn.Module) -> list[str]:
    """Re-run every layer's own initialisation in place, children before parents; frozen tensors keep their values.

    Returns the names of the parameters that no layer initialises itself (class tokens, positions, layer scales).
    """
    before = {name: (p._version, p.detach().clone()) for name, p in network.named_parameters()}
    for module in reversed(list(network.modules())):
        for method in ("reset_parameters", "_reset_parameters"):
            if callable(getattr(module, method, None)):
                getattr(module, method)()
                break
    left = []
    for name, p in network.named_parameters():
        version, value = before[name]
        # `p.data.normal_()` changes values but no version; `p.zero_()` may change the version but no value.
        if p.requires_grad and p._version == version and torch.equal(p, value):
            left.append(name)
        elif not p.requires_grad:
            p.detach().copy_(value)
    return left


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A context in which torch's generators start from `seed`, and after which they are as before."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
