"""What a comparison is sure of, what it cannot tell, and what to run to be able to tell."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..metrics.differences import Difference
from .reading import Row, mean_of, named
from .versus import FEWEST_SEEDS, Versus

__all__ = ["against", "is_better", "is_equal", "is_worse", "sure_of", "unsure_of", "what_to_run"]

MOST_SEEDS = 30  # beyond these nobody runs a comparison
MOST_TIMES = 20  # as many test examples
ENOUGH_SEEDS = 5  # for a variance over seeds that is known well enough to make plans with


def against(row: Row, single: Row, versus: Versus) -> Difference:
    """The difference to one network, with an interval that holds for all methods at once."""
    return versus.between(row["label"], single["label"], family=max(1, len(versus.labels) - 1))


def is_better(difference: Difference) -> bool:
    """Whether the whole interval says that the method has the lower NLL."""
    return difference.high < 0


def is_worse(difference: Difference, margin: float) -> bool:
    """Whether the whole interval says that the method is worse by more than the margin."""
    return difference.low > margin


def is_equal(difference: Difference, margin: float) -> bool:
    """Whether the whole interval is within the margin."""
    return -margin <= difference.low and difference.high <= margin


def sure_of(chosen: Row, single: Row | None, rows: Sequence[Row], versus: Versus, margin: float) -> list[str]:
    """What intervals say about the chosen method, and about the others against one network and against the chosen."""
    sentences = []
    if single is not None:
        others = [(row, against(row, single, versus)) for row in rows if row is not single]
        better = [(row, d) for row, d in others if is_better(d)]
        worse = [row["label"] for row, d in others if is_worse(d, margin)]
        for row, d in better:
            if row is chosen:
                sentences.append(
                    f"{row['label']} is better than {named(single)}: its NLL is lower by {-d.high:.3g} to {-d.low:.3g}."
                )
        beside = [row["label"] for row, _ in better if row is not chosen]
        too = "" if chosen is single else ", too"
        sentences += [f"Better than {named(single)}{too}: {', '.join(beside)}."] if beside else []
        sentences += [f"Worse than {named(single)}: {', '.join(worse)}."] if worse else []
    differences = [(row, versus.between(row["label"], chosen["label"])) for row in rows if row is not chosen]
    equal = [row["label"] for row, d in differences if is_equal(d, margin)]
    sentences += [f"Equal to {chosen['label']} within the margin: {', '.join(equal)}."] if equal else []
    if chosen is not single:
        worse = [row["label"] for row, d in differences if is_worse(d, margin)]
        sentences += [f"Worse than {chosen['label']}: {', '.join(worse)}."] if worse else []
    return sentences


def unsure_of(chosen: Row, single: Row | None, rows: Sequence[Row], versus: Versus, margin: float) -> list[str]:
    """What intervals leave open, and what to run."""
    sentences: list[str] = []
    doubts: list[tuple[str, str, Difference]] = []  # whether the first is better than the second
    if versus.seeds == 1:
        sentences.append("With one seed, another training could order the methods differently: run --seeds 3 or more.")
    if single is None:
        sentences.append("Whether any of these is better than one network: add single to --methods.")
    elif chosen is not single:
        doubts.append((chosen["label"], named(single), against(chosen, single, versus)))
    least = mean_of(chosen, versus.key)
    open_rows = [row for row in rows if row is not chosen and mean_of(row, versus.key) <= least]
    for row in sorted(open_rows, key=lambda row: mean_of(row, versus.key))[:2]:
        doubts.append((row["label"], chosen["label"], versus.between(row["label"], chosen["label"])))
    for label, other, d in doubts:
        if not is_better(d) and not is_equal(d, margin):
            difference = f"{d.mean:+.3g}, interval {d.low:+.3g} to {d.high:+.3g}"
            run = what_to_run(d, versus, margin)
            sentences.append(f"Whether {label} is better than {other} (NLL difference {difference}): {run}.")
    return sentences


def what_to_run(difference: Difference, versus: Versus, margin: float) -> str:
    """How many seeds, or how many more test examples, would make the interval short enough to decide.

    An interval decides where it is as short as the difference is far from the margin, and it shrinks with seeds and
    with examples as the variance of each does.
    """
    from scipy.special import ndtri  # slow to import

    estimate = difference.estimate
    if versus.seeds < FEWEST_SEEDS:
        return f"run --seeds {ENOUGH_SEEDS}"
    reach = max(abs(abs(difference.mean) - margin), margin)
    z = -float(ndtri(-math.expm1(math.log(0.95) / versus.pairs) / 2))
    allowed, variance = (reach / z) ** 2, estimate.error**2
    of_seeds = estimate.of_seeds * variance
    of_examples = variance - of_seeds
    if of_examples < allowed:
        seeds = max(ENOUGH_SEEDS, versus.seeds + 1, math.ceil(versus.seeds * of_seeds / (allowed - of_examples)))
        if seeds <= MOST_SEEDS:
            return f"run --seeds {seeds}"
    times = math.ceil(of_examples / (allowed - of_seeds)) if of_seeds < allowed else math.inf
    if times <= MOST_TIMES:
        return f"only about {times} times as many test examples would tell"
    return "they are too close to be told apart by any practical number of runs"
