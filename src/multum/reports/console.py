"""The comparison on a terminal: one table where it is wide enough, and otherwise one for some columns at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..figures.formats import NOTHING, heading, shown, sized
from ..figures.tables import text_table
from .page import predictors

__all__ = ["model_lines", "terminal"]

LEGEND = "* best mean   ≈ not significantly worse than the best   ± standard error over seeds"


def terminal(document: Mapping[str, Any]) -> RenderableType:
    """The comparison for `Console.print`: the best in bold with a star, those tied with it marked, failures at the end.

    >>> value = {"mean": 0.97123, "error": 0.00214, "best": True, "tied": False}
    >>> column = {"key": "accuracy", "title": "accuracy", "unit": "%", "group": "quality"}
    >>> row = {"label": "packed", "status": "done", "reason": None, "values": {"accuracy": value}}
    >>> console = Console(width=60)
    >>> console.print(terminal({"title": "digits", "columns": [column], "rows": [row]}))  # doctest: +ELLIPSIS
    digits
    ...
     method     accuracy (%)...
     packed   97.12 ± 0.21 *...
    """
    return _Comparison(document)


def model_lines(document: Mapping[str, Any]) -> list[Text]:
    """The command that predicts with each model; lines to be printed whole (`soft_wrap`), as they are copied."""
    commands = predictors(document)
    widest = max((cell_len(label) for label, _ in commands), default=0)
    return [Text.assemble((name, "bold"), " " * (widest - cell_len(name) + 2), line) for name, line in commands]


class _Comparison:
    def __init__(self, document: Mapping[str, Any]):
        self.document = document
        self.columns: list[Mapping[str, Any]] = [*sized(document)]
        self.rows = [row for row in document["rows"] if row["status"] != "failed"]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.document["title"], style="bold")
        for columns in self._fitting(console, options):
            yield self._table(columns)
            yield Text()
        values = [value for row in self.rows for value in row["values"].values()]
        marks = [("*", "best"), ("≈", "tied"), ("±", "error")]
        used = [
            part for part, (_, name) in zip(LEGEND.split("   "), marks, strict=True) if any(v.get(name) for v in values)
        ]
        if used:
            yield Text("   ".join(used), style="dim")
        troubles = [row for row in self.document["rows"] if row["status"] != "done"]
        yield Group(*(self._trouble(row) for row in troubles))

    def _fitting(self, console: Console, options: ConsoleOptions) -> list[list[Mapping[str, Any]]]:
        """The columns in as few tables as the terminal takes, no group of them torn apart where it fits."""
        tables: list[list[Mapping[str, Any]]] = []

        def fits(columns: Sequence[Mapping[str, Any]]) -> bool:
            return (
                Measurement.get(console, options.update(max_width=10_000), self._table(columns)).maximum
                <= options.max_width
            )

        groups: dict[str, list[Mapping[str, Any]]] = {}
        for column in self.columns:
            groups.setdefault(column.get("group") or "", []).append(column)
        for group in groups.values():
            if tables and fits([*tables[-1], *group]):
                tables[-1] += group
                continue
            tables.append([])
            for column in group:
                if tables[-1] and not fits([*tables[-1], column]):
                    tables.append([])
                tables[-1].append(column)
        return tables

    def _table(self, columns: Sequence[Mapping[str, Any]]) -> Table:
        groups = [column.get("group") or "" for column in columns]
        over = [group if i == 0 or group != groups[i - 1] else "" for i, group in enumerate(groups)]
        head = [Text.assemble((g, "dim"), "\n", heading(c)) for g, c in zip(over, columns, strict=True)]
        rows = [
            [row["label"], *(_cell(row["values"].get(column["key"]), column) for column in columns)]
            for row in self.rows
        ]
        return text_table(["\nmethod", *head], rows, align="lr")

    def _trouble(self, row: Mapping[str, Any]) -> Text:
        word = "failed" if row["status"] == "failed" else "failed in part"
        return Text.assemble(
            (row["label"], "bold"), " ", (word, "red"), f": {row.get('reason') or 'no reason recorded'}"
        )


def _cell(value: Mapping[str, Any] | None, column: Mapping[str, Any]) -> Text:
    text = shown(value, column, unit=False)
    if not value or text == NOTHING:
        return Text(f"{text}  ", style="dim")
    if value.get("best"):
        return Text(f"{text} *", style="bold")
    return Text(f"{text} ≈" if value.get("tied") else f"{text}  ")
