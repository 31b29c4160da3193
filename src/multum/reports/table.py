"""The table of a comparison as every writer reads it: main columns first, marks, intervals and verdicts as words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..figures.formats import NOTHING, shown, sized

EQUIVALENT = "equivalent"  # the column whose words are a row's own, as "> 4"
# The main columns of a document that does not name them, at most so many as another one does.
USUAL = ("accuracy", "rmse", "calibrated_nll", "nll", "ece", "coverage_95", "coverage", "auroc", "params", "macs")
MOST_MAIN = 7
BEST = "best mean"
TIED = "not measurably worse than the best"
BETTER, EQUAL, OPEN, WORSE = VERDICTS = ("better", "equal within the margin", "cannot be told", "worse")


@dataclass(frozen=True)
class Mark:
    """What is said of a method beside its name, and what that means."""

    name: str
    help: str
    warns: bool = False


MARKS = {
    "control": Mark("control", "what the same cost buys with ordinary networks, wider or thinner ones"),
    "converged": Mark(
        "not converged", "it was still improving when training ended, so its numbers may be too bad", warns=True
    ),
    "one_model": Mark("one model", "its members answer so much alike that they are one model, not an ensemble", True),
    "partly": Mark("some seeds failed", "its numbers come from the other seeds", warns=True),
}


def marks(row: Mapping[str, Any]) -> list[Mark]:
    """The marks of a method.

    >>> [mark.name for mark in marks({"status": "done", "control": False, "converged": False, "one_model": None})]
    ['not converged']
    """
    holds = {
        "control": row.get("control"),
        "converged": row.get("converged") is False,
        "one_model": row.get("one_model"),
        "partly": row["status"] == "partly",
    }
    return [MARKS[name] for name, on in holds.items() if on]


def columns_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The columns with their `digits`, the main ones first.

    >>> columns = [{"key": key, "title": key, "unit": ""} for key in ("brier", "nll")]
    >>> [(c["key"], c["main"]) for c in columns_of({"columns": columns, "rows": []})]
    [('nll', True), ('brier', False)]
    """
    columns = sized(document)
    if not any("main" in column for column in columns):
        usual = [key for key in USUAL if key in {column["key"] for column in columns}][:MOST_MAIN]
        named = usual or [column["key"] for column in columns[:MOST_MAIN]]
        columns = [{**column, "main": column["key"] in named} for column in columns]
    for column in columns:
        column["main"] = bool(column.get("main"))
        if column["key"] == EQUIVALENT:
            column["digits"] = 1  # as in the words of the rows
    return sorted(columns, key=lambda column: not column["main"])


def group_name(column: Mapping[str, Any]) -> str:
    """The group of a column where its title alone does not tell what is measured.

    >>> group_name({"group": "OOD data"}), group_name({"group": "cost"})
    ('OOD data', '')
    """
    group = column.get("group") or ""
    return group if group not in ("quality", "cost") else ""


def text(row: Mapping[str, Any], column: Mapping[str, Any], *, error: bool = True) -> str:
    """A value of the table without its unit.

    >>> text({"equivalent": "> 4", "values": {"equivalent": {"mean": 4.0}}}, {"key": "equivalent", "unit": ""})
    '> 4'
    """
    if column["key"] == EQUIVALENT and row.get(EQUIVALENT) is not None:
        return str(row[EQUIVALENT])
    value = row["values"].get(column["key"])
    return shown(value if error or not value else {**value, "error": None}, column, unit=False)


def interval(value: Mapping[str, Any] | None, column: Mapping[str, Any]) -> str:
    """The interval of a value, or nothing.

    >>> interval({"mean": 0.3, "low": 0.28, "high": 0.33}, {"unit": "", "digits": 2})
    '0.28 to 0.33'
    """
    ends: Sequence[float | None] = [(value or {}).get(end) for end in ("low", "high")]
    low, high = (shown({"mean": end}, column, unit=False) for end in ends)
    return "" if NOTHING in (low, high) else f"{low} to {high}"


def verdict(difference: Mapping[str, Any], margin: float) -> str:
    """Better or worse only where the whole interval says so, worse only by more than the margin.

    >>> [verdict({"low": low, "high": low + 0.02}, 0.005) for low in (-0.03, -0.01, 0.03)]
    ['better', 'cannot be told', 'worse']
    """
    low, high = difference.get("low"), difference.get("high")
    if low is None or high is None:
        return OPEN
    if high < 0:
        return BETTER
    if low > margin:
        return WORSE
    return EQUAL if -margin <= low and high <= margin else OPEN


def to_single(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The difference of a row of the document to the single network, where it was measured."""
    difference = (row.get("against") or {}).get("single")
    return difference if difference and difference.get("mean") is not None else None
