"""How numbers and tables are written, the same in the page, in Markdown and on the terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

NOTHING = "\N{EN DASH}"  # a number that is missing
SIGNIFICANT = {"ms": 3, "s": 3}
MOST_PLACES = {"%": 2}
BARE_PIPE = re.compile(r"(?<!\\)\|")


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


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], align: Sequence[str] | None = None) -> str:
    """A Markdown table whose columns also line up as plain text.

    Args:
        head: the names of the columns.
        rows: the cells, in Markdown; a bare ``|`` is escaped.
        align: "l" or "r" for each column, the last one for all that follow; without it the table leaves it open.

    >>> print(markdown_table(["method", "NLL"], [["packed", "0.31"]], "lr"))
    | method |  NLL |
    | ------ | ---: |
    | packed | 0.31 |
    """
    lines = [[BARE_PIPE.sub(r"\\|", cell) for cell in row] for row in [head, *rows]]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(head))]
    right = [side == "r" for side in _sides(align, len(head))]

    def padded(line: Sequence[str]) -> str:
        return " | ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True))

    # A colon must stand at the end of its cell; without one the rule is drawn through.
    rule = (" | " if align else "-|-").join(
        "-" * (w - 1) + ":" if r else "-" * w for w, r in zip(widths, right, strict=True)
    )
    return "\n".join(f"| {line} |" for line in [padded(lines[0]), rule, *map(padded, lines[1:])])


def text_table(
    head: Sequence[str | Text],
    rows: Iterable[Sequence[Any]] = (),
    *,
    align: Sequence[str] | None = None,
    title: str = "",
    caption: str = "",
    row_lines: bool = False,
) -> Table:
    """A table for `Console.print`. Words are shown as they are: brackets in them are no markup.

    Args:
        head: the names of the columns.
        rows: the cells.
        align: "l" or "r" for each column, the last one for all that follow. Columns on the right hold numbers, and are
            never broken into lines.
        title: over the table.
        caption: under it.
        row_lines: whether an empty line parts the rows.

    >>> from rich.console import Console
    >>> table = text_table(["metric", "value"], [["ECE", "1.20 %"]], align="lr")
    >>> Console(width=40).print(table)  # doctest: +NORMALIZE_WHITESPACE
     metric    value
    ─────────────────
     ECE      1.20 %
    """
    table = Table(
        title=Text(title, "bold") if title else None,
        caption=Text(caption, "dim") if caption else None,
        box=box.SIMPLE_HEAD,
        show_edge=bool(title),  # an empty line between titled tables
        show_lines=row_lines,
        header_style="",
        title_justify="left",
        caption_justify="left",
    )
    for name, side in zip(head, _sides(align, len(head)), strict=True):
        column: dict[str, Any] = {"justify": "right", "no_wrap": True} if side == "r" else {"overflow": "fold"}
        table.add_column(_text(name), **column)
    for row in rows:
        table.add_row(*map(_text, row))
    return table


def _sides(align: Sequence[str] | None, columns: int) -> list[str]:
    sides = list(align or "l")
    return (sides + sides[-1:] * columns)[:columns]


def _text(cell: RenderableType) -> RenderableType:
    return Text(cell) if isinstance(cell, str) else cell
