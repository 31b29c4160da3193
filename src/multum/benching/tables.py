"""A benchmark as tables: on a terminal and in Markdown, a table for each mode and batch size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..figures.formats import NOTHING
from ..figures.tables import markdown_table, text_table

__all__ = ["groups", "label", "machine_line", "markdown", "terminal"]

HEAD = ("what", "by", "ms", "x one", "quartiles", "per s", "MB", "x one")
LEGEND = (
    "ms: of one pass over the batch, or of one training step (forward, loss, backward, SGD); median over rounds. "
    "x one: in units of one network in the same round, median and quartiles. per s: examples. MB: most memory in use "
    "at once, weights included, libraries not; and in units of one network."
)


def terminal(document: Mapping[str, Any]) -> Iterator[Table | Text]:
    """The tables, what they mean, the machine, and what is missing and why."""
    for (mode, batch), rows in groups(document).items():
        yield text_table(HEAD, map(_cells, rows), align="llr", title=f"{document['title']}: {mode}, batch {batch}")
    yield Text(LEGEND, "dim")
    yield Text(machine_line(document), "dim")
    for reason in _reasons(document):
        yield Text(reason)


def markdown(document: Mapping[str, Any], pictures: Sequence[str] = ()) -> str:
    """The same as a page, with pictures by their paths."""
    parts = [f"# {document['title']}"]
    parts += [f"`{document['command']}`"] if document["command"] else []
    parts += [f"![{document['title']}]({picture})" for picture in pictures]
    for (mode, batch), rows in groups(document).items():
        parts.append(f"## {mode}, batch {batch}")
        parts.append(markdown_table(HEAD, [_cells(row) for row in rows], "llr"))
    parts += [LEGEND, machine_line(document)]
    parts += ["\n".join(f"- {reason}" for reason in _reasons(document))] if document["left_out"] else []
    return "\n\n".join(parts) + "\n"


def groups(document: Mapping[str, Any]) -> dict[tuple[str, int], list[Mapping[str, Any]]]:
    """The rows of each mode and batch size."""
    found: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in document["rows"]:
        found.setdefault((row["mode"], row["batch"]), []).append(row)
    return found


def label(row: Mapping[str, Any]) -> str:
    """
    >>> label({"name": "packed", "way": "vmap"}), label({"name": "one network", "way": ""})
    ('packed, vmap', 'one network')
    """
    return f"{row['name']}, {row['way']}" if row["way"] else row["name"]


def machine_line(document: Mapping[str, Any]) -> str:
    """Everything that the numbers depend on, in one line."""
    machine, settings = document["machine"], document["settings"]
    parts = [f"{machine['processor']}, {machine['cores']} cores ({', '.join(machine['flags']) or 'no vector flags'})"]
    threads = f"{settings['threads']} thread{'s' * (settings['threads'] != 1)}"
    parts += [threads, f"{settings['rounds']} rounds", document["created"][:10]]
    return "; ".join([*parts, ", ".join(f"{name} {version}" for name, version in document["versions"].items())])


def _cells(row: Mapping[str, Any]) -> list[str]:
    ratio, memory = row["ratio"], row["memory"]
    times = [_three(1000 * row["seconds"]["median"])]
    known = ratio is not None and ratio["median"] is not None and math.isfinite(ratio["median"])
    times += [f"{ratio['median']:.2f}", f"{ratio['lower']:.2f}-{ratio['upper']:.2f}"] if known else [NOTHING] * 2
    times.append(f"{row['throughput']:,.0f}" if row["throughput"] else NOTHING)
    times.append(NOTHING if memory is None else f"{memory / 1e6:,.0f}")
    times.append(f"{row['memory_ratio']:.2f}" if row["memory_ratio"] else NOTHING)
    return [row["name"], row["way"], *times]


def _reasons(document: Mapping[str, Any]) -> list[str]:
    return [f"{label(part)} is left out: {part['reason']}" for part in document["left_out"]]


def _three(value: float) -> str:
    """Three figures, never an exponent.

    >>> _three(0.1234), _three(12.34), _three(1234.5)
    ('0.12', '12.3', '1,234')
    """
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"
