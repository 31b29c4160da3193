"""The columns of a comparison: the metrics of the registry that a table shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..metrics import registry
from ..metrics.registry import Metric as Column

__all__ = ["Column", "columns", "columns_of", "value_of"]


def columns() -> list[Column]:
    """The columns of all tasks, in their order in a table."""
    return [metric for metric in registry.METRICS if metric.column]


def columns_of(task: str, measured: Callable[[str], bool]) -> list[Column]:
    """The columns of a task that some method has a value for."""
    return [c for c in columns() if c.task in (None, task) and measured(c.key)]


def value_of(result: Mapping[str, Any], key: str) -> float | None:
    """A metric's value in the result of one cell; None where it was not measured."""
    return next((m.value(result) for m in registry.METRICS if m.key == key), result["numbers"].get(key))
