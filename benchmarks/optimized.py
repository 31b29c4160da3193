"""Optimized ensembles against one network: ResNet-18 for CIFAR, inference, in units of one network run by torch.

    python benchmarks/optimized.py [--batch 1 16 64] [--rounds 15] [--rows single,packed] [--backends none,openvino]

All rows of a batch size are timed in turn within every round; a ratio is the median over rounds, with its quartiles.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import multum


def network(dropout: bool = False) -> nn.Module:
    net = multum.models.build("resnet18", classes=10)
    if dropout:
        net.fc = nn.Sequential(nn.Dropout(0.1), net.fc)
    return net.eval()


METHODS = {
    "single": multum.Single(),
    "packed": multum.Packed(members=4, alpha=2),
    "deep": multum.Deep(members=4),
    "batch-ensemble": multum.BatchEnsemble(members=4),
    "mixture": multum.Mixture(members=4),
    "hypernet": multum.Hypernet(members=4, ablation="scratch"),
    "mc-dropout": multum.McDropout(members=4),
    "mc-dropout head": multum.McDropout(members=4),
    "mimo": multum.Mimo(members=3),
    "multihead": multum.Multihead(members=4),
}


def made(name: str, x: Tensor) -> multum.Ensemble:
    return multum.ensemble(network("head" in name), METHODS[name], example=x, seed=0).eval()


def timed(calls: dict[str, Callable[[Tensor], Tensor]], x: Tensor, rounds: int) -> dict[str, list[float]]:
    """Seconds of every round; forwards and backwards alternately, so that no row always follows the same one."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    with torch.no_grad():
        for i in range(-2, rounds):
            for name in list(calls) if i % 2 else reversed(calls):
                start = time.perf_counter()
                calls[name](x)
                if i >= 0:
                    seconds[name].append(time.perf_counter() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", default=",".join(METHODS))
    parser.add_argument("--backends", default="none")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    for batch in options.batch:
        x = torch.randn(batch, 3, 32, 32)
        plain = network()
        calls: dict[str, Callable[[Tensor], Tensor]] = {"one network": plain, "one network again": plain}
        how = {}
        for name in options.rows.split(","):
            ens = made(name, x)
            if "none" in options.backends:
                calls[name] = ens
            for backend in options.backends.split(",") if ens.method.deterministic else ("none",):
                row = f"{name}, optimized" + ("" if backend == "none" else f" by {backend}")
                calls[row] = optimized = multum.optimize(ens, x, backend=None if backend == "none" else backend)
                how[row] = optimized.how
        seconds = timed(calls, x, options.rounds)
        for row, values in seconds.items():
            ratios = [t / one for t, one in zip(values, seconds["one network"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            line = {"batch": batch, "row": row, "ms": round(1e3 * statistics.median(values), 2)}
            line |= {"least": round(1e3 * min(values), 2)}
            line |= {"ratio": round(middle, 3), "quartiles": [round(low, 3), round(high, 3)], "how": how.get(row, "")}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
