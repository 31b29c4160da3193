"""Test accuracy along the epochs, of runs whose recipe left their weights after each of them (`states`)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from ..data import Data
from ..ensemble import Ensemble
from ..outputs.prediction import Prediction, predict
from ..training.averaging import Average, refresh_norms
from ..training.checkpoint import states
from ..training.recipe import Recipe
from .base import Row
from .measured import Trained

EXAMPLES = 2048  # of the test part, the same for every row, seed and epoch
TESTED = "test accuracy"


def along_epochs(trained: Trained) -> Trained:
    """The same, with the test accuracy beside the training accuracy of every epoch whose weights are there."""
    results: dict[str, dict[int, Any]] = {label: dict(of_row) for label, of_row in trained.results.items()}
    for row in trained.run.rows:
        for seed, result in results.get(row.label, {}).items():
            if not (trained.path(row.label, seed) / "states").is_dir():
                continue
            accuracy = accuracy_along(*trained.open(row.label, seed), states(trained.path(row.label, seed)), row)
            epochs = ((epoch, accuracy.get(epoch["epoch"])) for epoch in result["curves"]["training"])
            training = [{**epoch, **({} if tested is None else {TESTED: tested})} for epoch, tested in epochs]
            results[row.label][seed] = {**result, "curves": {**result["curves"], "training": training}}
    return replace(trained, results=results)


def accuracy_along(
    ensemble: Ensemble, data: Data, saved: Mapping[int, Mapping[str, Tensor]], row: Row
) -> dict[int, float]:
    """The ensemble's test accuracy after every epoch; of the averaged weights, where averaging has begun.

    Args:
        ensemble: as it was when training ended.
        saved: its tensors after every epoch, the beginning as 0.
    """
    recipe, last = Recipe().with_overrides(row.recipe), max(saved)
    part = data.test.drawn(min(EXAMPLES, len(data.test)), 0)
    x, trial, average = data.prepare(part.x[0 : len(part)]), copy.deepcopy(ensemble), Average()

    def accuracy(trial: Ensemble) -> float:
        prediction = predict(trial, x, batch_size=512)
        assert isinstance(prediction, Prediction)
        return float((prediction.labels == part.y).double().mean())

    every = {}
    for epoch in sorted(saved.keys() - {0, last}):
        state = saved[epoch]
        born = len(state[trial.own[0]]) if trial.own else trial.members
        if born != trial.members:
            trial.regrow({name: state[name].clone() for name in trial.own})
            average = Average()
        trial.load_state_dict(dict(state))
        if recipe.averages(epoch):
            weights = dict(trial.named_parameters())
            average.add(weights)
            if average.count > 1:
                average.install(weights)
                rows = len(data.train)
                refresh_norms(trial, data.prepare(data.train.x[0:rows]).tensor_split(-(-rows // 512)))
        every[epoch] = accuracy(trial)
    return {**every, last: accuracy(ensemble)}
