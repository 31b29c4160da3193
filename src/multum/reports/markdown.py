"""The report as Markdown, readable as it is and where it is rendered."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..figures.figure import Figure
from ..figures.formats import NOTHING, heading, sized
from ..figures.tables import markdown_table
from .summary import advice_of, facts, listed, predictors
from .table import BEST, TIED, columns_of, interval, marks, text
from .tuning import EDGE, tuned, tuning_words

__all__ = ["markdown"]

SPECIAL = re.compile(r"([\\`*_\[\]|~#<>])")


def markdown(document: Mapping[str, Any], figures: Sequence[Figure]) -> str:
    """The advice, the tables, what failed and why, the figures by their files, and how to reproduce it."""
    parts = [f"# {_safe(document['title'])}", _safe(" · ".join(facts(document)))]
    parts += _advice(document)
    main = [column for column in columns_of(document) if column["main"]]
    parts += ["## Main numbers", _table(document["rows"], main, intervals=True), _legend(document["rows"])]
    parts.append("## All columns")
    for group, members in itertools.groupby(sized(document), key=lambda c: c.get("group") or "numbers"):
        parts += [f"### {_safe(group[:1].upper() + group[1:])}", _table(document["rows"], list(members))]
    failed = [row for row in document["rows"] if row["status"] != "done"]
    if failed:
        lines = [f"- **{_safe(row['label'])}** ({row['status']}): {_safe(row.get('reason') or '')}" for row in failed]
        parts += ["## Failures", "\n".join(lines)]
    for figure in figures:
        parts.append(
            f"## {_safe(figure.title)}\n\n{_safe(figure.caption)}\n\n"
            f"![{_safe(figure.title)}](figures/{figure.name}.png)"
        )
    parts += _tuning(document)
    if document.get("test"):
        parts += ["## How it was tested", _safe(document["test"])]
    if predictors(document):
        body = [[_safe(label), f"`{command}`"] for label, command in predictors(document)]
        parts += ["## Models", markdown_table(["method", "command"], body)]
    parts.append("## How to reproduce")
    if document.get("command"):
        parts.append(_code(document["command"]))
    for title, entries in listed(document):
        parts.append(f"{title}:\n\n" + "\n".join(f"- {_safe(name)}: {_safe(value)}" for name, value in entries))
    return "\n\n".join(part for part in parts if part) + "\n"


def _advice(document: Mapping[str, Any]) -> list[str]:
    advice = advice_of(document)
    parts = [f"**{_safe(advice['sentence'])}**"] if advice["sentence"] else []
    for title, name in (("What is sure:", "sure"), ("What is not sure, and what would tell:", "unsure"), ("", "notes")):
        if advice[name]:
            parts += [title, "\n".join(f"- {_safe(sentence)}" for sentence in advice[name])]
    return parts


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Mapping[str, Any]], *, intervals: bool = False) -> str:
    head = ["method", *(_safe(heading(column)) for column in columns)]
    body = [
        [_label(row), *(_cell(row, column, intervals) for column in columns)]
        if row["status"] != "failed"
        else [_label(row), "failed", *[NOTHING] * (len(columns) - 1)]
        for row in rows
    ]
    return markdown_table(head, body, "lr")


def _label(row: Mapping[str, Any]) -> str:
    names = ", ".join(mark.name for mark in marks(row))
    return _safe(f"{row['label']} ({names})" if names else row["label"])


def _cell(row: Mapping[str, Any], column: Mapping[str, Any], intervals: bool) -> str:
    """A value with its error or, where it is known and asked for, its interval."""
    value = row["values"].get(column["key"])
    ends = interval(value, column) if intervals else ""
    words = text(row, column, error=not ends)
    if not value or words == NOTHING:
        return words
    words = f"**{words}**" if value.get("best") else f"{words} ≈" if value.get("tied") else words
    return f"{words} ({ends})" if ends else words


def _legend(rows: Sequence[Mapping[str, Any]]) -> str:
    values = [value for row in rows for value in row["values"].values()]
    words = [f"**bold**: {BEST}"]
    if any(value.get("low") is not None for value in values):
        words.append("(low to high): 95 % interval")
    if any(value.get("error") is not None for value in values):
        words.append("±: standard error over seeds")
    if any(value.get("tied") for value in values):
        words.append(f"≈: {TIED}")
    words += [f"{name}: {meaning}" for name, meaning in {m.name: m.help for row in rows for m in marks(row)}.items()]
    return "; ".join(words) + "."


def _tuning(document: Mapping[str, Any]) -> list[str]:
    methods = tuned(document)
    if not methods:
        return []
    body = []
    for method in methods:
        for each in method.tried:
            results = [
                f"{result} ({epochs} epochs)"
                for epochs, result in zip(method.epochs, each.results, strict=True)
                if result != NOTHING
            ]
            cells = [_safe(each.setting), _safe(", ".join(results))]
            body.append([_safe(method.label), *(f"**{cell}**" if each.chosen else cell for cell in cells)])
    edges = [method.label for method in methods if method.edge]
    warning = [_safe(f"{', '.join(edges)}: {EDGE}.")] if edges else []
    table = markdown_table(["method", "setting", "held-out NLL"], body)
    return ["## How this was tuned", _safe(tuning_words(document)), table, *warning]


def _safe(text: Any) -> str:
    """Words that Markdown takes as they are, in one line."""
    return SPECIAL.sub(r"\\\1", " ".join(str(text).split())).replace("&", "&amp;")


def _code(text: str) -> str:
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"{fence}sh\n{text}\n{fence}"
