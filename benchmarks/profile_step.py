"""Where the time of one training step goes, part by part of the loop, and how many torch operations each part calls.

    python benchmarks/profile_step.py [--method packed:members=4,alpha=2 --method deep:members=4] [--steps 60]
    python benchmarks/profile_step.py --image 8 --batch 64                                    digits and its network
    python benchmarks/profile_step.py --model mlp:hidden=512+512 --method single
    python benchmarks/profile_step.py --model resnet18 --channels 3 --image 32 --steps 5      CIFAR

Milliseconds are wall-clock medians over steps, after a warm-up, without a profiler. `calls` are operations that
Python or autograd calls in one step, as torch.profiler sees them: a loop over images, members or parameters would show
there; the last column is the same with twice the members. `one network` is the step of one plain network under a bare
torch loop, measured in turns with the other. `outside` is what is neither forward, loss, backward nor optimizer:
batches and bookkeeping. Timings are of this machine and its load; only shares carry over.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function

import multum
from multum.methods import Method, parse
from multum.outputs.loss import loss
from multum.runs.networks import builder_for
from multum.training.devices import Place
from multum.training.run import Run
from multum.training.scoring import forward

WARM_UP = 10
PARTS = ("batch: rows, standardise, augment", "forward", "loss", "backward", "optimizer", "bookkeeping")
WHOLE, PLAIN = "whole step", "one network, bare loop"

Part = Callable[[str], AbstractContextManager]


def noise(rows: int, size: int, channels: int) -> multum.Data:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(256, (rows, channels, size, size), dtype=torch.uint8, generator=g)
    part = multum.data.Part(x, torch.randint(10, (rows,), generator=g))
    mean, std = torch.full((channels, 1, 1), 0.5), torch.full((channels, 1, 1), 0.3)
    return multum.Data("noise", "classification", part, part, 10, mean, std)


def steps(model: str, method: Method, data: multum.Data, recipe: multum.Recipe, part: Part) -> Iterator[None]:
    """The loop of `multum.fit`, step by step, each part of it inside `part`."""
    net = builder_for(model, data)()
    ens = multum.ensemble(net, method, example=data.example(), seed=0)
    run = Run(ens, data, recipe, Place(), None, True, False, False, 60.0)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=True)
    with run:
        batches = run.batches.epoch(0)
        for _ in range(run.batches.per_epoch):
            with part(WHOLE):
                with part("batch: rows, standardise, augment"):
                    step = next(batches)
                with part("bookkeeping"):
                    member = run.turn()
                    run.optimizers.set_rate(run.rate())
                with part("forward"):
                    outputs = forward(run.model, step, member, 0)
                with part("loss"):
                    value = loss(outputs, step.y, criterion=run.criterion, reduction=run.reduction)
                with part("backward"):
                    run.fabric.backward(value)
                with part("bookkeeping"):
                    number = run.check(value, outputs, step, member)
                with part("optimizer"):
                    run.move(member)
                with part("bookkeeping"):
                    run.note(number, outputs, step)
            if not step.per_member:
                with part(PLAIN):
                    optimizer.zero_grad()
                    F.cross_entropy(net(step.x), step.y).backward()
                    optimizer.step()
            yield


def times(model: str, method: Method, data: multum.Data, recipe: multum.Recipe, warm_up: int) -> dict[str, float]:
    """Median seconds of each part."""
    spent: dict[str, list[float]] = defaultdict(list)
    now: Counter[str] = Counter()

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        now[name] += time.perf_counter() - began

    for _ in steps(model, method, data, recipe, timed):
        for name, seconds in now.items():
            spent[name].append(seconds)
        now.clear()
    return {name: statistics.median(found[warm_up:]) for name, found in spent.items()}


def calls(model: str, method: Method, data: multum.Data, recipe: multum.Recipe, warm_up: int) -> Counter[str]:
    """Operations called in each part of the last step: those that no other operation called."""
    going = steps(model, method, data, recipe, record_function)
    for _ in range(warm_up):
        next(going)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        next(going)
    going.close()
    ranges = [(e.name, e.time_range) for e in seen.events() if e.name in PARTS]
    found: Counter[str] = Counter()
    for event in seen.events():
        parent = event.cpu_parent
        if event.name.startswith("aten::") and not (parent and parent.name.startswith("aten::")):
            found.update(n for n, r in ranges if r.start <= event.time_range.start <= r.end)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--method", action="append", help="may be given several times")
    options.add_argument("--model", default="small-cnn")
    options.add_argument("--channels", type=int, default=1)
    options.add_argument("--warm-up", type=int, default=WARM_UP)
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--image", type=int, default=28)
    options.add_argument("--batch", type=int, default=128)
    options.add_argument("--clip", type=float, default=0.0)
    given = options.parse_args()
    data = noise(given.batch * (given.steps + given.warm_up), given.image, given.channels)
    recipe = multum.Recipe(epochs=1, batch_size=given.batch, crop=2, flip=True, cutout=4, clip=given.clip)
    size = f"{given.channels}x{given.image}x{given.image}"
    print(f"{given.model}, {size}, batch {given.batch}, crop + flip + cutout, AdamW, {given.steps} steps")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for text in given.method or ("packed:members=4,alpha=2", "deep:members=4"):
        method = parse(text)
        twice = dataclasses.replace(method, members=2 * method.members) if method.members > 1 else method
        spent = times(given.model, method, data, recipe, given.warm_up)
        count, count_twice = (calls(given.model, m, data, recipe, given.warm_up) for m in (method, twice))
        print(f"\n{text:<40}{'ms':>9}{'%':>8}{'calls':>8}{f'at {twice.members} members':>16}")
        spent["outside"] = spent[PARTS[0]] + spent[PARTS[-1]]
        for name in (*PARTS, WHOLE, "outside", PLAIN):
            if name in spent:
                share = 100 * spent[name] / spent[WHOLE]
                called = f"{count[name]:8d}{count_twice[name]:16d}" if name in PARTS else ""
                print(f"{name:<40}{1000 * spent[name]:9.3f}{share:8.1f}{called}")


if __name__ == "__main__":
    main()
