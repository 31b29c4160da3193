"""What an ensemble says about a batch: the mixture of its members, and how much they disagree.

    classification   p(x) = 1/M sum_m softmax(z_m(x))             :class:`Prediction`
    regression       p(x) = 1/M sum_m N(mu_m(x), sigma_m^2(x))    :class:`RegressionPrediction`

Both are built by :func:`predict` from a network, or by their own constructors from stored outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from ..data.given import as_tensor, batches_of
from ..errors import ConfigError, check_known
from .regression import RegressionPrediction, at_least_float32, check_stacked


@overload
def predict(
    ensemble: nn.Module, x: Generator[Any, Any, Any], *, batch_size: int | None = None
) -> Iterator[Prediction | RegressionPrediction]: ...


@overload
def predict(ensemble: nn.Module, x: Any, *, batch_size: int | None = None) -> Prediction | RegressionPrediction: ...


def predict(
    ensemble: nn.Module, x: Any, *, batch_size: int | None = None
) -> Prediction | RegressionPrediction | Iterator[Prediction | RegressionPrediction]:
    """Run an ensemble in eval mode, without gradients, and return the prediction of its members together.

    Every module's training flag is as it was afterwards, also when the network raises. ``ensemble.task`` decides the
    kind of the prediction ("classification" where there is none); ``batch_size`` runs x slice by slice.

    x is a batch as the network takes it: a tensor, a numpy array or a pandas frame of numbers; a torch Dataset or
    DataLoader, whose examples give one prediction in the data set's order, with or without targets beside them; or a
    generator of batches, which gives a generator of predictions, one for each, so that a stream needs no memory.

    **Shape**: x ``[batch, ...]``; ``ensemble(x)`` is ``[members, batch, outputs, ...]``.

    >>> class Doubtful(nn.Module):
    ...     def forward(self, x):
    ...         return torch.stack([x, 2 * x, -x])
    >>> prediction = predict(Doubtful(), torch.eye(4), batch_size=3)
    >>> prediction
    Prediction(members=3, batch=4, classes=4)
    >>> prediction.labels
    tensor([0, 1, 2, 3])
    """
    if isinstance(x, Generator):
        return (_predicted(ensemble, batch, batch_size) for batch in x)
    return _predicted(ensemble, x, batch_size)


def _predicted(ensemble: nn.Module, x: Any, batch_size: int | None) -> Prediction | RegressionPrediction:
    noise = getattr(ensemble, "state", {}).get("noise")
    kinds: dict[str, Callable[[Tensor], Prediction | RegressionPrediction]] = {
        "classification": Prediction.from_logits,
        "regression": lambda outputs: RegressionPrediction.from_outputs(outputs, noise),
    }
    task = getattr(ensemble, "task", "classification")
    check_known(task, kinds, "ensemble.task must be classification or regression")
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1, or None for one pass; got batch_size={batch_size}")
    with eval_mode(ensemble), torch.no_grad():
        outputs = [ensemble(part) for part in batches_for(ensemble, x, batch_size)]
    if not outputs:
        raise ConfigError("a prediction must be of examples; got none")
    return kinds[task](outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1))


def batches_for(ensemble: nn.Module, x: Any, size: int | None) -> Iterable[Any]:
    """What the ensemble is called with: batches of what a user has, on its device."""
    calls = isinstance(x, dict) or (isinstance(x, (tuple, list)) and any(isinstance(each, Tensor) for each in x))
    if calls:  # the arguments of a network with several inputs
        return [x]
    if isinstance(x, Tensor):
        return [x] if size is None else x.split(size)
    if isinstance(x, (Dataset, DataLoader)):
        return (like_weights(ensemble, batch) for batch in batches_of(x, size))
    whole = like_weights(ensemble, as_tensor(x))
    return [whole] if size is None else whole.split(size)


def like_weights(ensemble: nn.Module, x: Tensor) -> Tensor:
    """The examples on the ensemble's device, and numbers in its precision."""
    weight = next((t for t in (*ensemble.parameters(), *ensemble.buffers()) if t.is_floating_point()), x)
    return x.to(weight.device, weight.dtype if x.is_floating_point() else x.dtype)


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The mixture of M classifiers, p = 1/M sum_m softmax(z_m), in full precision and computed when asked for.

    **Shape**: logits ``[members, batch, classes, ...]``; further axes (a segmentation's pixels) stay where they are.

    >>> members = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]])
    >>> prediction = Prediction.from_logits(members.log().unsqueeze(1))
    >>> prediction.probs
    tensor([[0.4750, 0.4250, 0.1000]])
    >>> prediction.variation_ratio  # three of four members vote for class 0
    tensor([0.2500])
    """

    logits: Tensor  # z, [members, batch, classes, ...]

    @classmethod
    def from_logits(cls, logits: Tensor) -> Prediction:
        """A prediction from stored logits ``[members, batch, classes, ...]``; half precision becomes float32.

        >>> len(Prediction.from_logits(torch.zeros(4, 32, 10)))
        32
        """
        check_stacked(logits, "[members, batch, classes, ...]")
        if logits.shape[2] < 2:
            raise ConfigError(
                f"a classifier must have at least 2 classes on axis 2; got outputs of shape {list(logits.shape)}. "
                'Give a yes-or-no network two outputs, or use task="regression"'
            )
        return cls(at_least_float32(logits))

    @cached_property
    def log_probs(self) -> Tensor:
        """log p = logsumexp_m log_softmax(z_m) - log M, ``[batch, classes, ...]``."""
        # The log of the averaged probabilities would be -inf wherever they underflow, and the NLL with it.
        # The members' own are used where they were asked for before; nobody else needs to hold on to them.
        members = vars(self).get("member_log_probs")
        members = self.logits.log_softmax(2) if members is None else members
        return members.logsumexp(0) - math.log(self.logits.shape[0])

    @cached_property
    def member_log_probs(self) -> Tensor:
        """log p_m = log_softmax(z_m), ``[members, batch, classes, ...]``."""
        return self.logits.log_softmax(2)

    @cached_property
    def probs(self) -> Tensor:
        """p, the members' mean probabilities, ``[batch, classes, ...]``."""
        return self.log_probs.exp()

    @cached_property
    def members(self) -> Tensor:
        """p_m = softmax(z_m), each member's probabilities, ``[members, batch, classes, ...]``."""
        return self.logits.softmax(2)

    @cached_property
    def labels(self) -> Tensor:
        """argmax_c p_c, ``[batch, ...]``."""
        return self.log_probs.argmax(1)

    @cached_property
    def confidence(self) -> Tensor:
        """max_c p_c, the maximum softmax probability, ``[batch, ...]``."""
        return self.probs.amax(1)

    @cached_property
    def entropy(self) -> Tensor:
        """H(p), the total uncertainty in nats: the entropy of the mean, ``[batch, ...]``."""
        return torch.special.entr(self.probs).sum(1)

    @cached_property
    def mutual_information(self) -> Tensor:
        """H(p) - 1/M sum_m H(p_m), the members' disagreement in nats, 0 to log min(M, classes), ``[batch, ...]``."""
        if len(self.logits) == 1:
            return torch.zeros_like(self.entropy)  # exactly: rounding would rank examples by noise
        mean_entropy = torch.special.entr(self.members).sum(2).mean(0)
        return (self.entropy - mean_entropy).clamp_min(0)  # rounding can make equal members' difference negative

    @cached_property
    def variation_ratio(self) -> Tensor:
        """1 - f_mode / M, the share of members that vote against the most voted class, ``[batch, ...]``."""
        votes = self.logits.argmax(2)
        # Counted in pairs: torch's mode sorts, and has no counterpart in the formats that models are exported to.
        agreeing = (votes.unsqueeze(0) == votes.unsqueeze(1)).sum(0).amax(0)
        return (len(votes) - agreeing).to(self.logits.dtype) / len(votes)

    def to(self, device: torch.device | str) -> Prediction:
        """The same prediction on another device."""
        return Prediction(self.logits.to(device))

    def __len__(self) -> int:
        return self.logits.shape[1]

    def __repr__(self) -> str:
        members, batch, classes = self.logits.shape[:3]
        return f"Prediction(members={members}, batch={batch}, classes={classes})"


@contextmanager
def eval_mode(network: nn.Module) -> Iterator[None]:
    """Every module in eval mode, and afterwards each as it was."""
    # Flags are put back one by one: network.train() would also unfreeze the norms a user keeps in eval mode.
    flags = [(module, module.training) for module in network.modules()]
    try:
        network.eval()
        yield
    finally:
        for module, training in flags:
            module.training = training
