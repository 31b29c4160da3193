"""Checkpoints: safetensors and JSON, written whole or not at all, never pickle.

A checkpoint is one file: tensors under prefixes, and a JSON header with the place in training. It is written to a
temporary file, flushed to the disk and renamed, so that at every moment the newest complete one can be read; the last
few are kept.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import TrainingError
from ..files import write_tensors

__all__ = ["KEEP", "check_room", "latest", "read", "states", "write"]

KEEP = 2  # checkpoints of a run that are kept

NAME = re.compile(r"step-(\d{9})\.safetensors")


def check_room(folder: Path, size: int) -> None:
    """Refuse a disk without room for the checkpoints to come: those that are kept, and the one being written."""
    free, needed = shutil.disk_usage(folder).free, (KEEP + 1) * size
    if free < needed:
        raise TrainingError(
            f"the disk has room for {KEEP + 1} checkpoints, about {needed / 1e9:.2f} GB, however: "
            f"{free / 1e9:.2f} GB are free in {folder}; free some, or choose another folder"
        )


def write(folder: Path, step: int, tensors: dict[str, Tensor], header: dict[str, Any], keep: int = KEEP) -> Path:
    """Write one checkpoint and remove older ones beyond the last `keep`; a failure leaves the old ones whole."""
    path = folder / f"step-{step:09d}.safetensors"
    contiguous = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    write_tensors(path, contiguous, header)
    for old in _all(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def latest(folder: Path) -> Path | None:
    """The newest checkpoint of a run folder."""
    found = _all(folder)
    return found[-1] if found else None


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a checkpoint."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, json.loads((file.metadata() or {})["multum"])
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise TrainingError(
            f"a checkpoint is a whole file of multum's, however: {path}: {error}; "
            "remove it to go on from the one before"
        ) from error


def states(out: Path) -> dict[int, dict[str, Tensor]]:
    """What a recipe with `states` left in a run folder: the ensemble's tensors by epoch, the beginning as 0."""
    found = [read(path) for path in _all(out / "states")]
    if not found:
        raise TrainingError(f"a run with states holds some, however: {out} does not; train with states=1")
    return {header["epoch"]: tensors for tensors, header in found}


def _all(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("step-*.safetensors") if NAME.fullmatch(p.name))
