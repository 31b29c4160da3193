"""What the system says of the processor, and how many of its threads torch has."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator
from pathlib import Path

import torch


@contextlib.contextmanager
def with_threads(threads: int | None) -> Iterator[None]:
    """So many threads of torch, None for those that it has, and those again behind it."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
