"""`multum.Course`: the training of every method in a loop of one's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from ..checks import whole
from ..ensemble import Ensemble
from ..errors import ConfigError, TrainingError
from ..outputs.loss import Criterion, loss
from .averaging import norms_of, refresh_norms
from .batches import stream
from .criterion import usual_criterion
from .progress import Progress
from .recipe import Recipe
from .refusals import refuse_epochs

# Fields of a recipe that are about weights; the others are about data, devices and files, which are the loop's.
FIELDS = {"epochs", "optimizer", "lr", "momentum", "nesterov", "weight_decay", "l1", "clip", "accumulate", "seed"}
FIELDS |= {"schedule", "milestones", "factor", "anneal_from", "anneal_to", "final", "warmup", "reduction"}
FIELDS |= {"average_from"}


class Course:
    """Trains any method in your own loop: you bring batches, losses and devices.

        course = multum.Course(ens, multum.Recipe(epochs=30, lr=0.01), per_epoch=len(loader))
        ...     course.step(x, y)            # wherever your loop has a batch
        course.conclude()

    A step has the learning rate of the recipe or of the method (cycles of Snapshot), trains the members whose turn it
    is (one after the other in Hypernet), gives each its own gradient and what they share the mean, and moves them. With
    the last batch of an epoch weights are averaged, and members are gathered or born. It is the training of
    `multum.fit`: the same batches give the same weights.

    Args:
        recipe: how weights move and for how long. Fields about data, devices and files must be left as they are.
        per_epoch: batches in an epoch; where there are no epochs, `epochs=1` and the number of all steps.

    >>> import torch, multum
    >>> net = multum.models.build("mlp", in_features=2, classes=2)
    >>> ens = multum.ensemble(net, multum.Snapshot(members=3), example=torch.zeros(2, 2), seed=0)
    >>> x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    >>> course = multum.Course(ens, multum.Recipe(epochs=30, lr=0.05), per_epoch=1)
    >>> while not course.over:
    ...     value = course.step(x, (x[:, 0] > 0).long())
    >>> course.conclude()
    >>> ens.members, bool(value < 3 * 0.3)
    (3, True)
    """

    def __init__(self, ensemble: Ensemble, recipe: Recipe | None = None, *, per_epoch: int):
        recipe, plain = recipe or Recipe(), Recipe()
        others = (f.name for f in fields(Recipe) if f.name not in FIELDS)
        if changed := [name for name in others if getattr(recipe, name) != getattr(plain, name)]:
            raise ConfigError(
                "a recipe for a loop of your own must leave data, devices and files to the loop; got "
                f"{', '.join(changed)}. Do it in the loop, or use multum.fit"
            )
        refuse_epochs(ensemble.method, recipe)
        self.progress = Progress(ensemble, recipe, whole("per_epoch", per_epoch), _Here())
        ensemble.train()

    @property
    def over(self) -> bool:
        """Whether all steps are done."""
        return self.progress.over

    def step(
        self,
        x: Any,
        y: Any,
        criterion: Criterion | str | None = None,
        *,
        weights: Tensor | None = None,
        per_member: bool = False,
    ) -> Tensor:
        """Train on one batch; the loss before the step, summed over the members that were trained.

        Args:
            criterion: as `multum.loss` takes it, a name or a function of one member's outputs and targets; None: by
                the task of the ensemble.
            weights: of the examples' losses.
            per_member: whether x, y and weights are [members, batch, ...], to each member its own.
        """
        progress = self.progress
        ensemble, recipe = progress.ensemble, progress.recipe
        if progress.over:
            raise TrainingError(f"a course must have steps left; got one more than {progress.step}. Use more epochs")
        ensemble.train()
        member = progress.turn()
        progress.optimizers.set_rate(progress.rate())
        progress.optimizers.hold()
        if not per_member:
            beside = y if weights is None else (y, weights)
            mixing = stream(recipe.seed, "batch", progress.epoch, progress.first)
            x, beside, per_member = progress.method.batch(x, beside, mixing)
            y, weights = (beside, None) if weights is None else beside
        outputs = ensemble(x, per_member=per_member, member=member)
        outputs = outputs if member is None else outputs.unsqueeze(0)
        criterion = criterion or usual_criterion(ensemble)
        value = loss(outputs, y, criterion=criterion, reduction=progress.reduction, weights=weights)
        value = progress.backward(value, member)
        progress.move(member)
        if progress.first == progress.per_epoch:
            self._end_epoch()
        return value.detach()

    def conclude(self, inputs: Iterable[Any] | None = None) -> None:
        """Make the final ensemble, in eval mode.

        Args:
            inputs: batches of x, for batch norms whose weights are averages or draws and have seen no data.
        """
        progress = self.progress
        ensemble, recipe = progress.ensemble, progress.recipe
        if not progress.over:
            left = progress.epochs * progress.per_epoch - progress.step
            raise TrainingError(f"a course must be over before its conclusion; got {left} steps left. Take them first")
        renews = (progress.method.renews_norms or recipe.average_from is not None) and norms_of(ensemble)
        if renews and inputs is None:
            raise TrainingError(
                "batch norms of averaged weights must see data anew; got none. Give course.conclude batches of x"
            )
        progress.method.conclude(ensemble)
        if renews and inputs is not None:
            refresh_norms(ensemble, inputs, recipe.seed)
        ensemble.eval()

    def _end_epoch(self) -> None:
        progress = self.progress
        progress.epoch, progress.first = progress.epoch + 1, 0
        progress.gather(progress.epoch, None)
        progress.give_birth(progress.epoch)
        if progress.over:
            progress.settle(None)


class _Here:
    """What a training asks of Lightning Fabric, in one process and in the ensemble's own precision."""

    strategy = SimpleNamespace(precision=SimpleNamespace(unscale_gradients=lambda optimizer: None))

    def setup_module(self, module: nn.Module) -> nn.Module:
        return module

    def setup_optimizers(self, optimizer: Any) -> Any:
        return optimizer

    def backward(self, value: Tensor) -> None:
        value.backward()

    def clip_gradients(self, module: nn.Module, optimizer: Any, max_norm: float, error_if_nonfinite: bool) -> None:
        nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], max_norm)
