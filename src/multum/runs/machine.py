"""What numbers depend on besides their settings: versions, and the machine."""

from __future__ import annotations

import contextlib
import os
import platform
from typing import Any

import torch

from ..processor import processor, said_of_the_processor
from ..version import __version__

VECTORS = (
    "avx2",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "sve",
)  # what decides speed
MEMORY_OF_A_JOB = 2**30  # bytes: a process with torch, small data and a small network takes half of it


def jobs_and_threads(jobs: int | None, threads: int | None, on: str, cells: int) -> tuple[int, int]:
    """How many cells run at once, and with how many threads each; what is given stays.

    Small networks gain little from a second thread, and cells of their own nearly everything: one cell on each core.
    A GPU takes one cell at a time.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if jobs is None:
        room = max(1, _memory() // MEMORY_OF_A_JOB)
        jobs = 1 if torch.cuda.is_available() else max(1, min(cores, cells, room))
    return jobs, threads or max(1, torch.get_num_threads() // (max(1, jobs) if on == "here" else 1))


def _memory() -> int:
    """Bytes of memory; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0


def versions() -> dict[str, str]:
    """The versions of multum, torch and Python."""
    return {"multum": __version__, "torch": torch.__version__, "python": platform.python_version()}


def machine() -> dict[str, Any]:
    """The machine: processor, cores, memory and system, as far as the system says."""
    return {
        "processor": processor(),
        "flags": [flag for flag in VECTORS if flag in _flags()],
        "cores": os.cpu_count(),
        "memory": f"{_memory() / 2**30:.0f} GB" if _memory() else None,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _flags() -> set[str]:
    return {*(said_of_the_processor("flags") or said_of_the_processor("Features")).split()}
