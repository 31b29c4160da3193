"""HistGradientBoosting, xgboost and tabm on tables, to stand beside multum: the same test rows, several seeds.

    multum compare --data adult --ood none --shift none --seeds 3 --out runs/adult
    python benchmarks/tables.py --data adult higgs_15k --out runs/peers
    python benchmarks/compare_page.py runs/adult runs/higgs_15k --peers runs/peers/peers.json

Data sets are NAME.npz in $MULTUM_DATA with x_num, x_cat, y and part (0 for training, 1 for validation, 2 for testing).
They train on part 0 and stop early, and are calibrated, on part 1; multum holds out what it needs of both. Each result
is written when it is done and is not run again. xgboost and tabm may live in an environment of their
own, which needs no multum: --python PATH. `--draw covertype 50000` writes covertype_50000.npz beside covertype.npz: so
many training and validation rows drawn at random (the first of that file come from one place), and all test rows.

Settings: HistGradientBoosting and xgboost (depth 6, rate 0.1, histograms) with up to 2,000 trees, an L2 penalty of 1
(xgboost's default; without one HistGradientBoosting diverges on covertype's rare classes: accuracy 0.814, NLL 1.08) and
early stopping after 50 without improvement; tabm with its package's defaults (32 members, three layers of 512), AdamW
at 2e-3 with decay 3e-4, batches of 256, patience 16, numbers by their quantiles; tabm-256 is the same with layers of
256, the width of multum's own `tabular-mlp`, at a quarter of the mult-adds. A tree's or tabm's regression has one
spread for all rows, that of its validation rows. Seconds are of the processor (one thread), so that a busy machine does
not lengthen them.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

NEEDS = {"hist-gradient-boosting": "sklearn", "xgboost": "xgboost", "tabm": "tabm", "tabm-256": "tabm"}
WIDTHS = {"tabm": {}, "tabm-256": {"n_blocks": 3, "d_block": 256}}
TREES, IDLE, PENALTY = 2000, 50, 1.0


def draw(name: str, rows: int) -> None:
    """Write a data set with fewer rows to train on."""
    folder = Path(os.environ["MULTUM_DATA"])
    arrays = dict(np.load(folder / f"{name}.npz"))
    part = arrays["part"]
    known = np.flatnonzero(part != 2)
    chosen = np.sort(np.concatenate([np.random.default_rng(0).permutation(known)[:rows], np.flatnonzero(part == 2)]))
    smaller = {key: values[chosen] if values.shape[:1] == part.shape else values for key, values in arrays.items()}
    np.savez(folder / f"{name}_{rows}.npz", **smaller)


def read(name: str) -> dict[str, Any]:
    """The parts of a data set: numbers, codes and targets of training, validation and test rows."""
    arrays = np.load(Path(os.environ["MULTUM_DATA"]) / f"{name}.npz")
    numbers, y, part = arrays["x_num"].astype(np.float64), arrays["y"], arrays["part"]
    codes = arrays["x_cat"].astype(np.int64) if "x_cat" in arrays else np.zeros((len(y), 0), np.int64)
    masks = [part == 0, part == 1, part == 2]
    named = {key: [x[mask] for mask in masks] for key, x in (("numbers", numbers), ("codes", codes), ("y", y))}
    return {**named, "cardinalities": [int(c.max()) + 1 for c in codes.T], "regression": y.dtype.kind == "f"}


def trees(data: dict[str, Any], peer: str, seed: int) -> list[np.ndarray]:
    """Outputs for validation and test rows: numbers of a regression, probabilities of classes."""
    x = [np.concatenate([n, c], 1) for n, c in zip(data["numbers"], data["codes"], strict=True)]
    categories = [*range(data["numbers"][0].shape[1], x[0].shape[1])]
    (train, val, _), regression = data["y"], data["regression"]
    if peer == "xgboost":
        import pandas as pd
        import xgboost

        codes = zip(categories, data["cardinalities"], strict=True)
        kinds = {place: pd.CategoricalDtype(range(count)) for place, count in codes}
        frames = [pd.DataFrame(rows).astype(kinds) for rows in x]
        kind = xgboost.XGBRegressor if regression else xgboost.XGBClassifier
        model = kind(
            n_estimators=TREES,
            learning_rate=0.1,
            max_depth=6,
            tree_method="hist",
            reg_lambda=PENALTY,
            enable_categorical=True,
            early_stopping_rounds=IDLE,
            random_state=seed,
            subsample=0.9,
            colsample_bytree=0.9,
        )
        model.fit(frames[0], train, eval_set=[(frames[1], val)], verbose=False)
        return [model.predict(rows) if regression else model.predict_proba(rows) for rows in frames[1:]]
    from sklearn import ensemble

    name = "HistGradientBoostingRegressor" if regression else "HistGradientBoostingClassifier"
    how = {"max_iter": TREES, "early_stopping": True, "n_iter_no_change": IDLE, "random_state": seed}
    how |= {"l2_regularization": PENALTY}
    model = getattr(ensemble, name)(categorical_features=categories or None, **how)
    model.fit(x[0], train, X_val=x[1], y_val=val)
    return [model.predict(rows) if regression else model.predict_proba(rows) for rows in x[1:]]


def tabm_outputs(data: dict[str, Any], peer: str, seed: int) -> list[np.ndarray]:
    """As `trees`, of the tabm package, trained as its authors' example is."""
    import tabm
    import torch
    from torch.nn import functional as F

    torch.manual_seed(seed)
    regression, y, cards = data["regression"], data["y"], data["cardinalities"]
    numbers = [torch.tensor(x, dtype=torch.float32) for x in _normal(data["numbers"], seed)]
    codes = [torch.tensor(x) for x in data["codes"]]
    mean, std = (y[0].mean(), y[0].std()) if regression else (0, 1)
    targets = torch.tensor((y[0] - mean) / std, dtype=torch.float32 if regression else torch.int64)
    outputs = 1 if regression else int(max(part.max() for part in y)) + 1
    sizes = {"n_num_features": numbers[0].shape[1], "cat_cardinalities": cards or None, "d_out": outputs}
    model = tabm.TabM.make(**sizes, **WIDTHS[peer])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=3e-4)

    def run(part: int, rows: Any) -> Any:
        return model(numbers[part][rows], codes[part][rows] if cards else None)

    def predicted(part: int) -> np.ndarray:
        model.eval()
        with torch.no_grad():
            out = torch.cat([run(part, rows) for rows in torch.arange(len(y[part])).split(4096)])
        return ((out.mean(1).flatten() * std + mean) if regression else out.softmax(-1).mean(1)).double().numpy()

    best, weights, idle = math.inf, {}, 0
    while idle < 16:
        model.train()
        for rows in torch.randperm(len(targets)).split(256):
            out = run(0, rows)
            wanted = targets[rows].repeat_interleave(out.shape[1])
            loss = F.mse_loss(out.flatten(), wanted) if regression else F.cross_entropy(out.flatten(0, 1), wanted)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        score = _nll(predicted(1), y[1], None if regression else 1.0)
        idle = idle + 1 if score >= best else 0
        if score < best:
            best, weights = score, copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
    return [predicted(1), predicted(2)]


def _normal(parts: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """Numbers by their quantiles in the training part, with noise so that equal ones have no outermost quantile."""
    from sklearn.preprocessing import QuantileTransformer

    noise = np.random.default_rng(seed).normal(0, 1e-5, parts[0].shape)
    count = max(min(len(parts[0]) // 30, 1000), 10)
    scale = QuantileTransformer(n_quantiles=count, output_distribution="normal", subsample=None).fit(parts[0] + noise)
    return [scale.transform(part) for part in parts]


def _nll(outputs: np.ndarray, y: np.ndarray, temperature: float | None, spread: float = 1.0) -> float:
    """Of probabilities at a temperature, or of normal numbers with one spread."""
    if temperature is None:
        return float(np.mean(0.5 * ((y - outputs) / spread) ** 2 + math.log(spread * math.sqrt(2 * math.pi))))
    logits = np.log(np.clip(outputs, 1e-12, 1)) / temperature
    logits -= logits.max(1, keepdims=True)
    log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return float(-log_probs[np.arange(len(y)), y.astype(int)].mean())


def measured(val: np.ndarray, test: np.ndarray, data: dict[str, Any]) -> dict[str, float]:
    (_, val_y, y) = data["y"]
    if data["regression"]:
        spread = float(np.sqrt(((val - val_y) ** 2).mean()))
        rmse = float(np.sqrt(((test - y) ** 2).mean()))
        return {"rmse": rmse, "calibrated_nll": _nll(test, y, None, spread)}
    temperature = min(np.exp(np.linspace(-1.5, 2, 351)), key=lambda t: _nll(val, val_y, float(t)))
    accuracy = float((test.argmax(1) == y).mean())
    return {"accuracy": accuracy, "nll": _nll(test, y, 1.0), "calibrated_nll": _nll(test, y, float(temperature))}


def run_row(peer: str, name: str, seed: int, path: Path) -> None:
    """One peer on one data set with one seed; what it measured is written when it is done."""
    data, started = read(name), time.process_time()
    val, test = (tabm_outputs if peer in WIDTHS else trees)(data, peer, seed)
    row = {"data": name, "name": peer, "seed": seed, "seconds": time.process_time() - started}
    row["metrics"] = measured(np.asarray(val, np.float64), np.asarray(test, np.float64), data)
    path.with_suffix(".part").write_text(json.dumps(row))
    os.replace(path.with_suffix(".part"), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["adult", "california_housing", "higgs_15k"])
    parser.add_argument("--peers", nargs="*", choices=NEEDS, default=[*NEEDS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draw", nargs=2, metavar=("NAME", "ROWS"), help="write a smaller data set, and stop")
    parser.add_argument("--out", type=Path, default=Path("runs/peers"))
    parser.add_argument("--python", default=sys.executable, help="an environment that has the others")
    parser.add_argument("--row", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.draw:
        draw(asked.draw[0], int(asked.draw[1]))
        return
    if asked.row:
        peer, name, seed, path = asked.row
        run_row(peer, name, int(seed), Path(path))
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    todo = [(peer, name, seed) for name in asked.data for peer in asked.peers for seed in range(asked.seeds)]
    for done, (peer, name, seed) in enumerate(todo, 1):
        path = asked.out / f"{peer},{name},{seed}.json"
        if not path.is_file() and not _has(asked.python, NEEDS[peer]):
            print(f"{done}/{len(todo)} {peer} is not installed in {asked.python}", flush=True)
        elif not path.is_file():
            subprocess.run([asked.python, __file__, "--row", peer, name, str(seed), str(path)], check=True)
            print(f"{done}/{len(todo)} {path.read_text()}", flush=True)
    rows = [json.loads(path.read_text()) for path in sorted(asked.out.glob("*,*.json"))]
    (asked.out / "peers.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")


def _has(python: str, package: str) -> bool:
    if python == sys.executable:
        return importlib.util.find_spec(package) is not None
    return subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode == 0


if __name__ == "__main__":
    main()
