"""How the tensors of a graph lie in memory: as torch has them, channels last, or as its convolutions want them.

PACKED: the weights of convolutions are put once into the order in which oneDNN reads them, which torch otherwise does
at every call, and the addition and the relu behind a convolution become part of it. Weights in that order can be
neither read nor moved, so that this is the last thing that is done to a graph.

WINOGRAD: so, channels last, but for convolutions that are faster by fewer products (`winograd`), each as measured.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..executors.choosing import CLEARLY, race
from .program import full_arguments
from .winograd import convolve, transformed

__all__ = ["CHANNELS_LAST", "LAYOUTS", "PACKED", "PLAIN", "WINOGRAD", "laid_out"]

aten = torch.ops.aten

LAYOUTS = PLAIN, CHANNELS_LAST, PACKED, WINOGRAD = "plain", "channels_last", "packed", "winograd"


def laid_out(module: fx.GraphModule, layout: str, inputs: list[Tensor]) -> nn.Module | None:
    """The same module with its tensors in this layout; None where it has nothing that the layout concerns.

    Args:
        inputs: an example of what the module is called with.
    """
    if layout == PLAIN:
        return module
    if not any(node.target is aten.conv2d.default for node in module.graph.nodes):
        return None
    if layout == CHANNELS_LAST:
        return _ChannelsLast(copy.deepcopy(module))
    packed = _packed(module, inputs, layout == WINOGRAD)
    return _ChannelsLast(packed) if packed is not None and layout == WINOGRAD else packed


class _ChannelsLast(nn.Module):
    def __init__(self, module: fx.GraphModule):
        super().__init__()
        self.module = module
        for tensor in module.buffers():
            if tensor.ndim == 4 and not tensor.is_mkldnn:
                tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)

    def forward(self, *inputs: Tensor) -> Tensor:
        last = torch.channels_last
        return self.module(*(x.contiguous(memory_format=last) if x.ndim == 4 else x for x in inputs))


# -- oneDNN ------------------------------------------------------------------------------------------------------------


def _packed(module: fx.GraphModule, inputs: list[Tensor], winograd: bool) -> fx.GraphModule | None:
    """None where the machine has no oneDNN, or no convolution is faster by fewer products."""
    cpu_float = all(x.device.type == "cpu" and x.dtype is torch.float32 for x in inputs)
    if not (cpu_float and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_convolution_pointwise")):
        return None
    shapes = _Shapes(copy.deepcopy(module))  # a run of samples moves their generators
    with torch.no_grad():
        shapes.run(*inputs)
    module = copy.deepcopy(module)
    faster: dict[Any, bool] = {}
    for node in [n for n in module.graph.nodes if n.target is aten.conv2d.default]:
        _pack(module, node, shapes.of, faster if winograd else None)
    if winograd and not any(faster.values()):
        return None
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


def _pack(module: fx.GraphModule, node: fx.Node, shapes: dict[str, list[int]], faster: dict[Any, bool] | None) -> None:
    """oneDNN's convolution in the place of torch's, and of the relu, or the sum and the relu, behind it.

    Args:
        faster: what is known so far of where fewer products are; None: oneDNN's everywhere.
    """
    x, weight, bias, stride, padding, dilation, groups = full_arguments(node)
    where = (padding, stride, dilation, groups)
    values = getattr(module, weight.target)
    ordered = torch.ops.mkldnn._reorder_convolution_weight(values, *where, shapes[x.name])
    last, other = _with_relu(node, shapes)
    fewer = faster is not None and _fewer(values, ordered, where, shapes[x.name], faster)
    name = f"packed_{node.name}"
    module.register_buffer(name, transformed(values) if fewer else ordered, persistent=False)
    with module.graph.inserting_before(last):
        constant = module.graph.get_attr(name)
        target, arguments = _call(x, constant, bias, where, other, last is not node, fewer)
        new = module.graph.call_function(target, arguments)
    shapes[new.name] = shapes[last.name]
    last.replace_all_uses_with(new)
    module.graph.eliminate_dead_code()


def _call(x: Any, weight: Any, bias: Any, where: tuple, other: Any, relu: bool, fewer: bool) -> tuple[Any, tuple]:
    """What computes a convolution, of nodes or of tensors, and its arguments."""
    if fewer:
        return convolve, (x, weight, bias, where[0], other, relu)
    behind: tuple[str, list, str] = ("relu" if relu else "none", [], "")
    if other is None:
        return torch.ops.mkldnn._convolution_pointwise.default, (x, weight, bias, *where, *behind)
    return torch.ops.mkldnn._convolution_pointwise.binary, (x, other, weight, bias, *where, "add", 1, *behind)


def _fewer(weight: Tensor, ordered: Tensor, where: tuple, sizes: list[int], faster: dict[Any, bool]) -> bool:
    """Whether a convolution is clearly faster by fewer products."""
    _, *rest = where
    if tuple(weight.shape[2:]) != (3, 3) or rest != [[1, 1], [1, 1], 1]:
        return False
    key = (tuple(sizes), len(weight), str(where))
    if key not in faster:
        x = torch.randn(sizes).contiguous(memory_format=torch.channels_last)
        weights = {False: ordered, True: transformed(weight)}
        calls = {str(way): _call(x, w, None, where, None, True, way) for way, w in weights.items()}
        with torch.no_grad():
            seconds = race(list(calls), lambda way: calls[way][0](*calls[way][1]))
        faster[key] = seconds["True"] < CLEARLY * seconds["False"]
    return faster[key]


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
