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
from ..files import prepare_folder, read_json, write_json
from ..network.copies import tensors_of
from . import checkpoint, executing
from .averaging import Average, Best
from .devices import agree
from .reporting import Tally

if TYPE_CHECKING:
    from .run import Run


log = logging.getLogger("multum")

KINDS = ("net", "grad", "opt", "avg", "state", "best", "random", "torch")  # prefixes of a checkpoint's tensors
COUNTERS = ("epoch", "first", "step", "moves", "born")  # of the run, as its header holds them
REST = ("averaged", "best", "tally", "seconds", "history", "precision", "threads")  # of the header


def begin(run: Run, folder: Path, resume: bool) -> None:
    """Open a run folder: a new run writes its first checkpoint, to prove that it can; a run found there goes on."""
    if run.streams:
        log.warning(
            "a stream has no rows: a run that is interrupted starts its epoch again, with what the stream gives then; "
            "on a map-style data set it would resume to the bit"
        )
    checkpoints, described = folder / "checkpoints", folder / "training.json"
    if run.fabric.global_rank == 0:
        prepare_folder(folder)
        prepare_folder(checkpoints)
    run.fabric.barrier()
    newest, config = checkpoint.latest(checkpoints), _config(run)
    if newest is None:
        executing.settle(run)
        if run.fabric.global_rank == 0:
            write_json(described, {**config, "executors": run.ensemble.latest})
            checkpoint.check_room(checkpoints, _expected_size(run))
        save(run, folder)
        run.keep_state(0)
        return
    if not resume:
        raise TrainingError(f"a new run needs a new folder; {folder} holds a run. Resume it or choose another")
    checkpoint.guard(read_json(described) if described.is_file() else config, config, folder)
    put_back(run, *checkpoint.read(newest), str(newest))
    if agree(run.fabric, run.step, -run.step) != [run.step, -run.step]:
        raise TrainingError(f"all processes must see one run folder; got several of {folder}. Put it on a shared disk")


def state_of(run: Run) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What a checkpoint holds: weights, optimizers, averages, what was gathered, random states; and the place."""
    return _gather(run), _header(run)


def put_back(run: Run, tensors: dict[str, Tensor], header: dict[str, Any], origin: str) -> None:
    """Make a run what `state_of` says; what does not fit it is refused, and nothing changed."""
    groups = _grouped(run, tensors)
    try:
        _check_place(run, header)
        _check_tensors(run, groups, header)
    except _Unfit as reason:
        raise TrainingError(
            f"{origin} must be a checkpoint of this run; got {reason}. Remove it to go on from the one before"
        ) from None
    _restore(run, groups, header)


def save(run: Run, folder: Path) -> None:
    """Write a checkpoint."""
    (tensors, header), failure = state_of(run), None
    if run.fabric.global_rank == 0:
        try:
            checkpoint.write(folder / "checkpoints", run.step, tensors, header)
        except FileError as error:
            failure = error
    if agree(run.fabric, float(failure is not None))[0]:
        raise failure or FileError("a checkpoint must be writable; got an error in the first process, which says more")


def _gather(run: Run) -> dict[str, Tensor]:
    ens = run.ensemble
    torch_states = {"cpu": torch.get_rng_state()}
    if run.fabric.device.type == "cuda":
        torch_states["cuda"] = torch.cuda.get_rng_state(run.fabric.device)
    groups: dict[str, dict[str, Tensor]] = {
        "net": _present(run),
        # Between the steps of a nested cycle the gradients of what is shared are under way.
        "grad": {n: p.grad for n, p in ens.named_parameters() if p.grad is not None and n not in set(ens.own)},
        "opt": run.optimizers.state(),
        "avg": run.average.means,
        "state": ens.state,
        "best": run.best.tensors,
        "random": ens.randomness.state(),
        "torch": torch_states,
    }
    return {f"{kind}.{name}": t for kind, named in groups.items() for name, t in named.items()}


def _present(run: Run) -> dict[str, Tensor]:
    ens = run.ensemble
    return {n: t for n, t in tensors_of(ens.network).items() if n not in ens.numbers}


def _header(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in COUNTERS} | {
        "averaged": run.average.count,
        "best": run.best.score if run.best.tensors else None,
        "tally": run.tally.everyone(run.fabric),
        "seconds": run.tally.seconds(),
        "waited": run.tally.waited,
        "history": run.history,
        "precision": run.fabric.strategy.precision.state_dict(),
        "threads": torch.get_num_threads(),
        "executors": dict(run.ensemble.latest),
    }


class _Unfit(Exception):
    """Why a checkpoint is not one of this run."""


def _grouped(run: Run, tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    groups: dict[str, dict[str, Tensor]] = {kind: {} for kind in KINDS}
    for name, t in tensors.items():
        kind, _, rest = name.partition(".")
        groups.setdefault(kind, {})[rest] = t if kind in ("random", "torch", "opt") else t.to(run.fabric.device)
    return groups


def _check_place(run: Run, header: dict[str, Any]) -> None:
    """Refuse a place in training that this run cannot have."""
    missing = [name for name in (*COUNTERS, *REST) if name not in header]
    if missing:
        raise _Unfit(f"no {', '.join(missing)}")
    per_epoch = run.batches.per_epoch
    limits = {"epoch": run.epochs, "first": per_epoch, "step": run.epochs * per_epoch, "averaged": run.epochs}
    limits |= {"moves": limits["step"], "born": limits["step"], "threads": 2**16}
    for name, most in limits.items():
        if type(header[name]) is not int or not 0 <= header[name] <= most:
            raise _Unfit(f"{name}={header[name]!r}, which is not within 0 and {most}")
    if header["step"] != header["epoch"] * per_epoch + header["first"] or header["born"] > header["moves"]:
        raise _Unfit(f"step {header['step']} in epoch {header['epoch']} of {per_epoch} steps each")
    if not isinstance(header.get("executors", {}), dict):
        raise _Unfit(f"executors={header['executors']!r}")
    tally, history = header["tally"], header["history"]
    if not isinstance(tally, list) or [len(sums) for sums in tally] != [4] * run.fabric.world_size:
        raise _Unfit(f"sums of {len(tally)} processes")
    if not isinstance(history, list) or [row.get("epoch") for row in history] != [*range(1, header["epoch"] + 1)]:
        raise _Unfit(f"a history of other than {header['epoch']} epochs")


def _check_tensors(run: Run, groups: dict[str, dict[str, Tensor]], header: dict[str, Any]) -> None:
    """Refuse names, shapes, dtypes and values that this run cannot have, before anything is written."""
    ens, net, own = run.ensemble, groups["net"], set(run.ensemble.own)
    if set(groups) != set(KINDS):
        raise _Unfit(f"unknown tensors {', '.join(sorted(set(groups) - set(KINDS)))}")
    members = {len(net[n]) if n in net and net[n].ndim else 0 for n in ens.own} or {ens.members}
    if len(members) != 1 or not members <= {ens.members, run.method.members}:
        raise _Unfit(f"{' or '.join(map(str, sorted(members)))} members")
    (born,) = members
    wanted = {n: t[:1].expand(born, *t.shape[1:]) if n in own else t for n, t in _present(run).items()}
    parameters = {n for n, p in ens.named_parameters() if p.is_floating_point()}
    at_a_time = {n: wanted[n][0] for n in ens.own} if run.sequential else wanted
    _match("the network", net, wanted, whole=True)
    _match("the average", groups["avg"], {n: t for n, t in at_a_time.items() if n in parameters})
    _match("the best weights", groups["best"], at_a_time, whole=header["best"] is not None)
    _match("gradients", groups["grad"], {n: t for n, t in wanted.items() if n not in own})
    _match("what the method gathered", groups["state"], _gathered(run, header["epoch"]), whole=True)
    for name in parameters & set(net):
        if not bool(torch.isfinite(net[name]).all()):
            raise _Unfit(f"NaN or infinity in {name}")
    if bool(header["averaged"]) != bool(groups["avg"]):
        raise _Unfit(f"an average of {header['averaged']} epochs with {len(groups['avg'])} tensors")
    if "cpu" not in groups["torch"] or groups["torch"]["cpu"].shape != torch.get_rng_state().shape:
        raise _Unfit("no state of torch's generator")
    if any(t.dtype != torch.uint8 for kind in ("random", "torch") for t in groups[kind].values()):
        raise _Unfit("a generator's state that is none")
    if any(len(t) != len(ens.randomness.seeds) for t in groups["random"].values()):
        raise _Unfit("states of another number of generators")
    remembers = run.recipe.optimizer != "sgd" or run.recipe.momentum > 0
    if reason := run.optimizers.unfit(groups["opt"], needed=remembers and header["moves"] >= run.method.members):
        raise _Unfit(reason)


def _gathered(run: Run, epochs: int) -> dict[str, Tensor]:
    """What the method holds after so many epochs, by its own rule; names, shapes and dtypes are right, values not."""
    state, length = run.ensemble.state, run.recipe.epochs
    before = dict(state)
    try:
        for epoch in range(epochs):
            if run.method.collects(epoch % length + 1, length):
                run.method.collect(run.ensemble)
        return dict(state)
    finally:
        state.clear()
        state.update(before)


def _match(what: str, tensors: dict[str, Tensor], wanted: dict[str, Tensor], whole: bool = False) -> None:
    names = set(tensors) ^ set(wanted) if whole else set(tensors) - set(wanted)
    if names:
        raise _Unfit(f"other names in {what}: {', '.join(sorted(names)[:5])}")
    for name, t in tensors.items():
        if t.shape != wanted[name].shape:
            raise _Unfit(f"{name} of {what} with shape {tuple(t.shape)} for {tuple(wanted[name].shape)}")
        if t.dtype != wanted[name].dtype:
            raise _Unfit(f"{name} of {what} as {t.dtype} for {wanted[name].dtype}")


def _restore(run: Run, groups: dict[str, dict[str, Tensor]], header: dict[str, Any]) -> None:
    if header["threads"] != torch.get_num_threads():
        log.warning(
            "resumed with %d threads, begun with %d: results agree to rounding, not to the bit; "
            "set OMP_NUM_THREADS=%d for the same bits",
            *(torch.get_num_threads(), header["threads"], header["threads"]),
        )
    device, ens = run.fabric.device, run.ensemble
    own = {n: groups["net"][n] for n in ens.own}
    if own and next(iter(own.values())).shape[0] != ens.members:
        ens.regrow(own)
        run.adopt_members()
    executing.restore(run, header.get("executors", {}))  # runs of earlier versions had the table's
    with torch.no_grad():
        present = tensors_of(ens.network)
        for name, value in groups["net"].items():
            present[name].copy_(value)
    ens.state.clear()
    ens.state.update(groups["state"])
    ens.randomness.load_state(groups["random"])
    run.optimizers.load_state(groups["opt"])
    for name, p in ens.named_parameters():
        if name in groups["grad"]:
            p.grad = groups["grad"][name]
    run.average = Average(header["averaged"], groups["avg"])
    if header["best"] is not None:
        run.best = Best(header["best"], groups["best"])
    torch.set_rng_state(groups["torch"]["cpu"])
    if "cuda" in groups["torch"] and device.type == "cuda":
        torch.cuda.set_rng_state(groups["torch"]["cuda"], device)
    run.fabric.strategy.precision.load_state_dict(header["precision"])
    for name in COUNTERS:
        setattr(run, name, header[name])
    run.history = header["history"]
    sums = header["tally"][run.fabric.global_rank]
    run.tally = Tally(run.data.task, run.data.target_std, sums, header["seconds"], header.get("waited", 0.0))


def _config(run: Run) -> dict[str, Any]:
    """What must be the same when a run is resumed."""
    return json.loads(
        json.dumps(
            {
                "method": run.method.as_dict(),
                "recipe": dataclasses.asdict(run.recipe),
                "data": [run.data.name, len(run.data.train), run.data.task, _checksum(run.data.train)],
                "network": {n: list(t.shape) for n, t in tensors_of(run.ensemble.network).items()},
                "processes": run.fabric.world_size,
            }
        )
    )


def _checksum(part: Part) -> int:
    """Of all targets and weights, and of some examples where they are in memory."""
    spread = torch.linspace(0, len(part) - 1, min(len(part), 64)).long()
    examples = b"" if part.lazy else part.x[spread].cpu().numpy().tobytes()
    weights = b"" if part.weights is None else part.weights.cpu().numpy().tobytes()
    return zlib.crc32(part.y.cpu().numpy().tobytes() + examples + weights)


def _expected_size(run: Run) -> int:
    """Bytes of a checkpoint late in the run: weights, what optimizers remember of each, averages, what was gathered."""
    recipe, epochs = run.recipe, run.recipe.epochs
    weights = sum(t.nbytes for t in tensors_of(run.ensemble.network).values())
    late = run.method.birth_after(epochs) is not None
    gathered = sum(run.method.collects(e, epochs) for e in range(1, epochs + 1))
    remembered = 1 if recipe.optimizer == "sgd" else 2
    extra = (recipe.average_from is not None) + (recipe.keep == "best") + (gathered + 2 if gathered else 0)
    return weights * (1 + remembered + extra) * (2 if late else 1)
