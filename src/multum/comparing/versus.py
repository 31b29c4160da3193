"""Which method is better, by the one test that a comparison states: differences over seeds and examples together.

And what a comparison is therefore sure of, what it cannot tell, and what to run to be able to tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..metrics.differences import Difference, Differences
from ..runs.cells import Finished
from .reading import Row, columns, is_single, mean_of, named, value_of

DECIDES = "calibrated_nll"  # a proper score, after the one number that mends overconfidence
MARGIN = 0.01  # of the one network's NLL: what is equal within it is equal
MARGIN_NATS = 0.01  # of a regression, whose NLL has no natural zero
FEWEST_SEEDS = 3  # that say something about other trainings
ENOUGH_SEEDS = 5  # for a variance over seeds that is known well enough to make plans with
MOST_SEEDS = 30  # beyond these nobody runs a comparison
MOST_TIMES = 20  # as many test examples


def decides(rows: Sequence[Row]) -> str:
    """The metric that orders methods: the raw NLL only for results of an older multum."""
    measured = [row for row in rows if "nll" in row["values"]]
    return DECIDES if all(DECIDES in row["values"] for row in measured) else "nll"


def margin_of(rows: Sequence[Row], task: str) -> float:
    """The practical margin in nats, by the one network where it is among the rows, else by the best of them."""
    if task == "regression":
        return MARGIN_NATS
    key = decides(rows)
    measured = [row for row in rows if key in row["values"]]
    single = [row for row in measured if is_single(row)]
    base = min((mean_of(row, key) for row in single or measured), default=0.0)
    return MARGIN * abs(base)


class Versus:
    """The methods that can be compared by one metric."""

    def __init__(self, key: str, differences: Differences, labels: Sequence[str], seeds: int):
        self.key, self.labels, self.seeds = key, list(labels), seeds
        self._differences = differences
        self.pairs = differences.pairs

    @classmethod
    def of(
        cls, key: str, results: Mapping[str, Mapping[int, Finished]], values: Mapping[str, Mapping[str, Any]]
    ) -> Versus | None:
        """By values per example where the metric has them, else by one number per seed; None where nothing can be told.

        Args:
            values: the table's, by label: what is not in it was not measured, or not a finite number.
        """
        labels = [label for label in results if key in values[label] and results[label]]
        cells = [cell for label in labels for cell in results[label].values()]
        parts = {cell.result["test_part"] for cell in cells}
        per_example = any(c.key == key and c.per_example for c in columns())
        if per_example and all(key in cell.examples for cell in cells):
            table = {label: {s: cell.examples[key] for s, cell in results[label].items()} for label in labels}
        else:
            table = {label: {s: _alone(cell, key) for s, cell in results[label].items()} for label in labels}
            if any(len(seeds) < FEWEST_SEEDS for seeds in table.values()):
                return None
        seeds = [set(results[label]) for label in labels]
        if not labels or (len(parts) > 1 and not set.intersection(*seeds)):
            return None
        return cls(key, Differences(table, same_examples=len(parts) == 1), labels, min(map(len, seeds)))

    def between(self, label: str, reference: str, *, family: int | None = None) -> Difference:
        """A method minus another; by default one of all pairs."""
        return self._differences.between(label, reference, family=self.pairs if family is None else family)

    def interval(self, label: str) -> tuple[float, float]:
        """The 95 % interval of a method's own mean."""
        return self._differences.mean(label).interval()


def _alone(cell: Finished, key: str) -> torch.Tensor:
    value = value_of(cell.result, key)
    return torch.tensor([float("nan") if value is None else value], dtype=torch.float64)


def explained(versus: Versus | None, margin: float, task: str) -> str:
    """The test in words, for the report."""
    if versus is None:
        return "Nothing was tested: there are no results of two methods on the same examples."
    metric = "calibrated NLL" if versus.key == DECIDES else "NLL"
    sources = "seeds and test examples together" if versus.seeds > 1 else "test examples alone, as there is one seed"
    many = (
        "the variance over seeds (independent trainings) and the variance over examples (paired) are added, with "
        "Student's t at Welch-Satterthwaite's degrees of freedom, so that few seeds make wide intervals; from three "
        "seeds on, what all methods tell about the variance over seeds is used for each (a moderated t)"
    )
    few = "a paired t test over examples, which says nothing about another training"
    of = "1 % of the NLL of one network" if task == "classification" else "of any regression"
    return (
        f"Methods are compared by mean differences in {metric} over {sources}: {many if versus.seeds > 1 else few}. "
        "Intervals are 95 % intervals, simultaneous by Sidak's correction: against the best method, which the data "
        f"chose, over all {versus.pairs} pairs of methods; against the one network over all other rows. Differences "
        f"within {margin:.2g} nats ({of}) count as none: of methods that are equal within this margin the cheaper one "
        "is taken, and a method is called worse only where its whole interval is beyond it."
    )


def against(row: Row, single: Row, versus: Versus) -> Difference:
    """The difference to one network, with an interval that holds for all methods at once."""
    return versus.between(row["label"], single["label"], family=max(1, len(versus.labels) - 1))


def is_better(difference: Difference) -> bool:
    """Whether the whole interval says that the method has the lower NLL."""
    return difference.high < 0


def is_worse(difference: Difference, margin: float) -> bool:
    """Whether the whole interval says that the method is worse by more than the margin."""
    return difference.low > margin


def _is_equal(difference: Difference, margin: float) -> bool:
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
    equal = [row["label"] for row, d in differences if _is_equal(d, margin)]
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
        if not is_better(d) and not _is_equal(d, margin):
            difference = f"{d.mean:+.3g}, interval {d.low:+.3g} to {d.high:+.3g}"
            run = _what_to_run(d, versus, margin)
            sentences.append(f"Whether {label} is better than {other} (NLL difference {difference}): {run}.")
    return sentences


def _what_to_run(difference: Difference, versus: Versus, margin: float) -> str:
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
