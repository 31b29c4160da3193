"""A row of a comparison in words: what it is, how good, and at what price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["PRICES", "Row", "cost_of", "is_single", "named", "nll", "price", "quality"]

Row = Mapping[str, Any]

PRICES = (
    ("macs", "mult-adds"),
    ("params", "parameters"),
    ("latency", "time per prediction"),
    ("train_seconds", "training time"),
)


def is_single(row: Row) -> bool:
    """Whether a row is the one network that all others are measured by."""
    return row["name"] == "single" and not row.get("control")


def named(row: Row) -> str:
    """
    >>> named({"name": "single", "label": "single"}), named({"name": "single", "label": "single@4x", "control": True})
    ('one network', 'one wider network (single@4x)')
    """
    if row["name"] != "single":
        return row["label"]
    return f"one wider network ({row['label']})" if row.get("control") else "one network"


def nll(row: Row, key: str) -> str:
    """The NLL that decides."""
    return f"{'calibrated NLL' if key == 'calibrated_nll' else 'NLL'} {row['values'][key]['mean']:.4f}"


def quality(row: Row, key: str) -> str:
    """Accuracy or RMSE, and the NLL that decides."""
    values, text = row["values"], nll(row, key)
    if "accuracy" in values:
        return f"accuracy {100 * values['accuracy']['mean']:.1f} %, {text}"
    return f"RMSE {values['rmse']['mean']:.4g}, {text}" if "rmse" in values else text


def price(row: Row, single: Row, prices: Sequence[tuple[str, str]] = PRICES) -> str:
    """In multiples of the one network: mult-adds, parameters, measured latency and training time.

    >>> one = {"values": {"macs": {"mean": 10}, "params": {"mean": 4}}}
    >>> price({"values": {"macs": {"mean": 20}, "params": {"mean": 5}}}, one)
    '2.00x the mult-adds and 1.25x the parameters'
    """
    known = [(key, title) for key, title in prices if key in row["values"] and cost_of(single, key) > 0]
    ratios = [f"{cost_of(row, key) / cost_of(single, key):.2f}x the {title}" for key, title in known]
    return " and ".join(filter(None, [", ".join(ratios[:-1]), *ratios[-1:]]))


def cost_of(row: Row, key: str) -> float:
    return row["values"].get(key, {"mean": 0.0})["mean"]
