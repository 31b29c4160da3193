"""What `multum.evaluate` says beyond its means: class by class, on corrupted images, and what chance would have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..data.corruptions import CORRUPTIONS, SEVERITIES, check_corruption, corrupt
from ..data.sources import Data, Part
from ..errors import MetricError
from .aggregate import Accumulator
from .computations import Shifted
from .per_class import MOST_CLASSES, PerClass, confusion_matrix, fit_threshold, is_uneven
from .registry import CLASSES, computed

CORRUPTED_AT_ONCE = 256  # fixed: random corruptions draw for a batch, and another size would give other images

Shift = Mapping[str, Mapping[str, Mapping[str, float]]]  # corruption -> severity -> metric -> value


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


def known(names: Sequence[str], data: Data) -> Sequence[str]:
    if not data.is_image:
        raise MetricError(f"corruptions need images; got the table {data.name}. Leave shift out")
    for name in names:
        check_corruption(name, channels=data.test.x.shape[1])
    return names


def shifted(run: Callable[..., Accumulator], part: Part, names: Sequence[str], seed: int) -> Shift:
    table: dict[str, dict[str, dict[str, float]]] = {}
    keys = [how.of for _, how in computed(CLASSES, Shifted)]
    for name in names:
        table[name] = {}
        for severity in SEVERITIES:
            # One stream per corruption and severity: a subset of them gives the same images.
            draw = torch.Generator().manual_seed(seed * 1000 + CORRUPTIONS.index(name) * 10 + severity)
            change = partial(corrupt, name=name, severity=severity, generator=draw)
            measured = run(part, keep=False, change=change, batch_size=CORRUPTED_AT_ONCE).compute()
            table[name][str(severity)] = {key: measured[key] for key in keys}
    return table


def means(table: Shift) -> dict[str, float]:
    cells = [cell for row in table.values() for cell in row.values()]
    return {m.key: sum(cell[how.of] for cell in cells) / len(cells) for m, how in computed(CLASSES, Shifted)}


def severities(clean: float, table: Shift) -> dict[str, Any]:
    """Accuracies by corruption, and their means by severity; severity 0 is the clean test part."""
    rows = {name: [row[str(s)]["accuracy"] for s in SEVERITIES] for name, row in table.items()}
    means = {str(s): sum(row[s - 1] for row in rows.values()) / len(rows) for s in SEVERITIES}
    return {"severity": {"0": clean, **means}, "corruptions": rows}


def chance(targets: Tensor, task: str) -> dict[str, float]:
    """NLL, and accuracy or RMSE, of always predicting the frequencies of the classes or one Gaussian of the targets.

    **Shape**: targets ``[examples, ...]``.

    >>> {name: round(value, 4) for name, value in chance(torch.tensor([0, 0, 0, 1]), "classification").items()}
    {'chance_nll': 0.5623, 'chance_accuracy': 0.75}
    >>> chance(torch.tensor([1.0, 3.0]), "regression")["chance_rmse"]
    1.0
    """
    if task == "classification":
        shares = torch.bincount(targets.flatten().long()).double() / targets.numel()
        return {"chance_nll": float(torch.special.entr(shares).sum()), "chance_accuracy": float(shares.max())}
    columns = targets.double().reshape(len(targets), -1)
    variances = columns.var(0, correction=0).clamp_min(1e-12)
    return {
        "chance_nll": float((0.5 * (variances * 2 * math.pi).log() + 0.5).mean()),
        "chance_rmse": float(variances.sqrt().mean()),
    }
