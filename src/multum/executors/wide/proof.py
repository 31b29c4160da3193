"""Whether a network does to all members side by side what it does to one: proved operation by operation, on shapes.

The network runs twice without values (meta device), for one member and for all. Its layers, which have wide forms, are
not looked into. Everything else must be the same operations with the same settings on tensors of the same origin, whose
shapes differ by the factor `members` in one dimension, and must have a rule in `rules` that keeps the members
apart. What reads a value, draws random numbers or has no rule is no proof.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from ...network.copies import run, tensors_of
from .layers import NotWide, WideLayer
from .rules import SIZED, Operation, place_of_output

__all__ = ["Proof", "prove", "states_of", "unchanged"]


class Proof(NamedTuple):
    """Where the members are: in the network's output, and in the inputs of its layers (None: common to all).

    `overwriting` are the layers whose inputs nobody else needs, neither the network nor its gradient; `folding` are the
    layers whose outputs a norm alone needs, and that norm.
    """

    output: int
    inputs: dict[str, int | None]
    overwriting: set[str]
    folding: dict[str, str]


class Step(NamedTuple):
    """One operation or one layer of a run."""

    name: Any  # of a layer, its path
    settings: list[Any]
    origins: list[Any]  # of the operands: the step, the input or the tensor of the network that they come from
    shapes: list[tuple[int, ...]]  # of the operands
    outputs: list[tuple[int, ...]]


class Recorder(TorchDispatchMode):
    """Writes down a run of a network."""

    def __init__(self, network: nn.Module, x: Any):
        super().__init__()
        self.steps: list[Step] = []
        self.in_layer = False
        self.origins: dict[Any, Any] = {}
        self.alive: list[Tensor] = []  # a storage that is gone could lend its address to another
        for name, tensor in (*tensors_of(network).items(), *enumerate(_tensors(x))):
            self.origins[self.identity(tensor)] = name

    def identity(self, t: Tensor) -> Any:
        """Equal for two objects that stand for the same numbers, as autograd makes them of views."""
        self.alive.append(t)
        return t.untyped_storage()._cdata, t.storage_offset(), tuple(t.shape), t.stride()

    def origin(self, t: Tensor) -> Any:
        identity = self.identity(t)
        if identity not in self.origins and not t.is_meta and t.numel() < 1000:
            return t.dtype, t.tolist()  # a constant that the network makes in Python
        return self.origins.get(identity)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if self.in_layer:
            return func(*args, **kwargs)
        operands = _tensors((args, kwargs))
        origins = [self.origin(t) for t in operands]
        shapes = [tuple(t.shape) for t in operands]
        out = func(*args, **kwargs)
        sized = func.overloadpacket in SIZED
        settings = [] if sized else [s for s in tree_flatten((args, kwargs))[0] if not isinstance(s, Tensor)]
        outputs = _tensors(out)
        step = Step(func, settings, origins, shapes, [tuple(t.shape) for t in outputs])
        self.note(step, outputs)
        self.check(step, lambda places: Operation(func, args, kwargs, operands, places, outputs[0], 0))
        return out

    def layer(self, path: str, x: Tensor, forward: Callable[[Tensor], Tensor]) -> Tensor:
        """Run a layer unseen."""
        before = self.in_layer
        self.in_layer = True
        try:
            y = forward(x)
        finally:
            self.in_layer = before
        if not before:
            step = Step(path, [], [self.origin(x)], [tuple(x.shape)], [tuple(y.shape)])
            self.note(step, [y])
            self.check(step, None)
        return y

    def note(self, step: Step, outputs: list[Tensor]) -> None:
        for i, t in enumerate(outputs):
            self.origins[self.identity(t)] = (len(self.steps), i)
        self.steps.append(step)

    def check(self, step: Step, operation: Any) -> None:
        """Nothing to hold one member's run to."""


class Prover(Recorder):
    """Holds the run for all members to that for one."""

    def __init__(self, network: nn.Module, x: Any, expected: list[Step], members: int, own: set[str]):
        super().__init__(network, x)
        self.expected, self.members, self.own = expected, members, own
        self.inputs: dict[str, int | None] = {}

    def place(self, wide: Iterable[int], member: Iterable[int]) -> int | None:
        """The dimension that is larger than one member's, by the factor `members`; None where none is."""
        pairs = list(zip(wide, member, strict=True)) if len(tuple(wide)) == len(tuple(member)) else [(0, 1)]
        larger = [i for i, (a, b) in enumerate(pairs) if a != b]
        if not larger:
            return None
        if len(larger) > 1 or pairs[larger[0]][0] != self.members * pairs[larger[0]][1]:
            raise NotWide(f"a tensor has shape {tuple(wide)} where one member's has {tuple(member)}")
        return larger[0]

    def layer_place(self, path: str, x: Tensor) -> int | None:
        """Where the members are in the input of a layer that is about to run."""
        return self.place(x.shape, self.of_one_member(path).shapes[0])

    def of_one_member(self, name: Any, index: int | None = None) -> Step:
        index = len(self.steps) if index is None else index
        if index >= len(self.expected) or self.expected[index].name != name:
            raise NotWide(f"{name} runs for all members and not for one")
        return self.expected[index]

    def check(self, step: Step, operation: Any) -> None:
        member = self.of_one_member(step.name, len(self.steps) - 1)
        if not _same(step.settings, member.settings) or step.origins != member.origins or None in step.origins:
            raise NotWide(f"{step.name} has other settings or inputs than for one member")
        places = [self.place(*shapes) for shapes in zip(step.shapes, member.shapes, strict=True)]
        out = [self.place(*shapes) for shapes in zip(step.outputs, member.outputs, strict=True)]
        if isinstance(step.name, str):
            self.inputs[step.name] = places[0]
            return
        if any(isinstance(origin, str) and origin in self.own for origin in step.origins):
            raise NotWide(f"{step.name} reads a tensor that members own, outside of its layer")
        if torch.Tag.nondeterministic_seeded in step.name.tags:
            raise NotWide(f"{step.name} draws random numbers")
        wide = any(place is not None for place in places)
        expected = place_of_output(operation(places)._replace(members=self.members)) if wide else None
        if any(place != expected for place in out) or (wide and expected is None and out):
            raise NotWide(f"{step.name} has no rule that keeps the members apart")


def prove(
    networks: tuple[nn.Module, nn.Module],
    inputs: tuple[Any, Any],
    layers: Mapping[str, WideLayer],
    own: set[str],
    members: int,
) -> Proof:
    """Run the network of one member and that of all, both without values; NotWide where they differ.

    Args:
        layers: of the second network, by path.
        own: names of the tensors that members own.
    """
    member, wide = networks
    state = _random_state()
    first = Recorder(member, inputs[0])
    for path in layers:
        module: Any = member.get_submodule(path)
        module.__dict__["forward"] = _watched(first, path, module)
    before = states_of(member)
    with first:
        expected = run(member, inputs[0])
    second = Prover(wide, inputs[1], first.steps, members, own)
    for path, layer in layers.items():
        layer.module.__dict__["forward"] = _proving(second, path, layer)
    with second:
        out = run(wide, inputs[1])
    if not isinstance(out, Tensor) or len(second.steps) != len(first.steps):
        raise NotWide("the network gives no tensor, or runs more operations for one member than for all")
    place = second.place(out.shape, expected.shape)
    if place is None or second.origin(out) != first.origin(expected):
        raise NotWide("the output is not each member's")
    if _random_state() != state:
        raise NotWide("the network draws random numbers of Python or numpy")
    if not unchanged(before):
        raise NotWide("the network keeps what it computes in its modules")
    uses = Counter(origin for step in first.steps for origin in step.origins if _is_output(origin))
    uses[first.origin(expected)] += 1
    folding = _folding(first.steps, uses, layers)
    return Proof(place, second.inputs, _overwriting(first.steps, uses, layers), folding)


def _folding(steps: list[Step], uses: Counter, layers: Mapping[str, WideLayer]) -> dict[str, str]:
    """The layers that run once, and whose output goes to a norm that runs once, and nowhere else."""
    calls = Counter(step.name for step in steps)
    pairs = [
        (steps[step.origins[0][0]].name, step.name)
        for step in steps
        if isinstance(step.name, str) and _is_output(step.origins[0]) and uses[step.origins[0]] == 1
    ]
    return {
        path: norm
        for path, norm in pairs
        if calls[path] == calls[norm] == 1 and path in layers and layers[path].folds and layers[norm].folded
    }


def _overwriting(steps: list[Step], uses: Counter, layers: Mapping[str, WideLayer]) -> set[str]:
    """The layers that always get a new tensor which is used once."""

    def spare(origin: Any) -> bool:
        if not _is_output(origin) or uses[origin] != 1:
            return False
        name = steps[origin[0]].name
        return layers[name].fresh if isinstance(name, str) else name is torch.ops.aten.add.Tensor

    needing = {step.name for step in steps if isinstance(step.name, str) and not spare(step.origins[0])}
    return set(layers) - needing


def _watched(recorder: Recorder, path: str, module: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: recorder.layer(path, x, lambda x: type(module).forward(module, x))


def _proving(prover: Prover, path: str, layer: WideLayer) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        layer.place = prover.layer_place(path, x)
        if layer.place not in (None, layer.axis % x.ndim) and layer.own:
            raise NotWide(f"{path} has its channels elsewhere than the members are")
        return prover.layer(path, x, layer.forward)

    return forward


def states_of(network: nn.Module) -> list[tuple[dict, dict]]:
    """What decides what a network does: its modules' attributes and children, as they are and as they were."""
    places: list[Any] = [module.__dict__ for module in network.modules()]
    places += [module._modules for module in network.modules() if module._modules]
    return [(place, dict(place)) for place in places]


def unchanged(states: list[tuple[dict, dict]]) -> bool:
    try:
        return all(now == then for now, then in states)
    except (RuntimeError, ValueError):  # tensors or arrays that cannot be compared: others than before
        return False


def _random_state() -> Any:
    legacy: Any = np.random.get_state()
    return random.getstate(), legacy[1].tobytes(), legacy[2]


def _is_output(origin: Any) -> bool:
    """Whether something comes from an earlier step: (its number, which output)."""
    return isinstance(origin, tuple) and isinstance(origin[0], int)


def _tensors(tree: Any) -> list[Tensor]:
    return [t for t in tree_flatten(tree)[0] if isinstance(t, Tensor)]


def _same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(type(p) is type(q) and p == q for p, q in zip(a, b, strict=True))
