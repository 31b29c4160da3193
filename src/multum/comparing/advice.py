"""One sentence of advice: the best method under the budget, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .budget import Budget

__all__ = ["advise"]

Row = Mapping[str, Any]


def advise(rows: Sequence[Row], budget: Budget | None = None) -> dict[str, Any]:
    """The method to take: of those whose NLL no test tells from the lowest within the budget, the cheapest.

    NLL decides because it is a proper score: it rewards being right and knowing it. Cost is mult-adds, then parameters.
    """
    done = [row for row in rows if "nll" in row["values"]]
    notes = [f"{row['label']} failed: {row['reason']}" for row in rows if row["status"] != "done"]
    within = [row for row in done if budget is None or _fits(row, budget)]
    if not within:
        why = "every method failed" if not done else "no method fits the budget"
        return {"label": None, "sentence": f"No advice: {why}.", "notes": notes}
    lowest = min(within, key=lambda row: row["values"]["nll"]["mean"])
    single = next((row for row in done if row["name"] == "single"), None)
    ceiling = math.inf if single is None else _nll(single)
    tied = [row for row in within if row is lowest or (_tied(row, lowest) and _nll(row) <= ceiling)]
    chosen = min(tied, key=lambda row: (_cost(row, "macs"), _cost(row, "params"), row["values"]["nll"]["mean"]))
    sentence = _sentence(chosen, lowest, single)
    notes += [*_rivals(chosen, done, budget), *_unhelpful(done, single)]
    return {"label": chosen["label"], "sentence": sentence, "notes": notes}


def _tied(row: Row, lowest: Row) -> bool:
    """Whether a test called the row tied with the best of all; with another best inside a budget, compare errors."""
    if lowest["values"]["nll"]["best"]:
        return bool(row["values"]["nll"]["tied"])
    return _nll(row) - _nll(lowest) <= 2 * _error(row, lowest)


def _sentence(chosen: Row, lowest: Row, single: Row | None) -> str:
    text = f"Take {chosen['label']}: {_quality(chosen)}"
    if single is None:
        return f"{text}."
    if chosen is single:
        others = f"{lowest['label']} is not measurably better ({_quality(lowest)})"
        others = "no ensemble here is better" if chosen is lowest else others
        return f"Take {chosen['label']}: {_quality(chosen)}, and {others}; an ensemble does not help here."
    text += f", against {_quality(single)} for one network, at {_ratio(chosen, single)}"
    if chosen is not lowest:
        text += f"; {lowest['label']} is not measurably better ({_quality(lowest)}) at {_ratio(lowest, single)}"
    return f"{text}."


def _rivals(chosen: Row, done: Sequence[Row], budget: Budget | None) -> list[str]:
    """Better methods that the budget excludes."""
    if budget is None:
        return []
    better = [row for row in done if not _fits(row, budget) and _nll(row) < _nll(chosen)]
    return [f"{row['label']} has a lower NLL ({_nll(row):.4f}) but is over the budget of {budget}" for row in better]


def _unhelpful(done: Sequence[Row], single: Row | None) -> list[str]:
    """Name the ensembles that are worse than one network: by more than the errors, and not tied with the best."""
    if single is None:
        return []
    beaten = [row for row in done if row is not single and _nll(row) - _nll(single) > _error(row, single)]
    worse = [row["label"] for row in beaten if not row["values"]["nll"]["tied"]]
    return [f"Worse than one network here, by NLL: {', '.join(worse)}."] if worse else []


def _quality(row: Row) -> str:
    values, text = row["values"], f"NLL {_nll(row):.4f}"
    if "accuracy" in values:
        return f"{text}, accuracy {100 * values['accuracy']['mean']:.1f} %"
    return f"{text}, RMSE {values['rmse']['mean']:.4g}" if "rmse" in values else text


def _ratio(row: Row, single: Row) -> str:
    return " and ".join(
        f"{_cost(row, key) / _cost(single, key):.2f}x {title}"
        for key, title in (("params", "its parameters"), ("macs", "its mult-adds"))
        if key in row["values"] and _cost(single, key)
    )


def _fits(row: Row, budget: Budget) -> bool:
    return budget.allows(_cost(row, "params"), _cost(row, "macs"))


def _nll(row: Row) -> float:
    return row["values"]["nll"]["mean"]


def _error(a: Row, b: Row) -> float:
    """The standard error of the difference of two NLLs over seeds; 0 where there is one seed."""
    return sum((row["values"]["nll"]["error"] or 0.0) ** 2 for row in (a, b)) ** 0.5


def _cost(row: Row, key: str) -> float:
    return row["values"].get(key, {"mean": 0})["mean"]
