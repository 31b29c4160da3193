"""One million predictions x 10 classes x 4 members: every metric in under 20 s and 2 GB on two cores.

Run: `OMP_WAIT_POLICY=PASSIVE .venv/bin/python benchmarks/evaluate_million.py`. Times are those of this process on this
machine at this moment, and far above its CPU seconds where others use it too (the load is printed first). Peak memory
is the process's own, the million logits (160 MB) and torch itself included.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from multum import Prediction
from multum.metrics import Accumulator, classification_metrics, detection, diversity_metrics, fit_sets, scores

T = TypeVar("T")
SECONDS, MEGABYTES = 20, 2048


def peak_megabytes() -> float:
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / 2**20 if sys.platform == "darwin" else size / 2**10


def step(name: str, work: Callable[[], T]) -> tuple[T, float]:
    start, work_start = time.perf_counter(), time.process_time()
    found = work()
    seconds, own = time.perf_counter() - start, time.process_time() - work_start
    print(f"{name:<42} {seconds:6.2f} s ({own:5.2f} s of CPU)   peak so far {peak_megabytes():5.0f} MB", flush=True)
    return found, seconds


def stream(logits: torch.Tensor, labels: torch.Tensor, batch: int) -> dict[str, float]:
    accumulator = Accumulator(keep=True)
    for start in range(0, len(labels), batch):
        accumulator.add(logits[:, start : start + batch], labels[start : start + batch])
    return accumulator.compute()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1_000_000)
    parser.add_argument("--ood", type=int, default=100_000, help="examples of the OOD set")
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}, load {os.getloadavg()}")

    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, arguments.examples, 10, generator=generator).mul_(2)
    labels = torch.randint(10, (arguments.examples,), generator=generator)
    logits += 4 * torch.nn.functional.one_hot(labels, 10)
    noise = torch.randn(4, arguments.ood, 10, generator=generator).mul_(2)
    print(f"data: {list(logits.shape)} and {list(noise.shape)}, {peak_megabytes():.0f} MB with torch", flush=True)

    total = 0.0
    prediction, outside = Prediction.from_logits(logits), Prediction.from_logits(noise)
    table, seconds = step("classification, members and gains", lambda: classification_metrics(prediction, labels))
    total += seconds
    _, seconds = step("diversity", lambda: diversity_metrics(prediction, labels))
    total += seconds
    inside, seconds = step("six OOD scores", lambda: scores(prediction))
    total += seconds
    _, seconds = step("AUROC, AUPR, FPR95 of six scores", lambda: detection(inside, {"noise": scores(outside)}))
    total += seconds
    _, seconds = step("conformal sets (APS) on half, then half", lambda: _sets(prediction.probs, labels))
    total += seconds
    print(f"{'total, all at once':<42} {total:6.2f} s   peak {peak_megabytes():.0f} MB")
    good = total < SECONDS and peak_megabytes() < MEGABYTES

    streamed, _ = step("the first two again, in batches of 10 000", lambda: stream(logits, labels, 10_000))
    worst = max(abs(streamed[name] - table[name]) for name in streamed.keys() & table.keys())
    print(f"largest difference between both: {worst:.1e}")
    print(f"{'within' if good else 'NOT within'} {SECONDS} s and {MEGABYTES} MB")
    return 0 if good else 1


def _sets(probs: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    half = len(labels) // 2
    sets = fit_sets(probs[:half], labels[:half], alpha=0.1)
    return sets.coverage(probs[half:], labels[half:]), sets.mean_size(probs[half:])


if __name__ == "__main__":
    sys.exit(main())
