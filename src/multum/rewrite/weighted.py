"""The layers that carry weights, and the two ways to scale what goes into them and what comes out.

    y  = out * layer(into * x)      a layer that is called: its input and its output are scaled
    W' = W * (out into^T)           a layer whose weight somebody else reads: the weight itself is scaled

nn.MultiheadAttention, the fast path of nn.TransformerEncoderLayer and a subclass's own forward read weights without
calling the layer that holds them: there only the second form takes effect.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..errors import Refusal, RewriteError, check_known
from ..network.copies import name_in
from ..network.dependence import Usage, trace_members
from .walker import computed

_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_FORWARDS = {nn.Linear.forward, *(c.forward for c in _CONVS)}
_INNER_FORWARDS = {getattr(c, "_conv_forward", None) for c in (nn.Linear, *_CONVS)}
_UNKNOWN = (nn.RNNBase, nn.RNNCellBase, nn.Bilinear)
_PROJECTIONS = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
_TENSORS = ("weight", "bias", "in_proj_weight", "in_proj_bias", *_PROJECTIONS)


class Weighted(NamedTuple):
    """One weighted layer: where it is, and whether torch's own forward of it runs or its weight is read."""

    path: str
    module: nn.Module
    called: bool


def weighted_layers(
    what: str, network: nn.Module, example: Any, usage: Usage, plain: Sequence[str], adds: Sequence[str]
) -> list[Weighted]:
    """Every Linear, convolution and nn.MultiheadAttention, or one RewriteError with all weights that are none of these.

    Args:
        what: the method that asks, for messages.
        usage: what one run of the network on the example showed.
        plain: patterns of module paths to leave out, with everything below them.
        adds: names of the tensors that the method adds to a layer.

    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> x = torch.zeros(1, 3)
    >>> usage = trace_members(net, (), x)
    >>> [(w.path, w.called) for w in weighted_layers("BatchEnsemble", net, x, usage, ["2"], [])]
    [('0', True)]
    """
    modules = dict(network.named_modules())
    _check_patterns(plain, modules)
    layers: list[Weighted] = []
    refusals: dict[str, str] = {}
    for path, module in modules.items():
        if _matches(path, plain):
            continue
        if isinstance(module, (nn.Linear, *_CONVS, nn.MultiheadAttention)):
            parent = modules[path.rpartition(".")[0]] if path else None
            layers.append(Weighted(path, module, is_called(path, module, parent, usage.calls)))
            if problem := _problem(module, adds):
                refusals[path] = problem
        elif isinstance(module, _UNKNOWN):
            refusals[path] = f"{type(module).__name__} has weights of its own kind, which {what} does not rewrite"
    known = {w.path for w in layers}
    read = [w.path for w in layers if not w.called]
    for path in usage.layers:
        if path in known or path in refusals or _matches(path, plain):
            continue
        reads = any(not path or p.startswith(f"{path}.") for p in read)
        if not reads or _by_hand(network, path, modules[path], example):
            refusals[path] = f"{type(modules[path]).__name__} multiplies by a weight that is no layer of its own"
    if refusals:
        raise RewriteError(what, [Refusal(path, why, _fix(what, path)) for path, why in refusals.items()])
    return layers


def _by_hand(network: nn.Module, path: str, module: nn.Module, example: Any) -> bool:
    """Whether a module multiplies by a matrix of its own, and not only by the weights of layers below it."""
    own = {name_in(path, name) for name, p in module.named_parameters(recurse=False) if p.ndim > 1}
    if not own:
        return False
    work = trace_members(network, own, tree_map_only(Tensor, lambda t: t[:1], example)).work
    return any(w.path == path and w.per_member and w.kind != "attention" for w in work)


def _fix(what: str, path: str) -> str:
    if not path:
        return "hold the weight in an nn.Linear or a convolution"
    return f'leave it as it is, shared by all members: {what}(plain=("{path}",))'


def _check_patterns(plain: Sequence[str], modules: dict[str, nn.Module]) -> None:
    for pattern in plain:
        if not any(c in pattern for c in "*?["):
            check_known(pattern, modules, "plain must name modules of the network")


def _matches(path: str, patterns: Sequence[str]) -> bool:
    parts = path.split(".")
    above = [".".join(parts[: i + 1]) for i in range(len(parts))]
    return any(fnmatch.fnmatchcase(p, pattern) for p in above for pattern in patterns)


def _problem(module: nn.Module, adds: Sequence[str]) -> str | None:
    taken = [name for name in adds if hasattr(module, name)]
    if taken:
        return f"{type(module).__name__} has an attribute {taken[0]} already"
    if not isinstance(module, nn.MultiheadAttention) and "weight" not in module._parameters:
        return "its weight is computed from other tensors (weight norm, spectral norm, a parametrization)"
    return None


def is_called(path: str, module: nn.Module, parent: nn.Module | None, calls: Collection[str]) -> bool:
    """Whether torch's own forward of a layer makes its output, and nobody reads its weight instead."""
    own_forward = (
        type(module).forward not in _FORWARDS or getattr(type(module), "_conv_forward", None) not in _INNER_FORWARDS
    )
    return path in calls and not own_forward and not isinstance(parent, nn.TransformerEncoderLayer)


def widths(module: Any) -> tuple[int, int]:
    """Input and output channels. Attention has 3 * embed_dim outputs: queries, keys and values.

    >>> widths(nn.Conv2d(3, 8, 1)), widths(nn.MultiheadAttention(4, 2))
    ((3, 8), (4, 12))
    """
    if isinstance(module, nn.MultiheadAttention):
        inputs = module.embed_dim if module._qkv_same_embed_dim else sum(_input_widths(module))
        return inputs, 3 * module.embed_dim
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    return module.in_channels, module.out_channels


def _input_widths(module: nn.MultiheadAttention) -> list[int]:
    return [module.embed_dim, module.kdim, module.vdim]


def scaled_weight(module: Any, name: str, weight: Tensor, into: Tensor | None, out: Tensor | None) -> Tensor:
    """W * (out into^T) for the weight `name` of a layer, whatever its layout.

    Shape: into [inputs], out [outputs] as `widths` counts them; None for a side that is not scaled.
    """
    if name in _PROJECTIONS:
        k = _PROJECTIONS.index(name)
        into = into if into is None else into.split(_input_widths(module))[k]
        out = out if out is None else out.chunk(3)[k]
    transposed, groups = getattr(module, "transposed", False), getattr(module, "groups", 1)
    first, second = (into, out) if transposed else (out, into)  # of dimensions 0 and 1; 1 is that of one group
    a, b, *kernel = weight.shape
    ones = [1 for _ in kernel]
    if first is not None:
        weight = weight * first.view(a, 1, *ones)
    if second is not None:
        weight = weight * second.view(groups, 1, b).expand(groups, a // groups, b).reshape(a, b, *ones)
    return weight


def tensor_of(module: nn.Module) -> Tensor:
    """A tensor with the device and the dtype of a layer."""
    return next(p for p in module._parameters.values() if p is not None)


class Scaled:
    """Mixin of a layer with scaled channels: `generate` gives the tensors of the plain layer that computes the same."""

    plain: type[nn.Module]
    adds: tuple[str, ...]  # the tensors and attributes that folding takes away
    _parameters: dict[str, Any]

    def generate(self, name: str, tensor: Tensor) -> Tensor:
        raise NotImplementedError

    @torch.no_grad()
    def fold(self) -> None:
        present = {name: t for name in _TENSORS if (t := self._parameters.get(name)) is not None}
        generated = {name: self.generate(name, t) for name, t in present.items()}
        for name in self.adds:
            delattr(self, name)
        self.__class__ = self.plain  # type: ignore[assignment]
        for name, t in generated.items():
            if t is not present[name]:
                setattr(self, name, nn.Parameter(t, requires_grad=present[name].requires_grad))


class Read(Scaled):
    """A scaled layer whose weight is read: whoever asks for one of its tensors gets the generated one."""

    weight, bias, in_proj_weight, in_proj_bias, q_proj_weight, k_proj_weight, v_proj_weight = map(computed, _TENSORS)

    def compute(self, name: str) -> Tensor | None:
        if name not in self._parameters:
            raise AttributeError(name)  # nn.Module's own lookup, and its message, follow
        tensor = self._parameters[name]
        return None if tensor is None else self.generate(name, tensor)

    def register_parameter(self, name: str, param: Any) -> None:
        # nn.Module looks whether the name is free, which would generate a tensor from whatever is there by now.
        if name in _TENSORS and name in self._parameters:
            self._parameters[name] = param
        else:
            super().register_parameter(name, param)  # type: ignore[misc]
