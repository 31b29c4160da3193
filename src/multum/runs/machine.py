"""What numbers depend on besides their settings: versions, and the machine."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path
from typing import Any

import torch

from ..version import __version__

__all__ = ["machine", "versions"]


def versions() -> dict[str, str]:
    """The versions of multum, torch and Python."""
    return {"multum": __version__, "torch": torch.__version__, "python": platform.python_version()}


def machine() -> dict[str, Any]:
    """The machine: processor, cores, memory and system, as far as the system says."""
    memory = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        memory = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB"
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": memory,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
