"""Checkpoints: safetensors and JSON, written whole or not at all, never pickle.

A checkpoint is one file: tensors under prefixes, and a JSON header with the place in training. It is written to a
temporary file, flushed to the disk and renamed, so that at every moment the newest complete one can be read; the last
few are kept.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import TrainingError

__all__ = ["latest", "prepare_folder", "read", "write"]

NAME = re.compile(r"step-(\d{9})\.safetensors")


def prepare_folder(folder: Path) -> None:
    """Make the folder and prove that files can be written there, before hours are spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe-") as probe:
            probe.write(b"0" * 4096)
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise TrainingError(
            f"the run folder can be written, however: {folder}: {error.strerror or error}; choose another one"
        ) from error


def write(folder: Path, step: int, tensors: dict[str, Tensor], header: dict[str, Any], keep: int = 2) -> Path:
    """Write one checkpoint and remove older ones beyond the last `keep`; a failure leaves the old ones whole."""
    path = folder / f"step-{step:09d}.safetensors"
    contiguous = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".step-", suffix=".part")
    os.close(handle)
    try:
        save_file(contiguous, temporary, metadata={"multum": json.dumps(header)})
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(folder)
    except (OSError, SafetensorError) as error:
        raise TrainingError(
            f"a checkpoint can be written, however: {path}: {error}; free space and run again, "
            "training goes on from the last checkpoint"
        ) from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    for old in _all(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def latest(folder: Path) -> Path | None:
    """The newest checkpoint of a run folder; what a killed process left half-written is removed."""
    for part in folder.glob(".step-*.part"):
        part.unlink(missing_ok=True)
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


def _all(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("step-*.safetensors") if NAME.fullmatch(p.name))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
