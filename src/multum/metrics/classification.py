"""What a classifier's probabilities are worth, example by example.

    accuracy   1/n sum_i 1[argmax_c p_ic = y_i]
    nll        -1/n sum_i log p_i,y_i                 p the members' mean, from log_probs: no underflow
    brier      1/n sum_i sum_c (p_ic - 1[y_i = c])^2

Means are in float64 whatever the precision of the network. Tables of all metrics are in aggregate.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from ..errors import MetricError
from .inputs import check_labels, check_log_probs, check_probs, check_scores


@dataclass(frozen=True, eq=False)
class Classified:
    """One network's log-probabilities on some examples, and their labels: what a metric per example is computed from.

    **Shape**: log_probs ``[batch, classes, ...]``; labels ``[batch, ...]``, as `check_labels` returns them.

    >>> import torch
    >>> Classified(torch.tensor([[0.75, 0.25]]).log(), torch.tensor([1])).correct
    tensor([False])
    """

    log_probs: Tensor
    labels: Tensor

    @cached_property
    def probs(self) -> Tensor:
        """p, ``[batch, classes, ...]``."""
        return self.log_probs.exp()

    @cached_property
    def _best(self) -> tuple[Tensor, Tensor]:
        values, classes = self.log_probs.max(1)
        return values.exp(), classes

    @property
    def confidence(self) -> Tensor:
        """max_c p_c, ``[batch, ...]``."""
        return self._best[0]

    @property
    def predicted(self) -> Tensor:
        """argmax_c p_c, ``[batch, ...]``."""
        return self._best[1]

    @property
    def correct(self) -> Tensor:
        """Whether the predicted class is the label, ``[batch, ...]``."""
        return self.predicted == self.labels


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """The share of examples whose highest score is the label's.

    **Shape**: scores ``[batch, classes, ...]`` (probabilities, their logarithms or logits); labels ``[batch, ...]``.

    >>> import torch
    >>> accuracy(torch.tensor([[0.7, 0.3], [0.6, 0.4]]), torch.tensor([0, 1]))
    0.5
    """
    return float(example_correct(scores, labels).double().mean())


def nll(log_probs: Tensor, labels: Tensor) -> float:
    """The negative log-likelihood in nats, -1/n sum_i log p_i,y_i; infinite where a label has probability 0.

    **Shape**: log_probs ``[batch, classes, ...]``; labels ``[batch, ...]``.

    >>> import multum, torch
    >>> members = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]])
    >>> prediction = multum.Prediction.from_logits(members.log().unsqueeze(1))
    >>> round(nll(prediction.log_probs, torch.tensor([0])), 5)
    0.74444
    """
    return float(example_nll(log_probs, labels).double().mean())


def brier(probs: Tensor, labels: Tensor) -> float:
    """The Brier score, 1/n sum_i sum_c (p_ic - 1[y_i = c])^2, 0 to 2; scikit-learn halves it for two classes.

    **Shape**: probs ``[batch, classes, ...]``; labels ``[batch, ...]``.

    >>> import torch
    >>> round(brier(torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([0])), 6)  # .3^2 + .2^2 + .1^2
    0.14
    """
    return float(example_brier(probs, labels).double().mean())


def example_correct(scores: Tensor, labels: Tensor) -> Tensor:
    """Whether each example's highest score is its label's, ``[batch, ...]``.

    **Shape**: scores ``[batch, classes, ...]``; labels ``[batch, ...]``.

    >>> import torch
    >>> example_correct(torch.tensor([[0.7, 0.3], [0.6, 0.4]]), torch.tensor([0, 1]))
    tensor([ True, False])
    """
    if scores.ndim < 2:
        raise MetricError(f"scores must be [batch, classes, ...]; got shape {list(scores.shape)}")
    check_scores(scores)
    return scores.argmax(1) == check_labels(labels, scores)


def example_nll(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Each example's -log p_y, ``[batch, ...]``: what paired tests work on.

    **Shape**: log_probs ``[batch, classes, ...]``; labels ``[batch, ...]``.

    >>> import torch
    >>> example_nll(torch.tensor([[0.5, 0.5], [0.1, 0.9]]).log(), torch.tensor([0, 1]))
    tensor([0.6931, 0.1054])
    """
    log_probs = check_log_probs(log_probs)
    labels = check_labels(labels, log_probs)
    return -log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)


def example_brier(probs: Tensor, labels: Tensor) -> Tensor:
    """Each example's sum_c (p_c - 1[y = c])^2, ``[batch, ...]``.

    **Shape**: probs ``[batch, classes, ...]``; labels ``[batch, ...]``.

    >>> import torch
    >>> example_brier(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    tensor([0., 2.])
    """
    probs = check_probs(probs)
    labels = check_labels(labels, probs).unsqueeze(1)
    return probs.scatter_add(1, labels, probs.new_full(labels.shape, -1.0)).square().sum(1)
