"""Checkpoints: safetensors and JSON, written whole or not at all, never pickle.

A checkpoint is one file: tensors under prefixes, and a JSON header with the place in training. It is written to a
temporary file, flushed to the disk and renamed, so that at every moment the newest complete one can be read; the last
few are kept.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import TrainingError
from ..files import explained, signature, write_tensors
from .recipe import Recipe

log = logging.getLogger("multum")

KEEP = 2  # checkpoints of a run that are kept

NAME = re.compile(r"step-(\d{9})\.safetensors")


def guard(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Refuse to go on in a folder whose run was begun with other settings.

    A field that recipes did not have when the run was begun had the value that it has by default.
    """
    if isinstance(before.get("recipe"), Mapping):
        defaults = json.loads(json.dumps(asdict(Recipe())))
        before = {**before, "recipe": {**defaults, **before["recipe"]}}
    changed = [name for name in now if before.get(name) != now[name]]
    if changed:
        words = {name: f" ({before.get(name)} then, {now[name]} now)" for name in now if isinstance(now[name], str)}
        raise TrainingError(
            f"a run must be resumed with its own settings; got another "
            f"{', '.join(name + words.get(name, '') for name in changed)} in {folder}. "
            "Use the same settings, or choose another folder"
        )


def check_room(folder: Path, size: int) -> None:
    """Refuse a disk without room for the checkpoints to come: those that are kept, and the one being written."""
    free, needed = shutil.disk_usage(folder).free, (KEEP + 1) * size
    if free < needed:
        raise TrainingError(
            f"the disk must have room for {KEEP + 1} checkpoints, about {_size(needed)}; got {_size(free)} free in "
            f"{folder}. Free some, or choose another folder"
        )


def _size(count: float) -> str:
    """Bytes in the largest unit that gives a number of at least 1.

    >>> _size(950), _size(20_480), _size(3.2e9)
    ('950 B', '20.5 kB', '3.2 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.{int(unit != 'B')}f} {unit}"


def write(folder: Path, step: int, tensors: dict[str, Tensor], header: dict[str, Any], keep: int = KEEP) -> Path:
    """Write one checkpoint and remove older ones beyond the last `keep`; a failure leaves the old ones whole."""
    path = folder / f"step-{step:09d}.safetensors"
    write_tensors(path, tensors, header)
    for old in _all(folder)[:-keep]:
        with explained(f"{old} must be removable", "Check its permissions"):
            old.unlink(missing_ok=True)
    return path


def latest(folder: Path) -> Path | None:
    """The newest checkpoint of a run folder."""
    return next(reversed(_all(folder)), None)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a checkpoint, as they were written."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            header = json.loads((file.metadata() or {})["multum"])
        if not isinstance(header, dict):
            raise ValueError("a header that is no JSON object")
        if "checksum" not in header:
            log.warning("%s has no checksum, as checkpoints of multum 0.1 have none", path)
        elif header["checksum"] != signature(header, tensors):
            raise ValueError("other bits than were written: it was damaged or changed")
    except (SafetensorError, OSError, KeyError, ValueError, RecursionError) as error:
        raise TrainingError(
            f"a checkpoint must be a whole file of multum's; got {path}: {error}. "
            "Remove it to go on from the one before"
        ) from error
    return tensors, header


def states(out: Path) -> dict[int, dict[str, Tensor]]:
    """What a recipe with `states` left in a run folder: the ensemble's tensors by epoch, the beginning as 0."""
    left = [read(path) for path in _all(out / "states")]
    if not left:
        raise TrainingError(f"a run must be trained with states to hold some; got none in {out}. Train with states=1")
    return {header["epoch"]: tensors for tensors, header in left}


def _all(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("step-*.safetensors") if NAME.fullmatch(p.name))
