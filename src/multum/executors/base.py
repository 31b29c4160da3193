"""What an executor is, with harmless defaults: a new one is one file with one object, and one line in __init__.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import NetworkError, first_line
from ..network.copies import on_meta, tensors_of, trial_copy
from ..rewrite.dropout import Randomness

__all__ = ["Executor"]


class Executor:
    """One way to run all members. All executors give the same numbers to rounding."""

    name: ClassVar[str]
    mostly_fastest: ClassVar[bool] = False  # whether it stands where no other is measured to be clearly faster
    pools: ClassVar[bool] = False  # whether a norm that members share normalises by all of them at once in training

    def run(
        self,
        network: nn.Module,
        stacked: Mapping[str, Tensor],
        moving: Mapping[str, Tensor],
        x: Any,
        members: int,
        per_member: bool,
        randomness: Randomness | None,
    ) -> Tensor:
        """All members' outputs.

        Shape: stacked tensors [members, ...], x [batch, ...] or [members, batch, ...] -> [members, batch, ...].

        Args:
            network: computes one member.
            moving: shared buffers that a forward pass in training changes; they move once per call.
            per_member: whether x has a member axis.
            randomness: the generators, where the members share a dropout mask; None where they share none.
        """
        raise NotImplementedError

    def tried(self, *trial: Any) -> Tensor:
        """The run that decides whether the network can be run."""
        return self.run(*trial)

    def suits(self, device: str, training: bool, trunk: bool) -> bool:
        """Whether this is the default for a device type and mode, where no executor before it in the registry is."""
        return False

    def refusal(
        self,
        network: nn.Module,
        stacked: Iterable[str],
        moving: Iterable[str],
        x: Any,
        members: int,
        per_member: bool,
        modes: Iterable[bool],
    ) -> str | None:
        """Why this executor cannot run the network, or None; tried on a copy, since a failed run has moved buffers.

        Args:
            stacked: names of the tensors with a member axis.
            moving: names of the shared buffers that training changes.
            modes: of training in which the network is tried.
        """
        if on_meta(network):
            return None  # where nothing is computed, nothing can fail for good
        try:
            trial = trial_copy(network)
            tensors = tensors_of(trial)
            owned, moved = ({name: tensors[name] for name in names} for names in (stacked, moving))
            for training in modes:
                trial.train(training)
                with torch.no_grad(), torch.random.fork_rng():
                    self.tried(trial, owned, moved, x, members, per_member, None)
        except NetworkError:
            raise
        except Exception as error:  # a user's network may raise anything; whatever it is, the reference can run it
            return f"{type(error).__name__}: {first_line(error)}"
        return None
