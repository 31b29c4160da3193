"""How a number is written, the same in the page, in Markdown and on the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

__all__ = ["NOTHING", "count", "fixed_width", "heading", "round_count", "shown", "sized"]

NOTHING = "\N{EN DASH}"  # a number that is missing
SIGNIFICANT = {"ms": 3, "s": 3}
MOST_PLACES = {"%": 2}


def shown(value: Mapping[str, Any] | None, column: Mapping[str, Any], *, unit: bool = True) -> str:
    """A value of a comparison with its error over seeds, in the column's unit.

    The places after the point are the column's `digits` where it has them (see :func:`sized`), and follow from the
    value and its error otherwise.

    >>> shown({"mean": 0.97123, "error": 0.00214}, {"unit": "%"})
    '97.12 ± 0.21 %'
    >>> shown({"mean": 0.97123, "error": None}, {"unit": "%"}, unit=False)
    '97.12'
    >>> shown({"mean": 11173962, "error": 0.0}, {"unit": "count"})
    '11.2 M'
    >>> shown({"mean": None, "error": None}, {"unit": "ms"}) == NOTHING
    True
    """
    mean = (value or {}).get("mean")
    if mean is None or not math.isfinite(mean):
        return NOTHING
    kind, error = column.get("unit", ""), (value or {}).get("error")
    error = error if error is not None and math.isfinite(error) else None
    if kind == "count":
        return f"{count(mean)} ± {count(error)}" if error else count(mean)
    scale = 100 if kind == "%" else 1
    places = column.get("digits")
    if places is None:
        places = _places([mean * scale], [] if error is None else [error * scale], kind)
    text = _decimal(mean * scale, places)
    if error is not None:
        text += f" ± {error * scale:,.{places}f}"
    return f"{text} {kind}" if unit and kind else text


def heading(column: Mapping[str, Any]) -> str:
    """A column's title with its unit.

    >>> heading({"title": "latency", "unit": "ms"}), heading({"title": "parameters", "unit": "count"})
    ('latency (ms)', 'parameters')
    """
    unit = column.get("unit", "")
    title = column.get("title", column.get("key", ""))
    return f"{title} ({unit})" if unit and unit != "count" else title


def sized(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The columns of a comparison, each with the `digits` that all its values are written with.

    >>> column = {"key": "nll", "unit": ""}
    >>> rows = [{"values": {"nll": {"mean": m, "error": 0.012}}} for m in (0.3014, 0.2877)]
    >>> sized({"columns": [column], "rows": rows})[0]["digits"]
    3
    """
    columns = []
    for column in document["columns"]:
        kind = column.get("unit", "")
        scale = 100 if kind == "%" else 1
        values = [row["values"][column["key"]] for row in document["rows"] if column["key"] in row["values"]]
        means, errors = (
            [v[part] * scale for v in values if v.get(part) is not None and math.isfinite(v[part])]
            for part in ("mean", "error")
        )
        columns.append({**column, "digits": _places(means, errors, kind)})
    return columns


def count(value: float) -> str:
    """A number of things in three digits.

    >>> [count(n) for n in (0, 539, 4312, 999_999, 11_173_962, 3.1e9)]
    ['0', '539', '4.31 k', '1.00 M', '11.2 M', '3.10 G']
    """
    if abs(value) < 1000:
        return f"{value:.0f}"
    power = min(int(math.log10(float(f"{abs(value):.2e}"))) // 3, 4)
    scaled = value / 1000**power
    places = max(0, 2 - int(math.log10(float(f"{abs(scaled):.2e}"))))
    return f"{scaled:.{places}f} {'kMGT'[power - 1]}"


def round_count(value: float) -> str:
    """A round number of things without its zeros.

    >>> round_count(50_000)
    '50 k'
    """
    number, _, power = count(value).partition(" ")
    return f"{float(number):g} {power}".strip()


def fixed_width(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Rows as lines of plain text whose columns line up: the first `left` columns to the left, numbers to the right.

    >>> fixed_width([("layer", "params"), ("conv", "9")])
    ['layer  params', 'conv        9']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _places(values: Sequence[float], errors: Sequence[float], kind: str) -> int:
    """Places for four digits (three of a time) of the typical value, and at most two of its typical error."""
    sizes, spreads = [abs(v) for v in values if v], [e for e in errors if e > 0]
    places = SIGNIFICANT.get(kind, 4) - 1 - _magnitude(median(sizes)) if sizes else 2
    if spreads:
        places = min(places, 1 - _magnitude(median(spreads)))
    most = min(6, max(4, 2 - _magnitude(median(sizes)))) if sizes else 4
    return min(max(places, 0), MOST_PLACES.get(kind, most))


def _magnitude(value: float) -> int:
    return math.floor(math.log10(value))


def _decimal(value: float, places: int) -> str:
    # What would be all zeros says more with its own digits; 5e15 in full says less.
    if value and (abs(value) < 0.5 * 10.0**-places or abs(value) >= 1e7):
        return f"{value:.1e}" if abs(value) >= 1e7 or abs(value) < 1e-4 else f"{value:.1g}"
    return f"{value:,.{places}f}"
