"""`keep_memory`: the system is asked for memory once, and not for every tensor."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch, multum
if sys.argv[1] == "keep" and not multum.keep_memory():
    raise SystemExit("not here")
def once():
    for _ in range(20):
        torch.ones(64, 2**18)  # 64 MiB: 16,384 pages of 4 KiB
once()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
once()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="settings of glibc")
def test_freed_memory_is_used_again() -> None:
    def faults(how: str) -> int:
        command = [sys.executable, "-c", FAULTS, how]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert faults("keep") < 200 < faults("plain")  # huge pages make few faults of many bytes
