"""How the members of a run are executed: settled once before its first step, and written down with it.

Only the kind of a batch is needed, and no example is read. Within a run nothing else is measured, so that a resumed run
computes as it would have without the interruption, also if the machine would answer otherwise by now.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..choice import MODES
from ..executors import REFERENCE
from ..executors.choosing import ROWS, measuring
from ..outputs.prediction import eval_mode
from .averaging import AT_ONCE
from .batches import stream

if TYPE_CHECKING:
    from .run import Run


log = logging.getLogger("multum")


def settle(run: Run) -> None:
    """Choose the executors of a run's members as they are now; the first process chooses for all."""
    ens, epochs = run.ensemble, run.epochs - run.epoch
    ens.settled.clear()
    ens.latest.clear()
    if run.recipe.recompute:
        ens.latest[MODES[True]] = REFERENCE
    if run.fabric.global_rank == 0 and measuring(always=True):
        ens.train()
        if not (run.recipe.recompute or run.recipe.compile or run.sequential or run.method.takes_turns):
            x, per_member = _batch(run)
            with run.fabric.autocast():
                ens.settle(x, per_member, epochs * run.per_epoch)
        if run.recipe.keep == "best" or "noise" in ens.state:
            rows = len(run.data.validation or run.data.train)
            with eval_mode(ens), torch.no_grad():
                ens.settle(_examples(run, min(AT_ONCE, rows)), steps=epochs * rows / ROWS)
    ens.latest.update(run.fabric.broadcast(dict(ens.latest)))


def restore(run: Run, executors: dict[str, str]) -> None:
    """The executors that a run was begun with."""
    ens = run.ensemble
    ens.settled.clear()
    ens.latest.clear()
    ens.latest.update({mode: name for mode, name in executors.items() if name in ens.executors})
    if ens.latest != executors:
        log.warning(
            "begun with executors %s, which cannot all run here: results agree to rounding, not to the bit", executors
        )


def _batch(run: Run) -> tuple[Any, bool]:
    """A batch like those of the run, and whether every member has its own."""
    recipe, members = run.recipe, run.ensemble.members
    rows = min(recipe.batch_size, len(run.data.train)) // run.fabric.world_size
    rows = -(-rows // max(1, rows // recipe.ghost)) if recipe.ghost else rows
    if run.batches.own_order:
        return _examples(run, members * rows).unflatten(0, (members, rows)), True
    seen = run.method.batch(_examples(run, rows), torch.arange(rows), stream(recipe.seed, "settle"))
    return seen.x, seen.per_member


def _examples(run: Run, rows: int) -> Tensor:
    """Noise in the place of examples, as the network takes them."""
    x, g = run.data.train.x, stream(run.recipe.seed, "noise")
    shape = (rows, *x.shape[1:])
    if x.dtype == torch.uint8:
        raw = torch.randint(256, shape, dtype=torch.uint8, generator=g)
    elif x.dtype.is_floating_point:
        raw = torch.randn(shape, dtype=x.dtype, generator=g)
    else:  # whole numbers may be those of words: the first is always there
        raw = torch.zeros(shape, dtype=x.dtype)
    return run.batches.place(run.data.prepare(raw))
