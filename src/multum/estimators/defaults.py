"""What an estimator trains where its user leaves it open: by the kind of data, its size and the task.

    images                 network and recipe of runs/defaults.py
    rows                   tabular-mlp, AdamW, a cosine that ends at 0
      regression           60 epochs at most; stops once 12 epochs brought no better held-out loss
      classification       as runs/defaults.py has it, 20 epochs of fewer than 1,000 rows; a temperature mends what is
                           too sure, where stopping by the loss of few held-out examples stops too early
      batches              a 32nd of the rows, from 32 to 256 (512 of more than 100,000)
    held out               a fifth of 100 to 1,000 examples; else a tenth, 2,000 at most; of fewer than 100 none

Chosen on two splits each of boston, energy, yacht, diabetes and breast_cancer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..data.parts import Data
from ..methods import Method
from ..runs.defaults import LARGE_TABLE, SMALL_TABLE, default_model, default_recipe
from ..training.recipe import Recipe

__all__ = ["network_for", "recipe_for", "share_for"]

FEWEST = 100  # examples of which some are held out
MOST = 2000  # that are held out
SMALLEST_BATCH, LARGEST_BATCH = 32, 256
STEPS = 32  # batches of an epoch, where the limits allow it


def share_for(examples: int, asked: float | None) -> float:
    """The share of the examples that is held out.

    >>> share_for(99, None), share_for(500, None), share_for(50_000, None), share_for(50, 0.3)
    (0.0, 0.2, 0.04, 0.3)
    """
    if asked is not None:
        return asked
    return 0.0 if examples < FEWEST else 0.2 if examples < SMALL_TABLE else min(0.1, MOST / examples)


def network_for(data: Data) -> str:
    """The name of a network that suits the data."""
    few_rows = len(data.shape) == 1 and len(data.train) < SMALL_TABLE
    return "tabular-mlp" if few_rows else default_model(data)


def recipe_for(data: Data, method: Method, asked: Mapping[str, Any]) -> Recipe:
    """The recipe that suits the data and the method, with what was asked for."""
    suits = default_recipe(data)
    if len(data.shape) == 1:
        suits |= _for_rows(data)
    recipe = Recipe().with_overrides({**suits, **asked})
    if data.task == "regression" and "patience" not in asked and _may_stop(recipe, data, method):
        recipe = recipe.with_overrides({"patience": max(2, recipe.epochs // 5)})
    return recipe


def _for_rows(data: Data) -> dict[str, Any]:
    rows = len(data.train)
    size = LARGEST_BATCH
    while size > max(SMALLEST_BATCH, rows / STEPS):
        size //= 2
    fields: dict[str, Any] = {} if rows > LARGE_TABLE else {"batch_size": size}
    if data.task == "regression":
        return {**fields, "epochs": 60}
    return fields if rows >= SMALL_TABLE else {**fields, "epochs": 20}


def _may_stop(recipe: Recipe, data: Data, method: Method) -> bool:
    """Whether one epoch's weights can be kept: there is something to choose by, and all weights are of one epoch."""
    gathers = any(method.collects(epoch, recipe.epochs) for epoch in range(1, recipe.epochs + 1))
    alone = recipe.sequential and method.members > 1
    return data.validation is not None and not gathers and not alone and recipe.average_from is None
