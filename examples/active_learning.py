"""Active learning in ten lines: which handwritten digits to label next, by the members' disagreement or at random.

    python examples/active_learning.py --seeds 10

Begins with 40 labelled digits of a pool of 1,297, labels 40 more five times, and measures on 500 others. Prints the
accuracy of both ways after every round, and the mean difference over seeds with its 95 % interval.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits

import multum
from multum.metrics.statistics import over_seeds

RECIPE = {"epochs": 30, "batch_size": 32, "lr": 0.005}
FIRST, MORE, ROUNDS, TESTED = 40, 40, 5, 500


def accuracies(seed: int, by: str | None, epochs: int = RECIPE["epochs"]) -> list[float]:
    """The test accuracy after every round; by=None chooses at random."""
    digits = load_digits()
    x, y = torch.tensor(digits.images).float().unsqueeze(1) / 16, torch.tensor(digits.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    test, pool, labelled = order[:TESTED], order[TESTED + FIRST :], order[TESTED : TESTED + FIRST]
    measured = []
    for turn in range(ROUNDS + 1):
        net = multum.models.build("cnn", in_channels=1, classes=10)
        ens = multum.ensemble(net, multum.Packed(members=4, alpha=2), example=x[:2], seed=seed)
        recipe = multum.Recipe(**{**RECIPE, "epochs": epochs}, seed=seed)
        multum.fit(ens, (x[labelled], y[labelled]), recipe, warn=False)
        measured.append(float((multum.predict(ens, x[test]).labels == y[test]).float().mean()))
        if by is None:
            chosen = torch.randperm(len(pool), generator=torch.Generator().manual_seed(1000 * seed + turn))[:MORE]
        else:
            chosen = multum.acquire(multum.predict(ens, x[pool]), MORE, by=by)
        left = torch.ones(len(pool), dtype=torch.bool)
        left[chosen] = False
        labelled, pool = torch.cat([labelled, pool[chosen]]), pool[left]
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--by", default="mutual_information")
    parser.add_argument("--epochs", type=int, default=RECIPE["epochs"])
    options = parser.parse_args()
    seeds = range(options.seeds)
    ways = {by: [accuracies(s, by, options.epochs) for s in seeds] for by in (options.by, None)}
    print(f"labelled  {options.by:>20}  at random  difference (95 % interval over {options.seeds} seeds)")
    for turn in range(ROUNDS + 1):
        chosen, drawn = (torch.tensor([run[turn] for run in ways[by]]).double() for by in ways)
        gain = over_seeds(chosen - drawn)
        low, high = gain.interval()
        print(
            f"{FIRST + turn * MORE:8}  {100 * chosen.mean():18.1f} %  {100 * drawn.mean():7.1f} %"
            f"  {100 * gain.mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
        )


if __name__ == "__main__":
    main()
