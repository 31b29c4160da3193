"""The graph of one member made the graph of all members.

A value of one member's graph becomes one of these:

    COMMON     one value, the same for all members: whatever depends on no member is computed once
    EACH       members values of their own: an operator runs once for every member
    CHANNELS   [batch, members * channels, ...]: one grouped convolution, one pool
    FRONT      [members, batch, ...]: one batched product
    ROWS       [members * batch, ...]: samples of one network, whose weights all are common

An operator without a rule for the members side by side (`rules`) runs once for every member, so that every graph can be
spread; without any rules this is members one after another.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from ..rewrite.dropout import Randomness, draw_mask, drop, in_order
from .program import Constant, Program

__all__ = ["CHANNELS", "COMMON", "EACH", "FRONT", "ROWS", "Draws", "Rule", "Spreader", "Value", "spread"]

aten = torch.ops.aten

COMMON, EACH, CHANNELS, FRONT, ROWS = "common", "each", "channels", "front", "rows"


class Value(NamedTuple):
    """What stands for a node of one member's graph: one node, or for EACH one per member."""

    kind: str
    nodes: tuple[Any, ...]

    @property
    def node(self) -> Any:
        return self.nodes[0]


def first(values: Constant) -> Tensor:
    return values[0]


Rule = Callable[["Spreader", fx.Node], Value | None]


def spread(program: Program, members: int, rules: Mapping[Any, Rule], randomness: Randomness | None) -> fx.GraphModule:
    """Shape: the module takes the tensors of an input, [batch, ...], and gives [members, batch, ...].

    Args:
        rules: of operators that run for all members at once.
        randomness: the generators of the samples, where the members are samples of one network.
    """
    spreader = Spreader(program, members, rules, randomness)
    for node in program.graph.nodes:
        spreader.values[node] = spreader.value_of(node)
    return spreader.module()


class Spreader:
    """Walks one member's graph and writes that of all members."""

    def __init__(self, program: Program, members: int, rules: Mapping[Any, Rule], randomness: Randomness | None):
        self.program, self.members, self.rules = program, members, rules
        self.graph, self.root = fx.Graph(), nn.Module()
        self.values: dict[fx.Node, Value] = {}
        self.done: dict[fx.Node, Value] = {}  # what was computed with an earlier node
        self.parts: dict[fx.Node, tuple[fx.Node, ...]] = {}  # a value of all members, split
        self.constants: dict[Any, fx.Node] = {}
        if randomness is not None:
            self.root.draws = Draws(randomness, members)

    # -- writing -------------------------------------------------------------------------------------------------------

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        return self.graph.call_function(target, args, kwargs)

    def constant(self, values: Constant, join: Callable[[Constant], Tensor]) -> fx.Node:
        """The node of a tensor, or of what is made of all members' tensors; one for all that ask for the same."""
        key = (join, *map(id, values))
        if key not in self.constants:
            name = f"tensor_{len(self.constants)}"
            self.root.register_buffer(name, join(values).detach())
            self.constants[key] = self.graph.get_attr(name)
        return self.constants[key]

    def joined(self, node: Any, join: Callable[[Constant], Tensor]) -> fx.Node | None:
        """What is made of all members' tensors of a constant; None where the node is none."""
        values = self.program.constant(node)
        if values is None:
            return None
        return self.constant(values * (self.members if len(values) == 1 else 1), join)

    def module(self) -> fx.GraphModule:
        module = fx.GraphModule(self.root, self.graph)
        module.graph.eliminate_dead_code()
        module.recompile()
        return module

    # -- reading -------------------------------------------------------------------------------------------------------

    def value_of(self, node: fx.Node) -> Value:
        if node.op == "placeholder":
            return Value(COMMON, (self.graph.placeholder(node.name),))
        if node.op == "get_attr":
            values = self.program.constants[node.target]  # type: ignore[index]
            return Value(COMMON if len(values) == 1 else EACH, tuple(self.constant((t,), first) for t in values))
        if node.op == "output":
            outputs: Any = node.args[0]
            self.graph.output(self.stacked(outputs[0]))
            return Value(COMMON, ())
        kinds = {self.values[n].kind for n in node.all_input_nodes}
        if node in self.done:
            return self.done[node]
        if node.target is torch.ops.multum.keep.default:
            return self.draw(node)
        if ROWS in kinds:
            return self.on_rows(node)
        if kinds <= {COMMON}:
            return Value(COMMON, (self.copy(node, lambda n: self.values[n].node),))
        rule = self.rules.get(node.target)
        value = rule(self, node) if rule is not None and not node.kwargs else None
        return value if value is not None else self.each(node)

    def copy(self, node: fx.Node, convert: Callable[[fx.Node], Any]) -> fx.Node:
        return self.graph.node_copy(node, convert)

    def each(self, node: fx.Node) -> Value:
        """The operator once for every member; a size is the same for all."""
        is_number = not isinstance(node.meta.get("val"), Tensor) and node.target is not operator.getitem
        if is_number and not isinstance(node.meta.get("val"), (tuple, list)):
            return Value(COMMON, (self.copy(node, partial(self.of_member, 0)),))
        copies = (self.copy(node, partial(self.of_member, i)) for i in range(self.members))
        return Value(EACH, tuple(copies))

    def of_member(self, member: int, node: fx.Node) -> Any:
        return self.of_each(node)[member]

    def of_each(self, node: fx.Node) -> tuple[Any, ...]:
        """Every member's value of a node."""
        value = self.values[node]
        if value.kind == COMMON:
            return value.nodes * self.members
        if value.kind == EACH:
            return value.nodes
        if node not in self.parts:
            split = (aten.chunk.default, self.members, 1) if value.kind == CHANNELS else (aten.unbind.int, 0)
            every = self.call(split[0], value.node, *split[1:])
            self.parts[node] = tuple(self.call(operator.getitem, every, i) for i in range(self.members))
        return self.parts[node]

    def apart(self, node: fx.Node) -> fx.Node:
        """Shape: [batch, members, channels, ...]; one in the place of members where all have the value in common."""
        value = self.values[node]
        if value.kind == CHANNELS:
            return self.call(aten.unflatten.int, value.node, 1, [self.members, -1])
        return self.call(aten.unsqueeze.default, value.node, 1)

    def stacked(self, node: fx.Node) -> fx.Node:
        """The output of all members. Shape: [members, batch, ...]."""
        value = self.values[node]
        if self.program.whole:
            return value.node
        if value.kind == EACH:
            return self.call(aten.stack.default, list(value.nodes), 0)
        if value.kind == CHANNELS:
            return self.call(aten.movedim.int, self.call(aten.unflatten.int, value.node, 1, [self.members, -1]), 1, 0)
        if value.kind == ROWS:
            return self.call(aten.unflatten.int, value.node, 0, [self.members, -1])
        if value.kind == FRONT:
            return value.node
        alone = self.call(aten.unsqueeze.default, value.node, 0)
        return self.call(aten.expand.default, alone, [self.members, *[-1] * node.meta["val"].ndim])

    # -- samples of one network, as rows of one batch ------------------------------------------------------------------

    def draw(self, node: fx.Node) -> Value:
        """Every sample's mask, from its own generator; with what is dropped, where the graph multiplies the two."""
        x, p, channelwise, *_ = node.args
        value, (scaled, product) = self.values[x], _dropout(node)  # type: ignore[index]
        arguments = (value.node, p, channelwise, value.kind == ROWS, product is not None)
        drawn = self.graph.call_module("draws", arguments)
        if product is not None:
            drawn = drawn if scaled is node else self.call(aten.div.Tensor, drawn, scaled.args[1])
            self.done |= {scaled: Value(ROWS, (drawn,)), product: Value(ROWS, (drawn,))}
        return Value(ROWS, (drawn,))

    def on_rows(self, node: fx.Node) -> Value:
        """The operator on the rows of all samples: what has one row per example is repeated, sizes are multiplied."""
        return Value(ROWS, (self.copy(node, self.as_rows),))

    def as_rows(self, node: fx.Node) -> Any:
        value, example = self.values[node], node.meta["val"]
        if value.kind == ROWS:
            return value.node
        if isinstance(example, torch.SymInt):
            return self.call(operator.mul, value.node, self.members)
        if isinstance(example, Tensor) and example.ndim and not isinstance(example.shape[0], int):
            if node not in self.parts:
                # Unlike repeat, cat keeps the channels last.
                self.parts[node] = (self.call(aten.cat.default, [value.node] * self.members),)
            return self.parts[node][0]
        return value.node


def _dropout(mask: fx.Node) -> tuple[fx.Node, fx.Node | None]:
    """mask / (1 - p), or the mask, and its product with x, where a mask drawn for x is used for nothing else."""
    behind = next(iter(mask.users))
    scaled = behind if len(mask.users) == 1 and behind.target is aten.div.Tensor else mask
    product = next(iter(scaled.users))
    drops = len(scaled.users) == 1 and product.target is aten.mul.Tensor and set(product.args) == {mask.args[0], scaled}
    return scaled, product if drops else None


class Draws(nn.Module):
    """The masks of all samples, each from its own generator. Shape: x [batch, ...] or [members * batch, ...]."""

    def __init__(self, randomness: Randomness, members: int):
        super().__init__()
        self.randomness, self.members = randomness, members

    def forward(self, x: Tensor, p: float, channelwise: bool, own: bool, drops: bool) -> Tensor:
        """The mask, or x times the mask.

        Args:
            own: whether every sample has rows of its own in x.
        """
        generators = self.randomness.on(x.device)[: self.members]
        size = [self.members, len(x) // self.members if own else len(x)]
        ordered = in_order(x)
        if drops and not channelwise and _at_once(ordered):
            out = ordered.new_empty([size[0] * size[1], *ordered.shape[1:]])
            shape = [self.members, out.numel() // self.members]
            sources = ordered.view(shape if own else [1, shape[1]]).expand(shape)
            for source, part, generator in zip(sources, out.view(shape), generators, strict=True):
                drop(source, p, generator, part)
            return out.permute(0, 3, 1, 2) if x.ndim == 4 else out
        mask = x.new_empty([*size, *(x.shape[1:2] + (1,) * (x.ndim - 2) if channelwise else x.shape[1:])])
        for part, generator in zip(mask, generators, strict=True):
            draw_mask(part, p, generator, quick=True)
        if not drops:
            return mask.flatten(0, 1)
        x = x.unflatten(0, size) if own else x.unsqueeze(0)
        return torch.mul(x, mask, out=mask if mask.shape[2:] == x.shape[2:] else None).flatten(0, 1)


def _at_once(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype is torch.float32 and x.is_contiguous()
