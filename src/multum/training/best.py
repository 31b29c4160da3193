"""The weights that did best on a part of the training set that training does not see."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..data.sources import Data
from ..ensemble import Ensemble
from ..outputs.prediction import Prediction, RegressionPrediction

__all__ = ["Best", "held_out_nll"]


class Best:
    """The best score so far, lower is better, and the tensors it belongs to."""

    def __init__(self, score: float = math.inf, tensors: dict[str, Tensor] | None = None):
        self.score, self.tensors = score, tensors or {}

    def consider(self, score: float, tensors: Mapping[str, Tensor]) -> None:
        if score < self.score or not self.tensors:
            self.score, self.tensors = score, {name: t.detach().clone() for name, t in tensors.items()}

    @torch.no_grad()
    def install(self, tensors: Mapping[str, Tensor]) -> None:
        for name, value in self.tensors.items():
            tensors[name].copy_(value)


@torch.no_grad()
def held_out_nll(ensemble: Ensemble, data: Data, place: Any, member: int | None = None, size: int = 512) -> float:
    """NLL of the mixture of all members, or of one, on the validation part, in standardised units.

    Args:
        place: what brings a tensor to the ensemble's device and dtype.
    """
    assert data.validation is not None
    part, total = data.validation, 0.0
    ensemble.eval()
    for start in range(0, len(part), size):
        rows = slice(start, start + size)
        outputs = ensemble(place(data.prepare(part.x[rows])), member=member)
        y = data.targets(part.y[rows]).to(outputs.device)
        total += _nll(outputs if member is None else outputs.unsqueeze(0), y, data.task) * len(y)
    ensemble.train()
    return total / len(part)


def _nll(outputs: Tensor, y: Tensor, task: str) -> float:
    if task == "classification":
        found = Prediction.from_logits(outputs)
        return -float(found.log_probs.gather(1, y[:, None]).mean())
    mixture = RegressionPrediction.from_outputs(outputs)
    mean, variance = mixture.members[..., 0], mixture.members[..., 1]
    log = torch.distributions.Normal(mean, variance.sqrt()).log_prob(y)
    return -float((log.logsumexp(0) - math.log(len(mean))).mean())
