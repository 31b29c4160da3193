"""The fastest executor, by measurement: which one it is depends on the machine, the network, the input and the mode.

Every executor warms up once and then runs in turns with the others, four rounds at least; those clearly behind drop
out, and the race ends after about half a second. It must not cost what it saves: without gradients it runs on a few
rows of a large input, slow steps have two rounds, and a training that is known to be short is not measured for. What
is usually the fastest stands where no other is clearly faster, since other programs disturb a race. What was measured
is remembered (see `remembered`), so that one machine gives one answer, and with it the same bits.

MULTUM_AUTOTUNE=0 turns measuring off.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _functorch as functorch
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from torch.utils._pytree import tree_leaves, tree_map_only

from ..errors import first_line
from ..network.copies import tensors_of
from ..processor import processor
from ..version import __version__
from .remembered import file, lookup, remember

__all__ = ["fastest", "few_rows", "fixed", "measurable", "measuring", "race", "situation", "structure"]

log = logging.getLogger("multum")

ROUNDS = 20  # of a race, at most
LEAST = 4  # rounds: two say little where other programs run
SECONDS = 0.5  # after which a race ends, once there were so many
PATIENCE = 5.0  # seconds after which it ends with two
ROWS = 256  # of an input without gradients: more take longer, and have the same winner
WORTH = 20  # steps for each executor that pay for a race, whose answer later runs have for nothing
BEHIND = 1.5  # times the leader's time: no later round makes up for that
CLEARLY = 0.95  # times the time of the favourite: less is worth another choice, more may be chance

clock = time.perf_counter

_FIXED: ContextVar[bool] = ContextVar("nothing is measured now", default=False)


@contextmanager
def fixed() -> Iterator[None]:
    """A context in which no call measures: what was settled before, or the table, rules for every input."""
    token = _FIXED.set(True)
    try:
        yield
    finally:
        _FIXED.reset(token)


def measuring(always: bool = False) -> bool:
    """Whether calls may measure; `always` for one that is made to do so, where others are fixed."""
    return os.environ.get("MULTUM_AUTOTUNE") != "0" and (always or not _FIXED.get())


def measurable(network: nn.Module, x: Any) -> bool:
    """Whether running this network on this input more than once tells something, and is seen by nobody else.

    Not where torch records or maps what runs, where tensors have no values, nor where hooks would be called.
    """
    inputs = [t for t in tree_leaves(x) if isinstance(t, Tensor)]
    tensors = (*tensors_of(network).values(), *inputs)
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return not (
        torch.jit.is_tracing()
        or is_in_torch_dispatch_mode()
        or functorch.maybe_current_level() is not None
        or any(type(t) not in (Tensor, nn.Parameter) or t.is_meta for t in tensors)
        or any(t.numel() == 0 for t in inputs)
        or torch_module._has_any_global_hook()
        or any(getattr(module, name) for module in network.modules() for name in hooks)
    )


def situation(x: Any, device: torch.device, *, training: bool, per_member: bool, pools: bool) -> str:
    """What a choice is for, in words: sizes to a power of two, as those that the network fixes lose nothing by it.

    Without gradients, large batches are one situation: see `few_rows`.

    >>> situation(torch.zeros(100, 3), torch.device("cpu"), training=False, per_member=False, pools=False)[:27]
    'eval float32 128x4 gradient'
    """
    leaves = (x,) if isinstance(x, Tensor) else tree_leaves(x)
    gradients = torch.is_grad_enabled()
    sizes = [
        f"{str(t.dtype)[6:]} {'x'.join(map(_rounded, t.shape if gradients else _few(t.shape, per_member)))}"
        for t in leaves
        if isinstance(t, Tensor)
    ]
    mixed = torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)
    low = f" autocast {torch.get_autocast_dtype(device.type)}" if mixed else ""
    words = [
        "training" if training else "eval",
        *sizes,
        *(["gradients"] if gradients else []),
        *(["per-member"] if per_member else []),
        *(["pooling"] if pools else []),
        f"{device.type}{low} {torch.get_num_threads()} threads",
    ]
    return " ".join(words)


def _rounded(size: int) -> str:
    return str(1 << ((size * size).bit_length() // 2))


def _few(shape: Sequence[int], per_member: bool) -> Sequence[int]:
    rows = 1 if per_member else 0
    return [min(size, ROWS) if axis == rows else size for axis, size in enumerate(shape)]


def few_rows(x: Any, per_member: bool) -> Any:
    """What a race without gradients runs on: the first rows of a large input."""
    return tree_map_only(Tensor, lambda t: t[:, :ROWS] if per_member else t[:ROWS], x)


def structure(network: nn.Module, stacked: Sequence[str]) -> str:
    """A digest of what a network computes with: its modules, and names, shapes, strides and dtypes of its tensors."""
    tensors = {n: [str(t.dtype), list(t.shape), t.stride()] for n, t in tensors_of(network).items()}
    return _digest([repr(network), tensors, list(stacked)])


def fastest(
    candidates: Sequence[str],
    usual: str,
    favourite: str,
    asked: Mapping[str, Any],
    device: torch.device,
    step: Callable[[str], Any],
    steps: float = math.inf,
) -> str:
    """The fastest of these executors: as it was measured before, else by a race.

    Args:
        usual: the table's choice, one of the candidates, which stands where nothing is measured.
        favourite: the one that stands where no other is clearly faster.
        asked: what the answer depends on, besides the machine.
        step: runs one executor to its end.
        steps: how many of them are to come, where that is known; for a few the table's choice is good enough.
    """
    key = _digest({**asked, "candidates": list(candidates), **_machine(device.type)})
    entry = lookup(key, candidates)
    if entry is not None:
        return str(entry["executor"])
    if steps <= WORTH * len(candidates):
        return usual
    seconds = race(candidates, step)
    if not seconds:
        return usual
    best = min(seconds, key=seconds.__getitem__)
    choice = favourite if seconds[best] > CLEARLY * seconds.get(favourite, math.inf) else best
    if len(seconds) < len(candidates):  # what failed now need not fail the next time
        return choice
    entry = remember(key, {"executor": choice, "seconds": seconds, "for": dict(asked)}, candidates)
    times = ", ".join(f"{name} {1000 * seconds[name]:.3g} ms" for name in sorted(seconds, key=seconds.__getitem__))
    log.info("executor %r for %s: %s; kept in %s", entry["executor"], asked.get("situation"), times, file())
    return str(entry["executor"])


def race(names: Sequence[str], step: Callable[[str], Any]) -> dict[str, float]:
    """The least seconds of a step of each, in turns; an executor that fails is left out."""
    began, running, seconds = clock(), list(names), dict[str, float]()
    for number in range(ROUNDS + 1):
        for name in running[:: -1 if number % 2 else 1]:
            start = clock()
            try:
                step(name)
            except Exception as error:  # out of memory, say, or whatever a user's network raises
                log.info("executor %r was not measured: %s: %s", name, type(error).__name__, first_line(error))
                running.remove(name)
                seconds.pop(name, None)
            else:
                spent = clock() - start
                seconds[name] = min(seconds[name], spent) if number > 1 else spent  # round 0 is the warm-up
        if number >= 2:
            running = [name for name in running if seconds[name] <= BEHIND * min(seconds.values())]
            spent = clock() - began
            if spent > PATIENCE or (number >= LEAST and spent > SECONDS):
                break
        if len(running) < 2:
            break
    return seconds


@functools.cache
def _machine(device: str) -> dict[str, Any]:
    """What decides about speed on this machine, and the code that is measured."""
    here = Path(__file__).parent
    sources = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(here.rglob("*.py"))))
    return {
        "cpu": [
            processor(),
            torch.backends.cpu.get_cpu_capability(),
            os.cpu_count(),
            os.environ.get("ONEDNN_MAX_CPU_ISA"),
        ],
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "torch": torch.__version__,
        "multum": [__version__, sources.hexdigest()],
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
