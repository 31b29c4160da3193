"""Which examples to label next: those of which an ensemble would learn the most."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..checks import one_of, whole
from ..errors import ConfigError
from .prediction import Prediction
from .regression import RegressionPrediction

OF_CLASSES: dict[str, Callable[[Prediction], Tensor]] = {
    "confidence": lambda p: 1 - p.confidence,  # the least confident first
    "entropy": lambda p: p.entropy,
    "margin": lambda p: p.probs.topk(2, 1).values.diff(dim=1).squeeze(1),  # the closest two classes first
    "mutual_information": lambda p: p.mutual_information,
    "variation_ratio": lambda p: p.variation_ratio,
}
OF_NUMBERS: dict[str, Callable[[RegressionPrediction], Tensor]] = {
    "epistemic": lambda p: p.epistemic,
    "variance": lambda p: p.variance,
}


def acquire(prediction: Prediction | RegressionPrediction, k: int, by: str | None = None) -> Tensor:
    """The k most informative examples of a pool, most informative first; ties keep their order.

    ``by`` is "mutual_information" (the members' disagreement; None is this), "entropy", "variation_ratio",
    "confidence" or "margin"; of a regression "epistemic" (the variance of the members' means; None is this) or
    "variance". Of an image's pixels the mean counts.

    **Shape**: indices ``[k]``, int64, into the examples of the prediction.

    >>> agree, differ = [[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]  # two members' probabilities of an example
    >>> pool = Prediction.from_logits(torch.tensor([agree, differ, differ]).log().transpose(0, 1))
    >>> acquire(pool, 2), acquire(pool, 2, by="entropy")
    (tensor([1, 2]), tensor([0, 1]))
    """
    if isinstance(prediction, Prediction):
        scores = OF_CLASSES[one_of("by", by or "mutual_information", OF_CLASSES)](prediction)
        scores = scores.flatten(1).mean(1) if scores.ndim > 1 else scores
    else:
        scores = OF_NUMBERS[one_of("by", by or "epistemic", OF_NUMBERS)](prediction)
        if scores.ndim > 1:
            raise ConfigError(
                f"examples must have one score each; got {list(scores.shape)}, of several targets. Choose one of them: "
                "RegressionPrediction(prediction.members[..., 0])"
            )
    if whole("k", k) > len(scores):
        raise ConfigError(f"k must be at most the {len(scores)} examples of the pool; got k={k}. Take fewer")
    if not bool(torch.isfinite(scores).all()):
        raise ConfigError("scores must be finite; got NaN or infinity. Look at the outputs of the ensemble")
    return scores.sort(descending=True, stable=True).indices[:k]
