"""Predict what is in a file with a trained run: one row per item, with its uncertainty and whether to abstain.

    classification   label, confidence, entropy and mutual_information in nats, abstain
    regression       mean, std, aleatoric and epistemic (variances: they add up to std^2), low, high, abstain

What files can be predicted says items.py.

Thresholds and temperatures are fitted on items that training did not see and whose labels are not those of the test
part: the validation part, which a run has where it keeps the best epoch. A coverage needs no labels, so that a run
without validation part takes the confidences of its test items.
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
from .examples import read_items
from .train import open_run

__all__ = ["predict_run", "summary", "table", "write"]

HOLD_OUT = "train again with keep=best (validation=0.1 is the share that is held out)"


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
    """One row per item of a file, predicted by a finished run.

    Args:
        coverage: the share of items to answer; the least sure of the others get abstain=True.
        risk: the share of wrong answers to stay below; as many items as that allows are answered.
        delta: the probability with which the risk may be missed on new items; None: the risk holds on the fitted ones.
        temperature: whether classifiers are calibrated first.
        level: of the intervals (low, high) of a regression.

    `frame.attrs` holds the rule of abstention ("abstention") and the temperature ("temperature"), where there are some.
    """
    ens, data, settings = open_run(folder)
    names, x = read_items(Path(file), data)
    held = _held_out(data, settings["recipe"])
    if delta is not None and risk is None:
        raise TrainingError(f"delta is of a risk, however: delta={delta} and no risk; give a risk")
    if temperature and data.task == "regression":
        raise TrainingError("temperature is for classification, however: this run is a regression; leave it out")
    if held is None and (temperature or risk is not None):
        what = "a temperature" if temperature else "a threshold for a risk"
        raise TrainingError(
            f"{what} is fitted on labelled items that training did not see, however: this run trained on all of its "
            f"training part; {HOLD_OUT}" + ("" if temperature else ", or give a coverage, which needs no labels")
        )
    seen = held if held is not None else _Held(Part(data.test.x, data.test.y[:0]), "test items, without their labels")
    fits = temperature or risk is not None or coverage is not None
    with Progress(disable=not progress) as bar:
        task = bar.add_task("predicting", total=len(x) + (len(seen.part.x) if fits else 0))
        known = _Known(ens, data, None, lambda n: bar.advance(task, n), batch_size)
        rule = None
        if fits:
            outputs = torch.cat(list(known.outputs(seen.part.x)), 1)
            if temperature:
                known = replace(known, temperature=fit_temperature(outputs, seen.part.y))
            if risk is not None or coverage is not None:
                rule = _rule(known.read(outputs), seen, data.task, coverage, risk, delta)
        parts = [_columns(known.read(outputs), data, level) for outputs in known.outputs(x)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    frame = pd.DataFrame({"item": names, **columns})
    if rule is not None:
        sureness = -columns["std"] if data.task == "regression" else columns["confidence"]
        frame["abstain"] = ~rule(torch.tensor(sureness)).numpy()
        frame.attrs["abstention"] = {**asdict(rule), "fitted_on": f"{len(seen.part.x)} {seen.what}"}
    if known.temperature is not None:
        frame.attrs["temperature"] = known.temperature.temperature
    return frame


def summary(frame: pd.DataFrame) -> str:
    """What was predicted, in one line."""
    text = f"{len(frame)} item{'s' * (len(frame) != 1)}"
    if "temperature" in frame.attrs:
        text += f", temperature {frame.attrs['temperature']:.3g}"
    if "abstention" not in frame.attrs:
        return text
    rule, answered = frame.attrs["abstention"], int((~frame["abstain"]).sum())
    there = f"coverage {rule['coverage']:.1%}" + ("" if math.isnan(rule["risk"]) else f", risk {rule['risk']:.1%}")
    return f"{text}, {answered} answered; threshold {rule['threshold']:.4g} fitted on {rule['fitted_on']}: {there}"


def table(frame: pd.DataFrame, rows: int = 50) -> Table:
    """The first predictions for a terminal, and the summary below them."""
    align = ["l" if name in ("item", "label") else "r" for name in frame.columns]
    found = text_table(list(frame.columns), align=align, caption=summary(frame))
    for row in frame.head(rows).itertuples(index=False):
        found.add_row(
            *(f"{v:.4g}" if isinstance(v, float) else "yes" if v is True else "" if v is False else str(v) for v in row)
        )
    if len(frame) > rows:
        found.add_row(f"and {len(frame) - rows} more", *("" for _ in frame.columns[1:]))
    return found


def write(frame: pd.DataFrame, path: str | Path) -> None:
    """Write predictions to a file, .csv or .json (a list of rows), whole or not at all."""
    path = Path(path)
    writers: dict[str, Callable[[], str]] = {
        ".csv": lambda: frame.to_csv(index=False),
        ".json": lambda: frame.to_json(orient="records", indent=2, double_precision=15) + "\n",
    }
    if path.suffix.lower() not in writers:
        raise DataError(f"predictions are written as .csv or .json, however: {path.name}; name the file so")
    if not path.parent.is_dir():
        raise DataError(f"predictions are written into a folder that exists, however: {path.parent} does not; make it")
    write_text(path, writers[path.suffix.lower()]())


@dataclass(frozen=True, eq=False)
class _Known:
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
            found = predict(self.ensemble, batch)
            if isinstance(found, Prediction):
                yield found.logits.cpu()
            else:
                yield in_units(found, mean=self.data.target_mean, std=self.data.target_std).members.cpu()
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
    """The labelled items that this run did not train on, its test part aside."""
    if data.validation is not None:
        return _Held(data.validation, "validation items")
    if recipe["keep"] != "best":
        return None
    part = data.with_validation(recipe["validation"], recipe["seed"]).validation
    assert part is not None
    return _Held(part, "validation items, which also chose the epoch")


def _rule(
    found: Prediction | RegressionPrediction,
    held: _Held,
    task: str,
    coverage: float | None,
    risk: float | None,
    delta: float | None,
) -> Abstention:
    if isinstance(found, RegressionPrediction):
        if risk is not None:
            raise TrainingError(
                f"a risk is a share of wrong answers, which regression has none of, however: risk={risk}; give a "
                "coverage: the items of the largest std are left out"
            )
        sureness, right = -found.variance.sqrt(), None
    else:
        sureness, right = found.confidence, found.labels == held.part.y if len(held.part.y) else None
    unknown = torch.zeros_like(sureness, dtype=torch.bool) if right is None else right
    rule = fit_abstention(sureness, unknown, coverage=coverage, risk=risk, delta=delta)
    return rule if right is not None else replace(rule, risk=math.nan)


def _columns(found: Prediction | RegressionPrediction, data: Data, level: float) -> dict[str, np.ndarray]:
    if isinstance(found, RegressionPrediction):
        low, high = found.interval(level)
        values = {
            "mean": found.mean,
            "std": found.variance.sqrt(),
            "aleatoric": found.aleatoric,
            "epistemic": found.epistemic,
            "low": low,
            "high": high,
        }
        return {name: t.numpy() for name, t in values.items()}
    labels = found.labels.numpy()
    return {
        "label": np.array(data.classes, dtype=object)[labels] if data.classes else labels,
        "confidence": found.confidence.double().numpy(),
        "entropy": found.entropy.double().numpy(),
        "mutual_information": found.mutual_information.double().numpy(),
    }
