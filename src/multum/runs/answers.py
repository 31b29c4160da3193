"""What a prediction says, by name: as tensors, which an exported graph puts out too, and as the columns of a table.

classification   probs, labels, confidence, entropy, mutual_information, variation_ratio
                 set [batch, classes] with a conformal level; abstain with a coverage or a risk
regression       mean, variance, aleatoric, epistemic, low, high
                 conformal_low, conformal_high and abstain likewise
both             members, where they are asked for: probabilities, or means and variances
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from ..data.preparation import Preparation
from ..metrics.conformal import ConformalIntervals, ConformalSets
from ..outputs.prediction import Prediction, RegressionPrediction
from .held_out import Rules, certainty_of


def answers(
    prediction: Prediction | RegressionPrediction, rules: Rules, *, positive: int, level: float, members: bool
) -> dict[str, Tensor]:
    """Everything by name.

    Args:
        positive: of two classes, the one that a threshold is for.
        level: of the intervals (low, high) that a regression itself gives.
        members: whether every member's own answer is among them.
    """
    if isinstance(prediction, Prediction):
        values = _of_classes(prediction, rules, positive)
    else:
        values = _of_numbers(prediction, rules, level)
    if rules.abstention is not None:
        values["abstain"] = ~rules.abstention(certainty_of(prediction))
    if members:
        values["members"] = prediction.members
    return values


def _of_classes(prediction: Prediction, rules: Rules, positive: int) -> dict[str, Tensor]:
    names = ("probs", "labels", "confidence", "entropy", "mutual_information", "variation_ratio")
    values = {name: getattr(prediction, name) for name in names}
    if rules.threshold is not None:
        is_positive = rules.threshold(prediction.probs[:, positive]).long()
        values["labels"] = is_positive if positive == 1 else 1 - is_positive
    if isinstance(rules.conformal, ConformalSets):
        values["set"] = rules.conformal(prediction.probs)
    return values


def _of_numbers(prediction: RegressionPrediction, rules: Rules, level: float) -> dict[str, Tensor]:
    values = {name: getattr(prediction, name) for name in ("mean", "variance", "aleatoric", "epistemic")}
    values["low"], values["high"] = prediction.interval(level)
    if isinstance(rules.conformal, ConformalIntervals):
        values["conformal_low"], values["conformal_high"] = rules.conformal(prediction)
    return values


def columns(values: Mapping[str, Tensor], data: Preparation, *, probabilities: bool) -> dict[str, Any]:
    """The columns of a table of these answers.

    Args:
        probabilities: whether the probability of every class has a column.
    """
    table = _class_columns(values, data) if "probs" in values else _number_columns(values, data)
    if "abstain" in values:
        table["abstain"] = values["abstain"].numpy()
    if "set" in values:
        names = data.class_names
        table["set"] = ["|".join(names[k] for k in row.nonzero().flatten().tolist()) for row in values["set"]]
        table["set_size"] = values["set"].sum(1).numpy()
    table |= {name: values[name].numpy() for name in ("conformal_low", "conformal_high") if name in values}
    if probabilities and "probs" in values:
        table |= _by_class("", values["probs"], data)
    for i, member in enumerate(values.get("members", ())):
        if "probs" in values:
            table |= _by_class(f"member{i}_", member, data)
        else:
            mean, variance = member.double().unbind(1)
            table |= _by_target({f"member{i}_mean": mean, f"member{i}_variance": variance}, data)
    return table


def _class_columns(values: Mapping[str, Tensor], data: Preparation) -> dict[str, Any]:
    labels = values["labels"].numpy()
    uncertainty = {name: values[name].double().numpy() for name in ("confidence", "entropy", "mutual_information")}
    return {"label": np.array(data.classes, dtype=object)[labels] if data.classes else labels, **uncertainty}


def _number_columns(values: Mapping[str, Tensor], data: Preparation) -> dict[str, Any]:
    numbers = {"mean": values["mean"], "std": values["variance"].sqrt()}
    return _by_target(numbers | {name: values[name] for name in ("aleatoric", "epistemic", "low", "high")}, data)


def _by_target(values: dict[str, Tensor], data: Preparation) -> dict[str, np.ndarray]:
    """Shape: values [batch], or [batch, targets], which become a column for each target."""
    if next(iter(values.values())).ndim == 1:
        return {name: t.numpy() for name, t in values.items()}
    targets = enumerate(data.named_targets)
    return {f"{name}_{target}": t[:, k].numpy() for k, target in targets for name, t in values.items()}


def _by_class(prefix: str, probs: Tensor, data: Preparation) -> dict[str, np.ndarray]:
    """Shape: probs [batch, classes]."""
    each = probs.double().unbind(1)
    return {f"{prefix}p_{name}": p.numpy() for name, p in zip(data.class_names, each, strict=True)}
