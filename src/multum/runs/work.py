"""The work of one cell: train it, measure it, and leave its result in its folder."""

from __future__ import annotations

import hashlib
import json
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..data.ood import ood_sets
from ..data.sources import Part
from ..errors import MultumError
from ..files import write_json, write_tensors, write_text
from ..metrics.cost import cost
from ..metrics.evaluate import measure
from . import train as job
from .cells import Cell

__all__ = ["RESULT", "Outcome", "finished", "work"]

RESULT = "result.json"


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: its result lies in its folder, or a reason says why there is none."""

    name: str
    reason: str | None = None

    @property
    def done(self) -> bool:
        return self.reason is None


def work(cell: Cell, folder: Path, threads: int) -> Outcome:
    """Run a cell to its end, from where it was left; a failure is an outcome, an interruption is not."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)  # the same number gives the same bits, wherever the cell runs
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _train_and_measure(cell, folder)
    except Exception as error:
        write_text(folder / "failure.txt", traceback.format_exc())
        told = str(error) if isinstance(error, MultumError) else f"{type(error).__name__}: {error}"
        return Outcome(cell.name, told)
    finally:
        torch.set_num_threads(before)
    (folder / "failure.txt").unlink(missing_ok=True)
    return Outcome(cell.name)


def finished(folder: Path) -> dict[str, Any] | None:
    """The result of a cell that was run to its end."""
    path = folder / RESULT
    return json.loads(path.read_text()) if path.is_file() else None


def _train_and_measure(cell: Cell, folder: Path) -> None:
    job.train(cell.data, cell.model, cell.method, folder, {**cell.recipe, "seed": cell.seed})
    ens, data, _ = job.open_run(folder)
    started = time.perf_counter()
    ood = ood_sets(cell.ood, data)
    measured = measure(ens, data, ood=ood, shift=cell.shift, shift_examples=cell.shift_items, seed=cell.seed)
    spent = cost(ens, example=data.example())
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    write_tensors(folder / "items.safetensors", {k: v.contiguous() for k, v in measured.examples.items()})
    result = {
        "cell": cell.settings(),
        "task": data.task,
        "test_part": _fingerprint(data.test),
        "parts": {"train": len(data.train), "test": len(data.test)},
        "classes": list(data.classes) or [str(i) for i in range(data.outputs)],
        "numbers": measured.numbers,
        "curves": {**measured.curves, "training": [_drawn(row) for row in log]},
        "cost": {k: v for k, v in asdict(spent).items() if k != "parts"},
        "seconds": {"training": sum(row["seconds"] for row in log), "measuring": time.perf_counter() - started},
    }
    write_json(folder / RESULT, result)


def _fingerprint(part: Part) -> str:
    """The same for the same items in the same order: only then can two cells be compared item by item."""
    digest = hashlib.sha256(part.y.numpy().tobytes())
    digest.update(part.x[:64].contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _drawn(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k in ("epoch", "loss", "accuracy", "rmse", "member")}
