"""What a step computes before backward: all members' outputs and their loss, as they are or by torch.compile."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from ..errors import TrainingError
from ..files import explained
from ..outputs.loss import Criterion, loss
from .batches import Step

SIZES = 8  # of batches, ghost batches and last ones, for all members or for one


def scored(
    model: Any, step: Step, member: int | None, ghost: int, criterion: Criterion | str, reduction: str
) -> tuple[Tensor, Tensor]:
    """Outputs and loss of one batch, of all members or of one."""
    outputs = forward(model, step, member, ghost)
    return outputs, loss(outputs, step.y, criterion=criterion, reduction=reduction, weights=step.weights)


def forward(model: Any, step: Step, member: int | None, ghost: int) -> Tensor:
    """Outputs of all members or of one, `ghost` rows or more at a time. Shape: [members or 1, batch, ...]."""
    rows, dim = (step.x.shape[1], 1) if step.per_member else (step.x.shape[0], 0)
    parts = step.x.tensor_split(max(1, rows // ghost), dim) if ghost else (step.x,)
    outputs = [model(part, per_member=step.per_member, member=member) for part in parts]
    outputs = outputs if member is None else [o.unsqueeze(0) for o in outputs]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)


def scoring(compiled: bool, device: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """`scored`, compiled where asked for; refused where nothing can be compiled."""
    if not compiled:
        return scored
    _prove_compiler(device)
    # Not dynamic: which sizes a program takes would depend on those that were seen before, and so would a resumed run.
    return torch.compile(scored, dynamic=False)


def room(compiled: bool, members: int) -> AbstractContextManager:
    """A context with room for the programs of a run; torch would run what is beyond its limit as it is."""
    if not compiled:
        return nullcontext()
    limit = SIZES * (members + 1)
    return torch._dynamo.config.patch(recompile_limit=limit, accumulated_recompile_limit=16 * limit)


@functools.cache
def _prove_compiler(device: str) -> None:
    """Refuse a machine without a compiler, by compiling something small."""
    fix = "Install one (g++ or clang++ on a CPU, triton on a GPU), or train with compile=False"
    # No compiler, no triton, a Python that torch does not know: each has its own type.
    with explained("compile=True must have a compiler that torch can use", fix, TrainingError, Exception):
        torch.compile(lambda x: torch.relu(x) + 1)(torch.zeros(2, device=device))
