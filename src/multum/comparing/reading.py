"""Rows and columns of a comparison: what a row is, how good, and at what price, in numbers and in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..metrics import registry
from ..metrics.registry import Metric as Column

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


def mean_of(row: Row, key: str) -> float:
    """The mean over seeds of a metric that the row has."""
    return row["values"][key]["mean"]


def nll(row: Row, key: str) -> str:
    """The NLL that decides."""
    return f"{'calibrated NLL' if key == 'calibrated_nll' else 'NLL'} {mean_of(row, key):.4f}"


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


def columns() -> list[Column]:
    """The columns of all tasks, in their order in a table."""
    return [metric for metric in registry.METRICS if metric.column]


def columns_of(task: str, measured: Callable[[str], bool]) -> list[Column]:
    """The columns of a task that some method has a value for."""
    return [c for c in columns() if c.task in (None, task) and measured(c.key)]


def value_of(result: Mapping[str, Any], key: str) -> float | None:
    """A metric's value in the result of one cell; None where it was not measured."""
    return next((m.value(result) for m in registry.METRICS if m.key == key), result["numbers"].get(key))
