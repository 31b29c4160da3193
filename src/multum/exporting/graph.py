"""From raw examples to answers in one module: preparation, members, and what `multum.predict` says of their outputs.

classification   probs, labels, confidence, entropy, mutual_information, variation_ratio
                 set [batch, classes] with a conformal level; abstain with a coverage or a risk
regression       mean, variance, aleatoric, epistemic, low, high
                 conformal_low, conformal_high and abstain likewise
both             members, where they are asked for: probabilities, or means and variances
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..data.preparation import Preparation
from ..metrics.conformal import ConformalIntervals, ConformalSets
from ..metrics.regression import in_units
from ..outputs.prediction import Prediction, RegressionPrediction
from ..runs.held_out import Rules, certainty_of
from .columns import TableCells

__all__ = ["Graph", "Meaning"]


@dataclass(frozen=True, eq=False)
class Meaning:
    """What outputs of members mean."""

    task: str
    preparation: Preparation | None = None  # None: inputs are the network's own
    rules: Rules = field(default_factory=Rules)
    level: float = 0.95  # of the intervals that a regression itself gives
    each_member: bool = False  # whether every member's answer is put out

    def answers(self, outputs: Tensor, noise: Tensor | None = None) -> dict[str, Tensor]:
        """By name. Shape: outputs [members, batch, ...] to [batch, ...] each."""
        if self.task == "regression":
            prediction = RegressionPrediction.from_outputs(outputs, noise)
            data = self.preparation
            if data is not None:
                prediction = in_units(prediction, mean=data.target_mean, std=data.target_std)
            return self._numbers(prediction)
        return self._classes(self.rules.read(outputs, self.task))

    def _classes(self, prediction: Prediction) -> dict[str, Tensor]:
        names = ("probs", "labels", "confidence", "entropy", "mutual_information", "variation_ratio")
        values = {name: getattr(prediction, name) for name in names}
        if self.rules.threshold is not None:
            positive = 1 if self.preparation is None else self.preparation.positive
            is_positive = self.rules.threshold(prediction.probs[:, positive]).long()
            values["labels"] = is_positive if positive == 1 else 1 - is_positive
        if isinstance(self.rules.conformal, ConformalSets):
            values["set"] = self.rules.conformal(prediction.probs)
        return values | self._common(prediction)

    def _numbers(self, prediction: RegressionPrediction) -> dict[str, Tensor]:
        values = {name: getattr(prediction, name) for name in ("mean", "variance", "aleatoric", "epistemic")}
        values["low"], values["high"] = prediction.interval(self.level)
        if isinstance(self.rules.conformal, ConformalIntervals):
            values["conformal_low"], values["conformal_high"] = self.rules.conformal(prediction)
        return values | self._common(prediction)

    def _common(self, prediction: Prediction | RegressionPrediction) -> dict[str, Tensor]:
        values = {}
        if self.rules.abstention is not None:
            values["abstain"] = ~self.rules.abstention(certainty_of(prediction))
        if self.each_member:
            values["members"] = prediction.members
        return values


class Graph(nn.Module):
    """Raw examples to answers by name; a table's rows are given as cells (`TableCells`)."""

    noise: Tensor | None

    def __init__(self, members: nn.Module, meaning: Meaning, noise: Tensor | None):
        super().__init__()
        table = None if meaning.preparation is None else meaning.preparation.table
        self.members, self.meaning = members, meaning
        self.cells = None if table is None else TableCells(table)
        self.register_buffer("noise", None if noise is None else noise.detach().cpu())

    def forward(self, x: Any) -> dict[str, Tensor]:
        return self.meaning.answers(self.members(self.prepared(x)), self.noise)

    def prepared(self, x: Any) -> Any:
        """What the members see."""
        x = x if self.cells is None else self.cells(x)
        return x if self.meaning.preparation is None else self.meaning.preparation.prepare(x)
