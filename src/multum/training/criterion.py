"""The loss that a run trains: by the task, the outputs of the network and the recipe."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..data.sources import Data
from ..ensemble import Ensemble
from ..errors import TrainingError
from ..outputs.loss import ClassLoss
from .recipe import Recipe


def criterion_for(ensemble: Ensemble, data: Data, recipe: Recipe) -> str | ClassLoss:
    """What `multum.loss` takes: a name, or a loss with weights of classes; what does not fit the task is refused."""
    one_output = "noise" in ensemble.state
    if data.task == "regression":
        if recipe.class_weights is not None or recipe.loss == "focal":
            raise TrainingError("class_weights and loss='focal' must be for classification; got regression. Leave out")
        if recipe.loss == "mse" and not one_output:
            raise TrainingError(
                "loss='mse' must have a network of one output per target; got one with mean and variance. Give its "
                "last layer one output per target, or leave loss out"
            )
        return usual_criterion(ensemble)
    if recipe.loss == "mse":
        raise TrainingError("loss='mse' must be for regression; got classification. Leave loss out, or use 'focal'")
    gamma = recipe.focal_gamma if recipe.loss == "focal" else 0.0
    if recipe.class_weights is None and gamma == 0:
        return usual_criterion(ensemble)
    return ClassLoss(None if recipe.class_weights is None else weights_of_classes(data, recipe.class_weights), gamma)


def usual_criterion(ensemble: Ensemble) -> str:
    """The name of the loss for an ensemble's task and outputs."""
    if ensemble.task != "regression":
        return "cross_entropy"
    return "mse" if "noise" in ensemble.state else "gaussian_nll"


def weights_of_classes(data: Data, wanted: str | Sequence[float]) -> Tensor:
    """The weight of every class, in these ratios, so that the training examples weigh 1 on average; [classes].

    "balanced" gives all classes the same weight together: w_c is in inverse proportion to the examples of class c.

    >>> from multum.data import Part
    >>> part = Part(torch.zeros(4, 1), torch.tensor([0, 1, 1, 1]))
    >>> own = Data("own", "classification", part, part, 2, None, None)
    >>> weights_of_classes(own, "balanced"), weights_of_classes(own, (3, 1))
    (tensor([2.0000, 0.6667]), tensor([2.0000, 0.6667]))
    """
    counts = data.class_counts.double()
    if wanted == "balanced":
        weights = torch.where(counts > 0, 1 / counts, 0.0)
    else:
        weights = torch.tensor([float(w) for w in wanted], dtype=torch.float64)
    if len(weights) != len(counts):
        raise TrainingError(
            f"class_weights must be one for each of the {len(counts)} classes; got {len(weights)}. The classes are "
            + ", ".join(data.class_names[:8])
        )
    mean = (weights * counts).sum() / counts.sum()
    if not mean > 0:
        raise TrainingError("class_weights must be positive for a class that has training examples; got none")
    return (weights / mean).float()
