"""What the main numbers mean, for a person who has read none of the papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["explained"]

PLAIN = {
    "accuracy": "Share of test examples that are answered right: higher is better.",
    "rmse": "Typical size of an error, in the target's own unit: lower is better.",
    "calibrated_nll": "Lower is better: how surprised the model is by the truth, once its confidence is put right. "
    "The advice follows it.",
    "nll": "Lower is better: how surprised the model is by the truth, with its confidence as training left it.",
    "calibrated_ece": "Lower is better: how far stated confidence is from how often it is right, once it is put right.",
    "ece": "Lower is better: how far stated confidence is from how often it is right.",
    "auroc": "How well the model's doubt tells unknown kinds of data from test data: 100 % always, 50 % by chance.",
    "equivalent": "How many separately trained networks, averaged, are as good by calibrated NLL: higher is better.",
    "coverage_95": "Share of targets inside the interval that should hold 95 % of them: nearer to 95 % is better.",
    "params": "Numbers that are trained and stored: the size of the model.",
    "macs": "Multiplications and additions for one prediction: what it costs to run.",
    "latency": "Milliseconds for one prediction, measured on this machine.",
    "train_seconds": "Seconds of training, on this machine.",
}


def explained(column: Mapping[str, Any]) -> str:
    """A column in plain words; its own help where there are none."""
    return PLAIN.get(column["key"]) or column.get("help") or ""
