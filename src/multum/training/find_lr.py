"""A learning-rate finder: one short trial with a rate that grows from step to step (Smith, WACV 2017).

The trial runs on a copy, so that the ensemble is afterwards as it was: weights, buffers, generators, flags. The loss is
smoothed by an exponential mean (factor 0.9, freed of its bias); the trial ends once it is as far above its mean over
the first tenth of the steps as its lowest value lies below that, or is lost. The choice is a tenth of the rate at which
it is lowest, in two digits; a fall that is smaller than the scatter of the first losses is none.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ..checks import number, whole
from ..ensemble import Ensemble
from ..errors import ConfigError, TrainingError
from .batches import Step
from .devices import Place
from .loop import learn
from .recipe import Recipe
from .reporting import is_lost
from .run import Run

if TYPE_CHECKING:
    import pandas as pd


SMOOTH = 0.9
SHOWN = 12  # rates that a person reads


@dataclass(frozen=True)
class RateCurve:
    """What a trial gave. Shape: `rates`, `losses` and `smooth` have a number per step; losses are per member."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smooth: tuple[float, ...]
    lr: float  # the choice

    def frame(self) -> pd.DataFrame:
        """The numbers, one row per step."""
        import pandas as pd

        return pd.DataFrame({"rate": self.rates, "loss": self.losses, "smooth": self.smooth})

    def plot(self) -> Any:
        """Loss against rate, and the choice: a matplotlib figure."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 3.5), layout="constrained")
        axes = figure.subplots()
        axes.plot(self.rates, self.losses, color="0.75", linewidth=1)
        axes.plot(self.rates, self.smooth)
        axes.axvline(self.lr, linestyle="--", color="0.4")
        axes.set(xscale="log", xlabel="learning rate", ylabel="loss per member", title=f"lr {self.lr:.2g}")
        return figure

    def __str__(self) -> str:
        low, high = min(self.smooth), max(self.smooth)
        chosen = range(0, len(self.rates), max(1, len(self.rates) // SHOWN))
        lines = [
            f"  {self.rates[i]:8.2g}  {self.smooth[i]:9.4f}  {'#' * round(30 * (self.smooth[i] - low) / (high - low))}"
            for i in chosen
        ]
        lowest = self.rates[self.smooth.index(low)]
        return "\n".join(
            [
                "  rate      loss per member, smoothed",
                *lines,
                f"lr={self.lr:.3g}: a tenth of {lowest:.3g}, where the loss is lowest",
            ]
        )


def find_lr(
    ensemble: Ensemble,
    data: Any,
    recipe: Recipe | None = None,
    *,
    low: float = 1e-6,
    high: float = 10.0,
    steps: int = 100,
    accelerator: str = "auto",
) -> RateCurve:
    """Propose a learning rate for an ensemble, data and recipe; the ensemble itself is not changed.

    Args:
        data: as `fit` takes it.
        low, high: the first rate, and the last one that is tried.
        steps: between them, each on a batch of its own.

    >>> import multum
    >>> net = multum.models.build("mlp", in_features=2, classes=2)
    >>> ens = multum.ensemble(net, multum.Deep(members=2), example=torch.zeros(2, 2), seed=0)
    >>> x = torch.randn(640, 2, generator=torch.Generator().manual_seed(0))
    >>> 1e-4 < multum.find_lr(ens, (x, (x[:, 0] > 0).long())).lr < 1
    True
    """
    number("low", low, above=0)
    number("high", high, above=low, fix="Choose it above low")
    if whole("steps", steps) < 10:
        raise ConfigError(f"steps must be at least 10 for a curve; got steps={steps}. Use for example steps=100")
    recipe = replace(
        recipe or Recipe(), accumulate=1, keep="last", patience=0, average_from=None, states=0, sequential=False
    )
    losses: list[float] = []
    smooth: list[float] = []
    rates = [low * (high / low) ** (k / (steps - 1)) for k in range(steps)]
    few = max(2, steps // 10)
    with torch.random.fork_rng(), _trial(ensemble, data, recipe, accelerator) as run:
        for rate, step in zip(rates, _endless(run), strict=False):
            loss = _step(run, step, rate)
            if is_lost(loss):
                break
            losses.append(loss)
            smooth.append(_exponential_mean(losses))
            start = statistics.fmean(losses[:few])
            if len(losses) > few and smooth[-1] - start > max(start - min(smooth), 0.1 * abs(start)):
                break
    if len(losses) <= few or start - min(smooth) <= statistics.pstdev(losses[:few]):
        raise TrainingError(
            f"the loss must fall at some rate; got none between {low:g} and {high:g} in {len(losses)} steps. "
            "Look at the data and the network, or give more steps"
        )
    choice = float(f"{rates[smooth.index(min(smooth))] / 10:.2g}")
    return RateCurve(tuple(rates[: len(losses)]), tuple(losses), tuple(smooth), choice)


def _trial(ensemble: Ensemble, data: Any, recipe: Recipe, accelerator: str) -> Run:
    """A run that is never finished, on a copy."""
    place = Place(accelerator)
    return Run(copy.deepcopy(ensemble), data, recipe, place, None, False, False, False, checkpoint_seconds=math.inf)


def _step(run: Run, step: Step, rate: float) -> float:
    """One move at this rate; the loss per member before it."""
    run.optimizers.set_rate(rate)
    member = run.turn()
    value, outputs = learn(run, step, member)
    run.move(member)
    return float(value.detach()) / (len(outputs) if run.reduction == "sum" else 1)


def _exponential_mean(losses: list[float]) -> float:
    weights = [SMOOTH**k for k in range(len(losses))]
    return sum(w * loss for w, loss in zip(weights, reversed(losses), strict=True)) / sum(weights)


def _endless(run: Run) -> Iterator[Step]:
    """The batches of one epoch after the other."""
    while True:
        yield from run.batches.epoch(run.epoch)
        run.epoch, run.first = run.epoch + 1, 0
