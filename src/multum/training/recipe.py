"""A recipe: everything about training that is not the network, the method or the data.

Learning rates are arithmetic on the step: nothing to save, nothing to restore. A schedule is a factor of the base rate
at progress p = epochs done so far, a real number.

    constant    1
    multistep   factor ** (number of milestones <= floor(p))
    cosine      final + (1 - final) * (1 + cos(pi * p / epochs)) / 2
    linear      1 until `anneal_from`, then straight to `final` at `anneal_to`, then `final`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..checks import whole
from ..errors import ConfigError, check_known, did_you_mean

OPTIMIZERS = ("sgd", "adam", "adamw", "lamb")
SCHEDULES = ("constant", "multistep", "cosine", "linear")
PRECISIONS = ("32-true", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "64-true")

WORDS: dict[str, tuple[Any, ...]] = {
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "keep": ("last", "best"),
    "best_by": ("nll", "accuracy"),
    "order": (None, "same", "own"),
    "reduction": (None, "sum", "mean"),
    "precision": PRECISIONS,
    "loss": (None, "focal", "mse"),
    "nesterov": (True, False),
    "flip": (True, False),
    "sequential": (True, False),
    "recompute": (True, False),
    "compile": (True, False),
}
WHOLE = {
    **dict.fromkeys(("epochs", "batch_size", "accumulate"), 1),
    **dict.fromkeys(("crop", "cutout", "randaugment", "ghost", "patience", "states", "seed"), 0),
}
NUMBERS = {
    **dict.fromkeys(("weight_decay", "l1", "mixup", "cutmix", "clip", "warmup", "lr", "focal_gamma"), (0, math.inf)),
    **dict.fromkeys(("momentum", "label_smoothing", "final", "anneal_from", "anneal_to", "factor"), (0, 1)),
    "magnitude": (0, 10),
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to train. Epochs are passes over the training set; learning rates are computed from the step."""

    epochs: int = 30
    batch_size: int = 64  # examples per step, over all processes together
    optimizer: str = "adamw"  # "sgd", "adam", "adamw", or "lamb" (from timm)
    lr: float = 2e-3  # base learning rate
    momentum: float = 0.9  # of sgd
    nesterov: bool = True  # of sgd
    weight_decay: float = 1e-4  # on everything that the method does not keep from decaying
    l1: float = 0.0  # factor of the sum of absolute weights in the loss, of everything that decays
    schedule: str = "cosine"  # "constant", "multistep", "cosine" or "linear"
    milestones: tuple[float, ...] = ()  # multistep: epochs at which the rate drops
    factor: float = 0.1  # multistep: by what
    anneal_from: float = 0.4  # linear: share of the epochs before the rate falls
    anneal_to: float = 0.8  # linear: share of the epochs where it reaches `final`
    final: float = 0.0  # cosine, linear: last rate as a share of the base rate
    warmup: float = 0.0  # epochs of linear warm-up
    reduction: str | None = None  # of members' losses, "sum" or "mean"; None: each as if alone, shared by the mean
    loss: str | None = None  # None: by the task and outputs; "focal" for classes, "mse" for one output per target
    focal_gamma: float = 2.0  # focal: how much less an example counts that is right already, (1 - p) ** gamma
    class_weights: str | tuple[float, ...] | None = None  # "balanced", or a number for each class; ratios count
    label_smoothing: float = 0.0
    crop: int = 0  # padding of random crops, 0 for none
    flip: bool = False  # mirror images at random
    randaugment: int = 0  # RandAugment: random operations per image, 0 for none (needs torchvision)
    magnitude: float = 9.0  # RandAugment: strength, of 10
    cutout: int = 0  # side of the square that is blanked, 0 for none
    mixup: float = 0.0  # alpha of mixup, 0 for none
    cutmix: float = 0.0  # alpha of cutmix, 0 for none; with mixup too, a coin decides per batch
    order: str | None = None  # of batches: the "same" for all members, or each its "own" shuffle; None: the method's
    ghost: int = 0  # ghost batch norm: statistics over chunks of (at least) this many rows, 0 for the whole batch
    average_from: float | None = None  # share of the epochs after which weights are averaged (SWA); None: never
    keep: str = "last"  # "last", or "best" on a held-out part of the training set
    best_by: str = "nll"  # what keep="best" goes by on the held-out part: "nll" or "accuracy"
    validation: float | None = None  # share of the training part to hold out; None: 0.1 with keep="best", else 0
    patience: int = 0  # early stopping: epochs without a better held-out score, 0 for never; keeps the best epoch
    states: int = 0  # weights are left in states/ after every so many epochs, for trajectories; 0: never
    clip: float = 0.0  # largest gradient norm of what a member owns, and of what all share; 0 for none
    sequential: bool = False  # train members one after another, where they share nothing; the same result
    recompute: bool = False  # memory for time: the activations of one member at a time, computed again in backward
    compile: bool = False  # torch.compile of each step's forward and loss; see `fit` on what is then the same bits
    accumulate: int = 1  # batches whose gradients are averaged before the optimizer moves
    precision: str = "32-true"  # as Fabric names it: "32-true", "16-mixed", "bf16-mixed", "64-true"
    seed: int = 0

    def __post_init__(self) -> None:
        single = isinstance(self.milestones, (int, float, str))
        object.__setattr__(self, "milestones", (self.milestones,) if single else tuple(self.milestones))
        for name, known in WORDS.items():
            value = getattr(self, name)
            if not any(value is k or (isinstance(k, str) and value == k) for k in known):
                raise ConfigError(
                    f"{name} must be one of {', '.join(map(repr, known))}; got {name}={value!r}. "
                    + did_you_mean(str(value), [str(k) for k in known])
                )
        for name, least in WHOLE.items():
            whole(name, getattr(self, name), least)
        for name, (low, high) in NUMBERS.items():
            if not _within(getattr(self, name), low, high):
                raise ConfigError(f"{name} must be a number from {low} to {high}; got {name}={getattr(self, name)!r}")
        self._check_class_weights()
        if not all(_within(m, 0, math.inf) for m in self.milestones):
            raise ConfigError(f"milestones must be epochs >= 0, as in 60+120; got milestones={self.milestones!r}")
        if self.average_from is not None and (not _within(self.average_from, 0, 1) or self.average_from == 1):
            raise ConfigError(
                f"average_from must be a share of the epochs, 0 <= average_from < 1; got {self.average_from!r}"
            )
        if self.patience:
            object.__setattr__(self, "keep", "best")
        if self.validation is not None and (not _within(self.validation, 0, 1) or self.validation == 1):
            raise ConfigError(f"validation must satisfy 0 <= validation < 1; got validation={self.validation!r}")
        if self.keep == "best" and self.validation == 0:
            raise ConfigError("keep='best' must have examples to choose by; got validation=0. Use validation=0.1")
        if self.compile and self.recompute:
            raise ConfigError(
                "recompute=True runs members one after another, and compile=True makes one program of them; got both. "
                "Choose one"
            )
        if self.anneal_from > self.anneal_to:
            raise ConfigError(
                f"anneal_from must be at most anneal_to; got anneal_from={self.anneal_from}, anneal_to={self.anneal_to}"
            )
        if self.keep == "best" and self.average_from is not None:
            raise ConfigError(
                "keep='best' keeps one epoch's weights and average_from the mean of many; got both. Choose one"
            )

    @property
    def held_out(self) -> float:
        """The share of the training part that is held out."""
        return (0.1 if self.keep == "best" else 0.0) if self.validation is None else self.validation

    def _check_class_weights(self) -> None:
        weights = self.class_weights
        if isinstance(weights, (list, tuple)):
            object.__setattr__(self, "class_weights", tuple(weights))
        valid = isinstance(weights, (list, tuple)) and all(_within(w, 0, math.inf) for w in weights)
        if weights is not None and weights != "balanced" and (not valid or math.inf in weights or not any(weights)):
            raise ConfigError(
                "class_weights must be 'balanced', or a number >= 0 for each class, as in 1+5; got "
                f"class_weights={weights!r}"
            )

    def rate(self, step: int, per_epoch: int) -> float:
        """The learning rate of batch 0, 1, ... with `per_epoch` batches in an epoch."""
        progress = step / per_epoch
        share = 1.0
        if self.schedule == "multistep":
            share = multistep(progress, self.milestones, self.factor)
        elif self.schedule == "cosine":
            share = cosine(progress, self.epochs, self.final)
        elif self.schedule == "linear":
            share = linear(progress, self.anneal_from * self.epochs, self.anneal_to * self.epochs, self.final)
        return self.lr * share * _warmed((step + 1) / per_epoch, self.warmup)

    def averages(self, epoch: int) -> bool:
        """Whether the weights at the end of this epoch (1, 2, ...) enter the average."""
        # floor(0.7 * 10 + 1e-9): 0.7 * 10 is 7, whatever the last bit of 0.7 says.
        return self.average_from is not None and epoch > math.floor(self.average_from * self.epochs + 1e-9)

    def with_overrides(self, overrides: Mapping[str, Any]) -> Recipe:
        """The recipe with some fields changed; an unknown field names the closest known ones."""
        for name in overrides:
            check_known(name, [f.name for f in fields(self)], "an override must name a field of Recipe")
        return replace(self, **overrides)


def _within(value: Any, low: float, high: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high


def multistep(progress: float, milestones: Sequence[float], factor: float) -> float:
    """
    >>> [multistep(p, (60, 120), 0.2) for p in (0, 59.9, 60, 119, 120)]
    [1.0, 1.0, 0.2, 0.2, 0.04000000000000001]
    """
    done = math.floor(progress + 1e-9)
    return float(factor ** sum(m <= done for m in milestones))


def cosine(progress: float, epochs: float, final: float = 0.0) -> float:
    """
    >>> [round(cosine(p, 10), 4) for p in (0, 5, 10)]
    [1.0, 0.5, 0.0]
    """
    return final + (1 - final) * (1 + math.cos(math.pi * min(progress / epochs, 1.0))) / 2


def linear(progress: float, start: float, end: float, final: float) -> float:
    """
    >>> [round(0.1 * linear(p, 80, 160, 0.5), 6) for p in (80, 100, 120, 160, 161)]
    [0.1, 0.0875, 0.075, 0.05, 0.05]
    """
    if progress <= start:
        return 1.0
    if progress >= end:
        return final
    return 1.0 + (final - 1.0) * (progress - start) / (end - start)


def _warmed(progress: float, warmup: float) -> float:
    """The factor of a linear warm-up that ends after `warmup` epochs; the first step is not at rate 0.

    >>> [_warmed(p, 2) for p in (0.5, 1, 2, 3)]
    [0.25, 0.5, 1.0, 1.0]
    """
    return 1.0 if warmup <= 0 else min(1.0, progress / warmup)
