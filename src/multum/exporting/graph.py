"""From raw examples to answers in one module: preparation, members, and what multum says of their outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..cascades.voted import Voted
from ..data.preparation import Preparation
from ..metrics.regression import in_units
from ..outputs.prediction import Prediction, RegressionPrediction
from ..runs.answers import answers
from ..runs.held_out import Rules
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
    cascaded: bool = False  # whether outputs are NaN where a member was not asked

    def answers(self, outputs: Tensor, noise: Tensor | None = None) -> dict[str, Tensor]:
        """By name, as runs/answers.py lists them. Shape: outputs [members, batch, ...]."""
        prediction: Prediction | RegressionPrediction
        data = self.preparation
        if self.task == "regression":
            prediction = RegressionPrediction.from_outputs(outputs, noise)
            if data is not None:
                prediction = in_units(prediction, mean=data.target_mean, std=data.target_std)
        else:
            prediction = self.rules.read(outputs, self.task)
        positive = 1 if data is None else data.positive
        if not self.cascaded:
            return answers(prediction, self.rules, positive=positive, level=self.level, members=self.each_member)
        voted = (~outputs[..., 0].isnan()).sum(0)
        prediction = Voted(outputs, voted)
        values = answers(prediction, self.rules, positive=positive, level=self.level, members=self.each_member)
        return values | {"voted": voted}


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
