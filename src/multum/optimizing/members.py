"""All members as plain networks in one module: [batch, ...] -> [members, batch, ...], without a layer of multum's.

What depends on no member (the trunk of TreeNet and Multihead, whatever precedes the first dropout of MC dropout) runs
in the first member's pass, and the others take its outputs. MIMO is one pass already: all members see one input, so
that the kernels of its first layer add up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..ensemble import Ensemble
from ..network.copies import drawn, full_copy, run, tensors_of
from ..network.dependence import trace_members
from ..rewrite.dropout import Drawing
from ..rewrite.folded import MimoHead
from ..rewrite.walker import MemberLayer, names_of

__all__ = ["Members", "OnePass", "folded", "in_turn", "is_sampled", "one_pass", "plain_networks", "sampled_network"]

log = logging.getLogger("multum")


def folded(ens: Ensemble) -> nn.Module:
    """The members of an ensemble as one module of plain layers, in eval mode, that shares no tensor with it.

    torch.export traces it with a dynamic batch. The dropout of MC dropout, which is on at prediction, draws from
    torch's own generator here.

    Shape: x [batch, ...] -> [members, batch, outputs, ...], as `ens(x)`; a tuple or dict of tensors is a network's
    several inputs.
    """
    if ens.folded:
        return one_pass(ens)
    if is_sampled(ens):
        return in_turn([with_native_draws(full_copy(ens.network)).requires_grad_(False)] * ens.members, ens)
    return in_turn(plain_networks(ens), ens)


def in_turn(networks: list[nn.Module], ens: Ensemble) -> Members:
    """These networks one after another; what depends on no member runs once."""
    members = Members(networks).eval()
    _compute_trunk_once(members, ens)
    return members


def plain_networks(ens: Ensemble) -> list[nn.Module]:
    """Every member as a plain network in eval mode; what members share is one tensor in all of them."""
    networks = [ens.member(i).eval().requires_grad_(False) for i in range(ens.members)]
    _share(networks, ens)
    return networks


class Members(nn.Module):
    """Plain networks, one after another."""

    def __init__(self, networks: list[nn.Module]):
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.trunk = _Trunk()

    def forward(self, x: Any) -> Tensor:
        outputs = []
        for i, network in enumerate(self.networks):
            self.trunk.begin(first=i == 0)
            outputs.append(run(network, x))
        self.trunk.outputs.clear()
        return torch.stack(outputs)


class OnePass(nn.Module):
    """A network that gives the outputs of all members at once, as rows: [batch, ...] -> [members * batch, ...]."""

    def __init__(self, network: nn.Module, members: int):
        super().__init__()
        self.network, self.members = network, members

    def forward(self, x: Any) -> Tensor:
        out = run(self.network, x)
        return out.unflatten(0, (self.members, out.shape[0] // self.members))


def one_pass(ens: Ensemble) -> OnePass:
    """A folded ensemble for one input that all members see: every layer plain but the last."""
    network = full_copy(ens.network).eval().requires_grad_(False)
    for module in network.modules():
        if isinstance(module, MemberLayer) and not isinstance(module, MimoHead):
            module.fold()
    return OnePass(network, ens.members)


def is_sampled(ens: Ensemble) -> bool:
    """Whether the members are random draws of one network."""
    return any(isinstance(m, Drawing) and m.always for m in ens.network.modules())


def sampled_network(ens: Ensemble) -> nn.Module:
    """The network of an ensemble of samples, every layer plain but the dropout that is on at prediction."""
    network = ens.single().eval().requires_grad_(False)
    for module in network.modules():
        if isinstance(module, MemberLayer) and not (isinstance(module, Drawing) and module.always):
            module.fold()
    return network


def with_native_draws(network: nn.Module) -> nn.Module:
    """The same network in place, with masks by torch's own operators and generator where dropout is on."""
    for module in network.modules():
        if isinstance(module, Drawing) and module.always:
            module.__dict__["draw"] = _native_mask
            module.__dict__["_buffers"].pop("member", None)
        elif isinstance(module, MemberLayer):
            module.fold()
    return network


def _native_mask(x: Tensor, p: float, channelwise: bool) -> Tensor | None:
    if p == 0:
        return None
    shape = (*x.shape[:2], *(1 for _ in x.shape[2:])) if channelwise else x.shape
    return torch.bernoulli(torch.full(shape, 1 - p, dtype=x.dtype, device=x.device))


# -- what all members have in common -----------------------------------------------------------------------------------


class _Trunk:
    """The outputs of the modules that run once per call, in the order in which the first member asks for them."""

    def __init__(self) -> None:
        self.outputs: dict[str, list[Any]] = {}
        self.first, self.calls = True, dict[str, int]()

    def begin(self, first: bool) -> None:
        self.first, self.calls = first, {}


class _Once:
    """A module's forward, for all members: the first runs it. A callable object, so that copies copy it too."""

    def __init__(self, path: str, module: nn.Module, trunk: _Trunk):
        self.path, self.module, self.trunk = path, module, trunk

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outputs = self.trunk.outputs.setdefault(self.path, [])
        if self.trunk.first:
            outputs.append(type(self.module).forward(self.module, *args, **kwargs))
            return outputs[-1]
        call = self.trunk.calls[self.path] = self.trunk.calls.get(self.path, 0) + 1
        return outputs[call - 1]


def _share(networks: list[nn.Module], ens: Ensemble) -> None:
    """One tensor for all members where the ensemble has one, and every member's is equal."""
    first = tensors_of(networks[0])
    for network in networks[1:]:
        names, other = names_of(network), tensors_of(network)
        for name in (n for n in ens.shared if n in first and n in other and _equal(first[n], other[n])):
            for tied in names[name]:
                path, _, attribute = tied.rpartition(".")
                setattr(network.get_submodule(path), attribute, first[name])


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a, b)


def _compute_trunk_once(members: Members, ens: Ensemble) -> None:
    """Let what depends on no member run in the first member's pass alone, where that changes nothing."""
    paths = _trunk(ens, members.networks) if len(members.networks) > 1 else []
    if not paths:
        return
    x = drawn(ens.example, next((t for t in ens.state_dict().values() if t.is_floating_point()), torch.zeros(())))
    expected = _outputs(members, x)
    modules = {(path, network.get_submodule(path)) for network in members.networks for path in paths}
    for path, module in modules:
        module.__dict__["forward"] = _Once(path, module, members.trunk)
    # A network may write into what the trunk gave it, and the next member would find that.
    if not torch.equal(_outputs(members, x), expected):
        for _, module in modules:
            del module.__dict__["forward"]


def _trunk(ens: Ensemble, networks: Iterable[nn.Module]) -> list[str]:
    """Paths of the largest modules that own nothing, and whose inputs depend on no member."""
    try:
        usage = trace_members(ens.single(), ens.layout.stacked, tree_map_only(Tensor, lambda t: t[:1], ens.example))
    except Exception as error:  # whatever a user's network raises on noted tensors, it can still run
        log.info("multum could not follow what depends on the member (%s); nothing is computed once", error)
        return []
    paths: list[str] = []
    for path in (p for p in usage.calls if p and p not in usage.inputs):
        inside = any(path == outer or path.startswith(f"{outer}.") for outer in paths)
        if inside or any(name.startswith(f"{path}.") for name in ens.layout.stacked):
            continue
        tensors = [[id(t) for t in tensors_of(n.get_submodule(path)).values()] for n in networks]
        if any(ids != tensors[0] for ids in tensors):
            break  # a member without its masked channels: from here on members differ
        paths.append(path)
    return paths


def _outputs(members: Members, x: Any) -> Tensor:
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        return members(x)
