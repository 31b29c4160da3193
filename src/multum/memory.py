"""Memory that a process keeps for its next tensors."""

from __future__ import annotations

import ctypes
import sys

# The C library's names for its settings (malloc.h).
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
KEPT = 2**31 - 1  # bytes at the end of the heap that are not handed back: all that an int can say
GROWTH = 64 * 2**20  # bytes that the heap grows by


def keep_memory() -> bool:
    """Keep freed memory for this process's next tensors; returns whether its C library can.

    By default the library hands large blocks back to the system as soon as they are free and asks for them again, and
    the system clears every page it gives. On a CPU that can take as long as the layers themselves: see
    `benchmarks/memory.py`. Numbers do not change. The command line does this for its own processes; a program calls it
    once, before it trains or evaluates.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:  # a C library other than glibc
        return False
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: KEPT, M_TOP_PAD: GROWTH}
    return all(mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1 for name, value in settings.items())
