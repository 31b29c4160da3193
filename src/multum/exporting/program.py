"""A module as a torch.export program, with a batch of any size and, where the network allows it, images of any size.

Equal tensors are held once, and equal operations on them run once: what members share (a trunk, a stem, all of MIMO but
its heads) is computed once, although every member is a network of its own.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.func import functional_call
from torch.fx import Node
from torch.fx.passes.dialect.common.cse_pass import CSEPass
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from ..errors import ExportError, first_line
from ..network.copies import tensors_of

__all__ = ["frees_sizes", "quiet", "traced"]


IDLE = [getattr(torch.ops.aten, name).default for name in ("dropout", "expand", "reshape", "view")]
IDLE += [torch.ops.aten.flatten.using_ints, torch.ops.aten.to.dtype]


class _OneCopy(nn.Module):
    """A module whose equal tensors are one buffer."""

    module: nn.Module

    def __init__(self, module: nn.Module):
        super().__init__()
        self.__dict__["module"] = module  # not a child: its tensors are taken from here
        self.places: dict[str, str] = {}
        names: dict[Any, str] = {}
        for name, tensor in tensors_of(module).items():
            value = tensor.detach().contiguous()
            raw = value.view(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
            content = hashlib.sha256(raw).digest()
            key = (value.shape, value.dtype, content)
            if key not in names:
                names[key] = name.replace(".", "_")
                self.register_buffer(names[key], value)
            self.places[name] = names[key]

    def forward(self, x: Any) -> Any:
        tensors = {name: self.get_buffer(place) for name, place in self.places.items()}
        return functional_call(self.module, tensors, (x,))


ARITHMETIC = ["add", "radd", "sub", "rsub", "mul", "rmul", "div", "truediv", "rtruediv", "pow", "lt", "le", "gt", "ge"]
ARITHMETIC += ["eq", "ne", "where", "clamp", "clamp_min", "clamp_max"]


class _Sayable(TorchFunctionMode):
    """While it is on, other functions run in the place of some of torch's, and float64 stays float64.

    torch.onnx writes every Python number as float32: beside a tensor of float64 it must be such a tensor itself.
    """

    def __init__(self, replacements: Mapping[Callable[..., Any], Callable[..., Any]]):
        super().__init__()
        self.replacements = replacements

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling():  # a branch of a cascade, which is a plain network
            return function(*args, **kwargs)
        if function in self.replacements:
            with self:
                return self.replacements[function](*args, **kwargs)
        tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
        if function.__name__.strip("_") in ARITHMETIC and any(t.dtype == torch.float64 for t in tensors):
            exact = partial(tensors[0].new_tensor, dtype=torch.float64)
            args, kwargs = tree_map_only(float, exact, (args, kwargs))
        return function(*args, **kwargs)


def traced(
    module: nn.Module, x: Any, *, sizes: bool, replacements: Mapping[Callable[..., Any], Callable[..., Any]]
) -> ExportedProgram:
    """The program of a module in eval mode.

    Args:
        x: inputs of two examples at least.
        sizes: whether height and width of images stay open; they are fixed where the network needs them to be.
        replacements: functions of torch that the format has no word for, and others that say the same.
    """

    def free(t: Tensor) -> dict[int, Any]:
        open_sizes = {2: Dim.AUTO, 3: Dim.AUTO} if sizes and t.ndim == 4 else {}
        return {0: Dim.DYNAMIC, **open_sizes}

    with quiet(), torch.no_grad(), _Sayable(replacements) if replacements else nullcontext():
        try:
            program = torch.export.export(
                _OneCopy(module).eval(), (x,), dynamic_shapes=(tree_map_only(Tensor, free, x),), strict=False
            )
        except Exception as error:  # whatever a user's network does that torch.export cannot follow
            raise ExportError(f"a network must be one that torch.export can follow; got {first_line(error)}") from error
        return _without_repetition(program)


def _without_repetition(program: ExportedProgram) -> ExportedProgram:
    for node in program.graph.nodes:
        if node.target in IDLE and _is_idle(node) and not any(user.op == "output" for user in node.users):
            node.replace_all_uses_with(node.args[0])  # else members differ in where they get the same tensor from
            program.graph.erase_node(node)
    result = CSEPass()(program.graph_module)
    if result is not None and result.modified:
        program.graph_module.graph = result.graph_module.graph
    return program


def _is_idle(node: Node) -> bool:
    """Whether an operation hands on what it got."""
    before, after = (each.meta["val"] for each in (node.args[0], node))  # type: ignore[union-attr]
    draws = node.target == torch.ops.aten.dropout.default and node.args[2]
    return not draws and before.dtype == after.dtype and str(before.shape) == str(after.shape)


def frees_sizes(program: ExportedProgram) -> bool:
    """Whether a program takes images of several sizes."""
    inputs = [node.meta["val"] for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    return any(t.ndim == 4 and not all(isinstance(size, int) for size in t.shape[2:]) for t in inputs)


@contextmanager
def quiet() -> Iterator[None]:
    """torch's exporters warn of their own future, and attention must not take its fused path in eval mode."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
