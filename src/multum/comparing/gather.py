"""From the results of all cells to one document: means and errors over seeds, the best, and who is as good."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from ..metrics.statistics import over_seeds, paired_t, signed_rank
from ..runs.cells import Cell, spec_of
from .columns import Column, columns, columns_of, value_of

__all__ = ["LEVEL", "Found", "rows_of"]

LEVEL = 0.95  # of the tests that call a method as good as the best
EXACT = ("params", "macs")  # the same for every seed

Found = Mapping[str, Mapping[int, Mapping[str, Any]]]  # label -> seed -> the result of that cell


def rows_of(
    cells: Sequence[Cell],
    found: Found,
    reasons: Mapping[str, str],
    latencies: Mapping[str, float],
    out: Path,
) -> tuple[list[Column], list[dict[str, Any]]]:
    """The columns, and one row per method: its values with errors, the best marked, and what is as good as the best.

    Args:
        reasons: why a cell failed, by its folder's name.
        latencies: milliseconds by label, measured together.
    """
    labels = list(dict.fromkeys(cell.label for cell in cells))
    task = next((r["task"] for seeds in found.values() for r in seeds.values()), "classification")
    values = {label: _values(found.get(label, {}), latencies.get(label)) for label in labels}
    columns = columns_of(task, lambda key: any(key in v for v in values.values()))
    for column in columns:
        _mark(column, values, found, cells, out)
    rows = []
    for label in labels:
        mine = [cell for cell in cells if cell.label == label]
        failed: dict[str, list[str]] = {}
        for cell in mine:
            if cell.name in reasons:
                failed.setdefault(reasons[cell.name], []).append(str(cell.seed))
        done = sum(c.seed in found.get(label, {}) for c in mine)
        rows.append(
            {
                "label": label,
                "spec": spec_of(mine[0].method),
                "model": mine[0].model,
                "name": mine[0].method.name,
                "members": mine[0].method.members,
                "status": "done" if done == len(mine) else "partly" if done else "failed",
                "reason": "; ".join(f"seed {', '.join(s)}: {reason}" for reason, s in failed.items()) or None,
                "values": values[label],
            }
        )
    return columns, rows


def _values(seeds: Mapping[int, Mapping[str, Any]], latency: float | None) -> dict[str, dict[str, Any]]:
    values: dict[str, dict[str, Any]] = {}
    for column in columns():
        if column.key == "latency":
            if latency is not None:
                values["latency"] = {"mean": latency, "error": None, "seeds": [latency]}
            continue
        measured = [value_of(result, column.key) for _, result in sorted(seeds.items())]
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


def _mark(column: Column, values: Mapping[str, dict[str, Any]], found: Found, cells: Sequence[Cell], out: Path) -> None:
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
            value["tied"] = _as_good(column, label, first, found, cells, out)


def _as_good(column: Column, label: str, best: str, found: Found, cells: Sequence[Cell], out: Path) -> bool | None:
    """Whether paired tests find no difference to the best: over test items where they can, else over seeds."""
    common = sorted(found[label].keys() & found[best].keys())
    if column.per_example:
        pairs = [tuple(_items(cells, who, seed, column.key, out) for who in (label, best)) for seed in common]
        differences = [a - b for a, b in pairs if len(a) == len(b)]
        if not differences or len(differences) < len(pairs):
            return None
        # One test part for all seeds: an item counts once, with its mean over seeds. Parts by seed: all their items.
        same = len({found[best][seed]["test_part"] for seed in common}) == 1
        joined = torch.stack(differences).mean(0) if same else torch.cat(differences)
        # As good in the mean and item by item: one item that is far off hides any difference from a test of means.
        tests = paired_t(joined, torch.zeros_like(joined), level=LEVEL).p_value, signed_rank(joined, 0 * joined)
        return min(tests) > 1 - LEVEL
    if len(common) < 3:
        return None
    a, b = (
        torch.tensor([value_of(found[who][seed], column.key) for seed in common], dtype=torch.float64)
        for who in (label, best)
    )
    return paired_t(a, b, level=LEVEL).p_value > 1 - LEVEL


def _items(cells: Sequence[Cell], label: str, seed: int, key: str, out: Path) -> Tensor:
    cell = next(c for c in cells if c.label == label and c.seed == seed)
    return load_file(out / cell.name / "items.safetensors")[key].double()
