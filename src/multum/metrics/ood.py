"""Telling OOD examples apart: scores, high where an example looks out of distribution, and how well they rank.

    msp                 -max_c p_c                                  p the members' mean
    max_logit           -max_c z_c                                  z = 1/M sum_m z_m, the mean logits
    energy              -log sum_c exp z_c                          of the mean logits too
    entropy             H(p), of the mean (not the mean of the members' entropies)
    mutual_information  H(p) - 1/M sum_m H(p_m)
    variation_ratio     1 - f_mode / M, the mode of the members' votes

OOD examples are the positive class of AUROC, AUPR and FPR95. Equal scores share one threshold: AUROC counts a
tied pair half, and the order of examples never matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import MetricError, check_known
from ..outputs.prediction import Prediction
from .calibration import last_of_ties
from .inputs import check_prediction, check_scores, check_share

SCORES: dict[str, Callable[[Prediction], Tensor]] = {
    "msp": lambda prediction: -prediction.confidence,
    "max_logit": lambda prediction: -prediction.logits.mean(0).amax(1),
    "energy": lambda prediction: -prediction.logits.mean(0).logsumexp(1),
    "entropy": lambda prediction: prediction.entropy,
    "mutual_information": lambda prediction: prediction.mutual_information,
    "variation_ratio": lambda prediction: prediction.variation_ratio,
}


def scores(prediction: Prediction, *names: str) -> dict[str, Tensor]:
    """Scores of every example by name, high where it looks out of distribution; all six where no name is given.

    **Shape**: prediction of ``[members, batch, classes, ...]``; each score is ``[batch, ...]``.

    >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 0.0]], [[2.0, 0.0], [0.0, 1.0]]])
    >>> scores(Prediction.from_logits(logits), "max_logit", "variation_ratio")
    {'max_logit': tensor([-2.0000, -0.5000]), 'variation_ratio': tensor([0.0000, 0.5000])}
    """
    for name in names:
        check_known(name, SCORES, "a score must be one of multum.metrics.SCORES", MetricError)
    check_prediction(prediction)
    return {name: SCORES[name](prediction) for name in names or SCORES}


def auroc(inside: Tensor, outside: Tensor) -> float:
    """The probability that an OOD example scores higher than a test example, P(out > in) + 1/2 P(out = in).

    **Shape**: inside ``[test examples]``; outside ``[OOD examples]``.

    >>> inside, outside = torch.tensor([0.1, 0.2, 0.3, 0.35, 0.6, 0.7]), torch.tensor([0.25, 0.5, 0.8, 0.9])
    >>> auroc(inside, outside)
    0.75
    """
    return auroc_of_hits(*hits(inside, outside))


def aupr(inside: Tensor, outside: Tensor) -> float:
    """Average precision, sum_k (recall_k - recall_(k-1)) precision_k over thresholds: a step, not a trapezoid.

    **Shape**: inside ``[test examples]``; outside ``[OOD examples]``.

    >>> inside, outside = torch.tensor([0.1, 0.2, 0.3, 0.35, 0.6, 0.7]), torch.tensor([0.25, 0.5, 0.8, 0.9])
    >>> round(aupr(inside, outside), 6)
    0.775
    """
    return aupr_of_hits(*hits(inside, outside))


def fpr_at_recall(inside: Tensor, outside: Tensor, *, recall: float = 0.95) -> float:
    """The share of test examples above the first threshold, from the highest down, that finds this share of OOD ones.

    **Shape**: inside ``[test examples]``; outside ``[OOD examples]``.

    >>> inside, outside = torch.tensor([0.1, 0.2, 0.3, 0.35, 0.6, 0.7]), torch.tensor([0.25, 0.5, 0.8, 0.9])
    >>> fpr_at_recall(inside, outside, recall=0.5)
    0.0
    """
    if recall != 1:
        check_share(recall, "recall")
    return fpr_of_hits(*hits(inside, outside), recall)


def fpr95(inside: Tensor, outside: Tensor) -> float:
    """The false-positive rate at the first threshold with a true-positive rate of at least .95.

    torch-uncertainty takes the recall nearest to .95 and its worst threshold: it differs on small sets and on ties.

    **Shape**: inside ``[test examples]``; outside ``[OOD examples]``.

    >>> inside, outside = torch.tensor([0.1, 0.2, 0.3, 0.35, 0.6, 0.7]), torch.tensor([0.25, 0.5, 0.8, 0.9])
    >>> round(fpr95(inside, outside), 6)
    0.666667
    """
    return fpr_at_recall(inside, outside, recall=0.95)


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of several sets over common bins, the last one closed.

    **Shape**: edges ``[bins + 1]``, float64; each set's counts ``[bins]``, int64.
    """

    edges: Tensor
    counts: dict[str, Tensor]


def histogram(sets: Mapping[str, Tensor], *, bins: int = 50) -> Histogram:
    """One score's histogram on several sets, over bins that span all of them.

    **Shape**: each set ``[examples]``, any number of them.

    >>> drawn = histogram({"known": torch.tensor([0.0, 1.0]), "svhn": torch.tensor([3.0, 4.0, 4.0])}, bins=4)
    >>> drawn.edges, drawn.counts["svhn"]
    (tensor([0., 1., 2., 3., 4.], dtype=torch.float64), tensor([0, 0, 0, 3]))
    """
    if bins < 1 or not sets:
        raise MetricError(f"a histogram must have at least one bin and one set; got bins={bins}, {len(sets)} sets")
    values = {name: check_scores(v, f"scores of {name}", finite=True).double() for name, v in sets.items()}
    low, high = min(float(v.amin()) for v in values.values()), max(float(v.amax()) for v in values.values())
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = torch.linspace(low, high, bins + 1, dtype=torch.float64)
    counts = {}
    for name, v in values.items():
        index = torch.bucketize(v, edges[1:-1].to(v.device), right=True)
        counts[name] = index.bincount(minlength=bins)
    return Histogram(edges, counts)


def hits(inside: Tensor, outside: Tensor, name: str = "scores") -> tuple[Tensor, Tensor]:
    """OOD and test examples at or above each distinct score, from the highest down: ``[thresholds]`` each."""
    inside, outside = check_scores(inside, f"{name}, inside"), check_scores(outside, f"{name}, outside")
    both = torch.cat([inside, outside]).detach()
    ordered = _ascending(both).flip(0)
    taken = last_of_ties(ordered)
    true = len(outside) - torch.searchsorted(_ascending(both[len(inside) :]), ordered[taken - 1])
    return true, taken - true


def _ascending(values: Tensor) -> Tensor:
    """Sorted, by numpy where it can: torch also finds the order, in several times the time."""
    known = values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64)
    return torch.from_numpy(np.sort(values.numpy())) if known else values.sort().values


def auroc_of_hits(true: Tensor, false: Tensor) -> float:
    """The AUROC from :func:`hits`."""
    # Whole numbers until the division: exact for as many pairs as int64 can count.
    zero = true.new_zeros(1)
    heights = true + torch.cat([zero, true[:-1]])
    return int((false.diff(prepend=zero) * heights).sum()) / (2 * int(true[-1]) * int(false[-1]))


def aupr_of_hits(true: Tensor, false: Tensor) -> float:
    """The average precision from :func:`hits`."""
    gained = true.diff(prepend=true.new_zeros(1)).double()
    return float((gained * true / (true + false)).sum() / true[-1])


def fpr_of_hits(true: Tensor, false: Tensor, recall: float = 0.95) -> float:
    """The false-positive rate at a recall, from :func:`hits`."""
    first = int((true.double() / true[-1] < recall).sum())
    return int(false[first]) / int(false[-1])
