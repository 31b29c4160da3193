"""How long an ensemble's step takes, in units of one network's step: interleaved rounds, median and spread.

    python benchmarks/executors.py [--model resnet18] [--batch 32] [--size 32] [--rounds 9]

Before anything is timed, the executors must agree on this very ensemble; a wrong result has no speed.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch

import multum


def step(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, training: bool) -> Callable[[], None]:
    if not training:

        def infer() -> None:
            with torch.no_grad():
                model(x)

        return infer
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train() -> None:
        optimizer.zero_grad()
        out = model(x)
        multum.loss(out if out.ndim == 3 else out.unsqueeze(0), y, reduction="sum").backward()
        optimizer.step()

    return train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--method", default="packed:members=4,alpha=2")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()

    torch.manual_seed(0)
    x, y = torch.randn(given.batch, 3, given.size, given.size), torch.randint(10, (given.batch,))
    net = multum.models.build(given.model, classes=10)
    ens = multum.ensemble(net, multum.methods.parse(given.method), example=x[:2], seed=0)
    multum.check(ens, x[:2], verbose=False)
    print(f"{given.method} on {given.model}, batch {given.batch}, {given.size} px, {given.rounds} rounds")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}")
    for training in (False, True):
        ens.train(training)
        net.train(training)
        jobs = {"one network": (net, None)} | {name: (ens, name) for name in ens.executors}
        times: dict[str, list[float]] = {name: [] for name in jobs}
        for round_ in range(given.rounds + 1):
            for name, (model, executor) in jobs.items():
                if executor:
                    ens.executor = executor
                run = step(model, x, y, training)
                began = time.perf_counter()
                run()
                if round_:  # the first round warms up
                    times[name].append(time.perf_counter() - began)
        base = times["one network"]
        print("training" if training else "inference")
        for name, found in times.items():
            ratios = sorted(t / b for t, b in zip(found, base, strict=True))
            spread = f"{ratios[len(ratios) // 4]:.2f} .. {ratios[-1 - len(ratios) // 4]:.2f}"
            median = statistics.median(found)
            print(f"  {name:12s} {1000 * median:8.1f} ms   {statistics.median(ratios):5.2f}x   (quartiles {spread})")


if __name__ == "__main__":
    main()
