"""What keeps members apart that start from one trained network: batches of their own, or noise on their weights.

Run: `OMP_WAIT_POLICY=PASSIVE .venv/bin/python benchmarks/twins.py`. A small CNN is trained on half of the digits; then
an ensemble of four members that all start from it is trained on all of them. Means over seeds, and for the negative
log-likelihood the difference to twins (the same batches, no noise) seed by seed with its standard error; `disagreement`
is the share of the test examples on which two members disagree, `seconds` the CPU time of training. A Packed ensemble
of alpha = M is a Deep one here.

Measured (5 seeds, one thread of an AMD EPYC, torch 2.13; twins have an nll of .0941):

    way                    deep: nll, disagreement    treenet                  multihead
    own batches            -.0006 +- .0007, .0056     -.0201 +- .0023, .0017   -.0229 +- .0013, .0006
    noise of .05           -.0004 +- .0003, .0028     -.0007 +- .0005, .0008   -.0001 +- .0006, .0013
    noise of .2            -.0016 +- .0008, .0071     -.0027 +- .0011, .0028   -.0023 +- .0010, .0035
    own batches, .2        -.0017 +- .0013, .0074     -.0209 +- .0024, .0024   -.0250 +- .0020, .0036

Members of Deep and Packed share nothing: batches of their own cost nothing, bring as much as noise within the errors,
and leave the given weights whole, so they are the default. Heads and branches share a body: batches of their own double
the cost of training, and what they bring is four times the examples in a step, not members that differ. Noise of .2
makes members differ at no cost, and is the default there.
"""

from __future__ import annotations

import argparse
import copy
import functools
import logging
import time
from dataclasses import replace

import pandas as pd
import torch

import multum

METHODS = {
    "deep": multum.Deep(members=4, init="pretrained"),
    "treenet": multum.TreeNet(members=4, init="pretrained"),
    "multihead": multum.Multihead(members=4, init="pretrained"),
}
WAYS = [(order, noise) for order in ("same", "own") for noise in (0.0, 0.05, 0.2)]
COLUMNS = ("accuracy", "nll", "member_accuracy", "member_nll", "disagreement", "seconds")


@functools.cache
def pretrained(seed: int) -> torch.nn.Module:
    """A network that has seen the first half of the training part."""
    data = multum.load_data("digits", seed=seed)
    half = replace(data, train=data.train.rows(torch.arange(len(data.train) // 2)))
    torch.manual_seed(seed)
    network = multum.models.build("small-cnn", classes=10, in_channels=1)
    ens = multum.ensemble(network, multum.Single(), example=data.example(), seed=seed)
    multum.fit(ens, half, multum.Recipe(epochs=20, seed=seed))
    return ens.member(0)


@torch.no_grad()
def shaken(ens: multum.Ensemble, noise: float, seed: int) -> multum.Ensemble:
    """Members that are equal but for noise on every parameter that they own, relative to its root mean square."""
    generator = torch.Generator().manual_seed(seed)
    for p in ens.tensors([name for name, _ in ens.named_parameters() if name in ens.own]).values():
        scale = noise * p[0].square().mean().sqrt()
        p[1:] = p[0] + scale * torch.randn(p[1:].shape, generator=generator)
    return ens


def measured(method: str, order: str, noise: float, seed: int, epochs: int) -> dict[str, float]:
    data = multum.load_data("digits", seed=seed)
    ens = multum.ensemble(copy.deepcopy(pretrained(seed)), METHODS[method], example=data.example(), seed=seed)
    started = time.process_time()
    multum.fit(shaken(ens, noise, seed), data, multum.Recipe(epochs=epochs, seed=seed, order=order))
    numbers = {"seconds": time.process_time() - started, **multum.evaluate(ens, data)}
    return {name: numbers[name] for name in COLUMNS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--methods", default=",".join(METHODS))
    options = parser.parse_args()
    logging.getLogger("multum").setLevel(logging.ERROR)  # twins are what is measured here
    for method in options.methods.split(","):
        twins = None
        for order, noise in WAYS:
            rows = [measured(method, order, noise, seed, options.epochs) for seed in range(options.seeds)]
            table = pd.DataFrame(rows)
            twins = table if twins is None else twins
            gain = table["nll"] - twins["nll"]
            means = " ".join(f"{name} {value:.4f}" for name, value in table.mean().items())
            print(
                f"{method:9} {order:4} noise {noise:<4} {means} against twins {gain.mean():+.4f} +- {gain.sem():.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
