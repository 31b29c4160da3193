"""All metrics of a prediction by name: of whole arrays at once, or batch by batch in memory that does not grow.

Both read `registry.METRICS`, and whole arrays are a stream of one batch. Sums suffice for accuracy, NLL, Brier, ECE and
diversity. What ranks all examples needs one number per example and score; :class:`Accumulator` holds on to these where
asked to, and never to the outputs themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..errors import MetricError
from ..outputs.prediction import Prediction, RegressionPrediction
from . import ood
from .batches import (
    CONFIDENCE,
    CONFUSION,
    CORRECT,
    COUNTS,
    GAPS,
    LABELS,
    SCORES,
    Table,
    batch_of,
    class_scores_of,
    diversity_of,
    joined,
    table_of,
    whole_table,
    with_gains,
)
from .calibration import ReliabilityCurve, curve_of_sums
from .computations import Detection, Mean, Whole
from .diversity import PairSums, pair_sums
from .inputs import check_targets
from .per_class import MOST_CLASSES, PerClass
from .registry import CLASSES, NUMBERS, computed
from .regression import in_units


def classification_metrics(
    prediction: Prediction, labels: Tensor, *, bins: int = 15, positive: int = 1
) -> dict[str, float]:
    """Every metric of the ensemble, the mean of its members (``member_NAME``), and the gain (``gain_NAME``).

    gain = ensemble - mean member. It is never positive for nll and brier, which are convex in p. Of two classes
    ``positive`` is the one that f1, class_auroc and class_auprc are about; of more, they are means over classes.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> members = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]])
    >>> numbers = classification_metrics(Prediction.from_logits(members.log().unsqueeze(1)), torch.tensor([0]))
    >>> numbers["accuracy"], numbers["member_accuracy"], numbers["gain_accuracy"]
    (1.0, 0.75, 0.25)
    >>> round(numbers["nll"], 5), round(numbers["member_nll"], 5)
    (0.74444, 0.96581)
    """
    return with_gains(whole_table(prediction, labels, bins, positive))


def per_member(prediction: Prediction, labels: Tensor, *, bins: int = 15, positive: int = 1) -> Table:
    """Every metric of every member alone, each ``[members]``, float64.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> logits = torch.tensor([[[0.7, 0.3]], [[0.4, 0.6]]]).log()
    >>> per_member(Prediction.from_logits(logits), torch.tensor([0]))["accuracy"]
    tensor([1., 0.], dtype=torch.float64)
    """
    table = whole_table(prediction, labels, bins, positive)
    return {key: values[1:] for key, values in table.items() if len(values) > 1}


def diversity_metrics(prediction: Prediction, labels: Tensor | None = None) -> dict[str, float]:
    """Every measure of diversity; those that need labels only where there are some.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> members = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]])
    >>> numbers = diversity_metrics(Prediction.from_logits(members.log().unsqueeze(1)))
    >>> {name: round(value, 5) for name, value in numbers.items()}
    {'disagreement': 0.5, 'kl': 0.40101, 'kl_both': 0.38463, 'mutual_information': 0.12699}
    """
    return diversity_of(pair_sums(prediction, labels))


def regression_metrics(
    prediction: RegressionPrediction, targets: Tensor, *, mean: float = 0.0, std: float = 1.0
) -> dict[str, float]:
    """Every metric in the units of the targets; the network's own were standardised by ``mean`` and ``std``.

    ``member_NAME`` is the mean over members alone and ``gain_NAME`` the ensemble minus it; ``aleatoric`` and
    ``epistemic`` are mean variances; ``coverage_90`` and ``width_90`` those of the mixture's central 90 % interval.

    **Shape**: prediction of ``[members, batch, 2, ...]``; targets ``[batch, ...]``, in their original units.

    >>> standardised = RegressionPrediction(torch.tensor([[[1.0, 0.5]], [[3.0, 1.5]]]))
    >>> numbers = regression_metrics(standardised, torch.tensor([26.0]), mean=10.0, std=10.0)
    >>> round(numbers["rmse"], 6), round(numbers["aleatoric"], 6), round(numbers["epistemic"], 6)
    (4.0, 100.0, 100.0)
    """
    prediction = in_units(prediction, mean=mean, std=std)
    check_targets(targets, prediction.mean)
    alone = [RegressionPrediction(member.unsqueeze(0)) for member in prediction.members]
    table: Table = {}
    for metric, how in computed(NUMBERS, Mean, Whole):
        rows = [prediction, *(alone if metric.of_members else ())]
        table[metric.key] = torch.tensor([how.of(row, targets) for row in rows], dtype=torch.float64)
    return with_gains(table)


def detection(
    inside: Mapping[str, Tensor], outside: Mapping[str, Mapping[str, Tensor]]
) -> dict[str, dict[str, dict[str, float]]]:
    """AUROC, AUPR and FPR95 of every score on every OOD set: ``detection(...)[set][score]["auroc"]``.

    **Shape**: inside as :func:`multum.metrics.scores` gives it; outside the same for each set by name.

    >>> inside = {"msp": torch.tensor([0.1, 0.2])}
    >>> detection(inside, {"svhn": {"msp": torch.tensor([0.3])}, "noise": {"msp": torch.tensor([0.0])}})["svhn"]
    {'msp': {'auroc': 1.0, 'aupr': 1.0, 'fpr95': 0.0}}
    """
    if not outside:
        raise MetricError("detection needs at least one OOD set; got none")
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, scores in outside.items():
        if scores.keys() != inside.keys():
            raise MetricError(
                f"every set must have the same scores; got {sorted(scores)} for {name}, {sorted(inside)} for the "
                "test examples"
            )
        table[name] = {}
        for score, known in inside.items():
            hits = ood.hits(known, scores[score], f"{score} of {name}")
            table[name][score] = {metric.key: how.of(*hits) for metric, how in computed(CLASSES, Detection)}
    return table


class Accumulator:
    """Sums over batches: the same numbers as `classification_metrics` and `diversity_metrics` on all examples at once.

    ``keep`` holds on to each example's scores, confidences, hits and losses, for the metrics that rank all examples and
    for paired tests: 37 + 5 M bytes per example for M members in float32. ``rank_classes`` also holds on to labels and
    to the probability of every class (of two: of the positive one), for class_auroc, class_auprc and thresholds.
    Without labels (OOD data) only diversity and scores come out.

    >>> accumulator = Accumulator()
    >>> accumulator.add(torch.eye(3).expand(2, 3, 3), torch.arange(3))
    >>> accumulator.add(torch.zeros(2, 1, 3), torch.tensor([2]))
    >>> numbers = accumulator.compute()
    >>> accumulator.count, numbers["accuracy"], numbers["disagreement"]
    (4, 0.75, 0.0)
    """

    def __init__(self, *, bins: int = 15, keep: bool = False, rank_classes: bool = False, positive: int = 1):
        self.bins, self.keep, self.rank_classes, self.positive = bins, keep, rank_classes, positive
        self._pairs: PairSums | None = None
        self._sums: Table | None = None
        self._values: list[Table] = []
        self._scores: list[Table] = []

    @property
    def count(self) -> int:
        """How many examples have been added."""
        return 0 if self._pairs is None else self._pairs.count

    @property
    def classes(self) -> int:
        """How many classes the networks tell apart."""
        return self._labelled()[COUNTS].shape[2]

    def add(self, outputs: Tensor | Prediction, labels: Tensor | None = None) -> None:
        """Take one batch; where it is refused, nothing has changed.

        **Shape**: outputs ``[members, batch, classes, ...]``; labels ``[batch, ...]``, always or never.
        """
        prediction = outputs if isinstance(outputs, Prediction) else Prediction.from_logits(outputs)
        pairs = pair_sums(prediction, labels)
        pairs = pairs if self._pairs is None else self._pairs + pairs
        if labels is not None:
            batch, values = batch_of(prediction, labels, self.bins)
            self._sums = batch if self._sums is None else {key: total + batch[key] for key, total in self._sums.items()}
            values = values if self.keep else {}
            if self.rank_classes:
                values |= class_scores_of(prediction, labels, self.positive)
            if values:
                self._values.append(values)
        if self.keep:
            self._scores.append({name: score.flatten().cpu() for name, score in ood.scores(prediction).items()})
        self._pairs = pairs

    def compute(self) -> dict[str, float]:
        """Everything measured so far by name: `classification_metrics` (with labels), then `diversity_metrics`."""
        pairs = self._added()
        if self._sums is None:
            return diversity_of(pairs)
        table = table_of(self._sums, joined(self._values), self.count, self.bins, self.positive)
        return with_gains(table) | diversity_of(pairs)

    def scores(self) -> Table:
        """Every example's scores by name, as :func:`multum.metrics.scores` gives them, for `detection`."""
        self._check_kept("scores")
        return joined(self._scores)

    def confidence_and_correct(self) -> tuple[Tensor, Tensor]:
        """Every example's confidence and whether it is right, for curves: ``[examples]`` each."""
        values = self._labelled_values("confidences")
        return values[CONFIDENCE][0], values[CORRECT][0]

    def example_values(self) -> Table:
        """What each example contributes to the ensemble's accuracy, NLL, ..., for paired tests: ``[examples]`` each."""
        values = self._labelled_values("values")
        return {metric.key: values[metric.key][0] for metric, _ in computed(CLASSES, Mean) if metric.per_example}

    def class_scores(self) -> tuple[Tensor, Tensor]:
        """The probability of every class, or of the positive one of two, and the labels: ``[..., n]`` and ``[n]``."""
        if not self.rank_classes:
            raise MetricError("probabilities of classes must be kept; got none. Use Accumulator(rank_classes=True)")
        self._labelled()
        values = joined(self._values)
        return values[SCORES], values[LABELS][0]

    def per_class(self) -> PerClass:
        """Precision, recall, F1, support and calibration of every class, from sums alone."""
        sums = self._labelled()
        if CONFUSION not in sums:
            raise MetricError(f"a confusion matrix must have at most {MOST_CLASSES} classes; got more")
        return PerClass(sums[CONFUSION], sums[GAPS].abs().sum(1) / self.count)

    def reliability(self) -> ReliabilityCurve:
        """The ensemble's reliability diagram, from sums alone."""
        return curve_of_sums(self._labelled()["ece"][0])

    def disagreement_matrix(self) -> Tensor:
        """d_ij, the share of examples for which members i and j differ, ``[members, members]``."""
        pairs = self._added()
        return pairs.differ / pairs.count

    def _added(self) -> PairSums:
        if self._pairs is None:
            raise MetricError("an accumulator must be given a batch before it computes; got none. Call add first")
        return self._pairs

    def _labelled(self) -> Table:
        if self._sums is None:
            raise MetricError("labels must be added to tell which examples are right; got none")
        return self._sums

    def _labelled_values(self, what: str) -> Table:
        self._check_kept(what)
        self._labelled()
        return joined(self._values)

    def _check_kept(self, what: str) -> None:
        if not self.keep or not self.count:
            raise MetricError(
                f"{what} of all examples need keep=True and at least one batch; got keep={self.keep}, "
                f"{self.count} examples. Use Accumulator(keep=True)"
            )
