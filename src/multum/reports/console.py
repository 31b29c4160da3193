"""The comparison on a terminal: its main columns in one table where it is wide enough, and otherwise in several."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..figures.formats import NOTHING, text_table
from .summary import advice_of, predictors
from .table import BEST, TIED, columns_of, group_name, marks, text

DECIDING = ("calibrated_nll", "nll")  # the first that is there keeps its error where the terminal is too narrow for all
CALIBRATED, SHORT = "calibrated", "cal."
LONGEST = 17  # characters of a label in one line
WIDEST = 9  # characters of a heading in one line, where its words allow it


def terminal(document: Mapping[str, Any]) -> RenderableType:
    """The comparison for `Console.print`: the best in bold with a star, those tied with it marked, failures at the end.

    >>> value = {"mean": 0.97123, "error": 0.00214, "best": True, "tied": False}
    >>> column = {"key": "accuracy", "title": "accuracy", "unit": "%", "group": "quality"}
    >>> row = {"label": "packed", "status": "done", "reason": None, "values": {"accuracy": value}}
    >>> console = Console(width=60)
    >>> console.print(terminal({"title": "digits", "columns": [column], "rows": [row]}))  # doctest: +ELLIPSIS
    digits
                  accuracy...
    method             (%)...
    ...
    packed  97.12 ± 0.21 *...
    """
    return _Comparison(document)


def advice_lines(document: Mapping[str, Any]) -> list[Text]:
    """The sentence, then what is sure, what is not and how to find out, and the notes.

    >>> advice = {"label": "deep", "sentence": "Take deep.", "unsure": ["Whether packed is worse: run 9 seeds."]}
    >>> [line.plain for line in advice_lines({"advice": advice})]
    ['Take deep.', 'not sure: Whether packed is worse: run 9 seeds.']
    """
    advice = advice_of(document)
    lines = [Text(advice["sentence"], "bold")]
    lines += [Text.assemble(("sure: ", "green"), sentence) for sentence in advice["sure"]]
    lines += [Text.assemble(("not sure: ", "yellow"), sentence) for sentence in advice["unsure"]]
    return lines + [Text(note) for note in advice["notes"]]


def model_lines(document: Mapping[str, Any]) -> list[Text]:
    """The command that predicts with each model; lines to be printed whole (`soft_wrap`), as they are copied."""
    commands = predictors(document)
    widest = max((cell_len(label) for label, _ in commands), default=0)
    return [Text.assemble((name, "bold"), " " * (widest - cell_len(name) + 2), line) for name, line in commands]


class _Comparison:
    def __init__(self, document: Mapping[str, Any]):
        self.document = document
        columns = columns_of(document)
        self.columns: list[Mapping[str, Any]] = [column for column in columns if column["main"]]
        self.more = len(columns) - len(self.columns)
        self.rows = [row for row in document["rows"] if row["status"] != "failed"]
        self.notes = {mark.name: mark.help for row in self.rows for mark in marks(row)}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.document["title"], style="bold")
        keys = [column["key"] for column in self.columns]
        every = frozenset(keys)
        deciding = frozenset(key for key in DECIDING if key in every and not {*DECIDING[: DECIDING.index(key)]} & every)
        tables = self._fitting(console, options, every)
        if len(tables) > 1:
            tables = self._fitting(console, options, deciding)
        for table in tables:
            yield table
            yield Text()
        yield from self._legend()
        troubles = [row for row in self.document["rows"] if row["status"] != "done"]
        yield Group(*(self._trouble(row) for row in troubles))

    def _fitting(self, console: Console, options: ConsoleOptions, errors: frozenset[str]) -> list[Table]:
        """The columns in as few tables as the terminal takes, with the errors of these columns."""
        tables: list[list[Mapping[str, Any]]] = [[]]

        def fits(columns: Sequence[Mapping[str, Any]]) -> bool:
            wide = options.update(max_width=10_000)
            return Measurement.get(console, wide, self._table(columns, errors)).maximum <= options.max_width

        for column in self.columns:
            if tables[-1] and not fits([*tables[-1], column]):
                tables.append([])
            tables[-1].append(column)
        return [self._table(columns, errors) for columns in tables]

    def _table(self, columns: Sequence[Mapping[str, Any]], errors: frozenset[str]) -> Table:
        heads = [["method"], *map(_head, columns)]
        most = max(len(head) for head in heads)
        rows = [
            [self._label(row), *(_cell(row, column, error=column["key"] in errors) for column in columns)]
            for row in self.rows
        ]
        table = text_table(["\n".join([""] * (most - len(head)) + head) for head in heads], rows, align="lr")
        table.padding = (0, 1, 0, 0)  # every number has room for its mark already
        return table

    def _label(self, row: Mapping[str, Any]) -> str:
        """A method's name in lines that break behind its marks, and the numbers of what the legend says of it."""
        numbers = "".join(f" [{1 + list(self.notes).index(mark.name)}]" for mark in marks(row))
        lines = [""]
        for part in re.split(r"(?<=[:,;/])", row["label"] + numbers):
            if lines[-1] and len(lines[-1]) + len(part) > LONGEST:
                lines.append(" ")
            lines[-1] += part
        return "\n".join(lines)

    def _legend(self) -> list[Text]:
        values = [value for row in self.rows for value in row["values"].values()]
        words = {"best": f"* {BEST}", "tied": f"≈ {TIED}", "error": "± standard error over seeds"}
        used = [word for name, word in words.items() if any(value.get(name) for value in values)]
        if any(column["key"].startswith(CALIBRATED) for column in self.columns):
            used.append(f"{SHORT} {CALIBRATED}")
        notes = [f"[{i}] {name}: {meaning}" for i, (name, meaning) in enumerate(self.notes.items(), 1)]
        more = [f"{self.more} more column{'' if self.more == 1 else 's'} in report.html"] if self.more else []
        return [Text(line, style="dim") for line in ("   ".join(used), *notes, *more) if line]

    def _trouble(self, row: Mapping[str, Any]) -> Text:
        word = "failed" if row["status"] == "failed" else "failed in part"
        return Text.assemble(
            (row["label"], "bold"), " ", (word, "red"), f": {row.get('reason') or 'no reason recorded'}"
        )


def _head(column: Mapping[str, Any]) -> list[str]:
    """A heading in short lines: the group where the title needs it, the words of the title, the unit.

    >>> _head({"key": "auroc", "title": "AUROC", "unit": "%", "group": "OOD data"})
    ['OOD data', 'AUROC (%)']
    >>> _head({"key": "calibrated_nll", "title": "calibrated NLL", "unit": "", "group": "quality"})
    ['cal. NLL']
    """
    title, unit = column.get("title", column["key"]).replace(CALIBRATED, SHORT), column.get("unit", "")
    lines = [group_name(column)]
    for word in [*title.split(), *([f"({unit})"] if unit and unit != "count" else [])]:
        if len(lines) > 1 and len(lines[-1]) + 1 + len(word) <= WIDEST:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [line for line in lines if line]


def _cell(row: Mapping[str, Any], column: Mapping[str, Any], *, error: bool) -> Text:
    value, words = row["values"].get(column["key"]), text(row, column, error=error)
    if not value or words == NOTHING:
        return Text(f"{words}  ", style="dim")
    if value.get("best"):
        return Text(f"{words} *", style="bold")
    return Text(f"{words} ≈" if value.get("tied") else f"{words}  ")
