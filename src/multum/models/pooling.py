"""Max-pooling of 2x2 windows on a CPU: the numbers of nn.MaxPool2d(2), several times faster where nothing is trained.

torch's kernel visits the numbers of a tensor in rows one by one, as it also notes the place of each. Where no gradient
asks for places, the four numbers of a window are four slices of the tensor, which are compared as wholes. What reads or
compiles a network (a trace, an export, torch.compile) sees torch's own pooling.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

__all__ = ["MaxPool2x2"]


class MaxPool2x2(nn.MaxPool2d):
    """nn.MaxPool2d(2): the same outputs.

    **Shape**: [..., height, width] -> [..., height // 2, width // 2].

    >>> MaxPool2x2()(torch.arange(16.0).reshape(1, 1, 4, 4)).flatten().tolist()
    [5.0, 7.0, 13.0, 15.0]
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, x: Tensor) -> Tensor:
        return _by_slices(x) if _is_plain(x) else F.max_pool2d(x, 2)


def _is_plain(x: Tensor) -> bool:
    """Whether x is a tensor of numbers on a CPU that needs no gradient, and nobody watches what is done to it."""
    return (
        type(x) is Tensor
        and not x.requires_grad
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and x.shape[-1] % 2 == x.shape[-2] % 2 == 0
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and torch._C._len_torch_function_stack() == 0
        and _get_current_dispatch_mode() is None
    )


def _by_slices(x: Tensor) -> Tensor:
    rows = torch.maximum(x[..., ::2, :], x[..., 1::2, :])
    return torch.maximum(rows[..., ::2], rows[..., 1::2])
