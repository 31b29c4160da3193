"""What a run held out of its training: its members' outputs there, and the rules that are fitted on them.

The outputs are kept in the run folder, so that fitting takes neither the data nor another training. A coverage needs no
labels: a run that trained on everything takes the confidences of its test examples for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..data.preparation import Preparation
from ..data.sources import Data, load_data
from ..ensemble import Ensemble
from ..errors import TrainingError
from ..metrics.calibration import Temperature, fit_temperature
from ..metrics.conformal import ConformalIntervals, ConformalSets, fit_intervals, fit_sets
from ..metrics.per_class import Threshold, fit_threshold
from ..metrics.selective import Abstention, fit_abstention
from ..metrics.streams import all_outputs_of
from ..outputs.prediction import Prediction, RegressionPrediction
from ..training.recipe import Recipe
from .folder import RunFolder
from .recorded import own_test_part

HOLD_OUT = "Train again with keep=best or validation=0.1, the share that is held out"


def validation_outputs(ensemble: Ensemble, data: Data) -> Tensor:
    """The outputs on a data set's validation part. Shape: [members, examples, ...]."""
    assert data.validation is not None
    return all_outputs_of(ensemble, data, data.validation.x)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Outputs on examples that a run did not train on, and their targets where these may be used."""

    outputs: Tensor
    targets: Tensor | None
    what: str  # in words

    def __str__(self) -> str:
        return f"{self.outputs.shape[1]} {self.what}"


def held_out(
    folder: RunFolder, run: Mapping[str, Any], preparation: Preparation, ensemble: Ensemble, *, labelled: bool
) -> HeldOut | None:
    """The validation part of a run; where it has none and labels are not needed, its test examples without them."""
    best = run["recipe"]["keep"] == "best"
    what = "validation examples" + (", which also chose the epoch" if best else "")
    stored = _of_first_format(run, ensemble) if run.get("format", 1) == 1 else folder.validation()
    if stored is not None:
        return HeldOut(stored["outputs"], stored["targets"], what)
    if labelled:
        return None
    try:
        test = own_test_part(folder, run, preparation)
    except TrainingError as error:
        raise TrainingError(
            f"a coverage must be fitted on held-out examples or on the test part; got a run without the former, and: "
            f"{error}. {HOLD_OUT}"
        ) from error
    return HeldOut(all_outputs_of(ensemble, preparation, test.x), None, "test examples, without their labels")


def _of_first_format(run: Mapping[str, Any], ensemble: Ensemble) -> dict[str, Tensor] | None:
    """A folder of format 1 kept no outputs; it held out examples where it kept the best epoch alone."""
    if run["recipe"]["keep"] != "best":
        return None
    recipe = Recipe(**run["recipe"])
    data = load_data(run["data"], seed=recipe.seed).with_validation(recipe.held_out, recipe.seed)
    assert data.validation is not None
    return {"outputs": validation_outputs(ensemble, data), "targets": data.validation.y}


@dataclass(frozen=True, eq=False)
class Rules:
    """What was fitted on held-out examples, each None where it was not asked for."""

    temperature: Temperature | None = None
    abstention: Abstention | None = None
    conformal: ConformalSets | ConformalIntervals | None = None
    threshold: Threshold | None = None
    fitted_on: str = ""

    def read(self, outputs: Tensor, task: str) -> Prediction | RegressionPrediction:
        """Outputs as a prediction, at the fitted temperature."""
        if task == "regression":
            return RegressionPrediction(outputs)
        return Prediction.from_logits(outputs) if self.temperature is None else self.temperature(outputs)

    def described(self) -> dict[str, Any]:
        """In plain values."""
        rules = {"abstention": self.abstention, "conformal": self.conformal, "threshold": self.threshold}
        words = {
            name: {**asdict(rule), "fitted_on": self.fitted_on} for name, rule in rules.items() if rule is not None
        }
        return words | ({} if self.temperature is None else {"temperature": self.temperature.temperature})


def fit_rules(
    held: Callable[..., HeldOut | None],
    data: Preparation,
    *,
    coverage: float | None,
    risk: float | None,
    delta: float | None,
    temperature: bool,
    conformal: float | None,
    threshold: str | None,
) -> Rules:
    """Fit what is asked for.

    Args:
        held: `held_out` of a run, called where something must be fitted.
        conformal: the probability with which a set or an interval must hold the truth.
        threshold: of two classes, what the threshold is best for: f1, balanced_accuracy, or cost=20 where a missed
            positive costs as much as 20 false alarms.
    """
    task = data.task
    if threshold is not None and (task != "classification" or data.outputs != 2):
        raise TrainingError(f"`threshold` must be for two classes; got {task} of {data.outputs} outputs. Leave it out")
    if delta is not None and risk is None:
        raise TrainingError(f"`delta` must come with a risk; got delta={delta} and no risk. Give a risk")
    if task == "regression" and temperature:
        raise TrainingError("`temperature` must be for classification; got a run of regression. Leave it out")
    if task == "regression" and risk is not None:
        raise TrainingError(
            f"`risk` must be for classification, as a share of wrong answers; got risk={risk} for regression. Use a "
            "coverage: the examples of the largest std are left out"
        )
    if conformal is not None and not 0 < conformal < 1:
        raise TrainingError(f"`conformal` must satisfy 0 < conformal < 1; got {conformal}. For 90 % write 0.9")
    labelled = {"a temperature": temperature, "a threshold for a risk": risk is not None}
    labelled |= {"a conformal threshold": conformal is not None, "a threshold": threshold is not None}
    needs = [what for what, asked in labelled.items() if asked]
    if not needs and coverage is None:
        return Rules()
    examples = held(labelled=bool(needs))
    if examples is None:
        raise TrainingError(
            f"{needs[0]} must be fitted on held-out examples with labels; got a run that trained on all of its "
            f"training part. {HOLD_OUT}" + (", or give a coverage, which needs no labels" if risk is not None else "")
        )
    rules = Rules(fitted_on=str(examples))
    if temperature and examples.targets is not None:
        rules = replace(rules, temperature=fit_temperature(examples.outputs, examples.targets))
    prediction = rules.read(examples.outputs, task)
    if risk is not None or coverage is not None:
        rules = replace(rules, abstention=_abstention(prediction, examples.targets, coverage, risk, delta))
    if conformal is not None and examples.targets is not None:
        rules = replace(rules, conformal=_conformal(prediction, examples.targets, conformal))
    if threshold is not None and examples.targets is not None and isinstance(prediction, Prediction):
        scores, truth = prediction.probs[:, data.positive], examples.targets == data.positive
        rules = replace(rules, threshold=fit_threshold(scores, truth, **_objective(threshold)))
    return rules


def _objective(text: str) -> dict[str, Any]:
    by, _, ratio = text.partition("=")
    try:
        return {"by": by, "cost_ratio": float(ratio)} if by == "cost" else {"by": text}
    except ValueError:
        raise TrainingError(
            f"`threshold` must be f1, balanced_accuracy or cost=RATIO; got {text!r}. Write cost=20, say"
        ) from None


def certainty_of(prediction: Prediction | RegressionPrediction) -> Tensor:
    """What decides who is answered: the confidence, or the smaller standard deviation. Shape: [batch]."""
    return -prediction.variance.sqrt() if isinstance(prediction, RegressionPrediction) else prediction.confidence


def _abstention(
    prediction: Prediction | RegressionPrediction,
    targets: Tensor | None,
    coverage: float | None,
    risk: float | None,
    delta: float | None,
) -> Abstention:
    certainty = certainty_of(prediction)
    if targets is not None and isinstance(prediction, Prediction):
        return fit_abstention(certainty, prediction.labels == targets, coverage=coverage, risk=risk, delta=delta)
    unknown = torch.zeros_like(certainty, dtype=torch.bool)
    return replace(fit_abstention(certainty, unknown, coverage=coverage, risk=risk, delta=delta), risk=math.nan)


def _conformal(
    prediction: Prediction | RegressionPrediction, targets: Tensor, level: float
) -> ConformalSets | ConformalIntervals:
    rule: ConformalSets | ConformalIntervals
    if isinstance(prediction, RegressionPrediction):
        rule = fit_intervals(prediction, targets, alpha=1 - level)
    else:
        rule = fit_sets(prediction.probs, targets, alpha=1 - level, method="lac", allow_empty=False)
    if rule.threshold == math.inf:
        fewest = math.ceil(level / (1 - level) - 1e-9)
        raise TrainingError(
            f"a conformal level of {level:g} must have at least {fewest} held-out examples; got {len(targets)}. Use a "
            "lower level, or hold out more: validation=0.2"
        )
    return rule
