"""What a step would take if nothing but torch's own kernels took time: every call of one, replayed by itself.

    python benchmarks/limits.py                                  a training step, batch 16, all cores
    python benchmarks/limits.py --mode inference --batch 1 16 64
    python benchmarks/limits.py --inductor --threads 1           what inductor makes of both; once per number of threads

The calls that reach torch's kernels in a step of one ResNet-18 and of Packed (alpha 2, M 4) are recorded with their
tensors, and each distinct one is run by itself, its tensors in the cache, in turns with all others: least time of the
rounds, times how often it is called. No executor that makes these calls can take less. `whole` is the step itself,
least time of the same rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import multum
from multum.benching.setting import Setting
from multum.benching.subjects import INFERENCE, NETWORK, TRAINING, Subject, Workshop
from multum.figures.formats import markdown_table
from multum.runs.machine import machine

PACKED = multum.Packed(members=4, alpha=2, gamma=1)
KINDS = {"convolution": ("conv", "bmm"), "norm": ("norm", "var_mean", "sum.dim", "mean.dim")}  # parts of names


@dataclass
class Kernel:
    """A call of one of torch's operators: how often a step makes it, and its least seconds."""

    run: Callable[[], Any]
    kind: str
    count: int = 0
    seconds: float = field(default=float("inf"))


class Recorder(TorchDispatchMode):
    """Keeps one example of every distinct call below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: dict[Any, Kernel] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = args, kwargs or {}
        key = (str(func), str(tree_map(_shape, (args, kwargs))))
        if key not in self.kernels:
            kept, named = tree_map(_copy, (args, kwargs))
            kind = next((k for k, parts in KINDS.items() if any(p in str(func) for p in parts)), "the rest")
            self.kernels[key] = Kernel(lambda: func(*kept, **named), kind)
        self.kernels[key].count += 1
        return func(*args, **kwargs)


def _shape(value: Any) -> Any:
    return (tuple(value.shape), value.stride(), value.dtype) if isinstance(value, Tensor) else value


def _copy(value: Any) -> Any:
    if not isinstance(value, Tensor) or 0 in value.stride():
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype).copy_(value)


def recorded(run: Callable[[], Any]) -> list[Kernel]:
    """The distinct calls of one step."""
    with Recorder() as recorder:
        run()
    return list(recorder.kernels.values())


def clocked(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def limits(mode: str, batch: int, rounds: int) -> list[list[str]]:
    """Milliseconds of each kind of call, of their sum and of the step, of one network and of Packed."""
    workshop = Workshop(Setting("resnet18", (3, 32, 32)))
    calls = [workshop.call(subject, mode, batch) for subject in (Subject(NETWORK), Subject("packed", "", PACKED))]
    kernels, whole = [], [float("inf")] * 2
    for call in calls:
        call.prepare()
        call.run()
        call.run()
        kernels.append(recorded(call.run))
    with torch.no_grad():
        for number in range(rounds):
            for kernel in (kernel for own in kernels for kernel in own):
                kernel.seconds = min(kernel.seconds, clocked(kernel.run))
            for i in (0, 1) if number % 2 else (1, 0):
                with torch.enable_grad():
                    calls[i].prepare()
                    whole[i] = min(whole[i], clocked(calls[i].run))
    rows = []
    for kind in (*KINDS, "the rest", ""):
        spent = [sum(k.count * k.seconds for k in own if kind in ("", k.kind)) for own in kernels]
        rows.append([mode, str(batch), kind or "all by themselves", *_shown(spent)])
    return [*rows, [mode, str(batch), "whole", *_shown(whole)]]


def _shown(seconds: list[float]) -> list[str]:
    one, packed = seconds
    return [f"{1e3 * one:.1f}", f"{1e3 * packed:.1f}", f"{packed / one:.3f}"]


def inductor(batch: int, rounds: int) -> list[list[str]]:
    """Milliseconds and processor milliseconds of a pass by inductor: one network and Packed by `loop` and `grouped`."""
    x = torch.randn(batch, 3, 32, 32)
    net = multum.models.build("resnet18", classes=10)
    single, packed = (multum.ensemble(net, m, example=x[:2], seed=0).eval() for m in (multum.Single(), PACKED))
    ways = {"one network": multum.optimize(single, x, backend="inductor")}
    for run in ("loop", "grouped"):
        ways[f"Packed, {run}"] = multum.optimize(packed, x, backend="inductor", run=run)
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with torch.no_grad():
        for _ in range(rounds + 2):
            for name, way in ways.items():
                began, processor = time.perf_counter(), time.process_time()
                way(x)
                spent[name].append((time.perf_counter() - began, time.process_time() - processor))
    rows = []
    for name in ways:
        cells = []
        for which in (0, 1):
            own, one = ([times[which] for times in spent[n][2:]] for n in (name, "one network"))
            ratio = statistics.median(a / b for a, b in zip(own, one, strict=True))
            cells += [f"{1e3 * statistics.median(own):.1f}", f"{ratio:.3f}"]
        rows.append([str(batch), name, *cells])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=(INFERENCE, TRAINING), default=TRAINING)
    parser.add_argument("--batch", type=int, nargs="+", default=[16])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--inductor", action="store_true")
    options = parser.parse_args()
    multum.keep_memory()
    torch.set_num_threads(options.threads)
    print(machine(), f"{options.threads} threads, {options.rounds} rounds")
    if options.inductor:
        head = ["batch", "by inductor", "ms", "x one", "processor ms", "x one"]
        print(markdown_table(head, [row for b in options.batch for row in inductor(b, options.rounds)], "rl"))
    else:
        head = ["mode", "batch", "calls", "one network ms", "Packed ms", "Packed / one"]
        print(
            markdown_table(head, [row for b in options.batch for row in limits(options.mode, b, options.rounds)], "lrl")
        )


if __name__ == "__main__":
    main()
