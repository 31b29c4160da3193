"""Packed-Ensembles of a ResNet-18 by multum's executors, by torch-uncertainty, and one network: time of a step.

    python benchmarks/peers_packed.py [--batch 1 16 64] [--rounds 15] [--threads 2] [--method packed:members=4,alpha=2]

Needs an environment with torch-uncertainty (`make bench` has one). All run in one process, in rounds: one step of each
after the other, so that a slower minute of the machine is a slower minute for all. A line is the median over rounds, in
units of one network's step of the same round, with the quartiles; and the fastest step in units of the fastest step of
one network, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import multum
from multum.executors.wide import wide_of


def torch_uncertainty() -> nn.Module | None:
    """Its packed ResNet-18 for CIFAR, in the paper's setting; None where it is not installed."""
    try:
        library = torch.library.Library("torchvision", "FRAGMENT")  # torchvision's kernels need not be there
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        from torch_uncertainty.models.classification.resnet import packed_resnet  # type: ignore[import-not-found]
    except ImportError:
        return None
    torch_uncertainty.library = library  # type: ignore[attr-defined]
    return packed_resnet(in_channels=3, num_classes=10, arch=18, num_estimators=4, alpha=2, gamma=1, style="cifar")


def step(model: nn.Module, executor: str | None, x: torch.Tensor, y: torch.Tensor, training: bool) -> Callable:
    """One step of inference, or of training: forward, mean cross-entropy over all members, backward, SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def run() -> None:
        if executor is not None:
            model.executor = executor
        model.train(training)
        began = time.perf_counter()
        if not training:
            with torch.no_grad():
                model(x)
        else:
            optimizer.zero_grad()
            out = model(x).flatten(0, -2)
            nn.functional.cross_entropy(out, y.repeat(len(out) // len(y))).backward()
            optimizer.step()
        run.seconds = time.perf_counter() - began  # type: ignore[attr-defined]

    return run


def measure(models: dict[str, tuple[nn.Module, str | None]], batch: int, training: bool, rounds: int) -> None:
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    steps = {name: step(model, executor, x, y, training) for name, (model, executor) in models.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 2):
        for name, run in steps.items():
            run()
            if turn > 1:  # the first two warm up
                times[name].append(run.seconds)  # type: ignore[attr-defined]
    unit = times["one network"]
    print(f"{'training' if training else 'inference'}, batch {batch}", flush=True)
    for name, seconds in times.items():
        ratios = sorted(t / u for t, u in zip(seconds, unit, strict=True))
        quartiles = f"{ratios[len(ratios) // 4]:.2f} .. {ratios[-1 - len(ratios) // 4]:.2f}"
        milliseconds, best = 1000 * statistics.median(seconds), min(seconds) / min(unit)
        middle = f"{statistics.median(ratios):5.2f}  ({quartiles})"
        print(f"  {name:18s} {milliseconds:8.1f} ms  {middle}  best of each {best:.2f}", flush=True)


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.processor())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="packed:members=4,alpha=2")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--executors", nargs="+", default=["loop", "vmap", "grouped"])
    parser.add_argument("--only", choices=("inference", "training"))
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    net = multum.models.build("resnet18", classes=10)
    method = multum.methods.parse(options.method)
    ens = multum.ensemble(net, method, example=torch.randn(2, 3, 32, 32), seed=0)
    models: dict[str, tuple[nn.Module, str | None]] = {"one network": (net, None)}
    models |= {name: (ens, name) for name in options.executors}
    peer = torch_uncertainty()
    if peer is not None:
        models["torch-uncertainty"] = (peer, None)
    print(f"{options.method} on resnet18, 32 px, {options.rounds} rounds; {processor()}")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    for batch in options.batch:
        for training in (False, True):
            if options.only in (None, "training" if training else "inference"):
                measure(models, batch, training, options.rounds)
    wide = wide_of(ens.network)
    print(f"grouped: {wide.runs} calls side by side{f', refused: {wide.refusal}' if wide.refusal else ''}")


if __name__ == "__main__":
    main()
