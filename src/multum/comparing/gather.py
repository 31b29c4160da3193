"""From the results of all cells to the rows of a table: means and errors over seeds, the best, and what is tied."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..metrics.statistics import over_seeds, paired_t, signed_rank
from ..runs.cells import Cell, spec_of
from ..runs.work import Finished
from .columns import Column, columns, columns_of, value_of

__all__ = ["LEVEL", "Results", "rows_of"]

LEVEL = 0.95  # of the tests that call a method tied with the best
EXACT = ("params", "macs")  # the same for every seed

Results = Mapping[str, Mapping[int, Finished]]  # label -> seed -> the result of that cell


def rows_of(
    cells: Sequence[Cell],
    results: Results,
    reasons: Mapping[str, str],
    latencies: Mapping[str, float],
) -> tuple[list[Column], list[dict[str, Any]]]:
    """The columns, and one row per method: its values with errors, the best marked, and what is tied with the best.

    Args:
        reasons: why a cell failed, by its folder's name.
        latencies: milliseconds by label, measured together.
    """
    labels = list(dict.fromkeys(cell.label for cell in cells))
    task = next((cell.result["task"] for seeds in results.values() for cell in seeds.values()), "classification")
    values = {label: _values(results.get(label, {}), latencies.get(label)) for label in labels}
    columns = columns_of(task, lambda key: any(key in v for v in values.values()))
    for column in columns:
        _mark(column, values, results)
    rows = [
        _row([cell for cell in cells if cell.label == label], len(results.get(label, {})), reasons, values[label])
        for label in labels
    ]
    return columns, rows


def _row(cells: Sequence[Cell], done: int, reasons: Mapping[str, str], values: dict[str, Any]) -> dict[str, Any]:
    first = cells[0]
    failed: dict[str, list[str]] = {}
    for cell in cells:
        if cell.name in reasons:
            failed.setdefault(reasons[cell.name], []).append(str(cell.seed))
    return {
        "label": first.label,
        "spec": spec_of(first.method),
        "model": first.model,
        "name": first.method.name,
        "members": first.method.members,
        "status": "done" if done == len(cells) else "partly" if done else "failed",
        "reason": "; ".join(f"seed {', '.join(seeds)}: {reason}" for reason, seeds in failed.items()) or None,
        "values": values,
    }


def _values(seeds: Mapping[int, Finished], latency: float | None) -> dict[str, dict[str, Any]]:
    values: dict[str, dict[str, Any]] = {}
    for column in columns():
        if column.key == "latency":
            if latency is not None:
                values["latency"] = {"mean": latency, "error": None, "seeds": [latency]}
            continue
        measured = [value_of(seeds[seed].result, column.key) for seed in sorted(seeds)]
        numbers = [v for v in measured if v is not None and math.isfinite(v)]
        if not numbers or len(numbers) < len(measured):
            continue
        summary = over_seeds(numbers)
        exact = column.key in EXACT or not math.isfinite(summary.error)
        values[column.key] = {
            "mean": numbers[0] if column.key in EXACT else summary.mean,
            "error": None if exact else summary.error,
            "seeds": numbers,
        }
    return values


def _mark(column: Column, values: Mapping[str, dict[str, Any]], results: Results) -> None:
    """Set "best" and "tied" of a column; "tied" is None where there is too little to test with."""
    measured = {label: v[column.key] for label, v in values.items() if column.key in v}
    for value in measured.values():
        value.update(best=False, tied=None)
    if column.better is None or len(measured) < 2:
        return
    sign = 1 if column.better == "higher" else -1
    first = max(measured, key=lambda label: sign * measured[label]["mean"])
    for label, value in measured.items():
        value["best"] = value["mean"] == measured[first]["mean"]
        if not value["best"] and column.group != "cost":
            value["tied"] = _tied(column, results[label], results[first])


def _tied(column: Column, method: Mapping[int, Finished], best: Mapping[int, Finished]) -> bool | None:
    """Whether paired tests find no difference to the best: over test examples where they can, else over seeds."""
    common = sorted(method.keys() & best.keys())
    if column.per_example:
        pairs = [[cell[seed].examples[column.key].double() for cell in (method, best)] for seed in common]
        differences = [a - b for a, b in pairs if len(a) == len(b)]
        if not differences or len(differences) < len(pairs):
            return None
        # One test part for all seeds: an example counts once, with its mean over seeds. Parts by seed: all of them.
        same = len({best[seed].result["test_part"] for seed in common}) == 1
        joined = torch.stack(differences).mean(0) if same else torch.cat(differences)
        # Tied in the mean and example by example: a single outlier hides any difference from a test of means.
        tests = paired_t(joined, torch.zeros_like(joined), level=LEVEL).p_value, signed_rank(joined, 0 * joined)
        return min(tests) > 1 - LEVEL
    if len(common) < 3:
        return None
    a, b = (
        torch.tensor([value_of(cell[seed].result, column.key) for seed in common], dtype=torch.float64)
        for cell in (method, best)
    )
    return paired_t(a, b, level=LEVEL).p_value > 1 - LEVEL
