"""Comparison documents as `multum compare` makes them, with numbers that look like real ones."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["classification", "minimal", "regression"]

METHODS = {  # label: (spec, members, gain in log odds of being right, over-confidence, params, mult-adds, seconds)
    "single": ("single", 1, 0.0, 1.45, 1.0, 1.0, 3.1),
    "deep": ("deep:members=4", 4, 0.55, 1.05, 4.0, 4.0, 12.2),
    "packed": ("packed:members=4,alpha=2", 4, 0.45, 1.08, 1.06, 1.05, 5.4),
    "batchensemble": ("batchensemble:members=4", 4, 0.12, 1.3, 1.04, 4.0, 11.9),
    "masksembles": ("masksembles:members=4,scale=2", 4, 0.1, 1.25, 1.9, 3.2, 10.8),
    "mimo": ("mimo:members=3", 3, -0.5, 1.2, 1.08, 1.1, 3.6),
    "mcdropout": ("mcdropout:members=8,rate=0.1", 8, 0.15, 1.2, 1.0, 8.0, 3.4),
    "multihead": ("multihead:members=4", 4, 0.08, 1.38, 1.1, 1.03, 3.3),
    "treenet": ("treenet:members=4,depth=1", 4, 0.4, 1.1, 3.2, 3.1, 9.4),
    "snapshot": ("snapshot:members=4", 4, 0.2, 1.2, 4.0, 4.0, 3.2),
    "fastgeometric": ("fastgeometric:members=4", 4, 0.18, 1.22, 4.0, 4.0, 3.9),
    "swag": ("swag:members=8,rank=8", 8, 0.22, 1.15, 10.0, 8.0, 4.4),
    "hypernet": ("hypernet:members=4", 4, 0.0, 1.3, 0.8, 4.2, 14.9),
    "mixture": ("mixture:members=4,templates=2", 4, 0.3, 1.15, 2.1, 4.0, 13.0),
}
COLUMNS = [
    ("accuracy", "accuracy", "%", "higher", "quality", "Share of test examples with the right class."),
    ("nll", "NLL", "", "lower", "quality", "Negative log likelihood of the right class, in nats."),
    ("ece", "ECE", "%", "lower", "quality", "Expected calibration error over 15 bins."),
    ("brier", "Brier", "", "lower", "quality", "Squared distance of the probabilities from the right class."),
    ("aurc", "AURC", "", "lower", "quality", "Area under the risk-coverage curve."),
    ("auroc", "AUROC", "%", "higher", "OOD data", "How well uncertainty separates OOD data from test data."),
    ("aupr", "AUPR", "%", "higher", "OOD data", "Area under the precision-recall curve of OOD detection."),
    ("fpr95", "FPR95", "%", "lower", "OOD data", "False positive rate where 95 % of the OOD data is detected."),
    ("cacc", "accuracy", "%", "higher", "shift", "Accuracy, mean over corruptions and severities."),
    ("cnll", "NLL", "", "lower", "shift", "NLL, mean over corruptions and severities."),
    ("cece", "ECE", "%", "lower", "shift", "ECE, mean over corruptions and severities."),
    ("disagreement", "disagreement", "%", None, "diversity", "Share of examples on which two members disagree."),
    ("mutual_information", "mutual information", "", None, "diversity", "Mutual information of prediction and member."),
    ("params", "parameters", "count", "lower", "cost", "Trained numbers."),
    ("macs", "mult-adds", "count", "lower", "cost", "Multiply-adds of one example's prediction."),
    ("latency", "latency", "ms", "lower", "cost", "Milliseconds for a batch of one."),
    ("train_seconds", "training", "s", "lower", "cost", "Seconds of training."),
]
REGRESSION_COLUMNS = [
    ("rmse", "RMSE", "", "lower", "quality", "Root mean squared error, in the target's unit."),
    ("nll", "NLL", "", "lower", "quality", "Negative log likelihood of the target, in nats."),
    ("coverage", "coverage", "%", None, "quality", "Share of targets in their 95 % interval."),
    ("width", "width", "", "lower", "quality", "Mean width of the 95 % interval."),
    (
        "epistemic_share",
        "epistemic share",
        "%",
        None,
        "diversity",
        "Share of the variance that comes from differences between members.",
    ),
    *COLUMNS[-4:],
]
CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)


def classification(seeds: int = 3, failed: str = "hypernet", partly: str = "mixture", names: Any = None) -> dict:
    """Fourteen methods with OOD data and corruptions; one of them failed, and one failed for its last seed."""
    names = list(METHODS if names is None else names)
    rng = np.random.default_rng(7)
    cells, numbers = [], {}
    for name in names:
        for seed in range(seeds):
            if name == failed or (name == partly and seed == seeds - 1):
                cells.append(_failed(name, seed))
                continue
            curves, values = _cell(name, rng)
            numbers.setdefault(name, []).append(values)
            seconds = METHODS[name][6] * rng.uniform(1.2, 1.4)
            cells.append(
                {"label": name, "seed": seed, "status": "done", "reason": None, "seconds": seconds, "curves": curves}
            )
    document = _frame("digits with small-cnn", "classification", COLUMNS, names, numbers, cells, seeds)
    document["settings"] |= {"ood": ["mnist", "kmnist"], "shift": list(CORRUPTIONS)}
    means = {row["label"]: {key: v["mean"] for key, v in row["values"].items()} for row in document["rows"]}
    if {"packed", "deep"} <= {row["label"] for row in document["rows"] if row["values"]}:
        packed, deep = means["packed"], means["deep"]
        document["advice"] = {
            "label": "packed",
            "sentence": f"Take packed: {100 * packed['accuracy']:.1f} % accuracy, not significantly worse than deep "
            f"({100 * deep['accuracy']:.1f} %), with {deep['macs'] / packed['macs']:.1f} times fewer mult-adds.",
            "notes": [
                "treenet is best where three times the mult-adds fit the budget.",
                "mimo is significantly worse than single here: the network has too little capacity for three inputs.",
            ],
        }
    return document


def regression(seeds: int = 2, methods: int = 5) -> dict:
    """A target with its unit, five methods, one of them with a long label."""
    names = ["single", "deep", "packed", "mcdropout", "packed:members=8,alpha=4,gamma=2,init=orthogonal"][:methods]
    rng = np.random.default_rng(3)
    cells, numbers = [], {}
    for rank, name in enumerate(names):
        known = METHODS[name.partition(":")[0]]
        for seed in range(seeds):
            rmse = 54.8 - 2.1 * known[2] + rng.normal(0, 0.4)
            expected = np.linspace(0.05, 0.95, 19)
            observed = np.clip(expected + 0.09 * known[3] * np.sin(2 * np.pi * expected) * (0.4 + 0.2 * rank), 0, 1)
            training = [{"epoch": e + 1, "loss": 1.4 * 0.8**e + 0.55, "rmse": 77 * 0.9**e + 20} for e in range(12)]
            curves = {
                "quantiles": {"expected": expected.tolist(), "observed": observed.tolist()},
                "training": training,
            }
            cells.append(
                {"label": name, "seed": seed, "status": "done", "reason": None, "seconds": 2.1, "curves": curves}
            )
            numbers.setdefault(name, []).append(
                {
                    "rmse": rmse,
                    "nll": 5.41 - 0.08 * known[2] + rng.normal(0, 0.01),
                    "coverage": 0.93 + 0.01 * rank,
                    "width": 190.0 + 12 * rank,
                    "epistemic_share": None if name == "single" else 0.08 + 0.03 * rank,
                    **_cost(known, rng, 2_817, 2_752),
                }
            )
    document = _frame("diabetes with mlp", "regression", REGRESSION_COLUMNS, names, numbers, cells, seeds)
    rmse = document["rows"][1]["values"]["rmse"]["mean"]
    document["advice"] = {"label": "deep", "sentence": f"Take deep: RMSE {rmse:.1f}, the lowest of all.", "notes": []}
    return document


def minimal() -> dict:
    """One method, one seed, one column, no curve at all."""
    column = dict(zip(("key", "title", "unit", "better", "group", "help"), COLUMNS[0], strict=True))
    value = {"mean": 0.91, "error": None, "seeds": [0.91], "best": True, "tied": False}
    return {
        "format": 1,
        "title": "digits with small-cnn",
        "command": "multum compare --data digits --methods single --seeds 1",
        "created": "2026-11-16T01:00:00+00:00",
        "task": "classification",
        "settings": {"data": "digits", "model": "small-cnn", "seeds": [0], "epochs": 1, "budget": None},
        "examples": {"train": 1258, "test": 539},
        "classes": [str(i) for i in range(10)],
        "versions": {"multum": "0.1.0", "torch": "2.6.0", "python": "3.11.7"},
        "machine": {"processor": "a processor", "cores": 2, "threads": 2, "memory": "24 GB", "system": "Linux"},
        "columns": [column],
        "rows": [
            {"label": "single", "spec": "single", "name": "single", "members": 1, "status": "done", "reason": None}
            | {"values": {"accuracy": value}}
        ],
        "advice": {"label": None, "sentence": "There is one method, and so nothing to compare it with.", "notes": []},
        "cells": [{"label": "single", "seed": 0, "status": "done", "reason": None, "seconds": 1.0, "curves": {}}],
    }


def _cell(name: str, rng: np.random.Generator) -> tuple[dict, dict]:
    _, members, gain, sharp, *_ = known = METHODS[name]
    true = np.clip(rng.beta(2.2, 0.3, 539), 1e-3, 1 - 1e-6)  # how likely each example is to be right
    odds = np.log(true / (1 - true)) * 0.7 + 0.9 + gain
    right = rng.random(539) < 1 / (1 + np.exp(-odds))
    confidence = np.clip(1 / (1 + np.exp(-odds * sharp * 1.1)), 0.12, 0.9999)
    bins = np.clip((confidence * 15).astype(int), 0, 14)
    weight = np.bincount(bins, minlength=15) / 539

    def means(values: np.ndarray) -> list[float | None]:
        sums = np.bincount(bins, weights=values, minlength=15)
        return [s / (w * 539) if w else None for s, w in zip(sums, weight, strict=True)]

    order = np.argsort(-confidence, kind="stable")
    kept = np.linspace(0, 538, 101).round().astype(int)
    risk = (np.cumsum(~right[order]) / np.arange(1, 540))[kept]
    scores = {
        "test": 1 - confidence,
        "mnist": rng.beta(2 + gain, 3.2 * sharp, 800) * 0.9,
        "kmnist": rng.beta(2.6 + gain, 3 * sharp, 800) * 0.9,
    }
    edges = np.linspace(0, 1, 51)
    shift = {
        c: [
            float(np.clip(right.mean() - s * (0.02 + 0.05 * ((i * 7) % 5) / 4) * (1.1 - 0.3 * gain), 0.1, 1))
            + rng.normal(0, 0.006)
            for s in range(1, 6)
        ]
        for i, c in enumerate(CORRUPTIONS)
    }
    epochs = np.arange(1, 11)
    loss = 2.2 * np.exp(-0.55 * epochs * (1 if name != "mimo" else 0.5)) + 0.06 + rng.normal(0, 0.004, 10)
    curves: dict[str, Any] = {
        "reliability": {
            "edges": np.linspace(0, 1, 16).tolist(),
            "confidence": means(confidence),
            "accuracy": means(right.astype(float)),
            "weight": weight.tolist(),
        },
        "risk_coverage": {"coverage": ((kept + 1) / 539).tolist(), "risk": risk.tolist()},
        "histograms": {
            n: {"edges": edges.tolist(), "share": (np.histogram(s, edges)[0] / len(s)).tolist()}
            for n, s in scores.items()
        },
        "severity": {"0": float(right.mean())}
        | {str(s + 1): float(np.mean([v[s] for v in shift.values()])) for s in range(5)},
        "corruptions": shift,
        "training": [
            {"epoch": int(e), "loss": float(v), "accuracy": float(1 - 0.45 * v / 2.2)}
            for e, v in zip(epochs, loss, strict=True)
        ],
    }
    if members > 1:
        level = 0.012 + 0.03 * abs(gain)
        matrix = np.abs(rng.normal(level, level / 8, (members, members)))
        matrix = (matrix + matrix.T) / 2 * (1 - np.eye(members))
        curves["disagreement"] = matrix.tolist()
    gaps = np.abs(np.array([a or 0 for a in means(right.astype(float))]) - [c or 0 for c in means(confidence)])
    all_shifted = np.mean(list(shift.values()))
    return curves, {
        "accuracy": float(right.mean()),
        "nll": float(-np.log(np.where(right, confidence, (1 - confidence) / 3)).mean()),
        "ece": float((weight * gaps).sum()),
        "brier": float(((right - confidence) ** 2).mean() * 1.6),
        "aurc": float(risk.mean()),
        "auroc": float(np.mean([(scores["test"][:, None] < scores[s]).mean() for s in ("mnist", "kmnist")])),
        "aupr": 0.95 + 0.03 * gain + rng.normal(0, 0.004),
        "fpr95": float((scores["test"] > np.quantile(scores["mnist"], 0.05)).mean()),
        "cacc": float(all_shifted),
        "cnll": float(1.4 * (1 - all_shifted) * sharp * 2),
        "cece": 0.04 * sharp**2 + rng.normal(0, 0.002),
        "disagreement": None if members == 1 else float(matrix[~np.eye(members, dtype=bool)].mean()),
        "mutual_information": None if members == 1 else float(matrix.mean() * 0.8),
        **_cost(known, rng, 94_410, 5_130_432),
    }


def _cost(known: tuple, rng: np.random.Generator, params: int, macs: int) -> dict[str, float]:
    return {
        "params": int(params * known[4]),
        "macs": int(macs * known[5]),
        "latency": 0.42 * known[5] ** 0.8 * rng.uniform(0.97, 1.03),
        "train_seconds": known[6] * rng.uniform(0.97, 1.03),
    }


def _failed(label: str, seed: int) -> dict[str, Any]:
    reason = "TrainingError: the loss must be finite; got nan at epoch 3. Use a lower lr than lr=0.1"
    return {"label": label, "seed": seed, "status": "failed", "reason": reason, "seconds": 2.2, "curves": {}}


def _frame(
    title: str, task: str, columns: list, names: list[str], numbers: dict, cells: list[dict], seeds: int
) -> dict[str, Any]:
    columns = [dict(zip(("key", "title", "unit", "better", "group", "help"), c, strict=True)) for c in columns]
    data, model = title.split(" with ")
    rows = []
    for name in names:
        reasons = [f"seed {c['seed']}: {c['reason']}" for c in cells if c["label"] == name and c["reason"]]
        found = numbers.get(name, [])
        values = {}
        for column in columns if found else []:
            of_seeds = [n[column["key"]] for n in found]
            if None in of_seeds:
                continue
            error = float(np.std(of_seeds, ddof=1) / len(of_seeds) ** 0.5) if len(of_seeds) > 1 else None
            values[column["key"]] = {"mean": float(np.mean(of_seeds)), "error": error, "seeds": of_seeds}
        spec, members = METHODS[name][:2] if name in METHODS else (name, 8)
        rows.append(
            {"label": name, "spec": spec, "name": name.partition(":")[0], "members": members}
            | {"status": "failed" if not found else "partly" if reasons else "done"}
            | {"reason": "; ".join(reasons) or None, "values": values}
            | {"folder": f"{name}-seed0-1f2e3d4c5b" if found else None}
        )
    for column in columns:
        have = [r["values"][column["key"]] for r in rows if column["key"] in r["values"]]
        sign = {"higher": 1, "lower": -1, None: 0}[column["better"]]
        best = max((v["mean"] * sign for v in have), default=0.0)
        winner = next((v for v in have if v["mean"] * sign == best), None)
        for v in have:
            v["best"] = bool(sign) and v is winner
            gap = best - v["mean"] * sign
            v["tied"] = bool(sign) and v is not winner and v["error"] is not None and gap <= 2 * v["error"]
    return {
        "format": 1,
        "title": title,
        "command": f"multum compare --data {data} --model {model} --methods all --seeds {seeds}",
        "created": "2026-11-16T01:00:00+00:00",
        "task": task,
        "settings": {"data": data, "model": model, "seeds": list(range(seeds)), "epochs": 10, "budget": "2x"}
        | {"ood": [], "shift": [], "recipe": {"lr": 0.05, "batch_size": 64, "optimizer": "sgd"}},
        "examples": {"train": 1258, "test": 539},
        "classes": [str(i) for i in range(10)] if task == "classification" else [],
        "versions": {"multum": "0.1.0", "torch": "2.6.0", "python": "3.11.7"},
        "machine": {"processor": "AMD EPYC 7B13", "cores": 2, "threads": 2, "memory": "24 GB", "system": "Linux 6.1"},
        "columns": columns,
        "folder": "runs/a folder with a name as long as they are",
        "rows": rows,
        "advice": {"label": None, "sentence": "", "notes": []},
        "cells": cells,
    }
