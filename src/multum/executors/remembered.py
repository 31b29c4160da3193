"""What was measured on this machine, in one JSON file of the user's cache folder that several processes may share.

An entry that is there stays: of processes that measure the same at once, the first to write decides for all of them. A
file that cannot be read counts as empty, and one that cannot be written costs only that the next process measures too.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..errors import FileError
from ..files import read_json, write_json

__all__ = ["clear", "file", "lookup", "remember"]

log = logging.getLogger("multum")

MOST = 4096  # entries of the file; the oldest go
PATIENCE = 10.0  # seconds that a process waits for another one to write

_HERE: dict[str, dict[str, Any]] = {}  # what this process knows already


def file() -> Path:
    """Where the entries are: in $XDG_CACHE_HOME, or the platform's folder for caches."""
    places = {"darwin": "~/Library/Caches", "win32": os.environ.get("LOCALAPPDATA", "~/AppData/Local")}
    folder = os.environ.get("XDG_CACHE_HOME") or places.get(sys.platform, "~/.cache")
    return Path(folder).expanduser() / "multum" / "executors.json"


def lookup(key: str, names: Collection[str]) -> dict[str, Any] | None:
    """The entry under this key, of this process or of the file, if it names one of these executors."""
    if key not in _HERE:
        entry = _read().get(key)
        if entry is None or entry.get("executor") not in names:
            return None
        _HERE[key] = entry
    return _HERE[key]


def remember(key: str, entry: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Keep this entry, unless another process has written one of these executors by now; what holds from now on."""
    _HERE[key] = _written(key, entry, names)
    return _HERE[key]


def clear() -> int:
    """Forget everything that was measured, here and on the disk; how many entries there were.

    An ensemble that has run keeps the executor that it has; one that is made from now on is measured again.
    """
    entries = {**_HERE, **_read()}
    _HERE.clear()
    file().unlink(missing_ok=True)
    return len(entries)


def _read() -> dict[str, dict[str, Any]]:
    path = file()
    try:
        entries = read_json(path) if path.is_file() else {}
    except (FileError, OSError) as error:
        log.info("%s; what was measured is measured again", error)
        return {}
    return {key: entry for key, entry in entries.items() if isinstance(entry, dict)}


def _written(key: str, entry: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    path = file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock"), timeout=PATIENCE):
            entries = _read()
            if entries.get(key, {}).get("executor") not in names:
                entries[key] = entry
                write_json(path, dict(list(entries.items())[-MOST:]))
            return entries[key]
    except (FileError, OSError, RuntimeError, Timeout) as error:  # RuntimeError: a user without a home
        log.info("what was measured is known to this process alone: %s", error)
        return entry
