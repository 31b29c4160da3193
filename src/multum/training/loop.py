"""The training loop, on one screen. It asks the method wherever methods differ.

Devices, precision and processes are Lightning Fabric's work; batches come from `batches.py`, what moves from
`optimizers.py`, what happens between steps from `run.py`, and what survives a crash from `resume.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from ..ensemble import Ensemble
from .batches import Step
from .devices import Place
from .recipe import Recipe
from .reporting import History
from .run import Run


def fit(
    ensemble: Ensemble,
    data: Any,
    recipe: Recipe | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = True,
    progress: bool = False,
    tensorboard: bool = False,
    accelerator: str = "auto",
    devices: int | str = 1,
    nodes: int = 1,
    checkpoint_seconds: float = 60.0,
    after_epoch: Callable[[int], None] = lambda epoch: None,
    warn: bool = True,
) -> History:
    """Train an ensemble in place and leave it in eval mode; returns the history, one row per epoch.

    Args:
        data: a data set; a pair (x, y) of tensors, arrays or a frame and a series, inputs as the network takes them; a
            Dataset or a DataLoader (with its batch size, where the recipe has none of its own), or two of them, for
            training and for validation. See data/given.py.
        out: the run folder: checkpoints, log and the final model. An interrupted run found there goes on, and ends
            bitwise as if it had never stopped.
        devices: processes on this machine; under `torchrun` they are there already.
        checkpoint_seconds: how much work may be lost; every epoch of a second or more ends with a checkpoint anyway.
        after_epoch: called with the number of epochs done, after each; to look at the ensemble, not to change it.
        warn: whether a run that has not converged is said (by the rule of stopping.py).

    With `compile=True` in the recipe a run is resumed to the bit on the same machine, with the same versions of torch
    and of its compiler and the same number of threads: every size of a batch has a program of its own, which does not
    depend on what ran before. The numbers of a run that is not compiled agree with it to rounding.

    Every row of the history has the loss per member, and the share of its seconds that the loop was "waiting" for data.

    >>> import torch, multum
    >>> net = multum.models.build("mlp", in_features=2, classes=2)
    >>> ens = multum.ensemble(net, multum.Deep(members=2), example=torch.zeros(2, 2), seed=0)
    >>> x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    >>> history = multum.fit(ens, (x, (x[:, 0] > 0).long()), multum.Recipe(epochs=5, lr=0.05))
    >>> history[-1]["accuracy"] > 0.9
    True
    """
    place = Place(accelerator, devices, nodes)
    run = Run(ensemble, data, recipe or Recipe(), place, out, resume, progress, tensorboard, checkpoint_seconds)
    with run:
        advance(run, after_epoch)
        run.conclude(warn)
    return run.history


def advance(run: Run, after_epoch: Callable[[int], None] = lambda epoch: None) -> None:
    """All the epochs that are left of a run."""
    while not run.over:
        for step in run.awaited(run.batches.epoch(run.epoch % run.recipe.epochs, run.first, run.alone)):
            train_on(run, step)
        run.end_epoch(after_epoch)


def train_on(run: Run, step: Step) -> tuple[float, Tensor]:
    """One batch: its loss as a number, and the outputs."""
    member = run.turn()
    run.optimizers.set_rate(run.rate())
    value, outputs = learn(run, step, member)
    number = run.check(value, outputs, step, member)
    run.move(member)
    run.note(number, outputs, step)
    return number, outputs


def learn(run: Run, step: Step, member: int | None) -> tuple[Tensor, Tensor]:
    """The gradients of one batch: its loss as it is trained, and the outputs."""
    with run.fabric.no_backward_sync(run.model, enabled=not run.moves_now):
        outputs, value = run.scored(run.model, step, member, run.recipe.ghost, run.criterion, run.reduction)
        return run.backward(value, member), outputs
