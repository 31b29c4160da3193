"""What to say when the loss is no number any more, or has exploded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import TrainingError
from ..outputs.loss import loss

__all__ = ["LIMIT", "is_lost", "lost"]

LIMIT = 1e8  # a loss beyond this is beyond repair


def is_lost(value: float) -> bool:
    return not abs(value) < LIMIT


@torch.no_grad()
def lost(value: float, outputs: Tensor, step: Any, member: int | None, criterion: str, place: str) -> TrainingError:
    """An error that names the place, the members, and the rows of the training part with the worst losses."""
    if not is_lost(value):
        return TrainingError(f"the loss stays finite in all processes, however: another one lost it at {place}")
    members = range(outputs.shape[0]) if member is None else [member]
    means: dict[int, float] = {}
    rows: dict[int, list[int]] = {}
    mixed = step.per_member and step.rows.ndim == 1  # a method that gives members rows of its own choice
    for k, m in enumerate(members):
        y = step.y[k] if step.per_member else step.y
        items = [float(loss(o[None, None], t[None], criterion=criterion)) for o, t in zip(outputs[k], y, strict=True)]
        means[m] = sum(items) / len(items)
        index = sorted(range(len(items)), key=lambda i: (not is_lost(items[i]), -abs(items[i])))
        seen = step.rows[k] if step.rows.ndim > 1 else step.rows
        rows[m] = seen[:8].tolist() if mixed else [int(seen[i]) for i in index[:8]]
    # Members may be lost together where none is alone: then the worst of them is named.
    worst = [m for m in means if is_lost(means[m])] or [max(means, key=lambda m: abs(means[m]))]
    told = ", ".join(f"{m} ({means[m]:.4g})" for m in worst)
    shown = ", ".join(map(str, dict.fromkeys(row for m in worst for row in rows[m])))
    broken = "" if bool(torch.isfinite(step.x).all()) else "; the input itself holds NaN or infinity"
    return TrainingError(
        f"the loss stays finite and below {LIMIT:g}, however: {value:.4g} at {place}; member and its loss: {told}; "
        f"{'some' if mixed else 'worst'} rows of the training part: {shown}{broken}; "
        "lower lr, add warmup or clip, and look at these rows"
    )
