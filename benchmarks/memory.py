"""What `keep_memory` saves on a CPU: CPU seconds of training steps and of predictions, with it and without.

Run: `OMP_WAIT_POLICY=PASSIVE .venv/bin/python benchmarks/memory.py`. The setting lasts as long as its process, so every
measurement has a process of its own; the two kinds take turns, and the medians over rounds are compared. CPU seconds of
the process, its time in the system included, are counted, and not those of others on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

import torch

import multum

METHODS = {"single": multum.Single(), "packed": multum.Packed(members=4, alpha=2), "deep": multum.Deep(members=4)}
CASES = [(phase, batch) for phase, batches in (("train", (32, 128)), ("predict", (32, 512))) for batch in batches]
ITEMS = 1024


def seconds(method: str, phase: str, batch: int) -> float:
    """CPU seconds of all items in batches, after one warm-up."""
    x, y = torch.randn(batch, 3, 32, 32), torch.zeros(batch, dtype=torch.long)
    network = multum.models.build("wrn-10-1", classes=10)
    ens = multum.ensemble(network, METHODS[method], example=x[:2], seed=0).train(phase == "train")

    def once() -> None:
        if phase == "train":
            multum.loss(ens(x), y, reduction="sum").backward()
        else:
            with torch.no_grad():
                ens(x)

    once()
    started = time.process_time()
    for _ in range(max(1, ITEMS // batch)):
        once()
    return time.process_time() - started


def child(keep: bool) -> None:
    torch.set_num_threads(1)
    if keep and not multum.keep_memory():
        sys.exit("this system's C library has no such setting")
    found = {f"{m} {phase} {batch}": seconds(m, phase, batch) for m in METHODS for phase, batch in CASES}
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", choices=("keep", "plain"))
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child == "keep")
        return
    rounds: dict[str, list[dict[str, float]]] = {"plain": [], "keep": []}
    for _ in range(arguments.rounds):
        for kind, found in rounds.items():
            command = [sys.executable, __file__, "--child", kind]
            found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    print(f"{'method, phase, batch':<24} {'plain':>8} {'kept':>8} {'plain / kept':>22}")
    for case in rounds["plain"][0]:
        plain, keep = ([found[case] for found in rounds[kind]] for kind in ("plain", "keep"))
        ratios = sorted(a / b for a, b in zip(plain, keep, strict=True))
        middle = statistics.median(ratios)
        spread = f"{middle:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{case:<24} {statistics.median(plain):6.2f} s {statistics.median(keep):6.2f} s {spread:>22}")


if __name__ == "__main__":
    main()
