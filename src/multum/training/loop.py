"""The training loop, on one screen. It asks the method wherever methods differ.

Devices, precision and processes are Lightning Fabric's work; batches come from `batches.py`, what moves from
`optimizers.py`, and what survives a crash from `run.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.sources import Data
from ..ensemble import Ensemble
from ..errors import TrainingError
from ..evaluation.loss import loss
from .recipe import Recipe
from .run import History, Run

__all__ = ["fit"]


def fit(
    ensemble: Ensemble,
    data: Data | tuple[Tensor, Tensor],
    recipe: Recipe | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = True,
    progress: bool = False,
    accelerator: str = "auto",
    devices: int | str = 1,
    nodes: int = 1,
    checkpoint_seconds: float = 60.0,
) -> History:
    """Train an ensemble in place; what happened, epoch by epoch.

    Args:
        data: a data set, or a pair of tensors (inputs as the network takes them, targets).
        out: the run folder: checkpoints, log and the final model. An interrupted run found there goes on, and ends
            bitwise as if it had never stopped.
        devices: processes on this machine; under `torchrun` they are there already.

    >>> import multum
    >>> net = multum.models.build("mlp", in_features=2, classes=2)
    >>> ens = multum.ensemble(net, multum.Deep(members=2), example=torch.zeros(2, 2), seed=0)
    >>> x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    >>> history = multum.fit(ens, (x, (x[:, 0] > 0).long()), multum.Recipe(epochs=5, lr=0.05))
    >>> history[-1]["accuracy"] > 0.9
    True
    """
    recipe = recipe or Recipe()
    run = Run(ensemble, data, recipe, out, resume, progress, accelerator, devices, nodes, checkpoint_seconds)
    method, criterion = ensemble.method, "cross_entropy" if run.data.task == "classification" else "gaussian_nll"
    with run:
        while run.epoch < run.epochs:
            for step in run.batches.epoch(run.epoch % recipe.epochs, run.first, run.alone):
                member = run.alone if run.alone is not None else method.turn(ensemble, run.step, run.stream("turn"))
                run.optimizers.set_rate(run.rate())
                outputs = run.model(step.x, per_member=step.per_member, member=member)
                outputs = outputs if member is None else outputs.unsqueeze(0)
                value = loss(outputs, step.y, criterion=criterion, reduction=recipe.reduction or method.reduction)
                if recipe.l1:
                    value = value + recipe.l1 * sum(p.abs().sum() for p in ensemble.parameters() if p.requires_grad)
                run.fabric.backward(value / recipe.accumulate)
                _stop_if_lost(run, value, outputs, step, criterion)
                run.move(member)
                run.note(value, outputs, step)
            run.end_epoch()
        run.conclude()
    return run.history


def _stop_if_lost(run: Run, value: Tensor, outputs: Tensor, step: Any, criterion: str) -> None:
    """Stop where the loss is not a number or has exploded, naming the step, the members and the batch."""
    if torch.isfinite(value) and value.abs() < 1e8:
        return
    each = [float(loss(o.unsqueeze(0), y, criterion=criterion)) for o, y in _per_member(outputs.detach(), step)]
    members = [i for i, v in enumerate(each) if not abs(v) < 1e8] or list(range(len(each)))
    raise TrainingError(
        f"the loss stays finite, however: {float(value):.4g} at epoch {run.epoch + 1}, step {run.step + 1}, "
        f"member(s) {members} with losses {[f'{v:.4g}' for v in each]}, "
        f"rows {step.rows.flatten()[:8].tolist()} ... of the training part; "
        f"lower lr (now {run.rate():.4g}), add warmup or clip, and look at these rows for NaN"
    )


def _per_member(outputs: Tensor, step: Any) -> list[tuple[Tensor, Tensor]]:
    return [(o, step.y[i] if step.per_member else step.y) for i, o in enumerate(outputs)]
