"""A cascade inside a file: every member but the first stands in a branch, which runs where some example goes on.

    left_0 = all of the batch
    z_k    = If(any(left_k)) member k of the batch, else nothing        logits are NaN where an example had stopped
    left_k+1 = left_k and score(p_k) < threshold

A file cannot take single examples out of a batch, as `Cascade` does: an answer is the same, but a batch runs as many
members as the example of it that needs most. One example at a time saves all that `Cascade` saves.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..cascades.cascade import SCORES, Cascade, running
from ..errors import ExportError
from ..network.copies import run
from ..optimizing.members import Members, is_sampled

__all__ = ["CascadedMembers", "clear_of_threshold", "refuse"]


class CascadedMembers(Members):
    """Plain networks, of which one runs where those before it left an example undecided."""

    def __init__(self, networks: list[nn.Module], cascade: Cascade):
        super().__init__(networks)
        self.threshold, self.score = cascade.threshold, SCORES[cascade.score]

    def forward(self, x: Any) -> Tensor:
        """Shape: [batch, ...] -> [members, batch, classes], NaN of members that did not vote."""
        first, *others = self.networks
        logits = [run(first, x)]
        total = logits[0].log_softmax(1)
        left = self._goes_on(total)
        leaves, spec = tree_flatten(x)
        for k, network in enumerate(others, 2):

            def asked(like: Tensor, *leaves: Tensor, network: nn.Module = network) -> Tensor:
                return run(network, tree_unflatten(list(leaves), spec))

            def not_asked(like: Tensor, *leaves: Tensor) -> Tensor:
                return torch.full_like(like, math.nan)

            own = torch.cond(left.any(), asked, not_asked, (logits[0], *leaves))
            logits.append(torch.where(left.unsqueeze(1), own, math.nan))
            total = torch.where(left.unsqueeze(1), total.logaddexp(own.log_softmax(1)), total)
            left = left & self._goes_on(total - math.log(k))
        return torch.stack(logits)

    def _goes_on(self, log_probs: Tensor) -> Tensor:
        return self.score(log_probs) < self.threshold


def refuse(cascade: Cascade, format: str, members: int | None, rules: Any) -> None:
    """Raise where a file of this cascade would not say, or not save, what the cascade does."""
    ens = cascade.ensemble
    if format == "torch":
        raise ExportError(
            "a cascade must be exported as ONNX; got torch, whose branches do not take batches of one example, the "
            'batches that a cascade saves most of. Use format="onnx"'
        )
    if is_sampled(ens):
        raise ExportError(
            f"an exported cascade must be of members that are networks; got {ens.method.name}, whose members are "
            "samples. Export the ensemble"
        )
    if cascade.trunk:
        raise ExportError(
            f"an exported cascade must be of members that share no layers; got {ens.method.name}, whose trunk every "
            "branch of the file would compute again. Use multum.Cascade, or export the ensemble"
        )
    if members is not None or "temperature" in rules:
        what = "members" if members is not None else "temperature"
        raise ExportError(f"a cascade must be exported as it was chosen; got `{what}`. Choose another one with it")


def clear_of_threshold(cascade: Cascade, logits: Tensor, near: float) -> Tensor:
    """Which examples stop where they do by more than rounding. Shape: logits [members, batch, classes] -> [batch]."""
    scores = torch.stack([SCORES[cascade.score](each) for each in running(logits)])
    return ((scores - cascade.threshold).abs() > near).all(0)
