"""multum's estimators beside scikit-learn's on the nine UCI sets and adult: one row for each data set, model and fold.

    OMP_NUM_THREADS=1 python benchmarks/estimators.py --out runs/estimators --page docs/results/estimators.md

Data sets are uci_NAME.npz (X, y, train_idx, test_idx) and adult.npz in $MULTUM_DATA. Folds are the first of the UCI
sets' own splits; of adult, those of StratifiedKFold. A row that is there is not run again; --only writes the page of
the rows that are there. --rows trains on so many rows of a fold at most.

All hold out the same share of a fold's training rows: multum's estimators to stop by, to calibrate and for conformal
intervals and sets; scikit-learn's for the spread of their residuals (a Gaussian of constant width) and for conformal
intervals and sets around what they predict. Networks of scikit-learn get standardised columns, targets and one-hot
categories, and stop early on a tenth of their own; HistGradientBoosting gets categories as they are. Otherwise all
have their defaults. Probabilities are clipped to 1e-6 for the NLL.
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
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import multum
from multum.estimators.defaults import share_for
from multum.files import read_json, write_json, write_text
from multum.metrics.conformal import conformal_quantile, fit_sets
from multum.metrics.statistics import over_seeds

UCI = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine_red", "yacht")
OURS = {"packed": {"method": "packed"}, "deep": {"method": "deep"}, "single": {"method": "single", "members": 1}}
PEERS = ("mlp", "hist-gradient-boosting", "random-forest")
COVERAGE = 0.9
LEAST = 1e-6  # probability

HOW_TO_READ = """\
Means over folds with 95 % intervals (Student's t; training rows of folds overlap, so that these are too narrow).
Coverage is that of 90 % intervals or sets, beside the range that 95 of 100 such experiments lie in; sets hold one class
at least, and cover more where the likeliest class alone is right more often. Width: of an interval, in the target's
units; of a set, in classes. Seconds of a fit, with one thread."""
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


def classified(probs: np.ndarray, sets: np.ndarray, y: np.ndarray) -> dict[str, float]:
    at = (np.arange(len(y)), y)
    nll = -np.log(probs[at].clip(LEAST)).mean()
    return {
        "accuracy": np.mean(probs.argmax(1) == y),
        "nll": nll,
        "covered": sets[at].mean(),
        "width": sets.sum(1).mean(),
    }


def regressed(mean: np.ndarray, nll: float, low: np.ndarray, high: np.ndarray, y: np.ndarray) -> dict[str, float]:
    rmse = math.sqrt(np.mean((mean - y) ** 2))
    return {"rmse": rmse, "nll": nll, "covered": np.mean((low <= y) & (y <= high)), "width": np.mean(high - low)}


def measure_ours(model: str, train: tuple, test: tuple, classes: bool, seed: int) -> dict[str, float]:
    (X, y), (X_test, y_test) = train, test
    began = time.perf_counter()
    fitted = ours(model, classes, seed).fit(X, y)
    times = {"seconds": time.perf_counter() - began, "held_out": len(fitted._calibration.targets)}
    if classes:
        return classified(fitted.predict_proba(X_test), fitted.predict_set(X_test, COVERAGE), y_test) | times
    means, stds = (torch.from_numpy(each) for each in fitted.predict_members(X_test, return_std=True))
    log = torch.distributions.Normal(means, stds).log_prob(torch.from_numpy(y_test)).logsumexp(0) - math.log(len(means))
    low, high = fitted.predict_interval(X_test, COVERAGE)
    return regressed(fitted.predict(X_test), -float(log.mean()), low, high, y_test) | times


def measure_peer(model: str, train: tuple, test: tuple, classes: bool, seed: int) -> dict[str, float]:
    (X, y), (X_test, y_test) = train, test
    began = time.perf_counter()
    share = share_for(len(y), None)
    X, X_held, y, y_held = train_test_split(X, y, test_size=share, random_state=seed, stratify=y if classes else None)
    fitted = peer(model, classes, seed, X).fit(X, y)
    times = {"seconds": time.perf_counter() - began, "held_out": len(y_held)}
    if classes:
        held, probs = (torch.from_numpy(fitted.predict_proba(each).astype(np.float64)) for each in (X_held, X_test))
        rule = fit_sets(held, torch.from_numpy(y_held), alpha=1 - COVERAGE, method="lac", allow_empty=False)
        return classified(probs.numpy(), rule(probs).numpy(), y_test) | times
    residuals, mean = y_held - fitted.predict(X_held), fitted.predict(X_test)
    spread = math.sqrt(np.mean(residuals**2))
    nll = float(np.mean(0.5 * ((y_test - mean) / spread) ** 2) + math.log(spread) + 0.5 * math.log(2 * math.pi))
    reach = conformal_quantile(torch.from_numpy(np.abs(residuals)), 1 - COVERAGE)
    return regressed(mean, nll, mean - reach, mean + reach, y_test) | times


def row(name: str, model: str, k: int, most: int | None) -> dict[str, Any]:
    X, y = load(name)
    train, test = fold(name, y, k)
    if most is not None and len(train) > most:
        train = np.sort(np.random.default_rng(k).permutation(train)[:most])
    classes = y.dtype.kind == "i"
    measure = measure_ours if model in OURS else measure_peer
    values = measure(model, (X.iloc[train], y[train]), (X.iloc[test], y[test]), classes, k)
    about = {"data": name, "model": model, "fold": k, "rows": len(train), "tested": len(test)}
    return {**about, **{key: float(value) for key, value in values.items()}}


def band(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Where the mean coverage of the folds lies in 95 of 100 such experiments, if intervals keep their promise."""
    spreads = []
    for each in rows:
        n, tested = int(each["held_out"]), each["tested"]
        rank = math.ceil((n + 1) * COVERAGE - 1e-9)
        spreads.append(betabinom(tested, rank, n + 1 - rank).var() / tested**2)
    reach = 1.96 * math.sqrt(sum(spreads)) / len(rows)
    return COVERAGE - reach, COVERAGE + reach


def page(rows: list[dict[str, Any]]) -> str:
    lines = ["# Estimators on tables", "", __doc__.split("\n\n", 2)[2].strip(), ""]
    lines += [HOW_TO_READ]
    for name in dict.fromkeys(each["data"] for each in rows):
        of_data = [each for each in rows if each["data"] == name]
        score = "accuracy" if "accuracy" in of_data[0] else "rmse"
        lines += ["", f"## {name} ({of_data[0]['rows']:,} training rows)", ""]
        lines.append(HEAD.format(score))
        for model in (*OURS, *PEERS):
            of_model = [each for each in of_data if each["model"] == model]
            if of_model:
                cells = [_cell([each[key] for each in of_model]) for key in (score, "nll")]
                low, high = band(of_model)
                covered, width, seconds = (
                    np.mean([each[key] for each in of_model]) for key in ("covered", "width", "seconds")
                )
                lines.append(
                    f"| {model} | {cells[0]} | {cells[1]} | {covered:.3f} | {low:.3f} to {high:.3f} | {width:.4g} | "
                    f"{seconds:.1f} | {len(of_model)} |"
                )
    return "\n".join(lines) + "\n"


def _cell(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.4g}"
    mean = over_seeds(values)
    return f"{mean.mean:.4g} ± {mean.interval()[1] - mean.mean:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=[*UCI, "adult"])
    parser.add_argument("--models", nargs="*", default=[*OURS, *PEERS])
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--only", action="store_true", help="write the page alone")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for k in range(0 if options.only else options.folds):  # fold by fold: the page can be written early
        for name in options.data:
            for model in options.models:
                path = options.out / f"{name}-{model}-{k}.json"
                if not path.is_file():
                    write_json(path, row(name, model, k, options.rows))
                    print(json.dumps(read_json(path)), flush=True)
    rows = [read_json(path) for path in sorted(options.out.glob("*-*.json"))]
    if options.page is not None:
        write_text(options.page, page(rows))


if __name__ == "__main__":
    main()
