"""The report as Markdown, readable as it is and where it is rendered."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..figures.figure import Figure
from ..figures.formats import NOTHING, heading, markdown_table, sized
from .summary import EDGE, advice_of, facts, listed, predictors, tuned, tuning_words
from .table import BEST, TIED, columns_of, group_name, interval, marks, text, to_single, verdict

SPECIAL = re.compile(r"([\\`*_\[\]|~#<>])")


def markdown(document: Mapping[str, Any], figures: Sequence[Figure]) -> str:
    """The advice, the tables, what failed and why, the figures by their files, and how to reproduce it."""
    parts = [f"# {safe(document['title'])}", safe(" · ".join(facts(document)))]
    parts += advice_parts(document)
    parts += ["## Main numbers", main_table(document), legend(document["rows"]), *_differences(document)]
    parts.append("## All columns")
    for group, members in itertools.groupby(sized(document), key=lambda c: c.get("group") or "numbers"):
        parts += [f"### {safe(group[:1].upper() + group[1:])}", _table(document["rows"], list(members))]
    failed = [row for row in document["rows"] if row["status"] != "done"]
    if failed:
        lines = [f"- **{safe(row['label'])}** ({row['status']}): {safe(row.get('reason') or '')}" for row in failed]
        parts += ["## Failures", "\n".join(lines)]
    for figure in figures:
        parts.append(
            f"## {safe(figure.title)}\n\n{safe(figure.caption)}\n\n![{safe(figure.title)}](figures/{figure.name}.png)"
        )
    parts += _tuning_parts(document)
    if document.get("test"):
        parts += ["## How it was tested", safe(document["test"])]
    if predictors(document):
        body = [[safe(label), f"`{command}`"] for label, command in predictors(document)]
        parts += ["## Models", markdown_table(["method", "command"], body)]
    parts.append("## How to reproduce")
    if document.get("command"):
        parts.append(code(document["command"]))
    for title, entries in listed(document):
        parts.append(f"{title}:\n\n" + "\n".join(f"- {safe(name)}: {safe(value)}" for name, value in entries))
    return "\n\n".join(part for part in parts if part) + "\n"


def advice_parts(document: Mapping[str, Any]) -> list[str]:
    advice = advice_of(document)
    parts = [f"**{safe(advice['sentence'])}**"] if advice["sentence"] else []
    for title, name in (
        ("What is sure:", "sure"),
        ("What is not sure, and what would tell:", "unsure"),
        ("Notes:", "notes"),
    ):
        if advice[name]:
            parts += [title, "\n".join(f"- {safe(sentence)}" for sentence in advice[name])]
    return parts


def main_table(document: Mapping[str, Any]) -> str:
    """The main columns, with intervals where they are known."""
    main = [column for column in columns_of(document) if column["main"]]
    return _table(document["rows"], main, intervals=True)


def _differences(document: Mapping[str, Any]) -> list[str]:
    """Every method against the single network."""
    compared = [(row, gap) for row in document["rows"] if (gap := to_single(row)) is not None]
    if not compared:
        return []
    body = []
    for row, gap in compared:
        ends = (f"{gap[end]:+.4f}" if gap.get(end) is not None else NOTHING for end in ("low", "high"))
        says = verdict(gap, document.get("margin") or 0.0)
        body.append([safe(row["label"]), f"{gap['mean']:+.4f}", " to ".join(ends), says])
    reference = safe(compared[0][1].get("label", "one network"))
    head = ["method", "difference", "95 % interval", "verdict"]
    return [f"Calibrated NLL less that of {reference} (below 0: better):", markdown_table(head, body, "lrrl")]


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Mapping[str, Any]], *, intervals: bool = False) -> str:
    groups = [f"{group_name(column)} " if intervals else "" for column in columns]  # else it is the title of the table
    head = ["method", *(safe(group + heading(column)) for group, column in zip(groups, columns, strict=True))]
    body = [
        [_label(row), *(_cell(row, column, intervals) for column in columns)]
        if row["status"] != "failed"
        else [_label(row), "failed", *[NOTHING] * (len(columns) - 1)]
        for row in rows
    ]
    return markdown_table(head, body, "lr")


def _label(row: Mapping[str, Any]) -> str:
    names = ", ".join(mark.name for mark in marks(row))
    return safe(f"{row['label']} ({names})" if names else row["label"])


def _cell(row: Mapping[str, Any], column: Mapping[str, Any], intervals: bool) -> str:
    """A value with its error or, where it is known and asked for, its interval."""
    value = row["values"].get(column["key"])
    ends = interval(value, column) if intervals else ""
    words = text(row, column, error=not ends)
    if not value or words == NOTHING:
        return words
    words = f"**{words}**" if value.get("best") else f"{words} ≈" if value.get("tied") else words
    return f"{words} ({ends})" if ends else words


def legend(rows: Sequence[Mapping[str, Any]]) -> str:
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


def _tuning_parts(document: Mapping[str, Any]) -> list[str]:
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
            cells = [safe(each.setting), safe(", ".join(results))]
            body.append([safe(method.label), *(f"**{cell}**" if each.chosen else cell for cell in cells)])
    edges = [method.label for method in methods if method.edge]
    warning = [safe(f"{', '.join(edges)}: {EDGE}.")] if edges else []
    table = markdown_table(["method", "setting", "held-out NLL"], body)
    return ["## How this was tuned", safe(tuning_words(document)), table, *warning]


def safe(text: Any) -> str:
    """Words that Markdown takes as they are, in one line."""
    return SPECIAL.sub(r"\\\1", " ".join(str(text).split())).replace("&", "&amp;")


def code(text: str) -> str:
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"{fence}sh\n{text}\n{fence}"
