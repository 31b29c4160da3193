"""How the tensors of a graph lie in memory: as torch has them, channels last, or as oneDNN wants them.

PACKED: the weights of convolutions are put once into the order in which oneDNN reads them, which torch otherwise does
at every call, and the addition and the relu behind a convolution become part of it. Weights in that order can be
neither read nor moved, so that this is the last thing that is done to a graph.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, fx, nn

from .program import full_arguments

__all__ = ["CHANNELS_LAST", "LAYOUTS", "PACKED", "PLAIN", "laid_out"]

aten = torch.ops.aten

PLAIN, CHANNELS_LAST, PACKED = "plain", "channels_last", "packed"
LAYOUTS = (PLAIN, CHANNELS_LAST, PACKED)


def laid_out(module: fx.GraphModule, layout: str, inputs: list[Tensor]) -> nn.Module | None:
    """The same module with its tensors in this layout; None where it has nothing that the layout concerns.

    Args:
        inputs: an example of what the module is called with.
    """
    if layout == PLAIN:
        return module
    if not any(node.target is aten.conv2d.default for node in module.graph.nodes):
        return None
    return _ChannelsLast(module) if layout == CHANNELS_LAST else _packed(module, inputs)


class _ChannelsLast(nn.Module):
    def __init__(self, module: fx.GraphModule):
        super().__init__()
        self.module = copy.deepcopy(module)
        for tensor in self.module.buffers():
            if tensor.ndim == 4:
                tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)

    def forward(self, *inputs: Tensor) -> Tensor:
        last = torch.channels_last
        return self.module(*(x.contiguous(memory_format=last) if x.ndim == 4 else x for x in inputs))


# -- oneDNN ------------------------------------------------------------------------------------------------------------


def _packed(module: fx.GraphModule, inputs: list[Tensor]) -> fx.GraphModule | None:
    cpu_float = all(x.device.type == "cpu" and x.dtype is torch.float32 for x in inputs)
    if not (cpu_float and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_convolution_pointwise")):
        return None
    shapes = _Shapes(copy.deepcopy(module))  # a run of samples moves their generators
    with torch.no_grad():
        shapes.run(*inputs)
    module = copy.deepcopy(module)
    for node in [n for n in module.graph.nodes if n.target is aten.conv2d.default]:
        _pack(module, node, shapes.of)
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.recompile()
    return module


class _Shapes(fx.Interpreter):
    """Runs a graph and keeps the shape of every tensor."""

    def __init__(self, module: fx.GraphModule):
        super().__init__(module)
        self.of: dict[str, list[int]] = {}

    def run_node(self, node: fx.Node) -> Any:
        out = super().run_node(node)
        if isinstance(out, Tensor):
            self.of[node.name] = list(out.shape)
        return out


def _pack(module: fx.GraphModule, node: fx.Node, shapes: dict[str, list[int]]) -> None:
    """oneDNN's convolution in the place of torch's, and of the relu, or the sum and the relu, behind it."""
    x, weight, bias, stride, padding, dilation, groups = full_arguments(node)
    where = (padding, stride, dilation, groups)
    ordered = torch.ops.mkldnn._reorder_convolution_weight(getattr(module, weight.target), *where, shapes[x.name])
    name = f"packed_{node.name}"
    module.register_buffer(name, ordered, persistent=False)
    last, other = _with_relu(node, shapes)
    unary = "none" if last is node else "relu"
    with module.graph.inserting_before(last):
        constant = module.graph.get_attr(name)
        arguments: tuple[Any, ...]
        if other is None:
            arguments = (x, constant, bias, *where, unary, [], "")
            new = module.graph.call_function(torch.ops.mkldnn._convolution_pointwise.default, arguments)
        else:
            arguments = (x, other, constant, bias, *where, "add", 1, unary, [], "")
            new = module.graph.call_function(torch.ops.mkldnn._convolution_pointwise.binary, arguments)
    shapes[new.name] = shapes[last.name]
    last.replace_all_uses_with(new)
    module.graph.eliminate_dead_code()


def _with_relu(node: fx.Node, shapes: dict[str, list[int]]) -> tuple[fx.Node, fx.Node | None]:
    """The last of the operations that can be part of a convolution, and what is added on the way, if anything."""
    behind = _only_reader(node)
    if behind is not None and behind.target is aten.relu.default:
        return behind, None
    if behind is not None and behind.target is aten.add.Tensor and not behind.kwargs and len(behind.args) == 2:
        relu, others = _only_reader(behind), [a for a in behind.args if a is not node]
        same = len(others) == 1 and isinstance(others[0], fx.Node) and shapes.get(others[0].name) == shapes[node.name]
        if same and relu is not None and relu.target is aten.relu.default:
            return relu, others[0]  # type: ignore[return-value]
    return node, None


def _only_reader(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None
