"""Everything of a run that must survive a crash, to a checkpoint and back."""

from __future__ import annotations

import dataclasses
import json
import logging
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..data.sources import Part
from ..errors import FileError, TrainingError
from ..files import prepare_folder, write_json
from ..network.copies import tensors_of
from . import checkpoint
from .averaging import Average
from .best import Best
from .devices import agree
from .tally import Tally

if TYPE_CHECKING:
    from .run import Run

__all__ = ["begin", "save"]

log = logging.getLogger("multum")


def begin(run: Run, folder: Path, resume: bool) -> None:
    """Open a run folder: a new run writes its first checkpoint, to prove that it can; a run found there goes on."""
    checkpoints, described = folder / "checkpoints", folder / "training.json"
    if run.fabric.global_rank == 0:
        prepare_folder(folder)
        prepare_folder(checkpoints)
    run.fabric.barrier()
    newest, config = checkpoint.latest(checkpoints), _config(run)
    if newest is None:
        if run.fabric.global_rank == 0:
            write_json(described, config)
            checkpoint.check_room(checkpoints, _expected_size(run))
        save(run, folder)
        run.keep_state(0)
        return
    if not resume:
        raise TrainingError(f"the run folder is new, however: {folder} holds a run; resume it or choose another")
    before = json.loads(described.read_text()) if described.is_file() else config
    changed = [k for k in config if before.get(k) != config[k]]
    if changed:
        raise TrainingError(
            f"a run is resumed with its own settings, however: {', '.join(changed)} differ in {folder}; "
            "choose another folder, or the same settings"
        )
    _restore(run, *checkpoint.read(newest))
    if agree(run.fabric, run.step, -run.step) != [run.step, -run.step]:
        raise TrainingError(f"all processes see one run folder, however: {folder} differs between them; share it")


def save(run: Run, folder: Path) -> None:
    """Write a checkpoint: weights, optimizers, averages, what was gathered, random states, and the place."""
    tensors, header, failure = _gather(run), _header(run), None
    if run.fabric.global_rank == 0:
        try:
            checkpoint.write(folder / "checkpoints", run.step, tensors, header)
        except FileError as error:
            failure = error
    if agree(run.fabric, float(failure is not None))[0]:
        raise failure or FileError("a checkpoint must be writable; got an error in the first process, which says more")


def _gather(run: Run) -> dict[str, Tensor]:
    ens = run.ensemble
    tensors = {f"net.{n}": t for n, t in tensors_of(ens.network).items() if n not in ens.numbers}
    # Between the steps of a nested cycle the gradients of what is shared are under way.
    tensors |= {f"grad.{n}": p.grad for n, p in ens.named_parameters() if p.grad is not None and n not in set(ens.own)}
    tensors |= {f"opt.{n}": t for n, t in run.optimizers.state().items()}
    tensors |= {f"avg.{n}": t for n, t in run.average.means.items()}
    tensors |= {f"state.{n}": t for n, t in ens.state.items()}
    tensors |= {f"best.{n}": t for n, t in run.best.tensors.items()}
    tensors |= {f"random.{n}": t for n, t in ens.randomness.state().items()}
    tensors["torch.cpu"] = torch.get_rng_state()
    if run.fabric.device.type == "cuda":
        tensors["torch.cuda"] = torch.cuda.get_rng_state(run.fabric.device)
    return tensors


def _header(run: Run) -> dict[str, Any]:
    return {
        "epoch": run.epoch,
        "first": run.first,
        "step": run.step,
        "moves": run.moves,
        "born": run.born,
        "averaged": run.average.count,
        "best": run.best.score if run.best.tensors else None,
        "tally": run.tally.everyone(run.fabric),
        "seconds": run.tally.seconds(),
        "history": run.history,
        "precision": run.fabric.strategy.precision.state_dict(),
        "threads": torch.get_num_threads(),
    }


def _restore(run: Run, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    if header["threads"] != torch.get_num_threads():
        log.warning(
            "resumed with %d threads, begun with %d: results agree to rounding, not to the bit; "
            "set OMP_NUM_THREADS=%d for the same bits",
            *(torch.get_num_threads(), header["threads"], header["threads"]),
        )
    device, ens = run.fabric.device, run.ensemble
    groups: dict[str, dict[str, Tensor]] = {}
    for name, t in tensors.items():
        kind, _, rest = name.partition(".")
        groups.setdefault(kind, {})[rest] = t if kind in ("random", "torch", "opt") else t.to(device)
    own = {n: groups["net"][n] for n in ens.own}
    if own and next(iter(own.values())).shape[0] != ens.members:
        ens.regrow(own)
        run.adopt_members()
    with torch.no_grad():
        present = tensors_of(ens.network)
        for name, value in groups["net"].items():
            present[name].copy_(value)
    ens.state.clear()
    ens.state.update(groups.get("state", {}))
    ens.randomness.load_state(groups.get("random", {}))
    run.optimizers.load_state(groups.get("opt", {}))
    for name, p in ens.named_parameters():
        if name in groups.get("grad", {}):
            p.grad = groups["grad"][name]
    run.average = Average(header["averaged"], groups.get("avg", {}))
    if header["best"] is not None:
        run.best = Best(header["best"], groups["best"])
    torch.set_rng_state(groups["torch"]["cpu"])
    if "cuda" in groups["torch"] and device.type == "cuda":
        torch.cuda.set_rng_state(groups["torch"]["cuda"], device)
    run.fabric.strategy.precision.load_state_dict(header["precision"])
    run.epoch, run.first, run.step = header["epoch"], header["first"], header["step"]
    run.moves, run.born, run.history = header["moves"], header["born"], header["history"]
    sums = header["tally"][run.fabric.global_rank]
    run.tally = Tally(run.data.task, run.data.target_std, sums, header["seconds"])


def _config(run: Run) -> dict[str, Any]:
    """What must be the same when a run is resumed."""
    return json.loads(
        json.dumps(
            {
                "method": {"name": type(run.method).__name__.lower(), **dataclasses.asdict(run.method)},
                "recipe": dataclasses.asdict(run.recipe),
                "data": [run.data.name, len(run.data.train), run.data.task, _checksum(run.data.train)],
                "network": {n: list(t.shape) for n, t in tensors_of(run.ensemble.network).items()},
                "processes": run.fabric.world_size,
            }
        )
    )


def _checksum(part: Part) -> int:
    """Of all targets, and of some items where they are in memory."""
    spread = torch.linspace(0, len(part) - 1, min(len(part), 64)).long()
    items = b"" if part.lazy else part.x[spread].cpu().numpy().tobytes()
    return zlib.crc32(part.y.cpu().numpy().tobytes() + items)


def _expected_size(run: Run) -> int:
    """Bytes of a checkpoint late in the run: weights, what optimizers remember of each, averages, what was gathered."""
    recipe, epochs = run.recipe, run.recipe.epochs
    weights = sum(t.nbytes for t in tensors_of(run.ensemble.network).values())
    late = run.method.birth_after(epochs) is not None
    gathered = sum(run.method.collects(e, epochs) for e in range(1, epochs + 1))
    remembered = 1 if recipe.optimizer == "sgd" else 2
    extra = (recipe.average_from is not None) + (recipe.keep == "best") + (gathered + 2 if gathered else 0)
    return weights * (1 + remembered + extra) * (2 if late else 1)
