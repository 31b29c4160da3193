"""Max-pooling of 2x2 windows on a CPU: the numbers of nn.MaxPool2d(2), in a quarter of its time.

torch's kernel visits the numbers of a tensor in rows one by one: in the small networks of this package that takes as
long as half of their mult-adds. Here the four numbers of a window are four slices of the tensor, which are compared as
wholes. What reads or compiles a network (a trace, an export, torch.compile) sees torch's own pooling.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

__all__ = ["MaxPool2x2"]


class MaxPool2x2(nn.MaxPool2d):
    """nn.MaxPool2d(2): the same outputs, and the same gradients also where numbers of a window are equal.

    **Shape**: [..., height, width] -> [..., height // 2, width // 2].

    >>> MaxPool2x2()(torch.arange(16.0).reshape(1, 1, 4, 4)).flatten().tolist()
    [5.0, 7.0, 13.0, 15.0]
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, x: Tensor) -> Tensor:
        return _Halved.apply(x) if _is_plain(x) else F.max_pool2d(x, 2)


def _is_plain(x: Tensor) -> bool:
    """Whether x is a tensor of numbers in rows on a CPU, and nobody watches what is done to it."""
    return (
        type(x) is Tensor
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and x.shape[-1] % 2 == x.shape[-2] % 2 == 0
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and torch._C._len_torch_function_stack() == 0
        and _get_current_dispatch_mode() is None
    )


class _Halved(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        rows = torch.maximum(x[..., ::2, :], x[..., 1::2, :])
        return torch.maximum(rows[..., ::2], rows[..., 1::2])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """To the first of the largest numbers of each window, row by row, as torch has it."""
        x, largest = ctx.saved_tensors
        upper, lower = x[..., ::2, :], x[..., 1::2, :]
        first = upper[..., ::2] == largest
        second = (upper[..., 1::2] == largest) & ~first
        before = first | second
        third = (lower[..., ::2] == largest) & ~before
        places = first, second, third, ~(before | third)
        parts = [torch.where(place, gradient, 0.0) for place in places]
        rows = [torch.stack(parts[i : i + 2], -1).flatten(-2) for i in (0, 2)]
        return torch.stack(rows, -2).flatten(-3, -2)
