"""How long an ensemble's step takes, in units of one network's step: interleaved rounds, median and spread.

    python benchmarks/executors.py [--model resnet18] [--batch 1 16] [--size 32] [--rounds 9]

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


def measure(net: torch.nn.Module, ens: multum.Ensemble, batch: int, size: int, training: bool, rounds: int) -> None:
    """Print a line for one network and for each executor, in units of that network's time in the same round."""
    x, y = torch.randn(batch, 3, size, size), torch.randint(10, (batch,))
    ens.train(training)
    net.train(training)
    jobs = {"one network": (net, None)} | {name: (ens, name) for name in ens.executors}
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for round_ in range(rounds + 1):
        for name, (model, executor) in jobs.items():
            if executor:
                ens.executor = executor
            run = step(model, x, y, training)
            began = time.perf_counter()
            run()
            if round_:  # the first round warms up
                times[name].append(time.perf_counter() - began)
    print(f"{'training' if training else 'inference'}, batch {batch}")
    for name, seconds in times.items():
        ratios = sorted(t / unit for t, unit in zip(seconds, times["one network"], strict=True))
        spread = f"{ratios[len(ratios) // 4]:.2f} .. {ratios[-1 - len(ratios) // 4]:.2f}"
        median = statistics.median(seconds)
        print(f"  {name:12s} {1000 * median:8.1f} ms   {statistics.median(ratios):5.2f}x   (quartiles {spread})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--method", default="packed:members=4,alpha=2")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()

    torch.manual_seed(0)
    example = torch.randn(2, 3, options.size, options.size)
    net = multum.models.build(options.model, classes=10)
    ens = multum.ensemble(net, multum.methods.parse(options.method), example=example, seed=0)
    multum.check(ens, example, verbose=False)
    print(f"{options.method} on {options.model}, {options.size} px, {options.rounds} rounds")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}")
    for batch in options.batch:
        for training in (False, True):
            measure(net, ens, batch, options.size, training, options.rounds)


if __name__ == "__main__":
    main()
