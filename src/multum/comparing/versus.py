"""Which method is better, by the one test that a comparison states: differences over seeds and examples together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..metrics.differences import Difference, Differences
from ..runs.work import Finished
from .reading import Row, columns, is_single, mean_of, value_of

__all__ = ["DECIDES", "FEWEST_SEEDS", "MARGIN", "MARGIN_NATS", "Versus", "decides", "explained", "margin_of"]

DECIDES = "calibrated_nll"  # a proper score, after the one number that mends overconfidence
MARGIN = 0.01  # of the one network's NLL: what is equal within it is equal
MARGIN_NATS = 0.01  # of a regression, whose NLL has no natural zero
FEWEST_SEEDS = 3  # that say something about other trainings


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
