"""What is fitted on held-out examples once members are trained: a temperature, and conformal thresholds when asked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data.parts import Part
from ..errors import ConfigError
from ..metrics.conformal import ConformalIntervals, ConformalSets, fit_intervals, fit_sets
from ..metrics.temperatures import Temperatures, flat
from ..outputs.prediction import Prediction, RegressionPrediction

__all__ = ["Calibration", "calibrated"]

HOLD_OUT = "Fit with validation_fraction=0.2, or with an eval_set"


@dataclass(frozen=True, eq=False)
class Calibration:
    """A temperature for each target, and the outputs on held-out examples that it was fitted on."""

    temperature: Any = 1.0  # a number; of several targets, an array
    outputs: Tensor | None = None  # [members, examples, ...], in the targets' units, at temperature 1
    targets: Tensor | None = None

    @classmethod
    def none(cls) -> Calibration:
        return cls()

    def read(self, outputs: Tensor, task: str) -> Prediction | RegressionPrediction:
        """Outputs as a prediction, at the fitted temperature."""
        if task == "classification":
            return Prediction.from_logits(outputs / self.temperature)
        means, variances = outputs.unbind(2)
        factor = torch.as_tensor(self.temperature, dtype=variances.dtype) ** 2
        return RegressionPrediction(torch.stack([means, variances * factor], 2))

    def sets(self, coverage: float) -> ConformalSets:
        """The rule of sets that hold the class with this probability."""
        outputs, targets = self._held_out(coverage)
        prediction = self.read(outputs, "classification")
        assert isinstance(prediction, Prediction)
        return fit_sets(prediction.probs, targets, alpha=1 - coverage, method="lac", allow_empty=False)

    def intervals(self, coverage: float) -> list[ConformalIntervals]:
        """The rules of intervals that hold a target with this probability, one for each target."""
        outputs, targets = self._held_out(coverage)
        prediction = self.read(outputs, "regression")
        assert isinstance(prediction, RegressionPrediction)
        pairs = zip(by_target(prediction), targets.reshape(len(targets), -1).unbind(1), strict=True)
        return [fit_intervals(each, y, alpha=1 - coverage) for each, y in pairs]

    def _held_out(self, coverage: float) -> tuple[Tensor, Tensor]:
        if not isinstance(coverage, (int, float)) or not 0 < coverage < 1:
            raise ConfigError(f"`coverage` must satisfy 0 < coverage < 1; got coverage={coverage}. For 90 % write 0.9")
        if self.outputs is None or self.targets is None:
            raise ConfigError(f"a coverage must be fitted on held-out examples; this fit held out none. {HOLD_OUT}")
        fewest = math.ceil(coverage / (1 - coverage) - 1e-9)
        if len(self.targets) < fewest:
            raise ConfigError(
                f"a coverage of {coverage:g} must have at least {fewest} held-out examples; got {len(self.targets)}. "
                f"Use a lower coverage. {HOLD_OUT}"
            )
        return self.outputs, self.targets


def by_target(prediction: RegressionPrediction) -> list[RegressionPrediction]:
    """The predictions of each target, where there are several."""
    if prediction.members.ndim == 3:
        return [prediction]
    return [RegressionPrediction(members) for members in prediction.members.unbind(3)]


def calibrated(outputs: Tensor, part: Part, task: str, temperature: bool) -> Calibration:
    """What a held-out part gives. Shape: outputs [members, examples, ...]."""
    if not temperature:
        return Calibration(1.0, outputs, part.y)
    several = task == "regression" and part.y.ndim > 1
    pairs = list(zip(outputs.unbind(3), part.y.unbind(1), strict=True)) if several else [(outputs, part.y)]
    fitted = [Temperatures.on_held_out(*flat(*pair), task, [len(outputs)], part.weights).temperature for pair in pairs]
    return Calibration(torch.tensor(fitted).numpy() if several else fitted[0], outputs, part.y)
