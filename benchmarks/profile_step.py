"""Where the time of one training step goes: Packed-Ensembles on small-cnn, part by part of the loop.

    python benchmarks/profile_step.py [--steps 100] [--method packed:members=4,alpha=2] [--image 28] [--batch 128]

Each part is timed in every step, after a warm-up; the table gives the median over steps and the share of the whole.
`plain` is the same step of one plain network under a bare torch loop, measured in turns with the other: their ratio is
the price of the ensemble and of the loop together. Timings are of this machine and its load; only shares carry over.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F

import multum
from multum.evaluation.loss import loss
from multum.methods import parse
from multum.training.devices import Place
from multum.training.loop import forward
from multum.training.run import Run

SPENT: dict[str, list[float]] = defaultdict(list)


@contextmanager
def timed(name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    SPENT[name].append(time.perf_counter() - began)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--method", default="packed:members=4,alpha=2")
    options.add_argument("--image", type=int, default=28)
    options.add_argument("--batch", type=int, default=128)
    given = options.parse_args()

    rows = given.batch * (given.steps + 10)
    x = torch.randint(256, (rows, 1, given.image, given.image), dtype=torch.uint8)
    part = multum.data.Part(x, torch.randint(10, (rows,)))
    mean, std = torch.full((1, 1, 1), 0.5), torch.full((1, 1, 1), 0.3)
    data = multum.Data("noise", "classification", part, part, 10, mean, std)
    recipe = multum.Recipe(epochs=1, batch_size=given.batch, crop=2, flip=True)
    net = multum.models.build("small-cnn", classes=10, in_channels=1)
    ens = multum.ensemble(net, parse(given.method), example=data.example(), seed=0)
    run = Run(ens, data, recipe, Place(), None, True, False, False, 60.0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    steps = run.batches.epoch(0)
    with run:
        for _ in range(given.steps + 10):
            with timed("whole step"):
                with timed("  batch: rows, standardise, crop, flip"):
                    step = next(steps)
                with timed("  rate and turn"):
                    member = run.turn()
                    run.optimizers.set_rate(run.rate())
                with timed("  forward"):
                    outputs = forward(run.model, step, member, 0)
                with timed("  loss"):
                    value = loss(outputs, step.y, criterion=run.criterion, reduction=ens.method.reduction)
                with timed("  backward"):
                    run.fabric.backward(value)
                with timed("  check the loss"):
                    number = run.check(value, outputs, step, member)
                with timed("  optimizers"):
                    run.move(member)
                with timed("  books: tally, bar"):
                    run.note(number, outputs, step)
            with timed("plain network, bare loop"):
                optimizer.zero_grad()
                F.cross_entropy(net(step.x), step.y).backward()
                optimizer.step()

    medians = {name: statistics.median(times[10:]) for name, times in SPENT.items()}
    whole = medians["whole step"]
    print(f"{ens.method}, small-cnn, {given.image}x{given.image}, batch {given.batch}, {given.steps} steps")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, executor {ens.train().executor}")
    for name in ("whole step", *(n for n in medians if n.startswith("  ")), "plain network, bare loop"):
        print(f"{name:<42}{1000 * medians[name]:9.3f} ms {100 * medians[name] / whole:7.1f} %")


if __name__ == "__main__":
    main()
