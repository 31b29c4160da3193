"""One member's network as a graph of torch's operators for any batch, by torch.export, with its tensors beside it.

The graph is functional: no operator in it writes into a tensor. Its tensors are constants under a name each, one for
all members or one for every member, so that a change of the weights (a norm folded into the layer before it) is a
change of these constants for all members at once.
"""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._pytree import tree_leaves, tree_map

from ..network.copies import arguments
from ..network.trace import plain_attention

__all__ = ["Constant", "Program", "Unexportable", "full_arguments", "mapped", "program_of"]

aten = torch.ops.aten

Constant = tuple[Tensor, ...]  # one for all members, or one for each


@dataclass
class Program:
    """Shape: the graph takes the tensors of an input and gives [batch, ...], one member's output."""

    graph: fx.Graph
    constants: dict[str, Constant]
    whole: bool = False  # whether it gives the outputs of all members, [members, batch, ...]
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def constant(self, node: Any) -> Constant | None:
        """What a node stands for, where that is a constant."""
        is_constant = isinstance(node, fx.Node) and node.op == "get_attr"
        return self.constants[node.target] if is_constant else None  # type: ignore[index]

    def add(self, before: fx.Node, values: Constant) -> fx.Node:
        """A new constant, whose node stands before another one."""
        name = f"constant_{next(self.numbers)}"
        self.constants[name] = values
        with self.graph.inserting_before(before):
            node = self.graph.create_node("get_attr", name)
        node.meta["val"] = values[0]
        return node

    def clean(self) -> None:
        """Without what nothing reads."""
        self.graph.eliminate_dead_code()
        used = {node.target for node in self.graph.nodes if node.op == "get_attr"}
        self.constants = {name: values for name, values in self.constants.items() if name in used}


class Unexportable(Exception):
    """Why torch.export cannot trace a network for any batch."""


def program_of(networks: Sequence[nn.Module], x: Any, whole: bool = False) -> Program:
    """The graph of the first network, with the tensors of all: they differ in nothing else.

    Args:
        x: an example, at least two rows; the graph takes any number of them.
        whole: whether the network is all members, and takes the input as one argument.
    """
    args, kwargs = ((x,), {}) if whole else arguments(x)
    rows = tree_map(lambda t: {0: torch.export.Dim.DYNAMIC}, (args, kwargs))
    if not all(isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs))):
        raise Unexportable("an input must be made of tensors alone")
    try:
        with torch.no_grad(), plain_attention(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.export.export(networks[0], args, kwargs, dynamic_shapes=rows[1] if kwargs else rows[0])
            if any(_writes(node) and not _make_functional(node) for node in list(exported.graph.nodes)):
                exported = exported.run_decompositions({})
    except Exception as error:  # a network may do anything that cannot be traced
        raise Unexportable(str(error)) from error
    if any(spec.kind is not OutputKind.USER_OUTPUT for spec in exported.graph_signature.output_specs):
        raise Unexportable("the network changes its buffers in eval mode")
    program = _with_constants(exported, networks)
    program.whole = whole
    _fold_constants(program)
    return program


def _writes(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _make_functional(node: fx.Node) -> bool:
    """relu_(y) is relu(y) where nothing else reads y; whether that is so."""
    packet, overload = node.target._schema.name.split("::")[1], node.target._schema.overload_name or "default"  # type: ignore[union-attr]
    first = node.args[0] if node.args else None
    twin = getattr(getattr(aten, packet.removesuffix("_"), None), overload, None)
    if not (packet.endswith("_") and twin and isinstance(first, fx.Node) and first.op == "call_function"):
        return False
    if len(first.users) != 1 or _is_view(first):
        return False
    node.target = twin
    return True


def _is_view(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)


def _with_constants(exported: Any, networks: Sequence[nn.Module]) -> Program:
    """Parameters and buffers, which torch.export makes inputs, become constants; what is off in eval mode goes."""
    program = Program(copy.deepcopy(exported.graph), {})  # a copy belongs to no module
    inputs = [node for node in program.graph.nodes if node.op == "placeholder"]
    specs = dict(zip(inputs, exported.graph_signature.input_specs, strict=True))
    for node in list(program.graph.nodes):
        if node in specs and specs[node].kind is not InputKind.USER_INPUT:
            spec = specs[node]
            if spec.kind is InputKind.CONSTANT_TENSOR:
                values: Constant = (exported.constants[spec.target],)
            else:
                values = _together([_tensor(network, spec.target) for network in networks])
            constant = program.add(node, values)
            constant.meta = node.meta
            node.replace_all_uses_with(constant)
            program.graph.erase_node(node)
        elif node.target is aten.detach.default or (node.target in _OFF and not node.args[-1]):
            node.replace_all_uses_with(node.args[0])
            program.graph.erase_node(node)
    program.clean()
    return program


def _fold_constants(program: Program) -> None:
    """Compute now what depends on constants alone, such as a weight that a parametrization makes."""
    for node in list(program.graph.nodes):
        constants = [program.constant(n) for n in node.all_input_nodes]
        folds = node.op == "call_function" and constants and None not in constants and _is_pure(node)
        if folds and isinstance(node.meta.get("val"), Tensor):
            new = program.add(node, mapped(partial(_computed, node), *constants))  # type: ignore[arg-type]
            node.replace_all_uses_with(new)
            program.graph.erase_node(node)
    program.clean()


@torch.no_grad()
def _computed(node: fx.Node, *inputs: Tensor) -> Tensor:
    values = dict(zip(node.all_input_nodes, inputs, strict=True))
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: values[n])  # type: ignore[misc]
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _is_pure(node: fx.Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded not in tags


_OFF = {aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default}
_OFF |= {aten.feature_alpha_dropout.default}


def _tensor(network: nn.Module, name: str) -> Tensor:
    path, _, attribute = name.rpartition(".")
    return getattr(network.get_submodule(path), attribute).detach()


def _together(values: Sequence[Tensor]) -> Constant:
    """One for all where they are equal."""
    first = values[0]
    same = all(t is first or t.data_ptr() == first.data_ptr() or torch.equal(t, first) for t in values[1:])
    return (first,) if same else tuple(values)


def mapped(f: Callable[..., Tensor], *constants: Constant) -> Constant:
    """What a function makes of constants, member by member.

    >>> mapped(torch.add, (torch.tensor(1),), (torch.tensor(1), torch.tensor(2)))
    (tensor(2), tensor(3))
    """
    members = max(map(len, constants))
    return tuple(f(*(c[i if len(c) > 1 else 0] for c in constants)) for i in range(members))


def full_arguments(node: fx.Node) -> list[Any]:
    """An operator's arguments by position, with the defaults of those that are left out."""
    schema = node.target._schema.arguments[len(node.args) :]  # type: ignore[union-attr]
    return [*node.args, *(node.kwargs.get(a.name, a.default_value) for a in schema)]
