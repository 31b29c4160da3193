"""Class by class: what accuracy hides where there are two classes, or classes of very different sizes.

    precision_c          right among the examples predicted as c
    recall_c             right among the examples of c
    F1                   2 right / (predicted + examples), of the positive class of two, or the mean over classes
    balanced accuracy    the mean over classes of the recall
    class AUROC, AUPRC   how p_c ranks the examples of c above all others, of the positive class of two; or the mean
                         over classes, each against the rest

Of two classes the positive one is the second, unless `positive` says otherwise; `multum.evaluate` takes the class that
is rarer in training. Classes without an example are left out of means. The AUROC and AUPR of OOD data are in ood.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import MetricError
from ..outputs.prediction import Prediction
from .calibration import last_of_ties
from .inputs import check_choice, check_labels, check_prediction, check_same_shape, check_scores
from .ood import hits

if TYPE_CHECKING:
    import pandas as pd


MOST_CLASSES = 100  # more of them are not ranked one by one, and have no confusion matrix that anyone reads
UNEVEN = 0.2  # classes are uneven where the smallest has less than this share of what each would have if all were equal
SLICE = 2**20  # numbers worked on at once
OBJECTIVES = ("f1", "balanced_accuracy", "cost")


@dataclass(frozen=True, eq=False)
class PerClass:
    """What becomes of the examples of each class.

    **Shape**: confusion ``[classes, classes]``, the true class first; calibration ``[classes]``: the ECE of p_c as the
    probability of being class c; float64.
    """

    confusion: Tensor
    calibration: Tensor

    @property
    def counts(self) -> Tensor:
        """Right predictions, examples and predictions of each class, ``[3, classes]``."""
        return torch.stack([self.confusion.diagonal(), self.confusion.sum(1), self.confusion.sum(0)])

    @property
    def precision(self) -> Tensor:
        """The share of right ones among the predictions of each class; NaN for a class that is never predicted."""
        right, _, predicted = self.counts
        return right / predicted

    @property
    def recall(self) -> Tensor:
        """The share of right ones among the examples of each class; NaN for a class without examples."""
        right, support, _ = self.counts
        return right / support

    @property
    def f1(self) -> Tensor:
        """The harmonic mean of precision and recall; NaN for a class that neither occurs nor is predicted."""
        return _f1(self.counts)

    @property
    def support(self) -> Tensor:
        """The number of examples of each class."""
        return self.counts[1]

    def rows(self) -> list[dict[str, float]]:
        """Each class: its support, precision, recall, f1 and ece."""
        columns = {name: getattr(self, name).tolist() for name in ("support", "precision", "recall", "f1")}
        columns["ece"] = self.calibration.tolist()
        return [{"class": k, **{name: own[k] for name, own in columns.items()}} for k in range(len(self.confusion))]

    def frame(self) -> pd.DataFrame:
        """One row per class: support, precision, recall, f1, ece."""
        import pandas as pd

        return pd.DataFrame(self.rows())


def per_class(prediction: Prediction, labels: Tensor, *, bins: int = 15) -> PerClass:
    """Precision, recall, F1, support and calibration of every class, and the confusion matrix.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> logits = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]]).log().unsqueeze(0)
    >>> table = per_class(Prediction.from_logits(logits), torch.tensor([0, 1, 1]))
    >>> table.confusion.tolist(), table.recall.tolist(), table.precision.tolist()
    ([[1.0, 0.0], [1.0, 1.0]], [1.0, 0.5], [0.5, 1.0])
    """
    check_prediction(prediction)
    labels = check_labels(labels, prediction.logits[0])
    gaps = bins_of_gaps(prediction.log_probs, labels, bins)
    matrix = confusion_matrix(prediction.labels.flatten(), labels.flatten(), prediction.logits.shape[2])
    return PerClass(matrix.double(), gaps.abs().sum(1) / labels.numel())


def confusion_matrix(predicted: Tensor, labels: Tensor, classes: int) -> Tensor:
    """How many examples of each class (rows) are predicted as each class (columns), ``[classes, classes]``, int64.

    **Shape**: predicted and labels ``[examples]``.

    >>> confusion_matrix(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 2)
    tensor([[1, 1],
            [0, 1]])
    """
    check_same_shape(predicted, labels, "predicted classes", "labels")
    return (labels * classes + predicted).bincount(minlength=classes**2).view(classes, classes)


def class_counts(predicted: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Right predictions, examples and predictions of each class: what F1 and balanced accuracy are made of.

    **Shape**: predicted and labels ``[examples]`` to ``[3, classes]``, float64.

    >>> class_counts(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 2)
    tensor([[1., 1.],
            [2., 1.],
            [1., 2.]], dtype=torch.float64)
    """
    chosen = (labels[predicted == labels], labels, predicted)
    return torch.stack([values.bincount(minlength=classes) for values in chosen]).double()


def bins_of_gaps(log_probs: Tensor, labels: Tensor, bins: int) -> Tensor:
    """Examples of each class minus the sum of its probability, in equally wide bins of that probability.

    These sums add up over batches; the calibration error of a class is the sum of their absolute values over n.

    **Shape**: log_probs ``[batch, classes, ...]``, labels ``[batch, ...]`` to ``[classes, bins]``, float64.

    >>> bins_of_gaps(torch.tensor([[0.75, 0.25]]).log(), torch.tensor([1]), bins=2)
    tensor([[ 0.0000, -0.7500],
            [ 0.7500,  0.0000]], dtype=torch.float64)
    """
    classes, device = log_probs.shape[1], log_probs.device
    edges = (torch.arange(1, bins, dtype=torch.float64, device=device) / bins).to(log_probs.dtype)
    own = torch.arange(classes, device=device).unsqueeze(1)
    sums = torch.zeros(classes * bins, dtype=torch.float64, device=device)
    step = max(1, SLICE // max(1, log_probs[:1].numel()))
    for rows, wanted in zip(log_probs.split(step), labels.split(step), strict=True):
        probs = rows.movedim(1, 0).reshape(classes, -1).exp().contiguous()
        gaps = (wanted.reshape(1, -1) == own).double() - probs.double()
        index = own * bins + torch.bucketize(probs, edges)
        sums += index.flatten().bincount(gaps.flatten(), minlength=classes * bins)
    return sums.view(classes, bins)


def f1(counts: Tensor, positive: int = 1) -> float:
    """F1 of the positive class of two, or the mean over classes; NaN where no class occurs or is predicted.

    **Shape**: counts ``[3, classes]``, from :func:`class_counts`.

    >>> f1(torch.tensor([[1.0, 1.0], [2.0, 1.0], [1.0, 2.0]]))  # precision 1/2, recall 1
    0.6666666666666666
    """
    each = _f1(counts.double())
    return float(each[positive] if counts.shape[1] == 2 else each.nanmean())


def balanced_accuracy(counts: Tensor, positive: int = 1) -> float:
    """The mean over classes of the share of their examples that are right; which class is positive does not matter.

    **Shape**: counts ``[3, classes]``, from :func:`class_counts`.

    >>> balanced_accuracy(torch.tensor([[1.0, 1.0], [2.0, 1.0], [1.0, 2.0]]))
    0.75
    """
    right, support, _ = counts.double()
    return float((right / support).nanmean())


def rank_mean(
    scores: Tensor, labels: Tensor, of: Callable[[Tensor, Tensor], float], positive: int | None = None
) -> float:
    """A measure of :func:`multum.metrics.ood.hits`, of the positive class, or the mean over classes; NaN without both.

    **Shape**: scores ``[classes, examples]``, or ``[1, examples]`` of the positive class; labels ``[examples]``.

    >>> from multum.metrics.ood import auroc_of_hits
    >>> rank_mean(torch.tensor([[0.1, 0.4, 0.35, 0.8]]), torch.tensor([0, 0, 1, 1]), auroc_of_hits, positive=1)
    0.75
    """
    classes = range(len(scores)) if positive is None else [positive]
    values = []
    for label, own in zip(classes, scores, strict=True):
        mine = labels == label
        if 0 < int(mine.sum()) < len(mine):
            values.append(of(*hits(own[~mine], own[mine], f"probabilities of class {label}")))
    return sum(values) / len(values) if values else math.nan


def is_uneven(counts: Tensor) -> bool:
    """Whether accuracy alone misleads: two classes, or a smallest one with less than a fifth of an even share.

    **Shape**: counts ``[classes]``, the examples of each.

    >>> is_uneven(torch.tensor([90, 90, 90])), is_uneven(torch.tensor([170, 80, 10])), is_uneven(torch.tensor([5, 5]))
    (False, True, True)
    """
    return len(counts) == 2 or float(counts.min()) * len(counts) < UNEVEN * float(counts.sum())


@dataclass(frozen=True)
class Threshold:
    """A rule that predicts the positive class where its probability is at least the threshold.

    >>> Threshold(threshold=0.3, by="f1", value=0.8)(torch.tensor([0.2, 0.3]))
    tensor([False,  True])
    """

    threshold: float  # inf: nothing is predicted positive
    by: str  # what it was chosen for
    value: float  # of that, on the examples it was fitted to
    cost_ratio: float = 1.0  # what a missed positive costs, in false alarms; of "cost" alone

    def __call__(self, scores: Tensor) -> Tensor:
        """Where the positive class is predicted, ``[examples]``."""
        return scores.double() >= self.threshold


def fit_threshold(scores: Tensor, labels: Tensor, *, by: str = "f1", cost_ratio: float = 1.0) -> Threshold:
    """The threshold on held-out examples with the best F1 or balanced accuracy, or with the least cost.

    The cost is false alarms + cost_ratio * missed positives, per example. Of equally good thresholds the highest is
    taken. Never fit it on the test part: what it reaches there would be too good.

    **Shape**: scores ``[examples]``, the probability of the positive class; labels ``[examples]``, 1 where it is true.

    >>> scores, labels = torch.tensor([0.125, 0.25, 0.5, 0.75]), torch.tensor([0, 1, 0, 1])
    >>> fit_threshold(scores, labels)
    Threshold(threshold=0.25, by='f1', value=0.8, cost_ratio=1.0)
    >>> fit_threshold(scores, labels, by="cost", cost_ratio=0.5).threshold  # two false alarms cost as much as one miss
    0.75
    """
    check_choice(by, "by", OBJECTIVES)
    if not 0 < cost_ratio < math.inf:
        raise MetricError(f"cost_ratio must be positive and finite; got cost_ratio={cost_ratio}")
    check_same_shape(scores, labels, "scores", "labels")
    ordered, order = check_scores(scores.double(), "scores").sort(descending=True)
    positive = labels.flatten().bool()[order].double()
    total, n = float(positive.sum()), len(positive)
    if not 0 < total < n:
        raise MetricError(f"a threshold needs examples of both classes; got {total:.0f} positive of {n}")
    ends = last_of_ties(ordered)
    predicted = torch.cat([ends.new_zeros(1), ends]).double()  # also: nothing is predicted positive
    right = torch.cat([positive.new_zeros(1), positive.cumsum(0)[ends - 1]])
    wrong, missed = predicted - right, total - right
    value = {
        "f1": 2 * right / (predicted + total),
        "balanced_accuracy": (right / total + 1 - wrong / (n - total)) / 2,
        "cost": (wrong + cost_ratio * missed) / n,
    }[by]
    best = int((value == (value.min() if by == "cost" else value.max())).nonzero()[0])
    threshold = math.inf if best == 0 else float(ordered[int(predicted[best]) - 1])
    return Threshold(threshold, by, float(value[best]), cost_ratio)


def _f1(counts: Tensor) -> Tensor:
    right, support, predicted = counts
    return 2 * right / (support + predicted)
