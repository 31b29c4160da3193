"""A cell is one method with one seed: what is trained and measured once, and named by its whole configuration.

Its work leaves in its folder, beside the run's own files:

result.json            settings, numbers and curves, with a checksum of itself
examples.safetensors   the metrics of every test example, whose checksum is in result.json
failure.txt            the traceback of a cell that failed
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import re
import shutil
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ..data.sources import Part, load_data, ood_sets
from ..errors import FileError, MultumError, TrainingError, first_line
from ..files import checksum, explained, prepare_folder, read_json, set_aside, write_json, write_tensors, write_text
from ..methods import Method
from ..metrics.cost import cost
from ..metrics.evaluate import measure
from ..metrics.temperatures import held_out_nll
from ..processor import with_threads
from ..training.recipe import Recipe
from .folder import RunFolder, digest
from .train import train_on

RESULT = "result.json"
EXAMPLES = "examples.safetensors"

log = logging.getLogger("multum")


@dataclass(frozen=True)
class Cell:
    """One method, one seed, and everything that its numbers depend on."""

    label: str
    seed: int
    data: str
    model: str
    method: Method
    recipe: Mapping[str, Any]
    ood: tuple[str, ...] = ()
    shift: tuple[str, ...] = ()
    shift_examples: int | None = None
    fingerprint: str = ""  # of the data's content; "" for the papers' data sets, which their names fix
    split: int | None = None  # the seed that draws the test and the validation part; None: the cell's own
    tuning: bool = False  # whether it is trained for its score on the validation part alone

    @property
    def parts_seed(self) -> int:
        """The seed that draws the test and the validation part."""
        return self.seed if self.split is None else self.split

    def settings(self) -> dict[str, Any]:
        """Everything but the label, in plain values."""
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "label"}
        for name, default in (("fingerprint", ""), ("split", None), ("tuning", False)):
            if settings[name] == default:  # folders that were named before there was such a field keep their names
                del settings[name]
        # The older name on disk stays: folders are named by these settings, and would all be run again.
        settings["shift_items"] = settings.pop("shift_examples")
        return json.loads(json.dumps({**settings, "method": self.method.as_dict(), "recipe": dict(self.recipe)}))

    @property
    def name(self) -> str:
        """The name of its folder: readable, and another one for every other configuration."""
        text = json.dumps(self.settings(), sort_keys=True)
        readable = re.sub(r"[^a-z0-9]+", "-", self.label.lower()).strip("-")[:40]
        return f"{readable}-seed{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def spec_of(method: Method) -> str:
    """A config as the command line writes it, with the fields that differ from the defaults.

    >>> from multum import Packed
    >>> spec_of(Packed(members=2, alpha=2))
    'packed:members=2'
    """
    defaults = {f.name: f.default for f in dataclasses.fields(method)}
    changed = {k: v for k, v in dataclasses.asdict(method).items() if v != defaults[k]}
    fields = ",".join(f"{k}={'+'.join(map(str, v)) if isinstance(v, tuple) else v}" for k, v in changed.items())
    return f"{method.name}:{fields}" if fields else method.name


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: its result lies in its folder, or a reason says why there is none."""

    name: str
    reason: str | None = None

    @property
    def done(self) -> bool:
        return self.reason is None


@dataclass(frozen=True, eq=False)
class Finished:
    """A cell that was run to its end.

    Shape: `examples` has a tensor ``[examples]`` per metric that is a mean over the examples of the test part.
    """

    result: Mapping[str, Any]
    examples: Mapping[str, Tensor]


def work(cell: Cell, folder: Path, threads: int) -> Outcome:
    """Run a cell to its end, from where it was left; a failure is an outcome, an interruption is not."""
    try:
        prepare_folder(folder)
        with with_threads(threads):  # the same number gives the same bits, wherever the cell runs
            _train_and_measure(cell, folder)
    except Exception as error:
        with contextlib.suppress(FileError):  # the folder itself may be what failed
            write_text(folder / "failure.txt", traceback.format_exc())
        return Outcome(cell.name, str(error) if isinstance(error, MultumError) else f"{type(error).__name__}: {error}")
    (folder / "failure.txt").unlink(missing_ok=True)
    return Outcome(cell.name)


def is_done(cell: Cell, out: Path) -> bool:
    """Whether a cell has a result, which `finished` reads."""
    return (out / cell.name / RESULT).is_file()


def finished(cell: Cell, out: Path) -> Finished | None:
    """The result of a cell; None where there is none, or, with a warning, where it is damaged."""
    try:
        return _read(cell, out / cell.name) if is_done(cell, out) else None
    except FileError as error:
        log.warning("the cell %s is left out: %s", cell.name, first_line(error))
        return None


def set_damaged_aside(cell: Cell, out: Path) -> None:
    """Rename the folder of a cell whose files are damaged, so that the cell is run again."""
    folder = out / cell.name
    try:
        _check_run(cell, folder)
        if is_done(cell, out):
            _read(cell, folder)
    except FileError as error:
        aside = set_aside(folder)
        log.warning("the cell %s is run again, and its files are now in %s: %s", cell.name, aside, first_line(error))


def _train_and_measure(cell: Cell, folder: Path) -> None:
    recipe = Recipe().with_overrides({**cell.recipe, "seed": cell.seed})
    data = load_data(cell.data, seed=cell.parts_seed)
    if cell.split is not None and recipe.held_out and data.validation is None:
        data = data.with_validation(recipe.held_out, cell.split)
    _, trained = train_on(data, cell.data, cell.model, cell.method, recipe, folder, warn=False)
    if cell.tuning:
        _leave_score(cell, folder, data.task)
        return
    ens = RunFolder(folder).open(data) if trained is None else trained.cpu()
    started = time.perf_counter()
    ood = ood_sets(cell.ood, data)
    how: dict[str, Any] = {"shift": cell.shift, "shift_examples": cell.shift_examples, "seed": cell.seed}
    measured = measure(ens, data, ood=ood, held_out=RunFolder(folder).validation(), **how)
    spent = cost(ens, example=data.example())
    rows = RunFolder(folder).log()
    examples = {name: values.contiguous() for name, values in measured.examples.items()}
    write_tensors(folder / EXAMPLES, examples)
    result = {
        "cell": cell.settings(),
        "task": data.task,
        "test_part": _test_part(data.test),
        "parts": {"train": len(data.train), "test": len(data.test)},
        "classes": list(data.classes) or [str(i) for i in range(data.outputs)],
        "numbers": measured.numbers,
        "curves": {**measured.curves, "training": [_drawn(row) for row in rows]},
        "cost": {k: v for k, v in asdict(spent).items() if k != "parts"},
        "seconds": {"training": sum(row["seconds"] for row in rows), "measuring": time.perf_counter() - started},
        "examples": checksum(examples),
    }
    write_json(folder / RESULT, {**result, "checksum": digest(result)})


def _leave_score(cell: Cell, folder: Path, task: str) -> None:
    """The result of a trial is its score on the validation part; its model has served, and a hundred take room."""
    run = RunFolder(folder)
    held_out = run.validation()
    if held_out is None:
        raise TrainingError("a trial must have a validation part to be judged on; got none. Use validation=0.1")
    result = {
        "cell": cell.settings(),
        "task": task,
        "numbers": {"nll": held_out_nll(held_out["outputs"], held_out["targets"], task)},
        "seconds": {"training": sum(row["seconds"] for row in run.log())},
        "examples": checksum({}),
    }
    write_tensors(folder / EXAMPLES, {})
    write_json(folder / RESULT, {**result, "checksum": digest(result)})
    for path in folder.iterdir():
        if path.name not in (RESULT, EXAMPLES):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _check_run(cell: Cell, folder: Path) -> None:
    """Refuse files of a run that cannot be read, or that belong to another cell."""
    for path in (folder / "run.json", folder / "training.json"):
        if path.is_file():
            read_json(path)
    if (folder / "run.json").is_file():
        run, settings = RunFolder(folder).read(), cell.settings()
        other = [name for name in ("data", "model", "method") if run[name] != settings[name]]
        if not is_done(cell, folder.parent):
            if run.get("format", 1) == 1:
                raise FileError(f"{folder / 'run.json'} must know its data; got an unfinished run of multum 0.1")
            RunFolder(folder).preparation(run)
            RunFolder(folder).split()
        if other or run["recipe"]["seed"] != cell.seed:
            raise FileError(f"{folder / 'run.json'} must be of this cell; got another {', '.join(other) or 'seed'}")


def _read(cell: Cell, folder: Path) -> Finished:
    """A cell's result and examples, each as it was written; a FileError where they are not."""
    path = folder / RESULT
    result = read_json(path)
    if result.pop("checksum", None) != digest(result):
        raise FileError(f"{path} must be as it was written; got another checksum")
    if result["cell"] != cell.settings():
        raise FileError(f"{path} must be of this cell; got the result of another")
    with explained(f"{folder / EXAMPLES} must be readable", of=(OSError, SafetensorError)):
        examples = load_file(folder / EXAMPLES)
    if result["examples"] != checksum(examples):
        raise FileError(f"{folder / EXAMPLES} must be as it was written; got another checksum")
    return Finished(result, examples)


def _test_part(part: Part) -> str:
    """The same for the same examples in the same order: only then can two cells be compared example by example."""
    digest = hashlib.sha256(part.y.numpy().tobytes())
    digest.update(part.x[:64].contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _drawn(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k in ("epoch", "loss", "accuracy", "rmse", "member")}
