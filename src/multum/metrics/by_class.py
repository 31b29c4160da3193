"""What `multum.evaluate` says class by class, as plain values: tables, confusions, and thresholds of two classes."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..data.sources import Data
from .aggregate import Accumulator
from .per_class import MOST_CLASSES, PerClass, confusion_matrix, fit_threshold, is_uneven

__all__ = ["by_class", "thresholds"]


def by_class(test: Accumulator, data: Data) -> dict[str, Any]:
    """Whether classes are uneven, the positive one of two, and where there are at most 100, each by its name.

    `rows` has class, support, precision, recall, f1 and ece of each; `confusion` the true classes first.
    """
    table: dict[str, Any] = {"uneven": is_uneven(data.class_counts)}
    if test.classes > MOST_CLASSES:
        return table
    names = [*data.class_names, *(str(k) for k in range(len(data.class_names), test.classes))]
    if test.classes == 2:
        table["positive"] = names[data.positive]
    measured = test.per_class()
    each = zip(names, measured.rows(), strict=True)
    table["rows"] = [
        # None where a share is of nothing, as the precision of a class that is never predicted
        {**{k: None if math.isnan(v) else v for k, v in row.items()}, "class": name, "support": int(row["support"])}
        for name, row in each
    ]
    table["confusion"] = measured.confusion.long().tolist()
    return table


def thresholds(
    test: Accumulator, held_out: Accumulator, positive: int, cost_ratio: float | None = None
) -> dict[str, dict[str, float]]:
    """Thresholds on the probability of the positive class, chosen on held-out examples, and what they give on the test.

    Those of the best F1 and balanced accuracy, and with a cost ratio that of the least cost; none where the held-out
    examples are all of one class.
    """
    scores, labels = held_out.class_scores()
    truth = labels == positive
    if not 0 < int(truth.sum()) < len(truth):
        return {}
    ratios = {"f1": 1.0, "balanced_accuracy": 1.0} | ({} if cost_ratio is None else {"cost": cost_ratio})
    test_scores, test_labels = test.class_scores()
    table = {}
    for by, ratio in ratios.items():
        rule = fit_threshold(scores[0], truth, by=by, cost_ratio=ratio)
        predicted = torch.where(rule(test_scores[0]), positive, 1 - positive)
        measured = PerClass(confusion_matrix(predicted, test_labels, 2).double(), torch.zeros(2))
        missed, alarms = measured.confusion[positive, 1 - positive], measured.confusion[1 - positive, positive]
        table[by] = {
            "threshold": rule.threshold,
            "held_out": len(labels),
            **{name: float(getattr(measured, name)[positive]) for name in ("precision", "recall", "f1")},
            "balanced_accuracy": float(measured.recall.nanmean()),
            **({"cost": float(alarms + ratio * missed) / len(test_labels)} if by == "cost" else {}),
        }
    return table
