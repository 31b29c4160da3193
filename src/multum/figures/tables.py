"""Tables: one writer for Markdown, one for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["markdown_table", "text_table"]

BARE_PIPE = re.compile(r"(?<!\\)\|")


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
        table.add_column(_text(name), justify="right" if side == "r" else "left", no_wrap=side == "r")
    for row in rows:
        table.add_row(*map(_text, row))
    return table


def _sides(align: Sequence[str] | None, columns: int) -> list[str]:
    sides = list(align or "l")
    return (sides + sides[-1:] * columns)[:columns]


def _text(cell: RenderableType) -> RenderableType:
    return Text(cell) if isinstance(cell, str) else cell
