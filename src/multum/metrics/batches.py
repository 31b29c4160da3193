"""What both ways of measuring stand on: the sums of a batch, what each example contributes, and the table they give.

Every row is of the ensemble first and then of each member. aggregate.py has the functions that users call.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TypeAlias

import torch
from torch import Tensor

from ..outputs.prediction import Prediction
from .classification import Classified
from .computations import Counts, Mean, Pairs, Ranks, Sums, Whole
from .diversity import PairSums
from .inputs import check_labels, check_prediction
from .per_class import MOST_CLASSES, bins_of_gaps, class_counts, confusion_matrix, rank_mean
from .registry import CLASSES, computed

SLICE = 2**20  # numbers worked on at once: they stay in the cache, and memory does not grow with the examples
CONFIDENCE, CORRECT, PREDICTED = "confidence", "accuracy", "predicted"  # of every example
SCORES, LABELS = "class scores", "labels"  # of every example, where classes are ranked
COUNTS, CONFUSION, GAPS = "class counts", "confusion", "class gaps"  # sums

Table: TypeAlias = dict[str, Tensor]  # by metric; of the ensemble, then of each member: [1 + members, ...]


def whole_table(prediction: Prediction, labels: Tensor, bins: int, positive: int) -> Table:
    check_prediction(prediction)
    sums, values = batch_of(prediction, labels, bins)
    if prediction.logits.shape[2] <= MOST_CLASSES:
        values |= class_scores_of(prediction, labels, positive)
    return table_of(sums, values, values[CORRECT].shape[1], bins, positive)


def batch_of(prediction: Prediction, labels: Tensor, bins: int) -> tuple[Table, Table]:
    """What adds up over batches, ``[1 + members, ...]``, and what each example contributes, ``[..., examples]``."""
    labels = check_labels(labels, prediction.logits[0])
    values: dict[str, list[Tensor]] = {}
    members = prediction.member_log_probs  # first: the mixture comes from them
    for log_probs in (prediction.log_probs, *members):
        for key, own in _example_values(log_probs, labels).items():
            values.setdefault(key, []).append(own)
    ranked = list(zip(values[CONFIDENCE], values[CORRECT], strict=True))
    sums, per_example = {}, {CONFIDENCE: values[CONFIDENCE]}
    for metric, how in computed(CLASSES, Mean, Sums):
        if isinstance(how, Mean):
            totals = [own.double().sum() for own in values[metric.key]]
        else:
            totals = [how.sums(confidence, correct, bins) for confidence, correct in ranked]
        sums[metric.key] = torch.stack(totals).cpu()
        if metric.per_example:  # rankings ask for the members' hits too, nothing for their other values
            per_example[metric.key] = values[metric.key][: None if metric.key == CORRECT else 1]
    sums |= _class_sums(prediction, labels, values[PREDICTED], bins)
    return sums, {key: torch.stack(rows).cpu() for key, rows in per_example.items()}


def _class_sums(prediction: Prediction, labels: Tensor, predicted: Sequence[Tensor], bins: int) -> Table:
    """Counts of every network, ``[1 + members, 3, classes]``; of the ensemble the confusions and gaps, if they fit."""
    classes = prediction.logits.shape[2]
    sums = {COUNTS: torch.stack([class_counts(own, labels.flatten(), classes) for own in predicted])}
    if classes <= MOST_CLASSES:
        sums[CONFUSION] = confusion_matrix(predicted[0], labels.flatten(), classes).double()
        sums[GAPS] = bins_of_gaps(prediction.log_probs, labels, bins)
    return {key: total.cpu() for key, total in sums.items()}


def class_scores_of(prediction: Prediction, labels: Tensor, positive: int) -> Table:
    probs = prediction.probs.movedim(1, 0).flatten(1)
    chosen = probs[positive].unsqueeze(0) if len(probs) == 2 else probs
    # Copies: a view would hold on to all that it is a part of.
    return {SCORES: chosen.cpu().clone(), LABELS: labels.flatten().unsqueeze(0).cpu().clone()}


def _example_values(log_probs: Tensor, labels: Tensor) -> Table:
    """The confidence, the predicted class and the value of every `Mean`, of each example; slice by slice."""
    step = max(1, SLICE // max(1, log_probs[:1].numel()))
    slices = (Classified(*rows) for rows in zip(log_probs.split(step), labels.split(step), strict=True))
    of = {name: attrgetter(name) for name in (CONFIDENCE, PREDICTED)}
    of |= {metric.key: how.values for metric, how in computed(CLASSES, Mean)}
    return joined([{key: values(s).flatten() for key, values in of.items()} for s in slices])


def joined(parts: Sequence[Table]) -> Table:
    return {key: torch.cat([part[key] for part in parts], dim=-1) for key in (parts[0] if parts else ())}


def table_of(sums: Table, values: Table, count: int, bins: int, positive: int) -> Table:
    """Every metric that sums give, and where each example's values were kept also those that rank examples."""
    table: Table = {}
    ranks = [*([Whole] if CONFIDENCE in values else []), *([Ranks] if SCORES in values else [])]
    for metric, how in computed(CLASSES, Mean, Sums, Counts, *ranks):
        if isinstance(how, Mean):
            numbers = [how.then(mean) for mean in (sums[metric.key] / count).tolist()]
        elif isinstance(how, Sums):
            numbers = [how.then(row) for row in sums[metric.key]]
        elif isinstance(how, Counts):
            numbers = [how.of(row, positive) for row in sums[COUNTS]]
        elif isinstance(how, Ranks):
            scores, labels = values[SCORES], values[LABELS][0]
            numbers = [rank_mean(scores, labels, how.of, positive if len(scores) == 1 else None)]
        else:
            numbers = [how.of(*row, bins) for row in zip(values[CONFIDENCE], values[CORRECT], strict=True)]
        table[metric.key] = torch.tensor(numbers[: None if metric.of_members else 1], dtype=torch.float64)
    return table


def with_gains(table: Table) -> dict[str, float]:
    """The ensemble's metrics, the members' means and the differences; members follow the ensemble in each row."""
    ensemble = {key: float(values[0]) for key, values in table.items()}
    means = {key: float(values[1:].mean()) for key, values in table.items() if len(values) > 1}
    return {
        **ensemble,
        **{f"member_{key}": mean for key, mean in means.items()},
        **{f"gain_{key}": ensemble[key] - mean for key, mean in means.items()},
    }


def diversity_of(sums: PairSums) -> dict[str, float]:
    labelled = sums.both_right is not None
    return {metric.key: how.of(sums) for metric, how in computed(CLASSES, Pairs) if labelled or not how.labels}
