"""The memory that a pass or a training step takes, in a process of its own: what came before leaves no trace in it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
from pathlib import Path
from typing import Any

import torch

from ..errors import first_line
from ..methods import Packed
from .setting import Setting
from .subjects import TRAINING, Subject, Workshop

STATUS = Path("/proc/self/status")
PASSES = 2  # the second step holds what the first one left, as every later one does


def peak_memory(setting: Setting, subject: Subject, mode: str, batch: int, threads: int) -> int | str:
    """The most bytes of memory that were in use at once, weights and examples included and libraries not.

    A text says why there is no number.
    """
    if not STATUS.is_file():
        return "this system does not say how much memory a process has used"
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["multum.benching.memory", "torch._dynamo"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(setting, subject, mode, batch, threads, sender), daemon=True)
    process.start()
    sender.close()  # so that a dead child ends the pipe
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        return f"its process ended with code {process.exitcode}; out of memory is the usual cause"
    except BaseException:  # Ctrl-C
        process.terminate()
        raise
    finally:
        process.join()


def _child(setting: Setting, subject: Subject, mode: str, batch: int, threads: int, sender: Any) -> None:
    torch.set_num_threads(threads)
    _wake()
    before = _kilobytes("VmRSS")
    try:
        call = Workshop(setting, check=False).call(subject, mode, batch)
        call.prepare()
        _forget()
        for _ in range(PASSES):
            call.run()
    except Exception as error:  # of any library that is measured; the row says what it was
        sender.send(f"{type(error).__name__}: {first_line(error)}")
        return
    sender.send(1024 * (_kilobytes("VmHWM") - before))


def _wake() -> None:
    """What torch and multum set up once, threads, kernels and modules, belongs to no row."""
    call = Workshop(Setting("small-cnn", (1, 8, 8))).call(Subject("", method=Packed(members=2, alpha=2)), TRAINING, 4)
    call.prepare()
    call.run()


def _forget() -> None:
    """What building took is given back, and the system's note of the most that was in use begins anew."""
    gc.collect()
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):  # a system that forbids it leaves the larger number of the two
        Path("/proc/self/clear_refs").write_text("5")


def _kilobytes(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1])
