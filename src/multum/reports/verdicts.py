"""What an interval of a difference in calibrated NLL says, in a word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["BETTER", "EQUAL", "OPEN", "VERDICTS", "WORSE", "to_single", "verdict"]

BETTER, EQUAL, OPEN, WORSE = VERDICTS = ("better", "equal within the margin", "cannot be told", "worse")


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
