"""`keep_memory`: the system is asked for memory once, and not for every tensor."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import os, resource, torch, multum
def faults():
    for count in (20, 5):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(count):
            torch.ones(64, 2**18)  # 64 MiB: 16,384 pages of 4 KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
if os.fork():
    os.wait()
    if not multum.keep_memory():
        raise SystemExit("not here")
print(faults(), flush=True)
"""


@pytest.mark.slow  # a process of its own, which imports torch
@pytest.mark.skipif(sys.platform != "linux", reason="settings of glibc")
def test_freed_memory_is_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", FAULTS], check=True, capture_output=True, text=True)
    plain, keeping = map(int, done.stdout.split())  # of a child and of its parent: torch is imported once
    assert keeping < 200 < plain  # huge pages make few faults of many bytes
