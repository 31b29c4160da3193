"""What the members that voted say: `multum.predict`'s prediction, of a number of members that differs by example."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from ..outputs.prediction import Prediction


@dataclass(frozen=True, eq=False, repr=False)
class Voted(Prediction):
    """The mixture of the members that voted; the first `voted` of them, for each example. The logits of others are NaN.

    **Shape**: logits ``[members, batch, classes]``, voted ``[batch]``.
    """

    voted: Tensor

    @cached_property
    def log_probs(self) -> Tensor:
        """log p, over the members that voted, ``[batch, classes]``."""
        log_probs = self.logits.log_softmax(2).masked_fill(~self._votes.unsqueeze(2), -math.inf)
        logs = torch.tensor([math.log(max(k, 1)) for k in range(len(self.logits) + 1)], dtype=torch.float64)
        return log_probs.logsumexp(0) - logs.to(self.logits)[self.voted].unsqueeze(1)

    @cached_property
    def mutual_information(self) -> Tensor:
        """H(p) less the mean entropy of the members that voted, ``[batch]``."""
        entropies = torch.special.entr(self.members).sum(2).where(self._votes, 0)
        return (self.entropy - entropies.sum(0) / self.voted).clamp_min(0).where(self.voted > 1, 0)

    @cached_property
    def variation_ratio(self) -> Tensor:
        """The share of the members that voted, against the most voted class, ``[batch]``."""
        votes = nn.functional.one_hot(self.logits.nan_to_num().argmax(2), self.logits.shape[2])
        most = (votes * self._votes.unsqueeze(2)).sum(0).amax(1)
        return (self.voted - most).to(self.logits.dtype) / self.voted

    @property
    def _votes(self) -> Tensor:
        """Whether each member voted. Shape: [members, batch]."""
        return torch.arange(len(self.logits), device=self.voted.device).unsqueeze(1) < self.voted

    def to(self, device: torch.device | str) -> Voted:
        return Voted(self.logits.to(device), self.voted.to(device))
