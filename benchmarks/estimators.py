"""multum's estimators beside scikit-learn's on the nine UCI sets and adult: one row for each data set, model and fold.

    OMP_NUM_THREADS=1 python benchmarks/estimators.py --rows docs/results/estimators.json

Data sets are uci_NAME.npz (X, y, train_idx, test_idx) and adult.npz in $MULTUM_DATA. Folds are the first of the UCI
sets' own splits (5 of 20; 3 of kin8nm, naval and power; 2 of protein); of adult, 2 of StratifiedKFold(5). Rows are kept
in estimators.json beside this page, which is made of them alone; one that is there is not run again.

Each row is one `cross_validate` of scikit-learn with one fold; folds, models and settings were fixed before the first
row. All hold out the same share of a fold's training rows: multum's estimators to stop by, to calibrate and for
conformal intervals and sets; scikit-learn's for the spread of their residuals (a Gaussian of constant width) and for
conformal intervals and sets around what they predict. Networks of scikit-learn get standardised columns, targets and
one-hot categories, and stop early on a tenth of their own; HistGradientBoosting gets categories as they are. Otherwise
all have their defaults. Probabilities are clipped to 1e-6 for the NLL.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import betabinom
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import StratifiedKFold, cross_validate, train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import multum
from multum.estimators.defaults import share_for
from multum.files import read_json, write_json, write_text
from multum.metrics.conformal import conformal_quantile, fit_sets
from multum.metrics.statistics import over_seeds

FOLDS = {"boston": 5, "concrete": 5, "energy": 5, "wine_red": 5, "yacht": 5}
FOLDS |= {"kin8nm": 3, "naval": 3, "power": 3, "protein": 2, "adult": 2}
OURS = {"packed": {"method": "packed"}, "single": {"method": "single", "members": 1}, "deep": {"method": "deep"}}
PEERS = ("mlp", "hist-gradient-boosting", "random-forest")
COVERAGE = 0.9
LEAST = 1e-6  # probability

HOW_TO_READ = """\
Means over folds with 95 % intervals (Student's t; training rows of folds overlap, so that these are too narrow).
Coverage is that of 90 % intervals or sets, beside the range that 95 of 100 such experiments lie in; sets hold one class
at least, and cover more where the likeliest class alone is right more often. Width: of an interval, in the target's
units; of a set, in classes. Seconds of a fit: processor time, one thread."""
HEAD = "| model | {} | NLL | covered | expected | width | seconds | folds |\n|---|---|---|---|---|---|---|---|"


def load(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """A data set as a frame and targets; classes are whole numbers."""
    arrays = np.load(Path(os.environ["MULTUM_DATA"]) / f"{'' if name == 'adult' else 'uci_'}{name}.npz")
    if name != "adult":
        return pd.DataFrame(arrays["X"]).add_prefix("x"), arrays["y"]
    meta = json.loads(str(arrays["meta"]))
    frame = pd.DataFrame(arrays["x_num"].astype(np.float64), columns=meta["num"])
    words = {c: np.array(meta["categories"][c], dtype=object)[arrays["x_cat"][:, i]] for i, c in enumerate(meta["cat"])}
    return frame.assign(**{c: pd.Categorical(values) for c, values in words.items()}), arrays["y"].astype(np.int64)


def fold(name: str, y: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of fold k for training and for testing."""
    if name == "adult":
        return list(StratifiedKFold(5, shuffle=True, random_state=0).split(y, y))[k]
    arrays = np.load(Path(os.environ["MULTUM_DATA"]) / f"uci_{name}.npz")
    return arrays["train_idx"][k], arrays["test_idx"][k]


class Timed(BaseEstimator):
    """A model whose fit is timed by the processor: other programs on the machine count little."""

    def __init__(self, model: Any):
        self.model = model

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> Timed:
        begun = time.process_time()
        self.model.fit(X, y)
        self.seconds = time.process_time() - begun
        return self


def ours(model: str, classes: bool, seed: int) -> Any:
    kind = multum.EnsembleClassifier if classes else multum.EnsembleRegressor
    return kind(**OURS[model], random_state=seed)


def peer(model: str, classes: bool, seed: int, X: pd.DataFrame) -> Any:
    words = [name for name in X.columns if isinstance(X[name].dtype, pd.CategoricalDtype)]
    numbers = [name for name in X.columns if name not in words]
    one_hot = (OneHotEncoder(handle_unknown="ignore"), words)
    if model == "mlp":
        columns = make_column_transformer((StandardScaler(), numbers), one_hot, sparse_threshold=0)
        net = (MLPClassifier if classes else MLPRegressor)(early_stopping=True, random_state=seed)
        pipe = make_pipeline(columns, net)
        return pipe if classes else TransformedTargetRegressor(pipe, transformer=StandardScaler())
    if model == "random-forest":
        kind = RandomForestClassifier if classes else RandomForestRegressor
        return make_pipeline(
            make_column_transformer(("passthrough", numbers), one_hot, sparse_threshold=0), kind(random_state=seed)
        )
    boosting = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    return boosting(categorical_features="from_dtype", random_state=seed)


class Conformal(BaseEstimator):
    """A peer with what multum's estimators have of their own: a spread, intervals and sets, by held-out rows."""

    def __init__(self, model: str, seed: int):
        self.model, self.seed = model, seed

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> Conformal:
        self.classes = y.dtype.kind == "i"
        share, strata = share_for(len(y), None), y if self.classes else None
        X, X_held, y, self.held = train_test_split(X, y, test_size=share, random_state=self.seed, stratify=strata)
        self.fitted = peer(self.model, self.classes, self.seed, X).fit(X, y)
        if self.classes:
            held, targets = torch.from_numpy(self.predict_proba(X_held)), torch.from_numpy(self.held)
            self.rule = fit_sets(held, targets, alpha=1 - COVERAGE, method="lac", allow_empty=False)
        else:
            residuals = np.abs(self.held - self.predict(X_held))
            self.spread = math.sqrt(np.mean(residuals**2))
            self.reach = conformal_quantile(torch.from_numpy(residuals), 1 - COVERAGE)
        return self

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return self.fitted.predict(X)

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        return self.fitted.predict_proba(X).astype(np.float64)

    def predict_members(self, X: pd.DataFrame, return_std: bool) -> tuple[np.ndarray, np.ndarray]:
        means = self.predict(X)[None]
        return means, np.full_like(means, self.spread)

    def predict_interval(self, X: pd.DataFrame, coverage: float) -> tuple[np.ndarray, np.ndarray]:
        mean = self.predict(X)
        return mean - self.reach, mean + self.reach

    def predict_set(self, X: pd.DataFrame, coverage: float) -> np.ndarray:
        return self.rule(torch.from_numpy(self.predict_proba(X))).numpy()


def scores(timed: Timed, X: pd.DataFrame, y: np.ndarray) -> dict[str, float]:
    """What cross_validate scores."""
    return {"seconds": timed.seconds, **measured(timed.model, X, y)}


def measured(fitted: Any, X: pd.DataFrame, y: np.ndarray) -> dict[str, float]:
    """The same questions to all."""
    held_out = len(fitted.held if isinstance(fitted, Conformal) else fitted._calibration.targets)
    if y.dtype.kind == "i":
        probs, sets, at = fitted.predict_proba(X), fitted.predict_set(X, COVERAGE), (np.arange(len(y)), y)
        score, nll = {"accuracy": np.mean(probs.argmax(1) == y)}, -np.log(probs[at].clip(LEAST)).mean()
        return {**score, "nll": nll, "covered": sets[at].mean(), "width": sets.sum(1).mean(), "held_out": held_out}
    means, stds = (torch.from_numpy(each) for each in fitted.predict_members(X, return_std=True))
    log = torch.distributions.Normal(means, stds).log_prob(torch.from_numpy(y)).logsumexp(0) - math.log(len(means))
    low, high = fitted.predict_interval(X, COVERAGE)
    score, covered = {"rmse": math.sqrt(np.mean((fitted.predict(X) - y) ** 2))}, np.mean((low <= y) & (y <= high))
    return {**score, "nll": -float(log.mean()), "covered": covered, "width": np.mean(high - low), "held_out": held_out}


def row(name: str, model: str, k: int) -> dict[str, Any]:
    X, y = load(name)
    train, test = fold(name, y, k)
    estimator = ours(model, y.dtype.kind == "i", k) if model in OURS else Conformal(model, k)
    values = cross_validate(Timed(estimator), X, y, cv=[(train, test)], scoring=scores, error_score="raise")
    about = {"data": name, "model": model, "fold": k, "rows": len(train), "tested": len(test)}
    return about | {key[5:]: float(value[0]) for key, value in values.items() if key.startswith("test_")}


def band(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Where the mean coverage of the folds lies in 95 of 100 such experiments, if intervals keep their promise."""
    laws = []
    for each in rows:
        n, tested = int(each["held_out"]), each["tested"]
        rank = math.ceil((n + 1) * COVERAGE - 1e-9)
        law = betabinom(tested, rank, n + 1 - rank)
        laws.append((law.mean() / tested, law.var() / tested**2))
    means, variances = zip(*laws, strict=True)
    reach = 1.96 * math.sqrt(sum(variances)) / len(rows)
    return float(np.mean(means)) - reach, min(1.0, float(np.mean(means)) + reach)


def page(rows: list[dict[str, Any]], note: str) -> str:
    names = [name for name in FOLDS if any(each["data"] == name for each in rows)]
    lines = ["# Estimators on tables", "", __doc__.split("\n\n", 2)[2].strip(), "", HOW_TO_READ, "", _kept(rows, names)]
    lines += ["", note] if note else []
    for name in names:
        of_data = [each for each in rows if each["data"] == name]
        score = "accuracy" if "accuracy" in of_data[0] else "rmse"
        lines += ["", f"## {name} ({of_data[0]['rows']:,} training rows)", "", HEAD.format(score)]
        for model in (*OURS, *PEERS):
            of_model = [each for each in of_data if each["model"] == model]
            if of_model:
                cells = [_cell([each[key] for each in of_model]) for key in (score, "nll")]
                low, high = band(of_model)
                covered, width, seconds = (_mean(of_model, key) for key in ("covered", "width", "seconds"))
                lines.append(
                    f"| {model} | {cells[0]} | {cells[1]} | {covered:.3f} | {low:.3f} to {high:.3f} | {width:.4g} | "
                    f"{seconds:.1f} | {len(of_model)} |"
                )
    return "\n".join(lines) + "\n"


def _kept(rows: list[dict[str, Any]], names: list[str]) -> str:
    """Of how many data sets the coverage of each model is where it should be, and of which it is not."""
    parts, outside = [], []
    for model in (*OURS, *PEERS):
        groups = {name: [row for row in rows if (row["data"], row["model"]) == (name, model)] for name in names}
        groups = {name: group for name, group in groups.items() if group}
        bands = {name: band(group) for name, group in groups.items()}
        misses = [n for n, group in groups.items() if not bands[n][0] <= _mean(group, "covered") <= bands[n][1]]
        parts += [f"{model} {len(groups) - len(misses)} of {len(groups)}"] if groups else []
        outside += [f"{model} on {name}" for name in misses]
    beside = f"; outside: {', '.join(outside)}" if outside else ""
    return f"Mean coverages within the expected range, of the data sets that were run: {', '.join(parts)}{beside}."


def _mean(rows: list[dict[str, Any]], key: str) -> float:
    return float(np.mean([each[key] for each in rows]))


def _cell(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.4g}"
    mean = over_seeds(values)
    return f"{mean.mean:.4g} ± {mean.interval()[1] - mean.mean:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=[*FOLDS])
    parser.add_argument("--models", nargs="*", default=[*OURS, *PEERS])
    parser.add_argument("--folds", type=int, default=max(FOLDS.values()), help="of each data set, at most")
    parser.add_argument("--rows", type=Path, required=True, help="a .json; its page is the .md of the same name")
    parser.add_argument("--note", help="a paragraph for the page; an empty one removes it")
    options = parser.parse_args()
    kept = read_json(options.rows) if options.rows.is_file() else {"note": "", "rows": []}
    kept["note"] = kept["note"] if options.note is None else options.note
    warnings.simplefilter("ignore")
    ours("packed", False, 0).set_params(epochs=1).fit(np.eye(8), np.arange(8.0))  # what is imported late, no row pays
    todo = [(name, model, k) for k in range(options.folds) for name in options.data for model in options.models]
    there = {(row["data"], row["model"], row["fold"]) for row in kept["rows"]}
    for name, model, k in todo:  # fold by fold: the page can be written early
        if k < FOLDS[name] and (name, model, k) not in there:
            kept["rows"].append(row(name, model, k))
            print(json.dumps(kept["rows"][-1]), flush=True)
            write_json(options.rows, kept)
    write_json(options.rows, kept)
    write_text(options.rows.with_suffix(".md"), page(**kept))


if __name__ == "__main__":
    main()
