"""A network run once for all members side by side in its channels, with no interpreter between its operations.

The user's own forward runs as it is; while it does, the layers that hold tensors work on [batch, members * channels,
...] (`layers`). That this is what one member after another would give is proved beforehand (`proof`), for the
kind of input, the mode, and the network as it stands: a module that is changed later is proved again.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C import _functorch as functorch
from torch.nn.modules.module import _has_any_global_hook
from torch.utils._pytree import tree_flatten, tree_map_only

from ...errors import first_line
from ...network.copies import run, skeleton
from ..holders import Place, holders_of
from ..recompute import refusing
from .forms import wide_layer
from .layers import NotWide, WideLayer
from .proof import Proof, prove, states_of, unchanged

__all__ = ["Wide", "wide_of"]

log = logging.getLogger("multum")

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_LIMIT = 64  # proofs of one network; one that keeps changing is not worth more


class Verdict(NamedTuple):
    """A proof or the reason why there is none, and the state of the network for which it holds."""

    proof: Proof | str
    states: list[tuple[dict, dict]]


class Wide:
    """What is known of one network."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.parts = Parts()
        self.verdicts: dict[Any, Verdict] = {}
        self.proofs = 0
        self.runs = 0  # how many calls went this way
        self.refusal = ""  # why the last call did not

    def run(
        self, network: nn.Module, stacked: Mapping[str, Tensor], x: Any, members: int, per_member: bool
    ) -> Tensor | None:
        """All members' outputs [members, batch, ...]; None where the members cannot be run this way."""
        with self.lock:
            proof = self.proof(network, stacked, x, members, per_member)
            self.refusal = proof if isinstance(proof, str) else ""
            if isinstance(proof, str):
                return None
            self.runs += 1
            return self.apply(network, proof, side_by_side(x) if per_member else x)

    def apply(self, network: nn.Module, proof: Proof, x: Any) -> Tensor:
        layers = self.parts.layers
        for path, layer in layers.items():
            layer.place, layer.overwrites = proof.inputs.get(path), path in proof.overwriting
            layer.norm, layer.done = layers.get(proof.folding.get(path, "")), False
            layer.module.__dict__["forward"] = layer.forward
        try:
            out = run(network, x)
        finally:
            for layer in layers.values():
                del layer.module.__dict__["forward"]
        return out.unflatten(proof.output, (self.parts.members, -1)).movedim(proof.output, 0)

    def proof(
        self, network: nn.Module, stacked: Mapping[str, Tensor], x: Any, members: int, per_member: bool
    ) -> Proof | str:
        """Where the members are, or why they cannot be side by side."""
        if functorch.maybe_current_level() is not None:
            return "a transformation of torch.func is around the ensemble"
        if members != self.parts.members or not self.parts.hold(stacked):
            self.parts = Parts.of(network, stacked, members)
            self.verdicts = {}
        if self.parts.refusal or not self.parts.hold(stacked):
            return self.parts.refusal or "the tensors are not those that the network holds"
        if _has_any_global_hook() or any(self.parts.hooks):
            return "a hook would see all members' tensors at once"
        key = (network.training, torch.is_grad_enabled(), per_member, _kind(x, per_member))
        verdict = self.verdicts.get(key)
        if verdict is not None and unchanged(verdict.states):
            return verdict.proof
        if self.proofs == _LIMIT:
            return f"the network or the shape of its input has changed {_LIMIT} times"
        if verdict is not None:  # somebody changed the network
            self.parts = Parts.of(network, stacked, members)
        self.proofs += 1
        self.verdicts[key] = Verdict(self.parts.proof(network, x, per_member), states_of(network))
        return self.verdicts[key].proof


class Parts:
    """What a network is made of: the layers that hold tensors, where the stacked tensors are, and who may look on."""

    def __init__(self, members: int = 0) -> None:
        self.members = members
        self.layers: dict[str, WideLayer] = {}
        self.places: list[Place] = []  # of the stacked tensors
        self.hooks: list[dict] = []
        self.refusal = ""

    @classmethod
    def of(cls, network: nn.Module, stacked: Mapping[str, Tensor], members: int) -> Parts:
        parts = cls(members)
        modules = dict(network.named_modules())
        parts.places = holders_of(network, tuple(stacked)).places
        parts.hooks = [getattr(module, kind) for module in modules.values() for kind in _HOOKS]
        own = parts.own()
        try:
            parts.layers = {
                path: layer for path, m in modules.items() if (layer := _layer(m, own, members)) is not None
            }
        except NotWide as reason:
            parts.refusal = str(reason)
        if "" in parts.layers or members < 2:
            parts.refusal = "there must be several members, of a network of several layers"
        return parts

    def hold(self, stacked: Mapping[str, Tensor]) -> bool:
        """Whether these are the network's own stacked tensors."""
        return len(stacked) == len(self.places) and all(
            dictionary[attribute] is stacked.get(name) for name, dictionary, attribute in self.places
        )

    def own(self) -> set[int]:
        """The stacked tensors, by identity: a tied one has several names."""
        return {id(dictionary[attribute]) for _, dictionary, attribute in self.places}

    def proof(self, network: nn.Module, x: Any, per_member: bool) -> Proof | str:
        if any(isinstance(t, Tensor) and t.numel() == 0 for t in tree_flatten(x)[0]):
            return "the batch is empty"
        own = self.own()
        member = skeleton(network, lambda t: _empty(t[0] if id(t) in own else t))
        wide = skeleton(network, _empty)
        modules = dict(wide.named_modules())
        layers = {path: type(f)(modules[path], f.own, self.members) for path, f in self.layers.items()}
        x = tree_map_only(Tensor, _empty, x)
        inputs = (tree_map_only(Tensor, lambda t: t[0], x), side_by_side(x)) if per_member else (x, x)
        names = {place.name for place in self.places}
        try:
            with torch.random.fork_rng(), refusing(NotWide("the network checkpoints blocks")):
                return prove((member, wide), inputs, layers, names, self.members)
        except Exception as error:  # a user's network may raise anything without values; then there is no proof
            return str(error) if isinstance(error, NotWide) else f"{type(error).__name__}: {first_line(error)}"


def _layer(module: nn.Module, own: set[int], members: int) -> WideLayer | None:
    tensors = (*module._parameters.items(), *module._buffers.items())
    return wide_layer(module, frozenset(name for name, t in tensors if id(t) in own), members)


def _empty(t: Tensor) -> Tensor:
    return torch.empty_like(t, device="meta")


def side_by_side(x: Any) -> Any:
    """Inputs of each member as channels of one input. Shape: [members, batch, C, ...] -> [batch, members * C, ...]."""
    return tree_map_only(Tensor, lambda t: t.transpose(0, 1).flatten(1, 2), x)


def _kind(x: Any, per_member: bool) -> Any:
    """Equal for inputs on which a network does the same: of a batch, only whether it has one row counts."""
    if not isinstance(x, Tensor):
        leaves, spec = tree_flatten(x)
        return str(spec), *(_kind(leaf, per_member) if isinstance(leaf, Tensor) else repr(leaf) for leaf in leaves)
    rows = 1 if per_member else 0
    return min(x.shape[rows], 2), x.shape[rows + 1 :], x.dtype


_WIDE: weakref.WeakKeyDictionary[nn.Module, Wide] = weakref.WeakKeyDictionary()


def wide_of(network: nn.Module) -> Wide:
    """What is known of this network; a copy of it starts anew."""
    if network not in _WIDE:
        _WIDE[network] = Wide()
    return _WIDE[network]
