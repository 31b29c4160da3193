"""Files that are whole or not there: JSON for every reader, atomic writes, checksums, and one lock per folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from .errors import FileError, MultumError, first_line


def plain(value: Any) -> Any:
    """The value in dicts, lists, strings and finite numbers; NaN and infinity, which JSON does not have, become None.

    >>> plain({"nll": float("nan"), "at": (1, 2.5)})
    {'nll': None, 'at': [1, 2.5]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def dumps(value: Any) -> str:
    """The value as indented JSON text.

    >>> dumps([float("inf")])
    '[\\n  null\\n]'
    """
    return json.dumps(plain(value), indent=2, allow_nan=False)


@contextlib.contextmanager
def explained(
    rule: str,
    fix: str = "",
    kind: type[MultumError] = FileError,
    of: type[Exception] | tuple[type[Exception], ...] = OSError,
) -> Iterator[None]:
    """What the system or a library refuses, as an error of multum's with the rule that it broke and the fix."""
    try:
        yield
    except MultumError:
        raise
    except of as error:
        words = f"{type(error).__name__}: {first_line(error)}" if of is Exception else first_line(error)
        got = getattr(error, "strerror", None) or words
        raise kind(f"{rule}; got {got}" + (f". {fix}" if fix else "")) from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; a FileError where it is missing, empty or damaged."""
    with explained(f"{path} must be readable"):
        content = path.read_bytes()
    with explained(f"{path} must hold JSON", "Remove it and run again", of=(ValueError, RecursionError)):
        value = json.loads(content.decode())
    if not isinstance(value, dict):
        raise FileError(f"{path} must hold a JSON object; got {type(value).__name__}. Remove it and run again")
    return value


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, which takes its place once the block has written it; a failure changes nothing.

    What was written is flushed to the disk first, so that a machine that stops leaves the old file or the new one.
    """
    temporary = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}.part")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode  # safetensors would leave a file that only its owner can read
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(mode)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except (OSError, SafetensorError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or first_line(error)
        raise FileError(
            f"{path} must be writable; got {reason}. Free space there, check its permissions, or choose another "
            "folder; what was there before is unchanged"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with atomic(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text whole or not at all."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, whole or not at all."""
    write_text(path, dumps(value) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any] | None = None) -> None:
    """Write tensors as safetensors, whole or not at all; the header goes in as JSON under the key "multum", with the
    digest of it all."""
    values: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, t in tensors.items():
        t = t.detach().cpu().contiguous()
        # safetensors asks that each be alone in its memory: a copy, only where it is not
        alone = t.untyped_storage().nbytes() == t.nbytes and t.data_ptr() not in places
        values[name] = t if alone else t.clone()
        places.add(t.data_ptr())
    signed = None if header is None else {**header, "checksum": signature(header, values)}
    with atomic(path) as temporary:
        save_file(values, temporary, metadata=None if signed is None else {"multum": json.dumps(signed)})


def signature(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """A digest of every bit of the tensors and of the header, but for the signature itself."""
    rest = {name: value for name, value in header.items() if name != "checksum"}
    return hashlib.sha256(f"{checksum(tensors)} {json.dumps(rest)}".encode()).hexdigest()


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """A digest of names, dtypes, shapes and every bit of the tensors."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def prepare_folder(folder: Path) -> None:
    """Make the folder and prove that files can be written there, before hours are spent."""
    with explained(f"the folder {folder} must be writable", "Choose another one with --out"):
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob(".*.part"):  # what a killed process left half-written
            part.unlink(missing_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe-") as probe:
            probe.write(b"0" * 4096)
            probe.flush()
            os.fsync(probe.fileno())


def set_aside(path: Path) -> Path:
    """Rename a damaged file or folder to NAME.damaged-1, -2, ..., so that another can take its place; its new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    with explained(f"{path} must be free to be renamed", "Check the permissions of its folder"):
        return path.rename(aside)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One command works in a folder at a time."""
    lock = FileLock(folder / ".lock")
    try:
        with lock.acquire(timeout=0):
            yield
    except Timeout:
        raise FileError(
            f"a folder must have one command working in it; got another one at work in {folder}. Wait for it, or "
            "choose another folder with --out"
        ) from None


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
