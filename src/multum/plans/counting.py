"""What an ensemble costs before it exists: built on the meta device, where nothing is computed and nothing stored.

params, macs     as `multum.cost` counts them
weights, peak    bytes of parameters and buffers, and of the activations that are alive at once in one pass
work             what a pass has to do, operation by operation: the latency of other ensembles tells its own
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from ..building import ensemble, without_remarks
from ..ensemble import Ensemble
from ..errors import MultumError
from ..executors import REFERENCE, default
from ..methods import Method
from ..metrics.cost import cost
from ..metrics.speed import peak_bytes
from ..network.copies import on_meta, skeleton, tensors_of
from ..thinning.thin import output_of, thin

PLAIN = (Tensor, nn.Parameter)


@dataclass(frozen=True)
class Work:
    """Of one pass: operations, mult-adds and bytes read and written; and whether all members run at once."""

    operations: int
    macs: int
    grouped_macs: int  # of convolutions in groups, which run at another speed
    bytes: int
    together: bool


@dataclass(frozen=True)
class Counts:
    """Of one prediction by all members. Shape: `weights` and `peak` in bytes."""

    params: int
    macs: int
    weights: int
    peak: int | None = None  # None: not asked for
    work: Work | None = None

    @property
    def memory(self) -> int | None:
        return None if self.peak is None else self.weights + self.peak


class Base:
    """The one network that ensembles are made of, at any share of its width, and an example batch of it."""

    def __init__(self, network: nn.Module, example: Any, task: str, targets: int | None):
        self.network, self.example = network, example
        self.task, self.targets = task, targets
        self.device = next((t.device for t in tensors_of(network).values()), torch.device("cpu"))
        self.shapes, self.shape_example = _without_values(network, example)
        self.thinned: dict[float, nn.Module] = {1.0: self.shapes}
        self.known_shapes = KnownShapes()

    def counts(
        self, method: Method, width: float, affordable: Callable[[float, float], bool] = lambda params, macs: True
    ) -> Counts:
        """Exact costs; raises where the method and the network do not fit.

        Args:
            affordable: of parameters and mult-adds; where they are not, no pass is followed.
        """
        with self.known_shapes:
            return self._counts(method, width, affordable)

    def _counts(self, method: Method, width: float, affordable: Callable[[float, float], bool]) -> Counts:
        if width not in self.thinned:
            self.thinned[width] = thin(self.shapes, width, self.shape_example)
        ens = self._ensemble(self.thinned[width], method, self.shape_example)
        ens.executor = default(self.device.type, False, ens.has_trunk, ens.refusals)
        counted = cost(ens, example=self.shape_example)
        weights = sum(t.nbytes for t in tensors_of(ens).values())
        followed = self._pass(ens) if affordable(counted.params, counted.macs) else (None, None)
        return Counts(counted.params, counted.macs, weights, *followed)

    def build(self, method: Method, width: float) -> Ensemble:
        """The ensemble itself, as it is where it predicts."""
        network = self.network if width == 1 else thin(self.network, width, self.example)
        return self._ensemble(network, method, self.example)

    def _ensemble(self, network: nn.Module, method: Method, example: Any) -> Ensemble:
        with torch.random.fork_rng(), without_remarks():
            ens = ensemble(network, method, example=example, task=self.task, targets=self.targets, seed=0).eval()
        if ens.members < method.members:  # members are born, or gathered, while it trains
            own = ens.tensors(ens.own)
            ens.regrow({n: t.detach()[:1].repeat(method.members, *(1 for _ in t.shape[1:])) for n, t in own.items()})
        return ens

    def _pass(self, ens: Ensemble) -> tuple[int, Work]:
        try:
            return _followed(ens, self.shape_example)
        except (RuntimeError, NotImplementedError):  # an executor that the meta device cannot show
            ens.executor = REFERENCE
            return _followed(ens, self.shape_example)


def _followed(ens: Ensemble, x: Any) -> tuple[int, Work]:
    with _Working() as working:
        peak = peak_bytes(ens, x)
    together = not ens.folded and ens.members > 1 and ens.executor != REFERENCE
    return peak, Work(working.operations, working.macs, working.grouped, working.bytes, together)


class _Working(TorchDispatchMode):
    """Adds up what operations do; a view does nothing."""

    operations = macs = grouped = bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.is_view:
            return out
        self.operations += 1
        self.bytes += sum(t.nbytes for t in tree_leaves((args, kwargs, out)) if isinstance(t, Tensor))
        packet = func.overloadpacket
        if packet in flop_registry:
            macs = flop_registry[packet](*args, **(kwargs or {}), out_val=out) // 2
            grouped = packet is torch.ops.aten.convolution and args[8] > 1
            self.macs, self.grouped = self.macs + macs * (not grouped), self.grouped + macs * grouped
        return out


def _without_values(network: nn.Module, example: Any) -> tuple[nn.Module, Any]:
    """Network and example on the meta device, or as they are where the network reads values."""
    if on_meta(network):
        return network, example
    shapes = skeleton(network, lambda t: t.detach().to("meta"))
    there = tree_map_only(Tensor, lambda t: t.to("meta"), example)
    try:
        output_of(shapes, there)
    except (RuntimeError, NotImplementedError, ValueError, TypeError, MultumError):
        return network, example
    return shapes, there


class KnownShapes(TorchDispatchMode):
    """While it is on, functional operations on tensors of the meta device are worked out once for each shape.

    torch finds most shapes in Python, in a millisecond for a norm or a ReLU, and a plan follows the same few shapes
    through hundreds of passes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if any(kind not in PLAIN for kind in types):  # a subclass comes back with plain tensors
            return NotImplemented
        if kwargs or not args or type(args[0]) not in PLAIN or not args[0].is_meta or func.is_view:
            return func(*args, **(kwargs or {}))
        key = (func, *map(_key, args))
        outputs = self.known.get(key)
        if outputs is None:
            out = func(*args)
            self.known[key] = _outputs(func, args, out)
            return out
        if not outputs:
            return func(*args)
        made = [
            None if each is None else torch.empty_strided(*each[:2], dtype=each[2], device=each[3]) for each in outputs
        ]
        return made[0] if len(made) == 1 else tuple(made)


def _key(argument: Any) -> Any:
    if type(argument) in PLAIN:
        return argument.shape, argument.stride(), argument.dtype, argument.device
    return tuple(map(_key, argument)) if isinstance(argument, (list, tuple)) else (type(argument), argument)


def _outputs(func: Any, args: tuple, out: Any) -> list[Any]:
    """How to make what an operation gave; empty where it must run each time."""
    outputs = out if isinstance(out, tuple) and len(out) > 1 else (out,)
    plain = all(t is None or (type(t) is Tensor and t.is_meta) for t in outputs)
    aliases = any(each.alias_info is not None for each in (*func._schema.arguments, *func._schema.returns))
    given = {t.untyped_storage()._cdata for t in args if type(t) in PLAIN}
    if not plain or aliases or any(t is not None and t.untyped_storage()._cdata in given for t in outputs):
        return []
    return [None if t is None else (t.shape, t.stride(), t.dtype, t.device) for t in outputs]
