"""Where a training is, what it moves, and what its method asks between steps: the one door of every loop.

`multum.fit` and multum.lightning (run.py) pass through it with data, files and processes, a loop of one's own
(course.py) with nothing but batches.
"""

from __future__ import annotations

import gc
from typing import Any

from torch import Tensor

from ..ensemble import Ensemble
from ..network.copies import tensors_of
from .averaging import Average, Best
from .batches import stream
from .optimizers import Optimizers
from .recipe import Recipe


class Progress:
    """The state of a training.

    Args:
        per_epoch: batches in an epoch.
        fabric: what knows devices, precision and processes.
    """

    def __init__(self, ensemble: Ensemble, recipe: Recipe, per_epoch: int, fabric: Any):
        self.ensemble, self.recipe, self.method = ensemble, recipe, ensemble.method
        self.per_epoch, self.fabric = per_epoch, fabric
        self.sequential = recipe.sequential and self.method.members > 1
        self.reduction = recipe.reduction or "sum"
        self.epochs = recipe.epochs * (ensemble.members if self.sequential else 1)
        self.epoch = self.first = self.step = 0  # epochs done, batches done in this one, batches done in all
        self.moves = self.born = 0  # moves of the optimizers, and how many were made when the members were born
        self.average, self.best = Average(), Best()
        self.model: Any = fabric.setup_module(ensemble)
        # Whether each member needs an optimizer of its own.
        apart = self.method.takes_turns or recipe.sequential or recipe.optimizer == "lamb"
        self.optimizers = Optimizers(ensemble, recipe, fabric, apart=apart)

    # -- of a step -----------------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether training is over."""
        return self.epoch >= self.epochs

    @property
    def alone(self) -> int | None:
        """The member whose turn it is when members train one after another."""
        return min(self.epoch, self.epochs - 1) // self.recipe.epochs if self.sequential else None

    @property
    def group(self) -> int:
        """Batches whose gradients make the present move; the last move of an epoch may have fewer."""
        begun = self.first - self.first % self.recipe.accumulate
        return min(self.recipe.accumulate, self.per_epoch - begun)

    @property
    def moves_now(self) -> bool:
        """Whether the optimizers move after the present batch."""
        return self.first % self.recipe.accumulate == self.group - 1

    def turn(self) -> int | None:
        """The one member that the present move trains; None for all."""
        if self.sequential:
            return self.alone
        return self.method.turn(self.ensemble, self.moves - self.born, stream(self.recipe.seed, "turn", self.moves))

    def rate(self, back: int = 0) -> float:
        """The learning rate of the present batch, or of one before."""
        per_epoch, steps = self.per_epoch, self.recipe.epochs * self.per_epoch
        step = (self.step - back) % steps
        return self.method.learning_rate(self.recipe.rate(step, per_epoch), step, steps, per_epoch, self.recipe.lr)

    def backward(self, value: Tensor, member: int | None) -> Tensor:
        """The gradients of one batch's loss; the loss as it is trained, with its penalty."""
        penalty = self.recipe.l1 * self.optimizers.magnitude(member) if self.recipe.l1 else 0.0
        # A member that trains alone has its share of the mean over all members.
        share = self.ensemble.members if self.sequential and self.reduction == "mean" else 1
        self.fabric.backward((value / share + penalty) / self.group)
        return value + penalty

    def move(self, member: int | None) -> None:
        """Let the optimizers step once their batches are together, and count."""
        moves_now = self.moves_now
        self.step, self.first = self.step + 1, self.first + 1
        if not moves_now:
            return
        self.moves += 1
        # Nested steps: what a member owns moves at once, what members share once per cycle by all its gradients. The
        # cycle runs on over epochs; its remainder at the very end is stepped too.
        cycle = 1 if member is None else self.method.shared_step_every(self.ensemble.members)
        last = self.step == self.epochs * self.per_epoch
        turns = (self.moves - self.born - 1) % cycle + 1
        self.optimizers.step(member, shared=last or turns == cycle, turns=turns)

    # -- of an epoch ---------------------------------------------------------------------------------------------------

    def gather(self, epoch: int, alone: int | None) -> None:
        """What the end of this epoch (1, 2, ...) adds to averages, and to what the method collects."""
        if self.recipe.averages(epoch):
            self.average.add(self._weights(alone))
        if not self.method.collects(epoch, self.recipe.epochs):
            return
        if self.average.count and self.method.collects_average():
            with self.average.installed(self._weights(None)):
                self.method.collect(self.ensemble)
        else:
            self.method.collect(self.ensemble)

    def give_birth(self, epoch: int) -> bool:
        """Make the members that are born at the end of this epoch; whether there were any."""
        if self.method.birth_after(self.recipe.epochs) != epoch or self.ensemble.members >= self.method.members:
            return False
        self.method.give_birth(self.ensemble)
        self.born = self.moves
        self.average, self.best = Average(), Best()  # of members that are no more
        self.adopt_members()
        return True

    def adopt_members(self) -> None:
        """New own tensors: a wrapper made before would not see them, and their optimizers start empty."""
        self.model = None
        gc.collect()  # the old wrapper's hooks on shared tensors must go before the new one's come
        self.model = self.fabric.setup_module(self.ensemble)
        self.optimizers.adopt_members()

    def settle(self, alone: int | None) -> None:
        """The end of training, or of one member's: the best or the average takes the place of the last weights."""
        self.best.install(self._tensors(alone))
        self.average.install(self._weights(alone))
        self.average, self.best = Average(), Best()

    def _tensors(self, alone: int | None) -> dict[str, Tensor]:
        """All tensors, or one member's slices of what members own."""
        tensors = {n: t for n, t in tensors_of(self.ensemble.network).items() if n not in self.ensemble.numbers}
        return tensors if alone is None else {n: tensors[n].detach()[alone] for n in self.ensemble.own}

    def _weights(self, alone: int | None) -> dict[str, Tensor]:
        trainable = {n for n, p in self.ensemble.named_parameters() if p.requires_grad}
        return {n: t for n, t in self._tensors(alone).items() if n in trainable}
