"""What a comparison that tunes, calibrates and tests adds to a document: main columns, intervals, differences."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

__all__ = ["answered"]

NEW = {
    "calibrated_nll": ("calibrated NLL", "", "lower", "quality", "NLL after temperature scaling on held-out data."),
    "calibrated_brier": ("calibrated Brier", "", "lower", "quality", "Brier score after temperature scaling."),
    "calibrated_ece": ("calibrated ECE", "%", "lower", "quality", "ECE after temperature scaling."),
    "equivalent": ("worth", "networks", "higher", "quality", "How many independent networks it is worth."),
}
FROM = {"calibrated_nll": ("nll", 0.82), "calibrated_brier": ("brier", 0.94), "calibrated_ece": ("ece", 0.4)}
MAIN = ("accuracy", "rmse", "calibrated_nll", "nll", "calibrated_ece", "auroc", "equivalent", "macs")
MARGIN = 0.004


def answered(document: dict[str, Any]) -> dict[str, Any]:
    """A copy with everything new: two controls, one method that has not converged, one whose members are one model."""
    document = copy.deepcopy(document)
    _add_controls(document)
    keys = [key for key in NEW if key not in FROM or any(FROM[key][0] in row["values"] for row in document["rows"])]
    new = [
        dict(zip(("key", "title", "unit", "better", "group", "help"), (key, *NEW[key]), strict=True)) for key in keys
    ]
    document["columns"] = [{**column, "main": column["key"] in MAIN} for column in [*document["columns"], *new]]
    for row in document["rows"]:
        _add_values(row)
    _mark_best(document["rows"], keys)
    single = next((row for row in document["rows"] if row["name"] == "single" and row["values"]), None)
    best = next((row for row in document["rows"] if row["values"].get("calibrated_nll", {}).get("best")), None)
    for row in document["rows"]:
        known = bool(row["values"])
        row["against"] = {"best": _difference(row, best), "single": _difference(row, single)}
        row["converged"] = (row["name"] != "mimo") if known else None
        row["one_model"] = row["name"] == "batchensemble" if known and row["members"] > 1 else None
        row["tuned"] = {"lr": 0.006, **({"alpha": 3} if row["name"] == "packed" else {})}
    for cell in document["cells"]:
        members = next(row["members"] for row in document["rows"] if row["label"] == cell["label"])
        if cell["status"] == "done" and members > 1:
            counts = list(range(1, members + 1))
            nll = [0.21 + 0.09 / k + 0.004 * cell["seed"] for k in counts]
            cell["curves"]["by_members"] = {"members": counts, "nll": nll}
    document["advice"] |= {
        "sure": ["packed has a lower calibrated NLL than one network: by 0.021 (0.012 to 0.030)."],
        "unsure": ["Whether packed or deep is better: about 9 seeds would tell (--seeds 9)."],
    }
    document["margin"] = MARGIN
    document["test"] = (
        "Differences in calibrated NLL are paired over seeds and test examples by a hierarchical bootstrap of 4,000 "
        "draws; intervals are simultaneous over all methods at 95 %; what differs by less than 0.004 counts as equal."
    )
    document["tuning"] = _tuning(document)
    return document


def _add_controls(document: dict[str, Any]) -> None:
    for row in document["rows"]:
        row["control"] = False
    for label in ("single@4x", "deep@1x"):
        source = next((r for r in document["rows"] if r["label"] == label.partition("@")[0] and r["values"]), None)
        if source is None:
            continue
        row = {**copy.deepcopy(source), "label": label, "spec": label, "control": True}
        for value in row["values"].values():
            value |= {"best": False, "tied": False}
        document["rows"].append(row)
        done = [cell for cell in document["cells"] if cell["label"] == source["label"]]
        document["cells"] += [{**copy.deepcopy(cell), "label": label} for cell in done]


def _add_values(row: dict[str, Any]) -> None:
    values = row["values"]
    for key, (source, factor) in FROM.items():
        if source in values:
            seeds = [seed * factor for seed in values[source]["seeds"]]
            values[key] = {**values[source], "mean": float(np.mean(seeds)), "seeds": seeds}
    if row["values"]:
        worth = 1.0 if row["members"] == 1 else 1.0 + 0.4 * (row["members"] - 1)
        row["equivalent"] = "1.0" if row["members"] == 1 else "> 4" if worth > 3 else f"{worth:.1f}"
        values["equivalent"] = {"mean": min(worth, 4.0), "error": None, "seeds": [worth]}
        values["equivalent"] |= {"low": max(worth - 0.6, 1.0), "high": min(worth + 0.5, 4.0)}
    for key, value in values.items():
        if value.get("error") is not None and "low" not in value and key not in ("params", "macs"):
            value |= {"low": value["mean"] - 2.4 * value["error"], "high": value["mean"] + 2.4 * value["error"]}


def _mark_best(rows: list[dict[str, Any]], keys: list[str]) -> None:
    for key in keys:
        have = [row["values"][key] for row in rows if key in row["values"]]
        sign = 1 if NEW[key][2] == "higher" else -1
        best = max((sign * value["mean"] for value in have), default=0.0)
        for value in have:
            value["best"] = sign * value["mean"] == best
            value["tied"] = not value["best"] and best - sign * value["mean"] <= 2 * (value["error"] or 0)


def _difference(row: dict[str, Any], other: dict[str, Any] | None) -> dict[str, Any] | None:
    if other is None or row is other or "calibrated_nll" not in row["values"]:
        return None
    mean = row["values"]["calibrated_nll"]["mean"] - other["values"]["calibrated_nll"]["mean"]
    wide = 0.003 if row["control"] else 0.01
    return {"label": other["label"], "mean": mean, "low": mean - wide, "high": mean + wide, "p": 0.03}


def _tuning(document: dict[str, Any]) -> dict[str, Any]:
    methods = {}
    for row in document["rows"]:
        if row["control"]:
            continue
        chosen = row["tuned"]
        others = [{"lr": 0.002, "fields": {}}, {"lr": 0.02, "fields": {}}]
        fields = {name: value for name, value in chosen.items() if name != "lr"}
        best = {"lr": chosen["lr"], "fields": fields}
        tried = [
            {**each, "epochs": 8, "nll": 0.31 - 0.02 * i, "reason": None} for i, each in enumerate([*others, best])
        ]
        tried[1] |= {"nll": None, "reason": "TrainingError: the loss must be finite; got nan at epoch 3"}
        tried.append({**best, "epochs": 20, "nll": 0.24, "reason": None})
        methods[row["label"]] = {"chosen": chosen, "edge": row["label"] == "deep", "tried": tried}
    return {"candidates": 3, "stages": [{"epochs": 8, "runs": 3}, {"epochs": 20, "runs": 1}], "methods": methods}
