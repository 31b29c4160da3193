"""The report as Markdown, readable as it is and where it is rendered."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..figures.figure import Figure
from ..figures.formats import NOTHING, heading, shown, sized
from ..figures.tables import markdown_table
from .page import facts, listed, predictors

__all__ = ["markdown"]

SPECIAL = re.compile(r"([\\`*_\[\]|~#<>])")


def markdown(document: Mapping[str, Any], figures: Sequence[Figure]) -> str:
    """The advice, the tables, what failed and why, the figures by their files, and how to reproduce it."""
    parts = [f"# {_safe(document['title'])}", _safe(" · ".join(facts(document)))]
    advice = document.get("advice") or {}
    if advice.get("sentence"):
        parts.append(f"**{_safe(advice['sentence'])}**")
    if advice.get("notes"):
        parts.append("\n".join(f"- {_safe(note)}" for note in advice["notes"]))
    columns = sized(document)
    for group, members in itertools.groupby(columns, key=lambda c: c.get("group") or "numbers"):
        parts += [f"## {_safe(group[:1].upper() + group[1:])}", _table(document["rows"], list(members))]
    parts.append(_legend(document["rows"]))
    failed = [row for row in document["rows"] if row["status"] != "done"]
    if failed:
        lines = [f"- **{_safe(row['label'])}** ({row['status']}): {_safe(row.get('reason') or '')}" for row in failed]
        parts += ["## Failures", "\n".join(lines)]
    for figure in figures:
        parts.append(
            f"## {_safe(figure.title)}\n\n{_safe(figure.caption)}\n\n"
            f"![{_safe(figure.title)}](figures/{figure.name}.png)"
        )
    if predictors(document):
        body = [[_safe(label), f"`{command}`"] for label, command in predictors(document)]
        parts += ["## Models", markdown_table(["method", "command"], body)]
    parts.append("## How to reproduce")
    if document.get("command"):
        parts.append(_code(document["command"]))
    for title, entries in listed(document):
        parts.append(f"{title}:\n\n" + "\n".join(f"- {_safe(name)}: {_safe(value)}" for name, value in entries))
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Mapping[str, Any]]) -> str:
    head = ["method", *(_safe(heading(column)) for column in columns)]
    body = [
        [_safe(row["label"]), *(_cell(row["values"].get(column["key"]), column) for column in columns)]
        if row["status"] != "failed"
        else [_safe(row["label"]), "failed", *[NOTHING] * (len(columns) - 1)]
        for row in rows
    ]
    return markdown_table(head, body, "lr")


def _cell(value: Mapping[str, Any] | None, column: Mapping[str, Any]) -> str:
    text = shown(value, column, unit=False)
    if not value or text == NOTHING:
        return text
    if value.get("best"):
        return f"**{text}**"
    return f"{text} ≈" if value.get("tied") else text


def _legend(rows: Sequence[Mapping[str, Any]]) -> str:
    values = [value for row in rows for value in row["values"].values()]
    words = ["**bold**: best mean"]
    if any(value.get("error") is not None for value in values):
        words.append("±: standard error over seeds")
    if any(value.get("tied") for value in values):
        words.append("≈: not significantly worse than the best")
    return "; ".join(words) + "."


def _safe(text: Any) -> str:
    """Words that Markdown takes as they are, in one line."""
    return SPECIAL.sub(r"\\\1", " ".join(str(text).split())).replace("&", "&amp;")


def _code(text: str) -> str:
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"{fence}sh\n{text}\n{fence}"
