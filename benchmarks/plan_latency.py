"""How well a plan predicts the latency of what it does not measure.

Run: `OMP_WAIT_POLICY=PASSIVE python benchmarks/plan_latency.py [mlp] [resnet18]` on a quiet machine. Every candidate is
timed as a plan times it. The first and the last of every method, by mult-adds, are what a plan measures first: from
these the others are predicted, and the error is |predicted / measured - 1| of those others alone.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import multum
from multum.plans.measuring import Predictor, ends

NETWORKS = {
    "mlp": (lambda: multum.models.build("mlp", in_features=32, classes=10, hidden=[256, 256, 256]), (1, 32)),
    "resnet18": (lambda: multum.models.build("resnet18", classes=10), (1, 3, 32, 32)),
}


def errors(name: str, members: tuple[int, ...], threads: int) -> list[tuple[float, str, float, float]]:
    """Error, label, predicted and measured seconds of every candidate that was predicted."""
    build, shape = NETWORKS[name]
    plan = multum.plan(build(), example=torch.randn(shape), members=members, seconds=200, threads=threads)
    measured = [c for c in plan if c.latency is not None and c.latency.measured]
    timed = list({c.counts: c for c in measured}.values())  # those of the same work are timed once
    first = ends(timed)
    known = [(c.method.name, c.counts, c.latency.seconds) for c in (plan.single, *first)]
    predictor = Predictor(known)
    pairs = [(c, predictor.seconds(c.method.name, c.counts)) for c in timed if c not in first]
    print(f"{name}: one network {1e3 * plan.single.latency.seconds:.3g} ms; {len(timed)} of {len(plan)} measured")
    return sorted((abs(p / c.latency.seconds - 1), c.label, p, c.latency.seconds) for c, p in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help=f"of {', '.join(NETWORKS)}")
    parser.add_argument("--members", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    for name in options.networks:
        start = time.monotonic()
        predicted = errors(name, tuple(options.members), options.threads)
        shares = [error for error, *_ in predicted]
        ninth = statistics.quantiles(shares, n=10)[-1]
        print(f"{name}: median error {100 * statistics.median(shares):.1f} %, 90 % are below {100 * ninth:.0f} %, of")
        print(f"{len(shares)} predictions; {time.monotonic() - start:.0f} s")
        for error, label, *seconds in predicted:
            by_model, measured = (f"{1e3 * each:8.3f} ms" for each in seconds)
            print(f"  {100 * error:5.1f} %  {label:45} predicted {by_model}, measured {measured}")


if __name__ == "__main__":
    main()
