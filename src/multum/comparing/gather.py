"""From the results of all cells to the rows of a table: means, intervals, the best, and what is tied with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..metrics.computations import Mean
from ..metrics.registry import CLASSES
from ..metrics.statistics import over_seeds
from ..runs.cells import Cell, Finished, spec_of
from .reading import Column, columns, columns_of, is_single, mean_of, value_of
from .trained import converged, is_coarse, is_one_model, learned_share, worth_of, yardstick
from .versus import DECIDES, Versus, decides, margin_of

EXACT = ("params", "macs")  # the same for every seed

Results = Mapping[str, Mapping[int, Finished]]  # label -> seed -> the result of that cell


def rows_of(
    cells: Sequence[Cell],
    results: Results,
    reasons: Mapping[str, str],
    latencies: Mapping[str, float],
    about: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[list[Column], list[dict[str, Any]], Versus | None]:
    """The columns; one row per method, its values with errors and intervals, the best marked, and what is tied with it;
    and the differences in the metric that decides, where they can be tested.

    Args:
        reasons: why a cell failed, by its folder's name.
        latencies: milliseconds by label, measured together.
        about: of a label, whether it is a `control` and what was `tuned` for it.
    """
    labels = list(dict.fromkeys(cell.label for cell in cells))
    task = next((cell.result["task"] for seeds in results.values() for cell in seeds.values()), "classification")
    values = {label: _values(results.get(label, {}), latencies.get(label)) for label in labels}
    rows = [
        {
            **_row([cell for cell in cells if cell.label == label], results.get(label, {}), reasons, values[label]),
            **(about or {}).get(label, {}),
        }
        for label in labels
    ]
    margin = margin_of(rows, task)
    versus = Versus.of(decides(rows), results, values)
    _add_worth(rows, results, versus, margin)
    columns = columns_of(task, lambda key: any(key in v for v in values.values()))
    for column in columns:
        _mark(column, values, results)
    _add_against(rows, versus)
    for row in rows:
        row["learned"] = learned_share(row, rows)
    apart = [cell.label for cell in cells if cell.method.independent and is_coarse(results.get(cell.label, {}))]
    for row in rows if apart else ():
        row["one_model"], row["coarse"] = None, apart[0]
    return columns, rows, versus


def _row(
    cells: Sequence[Cell], done: Mapping[int, Finished], reasons: Mapping[str, str], values: dict[str, Any]
) -> dict[str, Any]:
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
        "status": "done" if len(done) == len(cells) else "partly" if done else "failed",
        "reason": "; ".join(f"seed {', '.join(seeds)}: {reason}" for reason, seeds in failed.items()) or None,
        "control": False,
        "converged": converged(done.values(), first.recipe),
        "one_model": is_one_model(done),
        "tuned": None,
        "chance": next((_chance(cell.result["numbers"]) for cell in done.values()), None),
        "equivalent": None,
        "against": {"best": None, "single": None},
        "values": values,
    }


def _chance(numbers: Mapping[str, Any]) -> dict[str, float] | None:
    """What a network that has learned nothing would have; None in results of an older multum."""
    return {k.removeprefix("chance_"): v for k, v in numbers.items() if k.startswith("chance_")} or None


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
    """Set "best" and "tied" of a column and its intervals; "tied" is None where there is too little to test with."""
    measured = {label: v[column.key] for label, v in values.items() if column.key in v}
    for value in measured.values():
        value.update(best=False, tied=None)
    versus = None if column.group == "cost" else Versus.of(column.key, results, values)
    if versus is not None and column.per_example:
        then = column.of.then if isinstance(column.of, Mean) else float
        for label, value in measured.items():
            value["low"], value["high"] = (then(_possible(end, column)) for end in versus.interval(label))
    if column.better is None or len(measured) < 2:
        return
    sign = 1 if column.better == "higher" else -1
    first = max(measured, key=lambda label: sign * measured[label]["mean"])
    for label, value in measured.items():
        value["best"] = value["mean"] == measured[first]["mean"]
        if not value["best"] and versus is not None:
            difference = versus.between(label, first)
            value["tied"] = difference.low <= 0 <= difference.high


def _possible(end: float, column: Column) -> float:
    """The end of an interval, no further than a score of probabilities can be: not below 0, and shares not above 1."""
    if column.task != CLASSES:
        return end
    return min(max(end, 0.0), 1.0 if column.unit == "%" else math.inf)


def _add_against(rows: Sequence[dict[str, Any]], versus: Versus | None) -> None:
    """The difference of every row from the best, and from the one network."""
    if versus is None:
        return
    tested = [row for row in rows if row["label"] in versus.labels]
    best = min(tested, key=lambda row: mean_of(row, versus.key))
    single = next((row for row in tested if is_single(row)), None)
    for row in tested:
        for name, other in (("best", best), ("single", single)):
            if other is not None and other is not row:
                # The best is chosen by these values, so that any pair could have been looked at.
                family = versus.pairs if other is best else len(tested) - 1
                difference = versus.between(row["label"], other["label"], family=family)
                numbers = {key: getattr(difference, key) for key in ("mean", "low", "high", "p")}
                row["against"][name] = {"label": other["label"], **numbers}


def _add_worth(rows: Sequence[dict[str, Any]], results: Results, versus: Versus | None, margin: float) -> None:
    """How many independent networks each row is worth, where `deep` is among them and better than one network."""
    if versus is None or versus.key != DECIDES:
        return
    deep = [row for row in rows if row["name"] == "deep" and not row["control"] and row["label"] in versus.labels]
    if not deep:
        return
    largest = max(deep, key=lambda row: row["members"])
    curves = [cell.result["curves"].get("by_members") for cell in results[largest["label"]].values()]
    curve = yardstick([c for c in curves if c], margin) if all(curves) else None
    singles = [mean_of(row, DECIDES) for row in rows if is_single(row) and DECIDES in row["values"]]
    if curve is None or any(nll < curve[-1] + margin for nll in singles[:1]):
        return  # where several networks are no better than the one, nothing is worth several
    for row in rows:
        if row["label"] not in versus.labels:
            continue
        difference = versus.between(row["label"], largest["label"])
        nll, low, high = (curve[-1] + value for value in (difference.mean, difference.low, difference.high))
        worth = worth_of(nll, low, high, curve, margin)
        row["equivalent"] = worth.text
        value = {"mean": worth.mean, "error": None, "seeds": [worth.mean]}
        row["values"]["equivalent"] = value | ({} if row is largest else {"low": worth.low, "high": worth.high})
