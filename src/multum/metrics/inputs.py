"""What metrics refuse: each check names the rule, the value, the example and the fix before a number comes out wrong.

Examples are what a metric averages over. Tensors with further axes, [batch, classes, ...], hold one per position.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from ..errors import MetricError, check_known
from ..outputs.prediction import Prediction, at_least_float32

# How far a row of probabilities may be from 1. Half precision rounds each of them to 3 digits, float32 to 7.
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 2e-2}


def check_prediction(prediction: Prediction) -> None:
    """Refuse a prediction without examples, or with logits that have no softmax.

    >>> check_prediction(Prediction.from_logits(torch.full((2, 1, 3), float("nan"))))
    Traceback (most recent call last):
    multum.errors.MetricError: logits must be numbers; got NaN for member 0, example 0. Look for overflow in the network
    """
    if prediction.logits.numel() == 0:
        raise MetricError(f"a prediction must hold at least one example; got {prediction}")
    bad = ~prediction.logits.amax(2).isfinite()  # NaN where any logit is; +inf, or nothing but -inf, has no softmax
    if bad.any():
        member, example = (int(i) for i in bad.nonzero()[0][:2])
        value = "NaN" if prediction.logits[member, example].isnan().any() else "+inf, or nothing but -inf,"
        raise MetricError(
            f"logits must be numbers; got {value} for member {member}, example {example}. "
            "Look for overflow in the network"
        )


def check_probs(probs: Tensor, name: str = "probs") -> Tensor:
    """Probabilities ``[batch, classes, ...]`` that sum to one, in float32 at least.

    >>> check_probs(torch.tensor([[0.7, 0.2]]))
    Traceback (most recent call last):
    multum.errors.MetricError: probs must sum to one over axis 1; got 0.9 for example 0. Use logits.softmax(1)
    """
    full = _check_rows(probs, name)
    if torch.compiler.is_exporting():  # a graph has no values yet
        return full
    low = float(full.amin())
    if low < -_tolerance(probs):
        raise MetricError(f"{name} must be at least 0; got {low:.6g}. Use logits.softmax(1)")
    _check_sums(full.sum(1), name, _tolerance(probs), "logits.softmax(1)")
    return full


def check_log_probs(log_probs: Tensor, name: str = "log_probs") -> Tensor:
    """Logarithms of probabilities ``[batch, classes, ...]`` that sum to one, in float32 at least.

    >>> check_log_probs(torch.tensor([[0.5, 0.5]]))
    Traceback (most recent call last):
    multum.errors.MetricError: exp(log_probs) must sum to one over axis 1; got 3.297 for example 0. Use log_softmax(1)
    """
    full = _check_rows(log_probs, name)
    _check_sums(full.exp().sum(1), f"exp({name})", _tolerance(log_probs), "log_softmax(1)")
    return full


def check_labels(labels: Tensor, scores: Tensor) -> Tensor:
    """Labels ``[batch, ...]`` of scores ``[batch, classes, ...]``, as int64.

    >>> check_labels(torch.tensor([0, 3]), torch.zeros(2, 3))
    Traceback (most recent call last):
    multum.errors.MetricError: labels of 3 classes must be 0 to 2; got 3 for example 1. Leave such examples out first
    """
    classes, shape = scores.shape[1], scores.shape[:1] + scores.shape[2:]
    if labels.is_floating_point() or labels.is_complex():
        raise MetricError(f"labels must be integers; got {labels.dtype}. Use labels.long()")
    if labels.shape != shape:
        raise MetricError(
            f"labels of predictions {list(scores.shape)} must have shape {list(shape)}; got {list(labels.shape)}. "
            "Give one label per example, in the same order"
        )
    labels = labels.long()
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        example = int(outside.flatten().nonzero()[0])
        raise MetricError(
            f"labels of {classes} classes must be 0 to {classes - 1}; got {int(labels.flatten()[example])} for example "
            f"{example}. Leave such examples out first"
        )
    return labels


def check_scores(scores: Tensor, name: str = "scores", *, finite: bool = False) -> Tensor:
    """One number per example, flat, at least one example and none of them NaN (nor infinite, where ``finite``).

    >>> check_scores(torch.tensor([]), "scores of svhn")
    Traceback (most recent call last):
    multum.errors.MetricError: scores of svhn must hold at least one example; got none. Check that the data was read
    """
    if scores.numel() == 0:
        raise MetricError(f"{name} must hold at least one example; got none. Check that the data was read")
    scores = at_least_float32(scores if scores.is_floating_point() else scores.double()).flatten()
    bad = ~scores.isfinite() if finite else scores.isnan()
    if bad.any():
        example = int(bad.nonzero()[0])
        raise MetricError(
            f"{name} must be {'finite' if finite else 'numbers'}; got {float(scores[example])} for example {example} "
            f"({int(bad.sum())} of {len(scores)}). Look for overflow in the network, or for a division by a standard "
            "deviation of 0"
        )
    return scores


def check_confidence(confidence: Tensor) -> Tensor:
    """Probabilities of the predicted class, flat, between 0 and 1.

    >>> check_confidence(torch.tensor([0.9, 7.0]))
    Traceback (most recent call last):
    multum.errors.MetricError: confidences must be between 0 and 1; got 7.0. Use probs.amax(1)
    """
    tolerance = _tolerance(confidence)
    confidence = check_scores(confidence, "confidences")
    for end in map(float, confidence.aminmax()):
        if not -tolerance <= end <= 1 + tolerance:
            raise MetricError(f"confidences must be between 0 and 1; got {end}. Use probs.amax(1)")
    return confidence.clamp(0, 1)


def check_correct(correct: Tensor, confidence: Tensor) -> Tensor:
    """Whether each example's prediction is right, flat, 1 or 0 as float64; as many as confidences.

    >>> check_correct(torch.tensor([True, False]), torch.zeros(2))
    tensor([1., 0.], dtype=torch.float64)
    """
    check_same_shape(correct, confidence, "correct", "confidence")
    correct = check_scores(correct, "correct").double()
    if ((correct != 0) & (correct != 1)).any():
        raise MetricError("correct must hold 0 and 1 only; got other numbers. Use labels == predicted")
    return correct


def check_targets(targets: Tensor, mean: Tensor) -> Tensor:
    """Targets of a regression ``[batch, ...]``, finite, shaped like the predicted means.

    >>> check_targets(torch.zeros(3, 1), torch.zeros(3))
    Traceback (most recent call last):
    multum.errors.MetricError: targets and predicted means must have the same shape; got [3, 1] and [3]
    """
    # Said here because broadcasting would not: [batch, 1] against [batch] compares every example with every other.
    check_same_shape(targets, mean, "targets", "predicted means")
    check_scores(targets, "targets", finite=True)
    check_scores(mean, "predicted means", finite=True)
    return targets


def check_same_shape(first: Tensor, second: Tensor, name: str, other_name: str) -> None:
    """Two tensors about the same examples.

    >>> check_same_shape(torch.zeros(3), torch.zeros(4), "a", "b")
    Traceback (most recent call last):
    multum.errors.MetricError: a and b must have the same shape; got [3] and [4]
    """
    if first.shape != second.shape:
        raise MetricError(
            f"{name} and {other_name} must have the same shape; got {list(first.shape)} and {list(second.shape)}"
        )


def check_share(share: float, name: str) -> float:
    """A number strictly between 0 and 1.

    >>> check_share(95, "level")
    Traceback (most recent call last):
    multum.errors.MetricError: level must satisfy 0 < level < 1; got level=95. For 95 % write 0.95
    """
    if not 0 < share < 1:
        fix = f". For {share:g} % write {share / 100:g}" if 1 < share < 100 else ""
        raise MetricError(f"{name} must satisfy 0 < {name} < 1; got {name}={share}{fix}")
    return share


def check_choice(value: str, name: str, choices: Collection[str]) -> None:
    """One of some names.

    >>> check_choice("lacc", "method", ("aps", "lac"))
    Traceback (most recent call last):
    multum.errors.MetricError: method must be aps or lac; got 'lacc'. Did you mean lac?
    """
    listed = " or ".join(", ".join(choices).rsplit(", ", 1))
    check_known(value, choices, f"{name} must be {listed}", MetricError)


def _check_rows(rows: Tensor, name: str) -> Tensor:
    if not rows.is_floating_point() or rows.ndim < 2:
        raise MetricError(
            f"{name} must be floating point [batch, classes, ...]; got {rows.dtype} {list(rows.shape)}. "
            "For one example use unsqueeze(0)"
        )
    if rows.shape[1] < 2:
        raise MetricError(
            f"{name} must have at least 2 classes on axis 1; got shape {list(rows.shape)}. "
            "For a yes-or-no network use torch.stack([1 - p, p], 1)"
        )
    if rows.numel() == 0:
        raise MetricError(f"{name} must hold at least one example; got shape {list(rows.shape)}")
    return at_least_float32(rows)


def _check_sums(sums: Tensor, name: str, tolerance: float, fix: str) -> None:
    bad = ~((sums - 1).abs() <= tolerance)  # also true for NaN
    if bad.any():
        example = int(bad.flatten().nonzero()[0])
        value = float(sums.flatten()[example])
        if value != value:
            raise MetricError(
                f"{name} must be numbers; got NaN for example {example} ({int(bad.sum())} of {bad.numel()}). "
                "Look for overflow in the network"
            )
        raise MetricError(f"{name} must sum to one over axis 1; got {value:.4g} for example {example}. Use {fix}")


def _tolerance(probs: Tensor) -> float:
    return TOLERANCE.get(probs.dtype, 1e-4)
