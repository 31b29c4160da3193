"""What cannot end well, refused before anything is spent on it."""

from __future__ import annotations

import torch

from ..data.augment import image_functions
from ..data.rows import Stream
from ..data.sources import Data
from ..ensemble import Ensemble
from ..errors import ConfigError, TrainingError
from ..executors import EXECUTORS, REFERENCE
from ..methods import Method
from .recipe import Recipe


def refuse(ensemble: Ensemble, recipe: Recipe, data: Data, sequential: bool) -> None:
    """Raise where this ensemble, this recipe and this data do not fit together."""
    method, name = ensemble.method, type(ensemble.method).__name__
    if data.task != ensemble.task:
        raise TrainingError(f"data and ensemble must have one task; got {data.task} and {ensemble.task}")
    refuse_epochs(method, recipe)
    if sequential and set(ensemble.shared) & {n for n, p in ensemble.named_parameters() if p.requires_grad}:
        raise TrainingError(f"members that train one after another must share nothing; those of {name} share weights")
    if recipe.patience and sequential:
        raise TrainingError("patience ends the training of all members; got sequential=True, which trains one by one")
    gathers = any(method.collects(e, recipe.epochs) for e in range(1, recipe.epochs + 1))
    if recipe.keep == "best" and gathers:
        raise TrainingError(f"keep='best' keeps one epoch's weights; {name} gathers those of several epochs")
    if recipe.keep == "best" and recipe.best_by == "accuracy" and data.task != "classification":
        raise TrainingError(f"best_by='accuracy' is for classification; got {data.task}. Use best_by='nll'")
    if recipe.order == "own" and (method.arranges_batches or method.takes_turns) and method.members > 1:
        raise TrainingError(f"order='own' gives each member its own batches; {name} decides that itself")
    if recipe.recompute:
        _refuse_recomputing(ensemble)
    if isinstance(data.train.x, Stream):
        _refuse_rows(recipe, data)
    if data.train.weights is not None and (recipe.mixup or recipe.cutmix):
        raise TrainingError("mixup and cutmix must be 0 where examples have weights: they mix examples. Leave them out")
    _refuse_augmentation(recipe, data)


def refuse_epochs(method: Method, recipe: Recipe) -> None:
    """Raise where the members cannot be made in the recipe's epochs."""
    method.check_epochs(recipe.epochs)
    born = method.birth_after(recipe.epochs)
    if born is not None and not 0 < born < recipe.epochs:
        raise ConfigError(f"members must be born after 1 to {recipe.epochs - 1} epochs; got {born}. Train longer")


def _refuse_recomputing(ensemble: Ensemble) -> None:
    if ensemble.chosen not in (None, REFERENCE):
        raise TrainingError(
            f"recompute=True must run members one after another; got executor={ensemble.chosen!r}. "
            f"Use executor={REFERENCE!r}, or None"
        )
    if ensemble.pooled and any(EXECUTORS[name].pools for name in ensemble.executors):
        raise TrainingError(
            "recompute=True must have norms that see one member at a time; got one that members share, "
            f"{ensemble.pooled[0]}, whose statistics are pooled over all of them. Give members norms of their own"
        )


def _refuse_rows(recipe: Recipe, data: Data) -> None:
    """What needs rows, of a stream that has none."""
    fix = "Use a map-style data set"
    if recipe.keep == "best" and data.validation is None:
        raise TrainingError(
            "keep='best' and patience hold out a part of the training examples; got a stream, which cannot be split. "
            "Give (training, validation)"
        )
    if recipe.order == "own":
        raise TrainingError(f"order='own' gives each member its own batches; got a stream, which has one order. {fix}")
    if recipe.label_smoothing or recipe.mixup or recipe.cutmix:
        raise TrainingError(
            "label_smoothing, mixup and cutmix must know the number of classes; got a stream, which does not say it. "
            + fix
        )


def _refuse_augmentation(recipe: Recipe, data: Data) -> None:
    smooths = recipe.label_smoothing or recipe.mixup or recipe.cutmix
    if data.task == "regression" and smooths:
        raise TrainingError("label_smoothing, mixup and cutmix must be 0 in regression: they mix classes")
    if not data.is_image and (recipe.crop or recipe.flip or recipe.cutout or recipe.cutmix or recipe.randaugment):
        raise TrainingError(
            f"crop, flip, cutout, cutmix and randaugment are for images; got {data.name}, which is a table"
        )
    if recipe.randaugment:
        image_functions()
        if data.train.x.dtype != torch.uint8 or data.train.x.shape[1] not in (1, 3):
            raise TrainingError(
                "randaugment is for uint8 images of 1 or 3 channels; got "
                f"{data.train.x.dtype} images of {data.train.x.shape[1]} channels"
            )
