"""What the system says of the processor."""

from __future__ import annotations

import contextlib
import platform
from pathlib import Path

__all__ = ["processor", "said_of_the_processor"]


def processor() -> str:
    """Its name, as far as the system says."""
    return said_of_the_processor("model name") or platform.processor() or platform.machine()


def said_of_the_processor(field: str) -> str:
    """What the system says first under this name; "" where it says nothing."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, words = line.partition(":")
            if name.strip() == field:
                return words.strip()
    return ""
