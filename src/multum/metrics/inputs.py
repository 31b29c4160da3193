"""What metrics refuse: each check names the rule, the value, the item and the fix before a number comes out wrong.

Items are what a metric averages over. Tensors with further axes, [batch, classes, ...], hold one item per position.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import MetricError
from ..outputs.prediction import at_least_float32

__all__ = [
    "check_confidence",
    "check_correct",
    "check_labels",
    "check_log_probs",
    "check_probs",
    "check_same_shape",
    "check_scores",
    "check_share",
    "check_targets",
]

# How far a row of probabilities may be from 1. Half precision rounds each of them to 3 digits, float32 to 7.
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 2e-2}


def check_probs(probs: Tensor, name: str = "probs") -> Tensor:
    """Probabilities ``[batch, classes, ...]`` that sum to one, in float32 at least.

    >>> check_probs(torch.tensor([[0.7, 0.2]]))
    Traceback (most recent call last):
    multum.errors.MetricError: probs sum to one over axis 1, however: item 0 sums to 0.9. Use logits.softmax(1)
    """
    full = _check_rows(probs, name)
    low = float(full.amin())
    if low < -_tolerance(probs):
        raise MetricError(f"{name} are at least 0, however: {low:.6g} is among them. Use logits.softmax(1)")
    _check_sums(full.sum(1), name, _tolerance(probs), "logits.softmax(1)")
    return full


def check_log_probs(log_probs: Tensor, name: str = "log_probs") -> Tensor:
    """Logarithms of probabilities ``[batch, classes, ...]`` that sum to one, in float32 at least.

    >>> check_log_probs(torch.tensor([[0.5, 0.5]]))
    Traceback (most recent call last):
    multum.errors.MetricError: exp(log_probs) sum to one over axis 1, however: item 0 sums to 3.297. Use log_softmax(1)
    """
    full = _check_rows(log_probs, name)
    _check_sums(full.exp().sum(1), f"exp({name})", _tolerance(log_probs), "log_softmax(1)")
    return full


def check_labels(labels: Tensor, scores: Tensor) -> Tensor:
    """Labels ``[batch, ...]`` of scores ``[batch, classes, ...]``, as int64.

    >>> check_labels(torch.tensor([0, 3]), torch.zeros(2, 3))
    Traceback (most recent call last):
    multum.errors.MetricError: labels of 3 classes are 0 to 2, however: item 1 is 3. Leave such items out first
    """
    classes, shape = scores.shape[1], scores.shape[:1] + scores.shape[2:]
    if labels.is_floating_point() or labels.is_complex():
        raise MetricError(f"labels are integers, however: {labels.dtype}. Use labels.long()")
    if labels.shape != shape:
        raise MetricError(
            f"labels of predictions {list(scores.shape)} have shape {list(shape)}, however: {list(labels.shape)}. "
            "Give one label per item, in the same order"
        )
    labels = labels.long()
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        item = int(outside.flatten().nonzero()[0])
        raise MetricError(
            f"labels of {classes} classes are 0 to {classes - 1}, however: item {item} is "
            f"{int(labels.flatten()[item])}. Leave such items out first"
        )
    return labels


def check_scores(scores: Tensor, name: str = "scores", *, finite: bool = False) -> Tensor:
    """One number per item, flat, at least one item and none of them NaN (nor infinite, where ``finite``).

    >>> check_scores(torch.tensor([]), "the scores of svhn")
    Traceback (most recent call last):
    multum.errors.MetricError: the scores of svhn hold at least one item, however: none. Check that the set was read
    """
    if scores.numel() == 0:
        raise MetricError(f"{name} hold at least one item, however: none. Check that the set was read")
    if scores.dtype == torch.bool or not scores.is_floating_point():
        scores = scores.double()
    scores = at_least_float32(scores).flatten()
    bad = ~scores.isfinite() if finite else scores.isnan()
    if bad.any():
        item = int(bad.nonzero()[0])
        rule = "finite" if finite else "numbers"
        raise MetricError(
            f"{name} are {rule}, however: item {item} is {float(scores[item])} ({int(bad.sum())} of {len(scores)}). "
            "Look for overflow in the network, or for a division by a standard deviation of 0"
        )
    return scores


def check_confidence(confidence: Tensor) -> Tensor:
    """Probabilities of the predicted class, flat, between 0 and 1.

    >>> check_confidence(torch.tensor([0.9, 7.0]))
    Traceback (most recent call last):
    multum.errors.MetricError: confidences are between 0 and 1, however: 7.0 is among them. Use probs.amax(1)
    """
    tolerance = _tolerance(confidence)
    confidence = check_scores(confidence, "confidences")
    for end in (float(confidence.amin()), float(confidence.amax())):
        if not -tolerance <= end <= 1 + tolerance:
            raise MetricError(f"confidences are between 0 and 1, however: {end} is among them. Use probs.amax(1)")
    return confidence.clamp(0, 1)


def check_correct(correct: Tensor, confidence: Tensor) -> Tensor:
    """Whether each item's prediction is right, flat, 1 or 0 as float64; as many as confidences.

    >>> check_correct(torch.tensor([True, False]), torch.zeros(2))
    tensor([1., 0.], dtype=torch.float64)
    """
    check_same_shape(correct, confidence, "correct", "confidence")
    correct = check_scores(correct, "correct").double()
    if ((correct != 0) & (correct != 1)).any():
        raise MetricError("correct holds 0 and 1, however: other numbers are among it. Use labels == predicted")
    return correct


def check_targets(targets: Tensor, mean: Tensor) -> Tensor:
    """Targets of a regression ``[batch, ...]``, finite, shaped like the predicted means.

    >>> check_targets(torch.zeros(3, 1), torch.zeros(3))
    Traceback (most recent call last):
    multum.errors.MetricError: targets and predicted means have one shape, however: [3, 1] and [3]
    """
    # Said here because broadcasting would not: [batch, 1] against [batch] compares every item with every other.
    check_same_shape(targets, mean, "targets", "predicted means")
    check_scores(targets, "targets", finite=True)
    check_scores(mean, "predicted means", finite=True)
    return targets


def check_same_shape(one: Tensor, other: Tensor, name: str, other_name: str) -> None:
    """Two tensors that speak about the same items.

    >>> check_same_shape(torch.zeros(3), torch.zeros(4), "a", "b")
    Traceback (most recent call last):
    multum.errors.MetricError: a and b have one shape, however: [3] and [4]
    """
    if one.shape != other.shape:
        raise MetricError(f"{name} and {other_name} have one shape, however: {list(one.shape)} and {list(other.shape)}")


def check_share(share: float, name: str) -> float:
    """A number strictly between 0 and 1.

    >>> check_share(95, "level")
    Traceback (most recent call last):
    multum.errors.MetricError: level is between 0 and 1, however: level=95. For 95 % write 0.95
    """
    if not 0 < share < 1:
        fix = f"For {share:g} % write {share / 100:g}" if 1 < share < 100 else "Neither end is included"
        raise MetricError(f"{name} is between 0 and 1, however: {name}={share}. {fix}")
    return share


def _check_rows(rows: Tensor, name: str) -> Tensor:
    if not rows.is_floating_point() or rows.ndim < 2:
        raise MetricError(
            f"{name} are floating point [batch, classes, ...], however: {rows.dtype} {list(rows.shape)}. "
            "For one item use unsqueeze(0)"
        )
    if rows.shape[1] < 2:
        raise MetricError(
            f"{name} have at least 2 classes on axis 1, however: shape {list(rows.shape)}. "
            "For a yes-or-no network use torch.stack([1 - p, p], 1)"
        )
    if rows.numel() == 0:
        raise MetricError(f"{name} hold at least one item, however: shape {list(rows.shape)}")
    return at_least_float32(rows)


def _check_sums(sums: Tensor, name: str, tolerance: float, fix: str) -> None:
    bad = ~((sums - 1).abs() <= tolerance)  # also true for NaN
    if bad.any():
        item = int(bad.flatten().nonzero()[0])
        value = float(sums.flatten()[item])
        if value != value:
            raise MetricError(
                f"{name} are numbers, however: item {item} holds NaN ({int(bad.sum())} of {bad.numel()}). "
                "Look for overflow in the network"
            )
        raise MetricError(f"{name} sum to one over axis 1, however: item {item} sums to {value:.4g}. Use {fix}")


def _tolerance(probs: Tensor) -> float:
    return TOLERANCE.get(probs.dtype, 1e-4)
