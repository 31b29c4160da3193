"""Predict what is in a file with a trained run: one row per example, with its uncertainty and whether to abstain.

    classification   label, confidence, entropy and mutual_information in nats, abstain
    regression       mean, std, aleatoric and epistemic (variances: they add up to std^2), low, high, abstain

Which files can be predicted: examples.py.

Thresholds and temperatures are fitted on held-out examples that are not those of the test part: the validation part,
which a run has where it keeps the best epoch. A coverage needs no labels, so that a run without validation part takes
the confidences of its test examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from ..data import Data, Part
from ..ensemble import Ensemble
from ..errors import DataError, TrainingError
from ..figures.tables import text_table
from ..files import write_text
from ..metrics.calibration import Temperature, fit_temperature
from ..metrics.regression import in_units
from ..metrics.selective import Abstention, fit_abstention
from ..outputs.prediction import Prediction, RegressionPrediction, predict
from .examples import read_examples
from .folder import open_run

__all__ = ["predict_run", "summary", "table", "write"]

HOLD_OUT = "Train again with keep=best (validation=0.1 is the share that is held out)"


def predict_run(
    folder: str | Path,
    file: str | Path,
    *,
    coverage: float | None = None,
    risk: float | None = None,
    delta: float | None = None,
    temperature: bool = False,
    level: float = 0.95,
    batch_size: int = 512,
    progress: bool = True,
) -> pd.DataFrame:
    """One row per example of a file, predicted by a finished run.

    Args:
        coverage: the share of examples to answer; the others, the least certain ones, get abstain=True.
        risk: the share of wrong answers to stay below; as many examples as that allows are answered.
        delta: the probability with which the risk may be missed on new examples; None: it holds on those fitted to.
        temperature: whether classifiers are calibrated first.
        level: of the intervals (low, high) of a regression.

    `frame.attrs` holds the rule of abstention ("abstention") and the temperature ("temperature"), where there are some.
    """
    ens, data, settings = open_run(folder)
    names, x = read_examples(Path(file), data)
    held = _held_out(data, settings["recipe"])
    if delta is not None and risk is None:
        raise TrainingError(f"`delta` must come with a risk; got delta={delta} and no risk. Give a risk")
    if temperature and data.task == "regression":
        raise TrainingError("`temperature` must be for classification; got a run of regression. Leave it out")
    if held is None and (temperature or risk is not None):
        what = "a temperature" if temperature else "a threshold for a risk"
        raise TrainingError(
            f"{what} must be fitted on held-out examples with labels; got a run that trained on all of its training "
            f"part. {HOLD_OUT}" + ("" if temperature else ", or give a coverage, which needs no labels")
        )
    seen = held or _Held(Part(data.test.x, data.test.y[:0]), "test examples, without their labels")
    fits = temperature or risk is not None or coverage is not None
    with Progress(disable=not progress) as bar:
        task = bar.add_task("predicting", total=len(x) + (len(seen.part.x) if fits else 0))
        predictor = _Predictor(ens, data, None, lambda n: bar.advance(task, n), batch_size)
        rule = None
        if fits:
            outputs = torch.cat(list(predictor.outputs(seen.part.x)), 1)
            if temperature:
                predictor = replace(predictor, temperature=fit_temperature(outputs, seen.part.y))
            if risk is not None or coverage is not None:
                rule = _rule(predictor.read(outputs), seen, data.task, coverage, risk, delta)
        parts = [_columns(predictor.read(outputs), data, level) for outputs in predictor.outputs(x)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    frame = pd.DataFrame({"example": names, **columns})
    if rule is not None:
        certainty = -columns["std"] if data.task == "regression" else columns["confidence"]
        frame["abstain"] = ~rule(torch.tensor(certainty)).numpy()
        frame.attrs["abstention"] = {**asdict(rule), "fitted_on": f"{len(seen.part.x)} {seen.what}"}
    if predictor.temperature is not None:
        frame.attrs["temperature"] = predictor.temperature.temperature
    return frame


def summary(frame: pd.DataFrame) -> str:
    """What was predicted, in one line."""
    text = f"{len(frame)} example{'s' * (len(frame) != 1)}"
    if "temperature" in frame.attrs:
        text += f", temperature {frame.attrs['temperature']:.3g}"
    if "abstention" not in frame.attrs:
        return text
    rule, answered = frame.attrs["abstention"], int((~frame["abstain"]).sum())
    fitted = f"coverage {rule['coverage']:.1%}" + ("" if math.isnan(rule["risk"]) else f", risk {rule['risk']:.1%}")
    return f"{text}, {answered} answered; threshold {rule['threshold']:.4g} fitted on {rule['fitted_on']}: {fitted}"


def table(frame: pd.DataFrame, rows: int = 50) -> Table:
    """The first predictions for a terminal, and the summary below them."""
    align = ["l" if name in ("example", "label") else "r" for name in frame.columns]
    shown = text_table(list(frame.columns), align=align, caption=summary(frame))
    for row in frame.head(rows).itertuples(index=False):
        shown.add_row(
            *(f"{v:.4g}" if isinstance(v, float) else "yes" if v is True else "" if v is False else str(v) for v in row)
        )
    if len(frame) > rows:
        shown.add_row(f"and {len(frame) - rows} more", *("" for _ in frame.columns[1:]))
    return shown


def write(frame: pd.DataFrame, path: str | Path) -> None:
    """Write predictions to a file, .csv or .json (a list of rows), whole or not at all."""
    path = Path(path)
    writers: dict[str, Callable[[], str]] = {
        ".csv": lambda: frame.to_csv(index=False),
        ".json": lambda: frame.to_json(orient="records", indent=2, double_precision=15) + "\n",
    }
    if path.suffix.lower() not in writers:
        raise DataError(f"predictions must be written as .csv or .json; got {path.name}. Rename the file")
    if not path.parent.is_dir():
        raise DataError(f"predictions must be written to a folder that exists; got {path.parent}. Make it first")
    write_text(path, writers[path.suffix.lower()]())


@dataclass(frozen=True, eq=False)
class _Predictor:
    """A trained ensemble and what it needs to read its outputs."""

    ensemble: Ensemble
    data: Data
    temperature: Temperature | None
    advance: Callable[[int], None]
    batch_size: int

    def outputs(self, x: Any) -> Iterator[Tensor]:
        """Logits, or means and variances in the target's units, batch by batch: [members, batch, ...]."""
        for start in range(0, len(x), self.batch_size):
            batch = self.data.prepare(x[start : start + self.batch_size]).to(self.ensemble.device)
            prediction = predict(self.ensemble, batch)
            if isinstance(prediction, Prediction):
                yield prediction.logits.cpu()
            else:
                yield in_units(prediction, mean=self.data.target_mean, std=self.data.target_std).members.cpu()
            self.advance(len(batch))

    def read(self, outputs: Tensor) -> Prediction | RegressionPrediction:
        if self.data.task == "regression":
            return RegressionPrediction(outputs)
        return Prediction.from_logits(outputs) if self.temperature is None else self.temperature(outputs)


@dataclass(frozen=True, eq=False)
class _Held:
    part: Part
    what: str  # in words


def _held_out(data: Data, recipe: dict[str, Any]) -> _Held | None:
    """The labelled examples that this run did not train on, its test part aside."""
    if data.validation is not None:
        return _Held(data.validation, "validation examples")
    if recipe["keep"] != "best":
        return None
    part = data.with_validation(recipe["validation"], recipe["seed"]).validation
    assert part is not None
    return _Held(part, "validation examples, which also chose the epoch")


def _rule(
    prediction: Prediction | RegressionPrediction,
    held: _Held,
    task: str,
    coverage: float | None,
    risk: float | None,
    delta: float | None,
) -> Abstention:
    if isinstance(prediction, RegressionPrediction):
        if risk is not None:
            raise TrainingError(
                f"`risk` must be for classification, as a share of wrong answers; got risk={risk} for regression. Use "
                "a coverage: the examples of the largest std are left out"
            )
        certainty, right = -prediction.variance.sqrt(), None
    else:
        certainty, right = prediction.confidence, prediction.labels == held.part.y if len(held.part.y) else None
    unknown = torch.zeros_like(certainty, dtype=torch.bool) if right is None else right
    rule = fit_abstention(certainty, unknown, coverage=coverage, risk=risk, delta=delta)
    return rule if right is not None else replace(rule, risk=math.nan)


def _columns(prediction: Prediction | RegressionPrediction, data: Data, level: float) -> dict[str, np.ndarray]:
    if isinstance(prediction, RegressionPrediction):
        low, high = prediction.interval(level)
        values = {
            "mean": prediction.mean,
            "std": prediction.variance.sqrt(),
            "aleatoric": prediction.aleatoric,
            "epistemic": prediction.epistemic,
            "low": low,
            "high": high,
        }
        return {name: t.numpy() for name, t in values.items()}
    labels = prediction.labels.numpy()
    return {
        "label": np.array(data.classes, dtype=object)[labels] if data.classes else labels,
        "confidence": prediction.confidence.double().numpy(),
        "entropy": prediction.entropy.double().numpy(),
        "mutual_information": prediction.mutual_information.double().numpy(),
    }
