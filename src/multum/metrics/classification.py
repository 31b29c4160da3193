"""What a classifier's probabilities are worth: of the ensemble, of each member, and the gain between them.

    accuracy   1/n sum_i 1[argmax_c p_ic = y_i]
    nll        -1/n sum_i log p_i,y_i                 p the members' mean, from log_probs: no underflow
    brier      1/n sum_i sum_c (p_ic - 1[y_i = c])^2
    ece, adaptive_ece, aurc                           see reliability.py and selective.py

Sums are in float64 whatever the precision of the network.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import MetricError
from ..outputs.prediction import Prediction
from .inputs import check_labels, check_log_probs, check_probs, check_scores
from .reliability import adaptive_ece, ece
from .selective import aurc

__all__ = [
    "METRICS",
    "Items",
    "accuracy",
    "brier",
    "check_prediction",
    "classification",
    "item_brier",
    "item_correct",
    "item_nll",
    "measure_items",
    "nll",
    "per_member",
    "with_gains",
]

METRICS = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "aurc")
SLICE = 2**20  # numbers worked on at once: they stay in the cache, and memory does not grow with the items


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """The share of items whose highest score is the label's.

    **Shape**: scores ``[batch, classes, ...]`` (probabilities, their logarithms or logits); labels ``[batch, ...]``.

    >>> accuracy(torch.tensor([[0.7, 0.3], [0.6, 0.4]]), torch.tensor([0, 1]))
    0.5
    """
    return float(item_correct(scores, labels).double().mean())


def nll(log_probs: Tensor, labels: Tensor) -> float:
    """The negative log-likelihood in nats, -1/n sum_i log p_i,y_i; infinite where a label has probability 0.

    **Shape**: log_probs ``[batch, classes, ...]``; labels ``[batch, ...]``.

    >>> members = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]])
    >>> prediction = Prediction.from_logits(members.log().unsqueeze(1))
    >>> round(nll(prediction.log_probs, torch.tensor([0])), 5)
    0.74444
    """
    return float(item_nll(log_probs, labels).double().mean())


def brier(probs: Tensor, labels: Tensor) -> float:
    """The Brier score, 1/n sum_i sum_c (p_ic - 1[y_i = c])^2, 0 to 2; scikit-learn halves it for two classes.

    **Shape**: probs ``[batch, classes, ...]``; labels ``[batch, ...]``.

    >>> round(brier(torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([0])), 6)  # .3^2 + .2^2 + .1^2
    0.14
    """
    return float(item_brier(probs, labels).double().mean())


def item_correct(scores: Tensor, labels: Tensor) -> Tensor:
    """Whether each item's highest score is its label's, ``[batch, ...]``.

    **Shape**: scores ``[batch, classes, ...]``; labels ``[batch, ...]``.

    >>> item_correct(torch.tensor([[0.7, 0.3], [0.6, 0.4]]), torch.tensor([0, 1]))
    tensor([ True, False])
    """
    if scores.ndim < 2:
        raise MetricError(f"scores are [batch, classes, ...], however: shape {list(scores.shape)}")
    check_scores(scores)
    return scores.argmax(1) == check_labels(labels, scores)


def item_nll(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Each item's -log p_y, ``[batch, ...]``: what paired tests and bootstraps work on.

    **Shape**: log_probs ``[batch, classes, ...]``; labels ``[batch, ...]``.

    >>> item_nll(torch.tensor([[0.5, 0.5], [0.1, 0.9]]).log(), torch.tensor([0, 1]))
    tensor([0.6931, 0.1054])
    """
    log_probs = check_log_probs(log_probs)
    labels = check_labels(labels, log_probs)
    return -log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)


def item_brier(probs: Tensor, labels: Tensor) -> Tensor:
    """Each item's sum_c (p_c - 1[y = c])^2, ``[batch, ...]``.

    **Shape**: probs ``[batch, classes, ...]``; labels ``[batch, ...]``.

    >>> item_brier(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    tensor([0., 2.])
    """
    probs = check_probs(probs)
    labels = check_labels(labels, probs).unsqueeze(1)
    return probs.scatter_add(1, labels, probs.new_full(labels.shape, -1.0)).square().sum(1)


class Items(NamedTuple):
    """What each item contributes, ``[batch, ...]`` each: all that any metric here is made of."""

    correct: Tensor
    confidence: Tensor
    nll: Tensor
    brier: Tensor


def measure_items(log_probs: Tensor, labels: Tensor) -> Items:
    """Every value per item in one pass, slice by slice: the same numbers as the single functions, at half the cost.

    **Shape**: log_probs ``[batch, classes, ...]``; labels ``[batch, ...]``.

    >>> measure_items(torch.tensor([[0.75, 0.25]]).log(), torch.tensor([1])).brier
    tensor([1.1250])
    """
    labels = check_labels(labels, log_probs)
    step = max(1, SLICE // max(1, log_probs[:1].numel()))
    parts = [_slice_items(*part) for part in zip(log_probs.split(step), labels.split(step), strict=True)]
    return Items(*(torch.cat(values) for values in zip(*parts, strict=True)))


def _slice_items(log_probs: Tensor, labels: Tensor) -> Items:
    confidence, predicted = log_probs.max(1)
    return Items(
        predicted == labels, confidence.exp(), item_nll(log_probs, labels), item_brier(log_probs.exp(), labels)
    )


def per_member(prediction: Prediction, labels: Tensor, *, bins: int = 15) -> dict[str, Tensor]:
    """Every metric of every member alone, each ``[members]``, float64.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> logits = torch.tensor([[[0.7, 0.3]], [[0.4, 0.6]]]).log()
    >>> per_member(Prediction.from_logits(logits), torch.tensor([0]))["accuracy"]
    tensor([1., 0.], dtype=torch.float64)
    """
    check_prediction(prediction)
    rows = [_measure(z.log_softmax(1), labels, bins) for z in prediction.logits]
    return {name: torch.tensor([row[name] for row in rows], dtype=torch.float64) for name in METRICS}


def classification(prediction: Prediction, labels: Tensor, *, bins: int = 15) -> dict[str, float]:
    """Every metric of the ensemble, the mean of its members (``member_NAME``), and the gain (``gain_NAME``).

    gain = ensemble - mean member. It is never positive for nll and brier, which are convex in p.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> members = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]])
    >>> found = classification(Prediction.from_logits(members.log().unsqueeze(1)), torch.tensor([0]))
    >>> found["accuracy"], found["member_accuracy"], found["gain_accuracy"]
    (1.0, 0.75, 0.25)
    >>> round(found["nll"], 5), round(found["member_nll"], 5)
    (0.74444, 0.96581)
    """
    check_prediction(prediction)
    ensemble = _measure(prediction.log_probs, labels, bins)
    return with_gains(ensemble, per_member(prediction, labels, bins=bins))


def with_gains(ensemble: dict[str, float], members: dict[str, Tensor]) -> dict[str, float]:
    """The ensemble's metrics, the members' means and the differences in one table.

    >>> with_gains({"nll": 0.5}, {"nll": torch.tensor([0.5, 1.0])})
    {'nll': 0.5, 'member_nll': 0.75, 'gain_nll': -0.25}
    """
    means = {name: float(values.mean()) for name, values in members.items()}
    return {
        **ensemble,
        **{f"member_{name}": mean for name, mean in means.items()},
        **{f"gain_{name}": ensemble[name] - mean for name, mean in means.items()},
    }


def check_prediction(prediction: Prediction) -> None:
    """Refuse a prediction without items, or with NaN among its logits.

    >>> check_prediction(Prediction.from_logits(torch.full((2, 1, 3), float("nan"))))
    Traceback (most recent call last):
    multum.errors.MetricError: logits are numbers, however: member 0, item 0 holds NaN. Look for overflow in the network
    """
    if prediction.logits.numel() == 0:
        raise MetricError(f"a prediction holds at least one item, however: {prediction}")
    bad = ~prediction.logits.amax(2).isfinite()  # NaN where any logit is; +inf, or nothing but -inf, has no softmax
    if bad.any():
        member, item = (int(i) for i in bad.nonzero()[0][:2])
        value = "NaN" if prediction.logits[member, item].isnan().any() else "+inf, or nothing but -inf"
        raise MetricError(
            f"logits are numbers, however: member {member}, item {item} holds {value}. Look for overflow in the network"
        )


def _measure(log_probs: Tensor, labels: Tensor, bins: int) -> dict[str, float]:
    items = measure_items(log_probs, labels)
    pair = items.confidence, items.correct
    return {
        "accuracy": float(items.correct.double().mean()),
        "nll": float(items.nll.double().mean()),
        "brier": float(items.brier.double().mean()),
        "ece": ece(*pair, bins=bins),
        "adaptive_ece": adaptive_ece(*pair, bins=bins),
        "aurc": aurc(*pair),
    }
