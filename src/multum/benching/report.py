"""A benchmark as tables, for each mode and batch size, on a terminal and in Markdown; as a figure; and as files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Drawing
from rich.table import Table
from rich.text import Text

from ..errors import FileError
from ..figures.figure import Figure, png, svg
from ..figures.forest import LINE, Mark, draw_forest, name_room
from ..figures.formats import NOTHING, markdown_table, text_table
from ..figures.palette import HUES, INK, MUTED
from ..figures.panels import canvas, log_axis
from ..files import plain, read_json, write_bytes, write_json, write_text

HEAD = ("what", "by", "ms", "x one", "quartiles", "per s", "MB", "x one")
LEGEND = (
    "ms: of one pass over the batch, or of one training step (forward, loss, backward, SGD); median over rounds. "
    "x one: in units of one network in the same round, median and quartiles. per s: examples. MB: most memory in use "
    "at once, weights included, libraries not; and in units of one network."
)
JSON, PAGE, PICTURE = "bench.json", "bench.md", "bench.svg"
ABOVE, BELOW = 26, 30  # CSS pixels: the title of a panel, its ticks


def terminal(document: Mapping[str, Any]) -> Iterator[Table | Text]:
    """The tables, what they mean, the machine, and what is missing and why."""
    for (mode, batch), rows in groups(document).items():
        yield text_table(HEAD, map(_cells, rows), align="llr", title=f"{document['title']}: {mode}, batch {batch}")
    yield Text(LEGEND, "dim")
    yield Text(_machine_line(document), "dim")
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
    parts += [LEGEND, _machine_line(document)]
    parts += ["\n".join(f"- {reason}" for reason in _reasons(document))] if document["left_out"] else []
    return "\n\n".join(parts) + "\n"


def groups(document: Mapping[str, Any]) -> dict[tuple[str, int], list[Mapping[str, Any]]]:
    """The rows of each mode and batch size."""
    rows: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in document["rows"]:
        rows.setdefault((row["mode"], row["batch"]), []).append(row)
    return rows


def label(row: Mapping[str, Any]) -> str:
    """
    >>> label({"name": "packed", "way": "vmap"}), label({"name": "one network", "way": ""})
    ('packed, vmap', 'one network')
    """
    return f"{row['name']}, {row['way']}" if row["way"] else row["name"]


def _machine_line(document: Mapping[str, Any]) -> str:
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


def write(document: Mapping[str, Any], out: Path) -> list[Path]:
    """Write bench.json, bench.md, bench.svg and bench.png into a folder that is there."""
    document = plain(document)
    write_json(out / JSON, document)
    if document["rows"]:
        drawing = chart(document).plot()
        write_text(out / PICTURE, svg(drawing))
        write_bytes((out / PICTURE).with_suffix(".png"), png(drawing))
        write_text(out / PAGE, markdown(document, [PICTURE]))
    return [out / name for name in (JSON, PAGE, PICTURE) if (out / name).is_file()]


def kept_rows(out: Path, settings: Mapping[str, Any], about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of what a benchmark that was stopped had finished there; none where it was another one, or is whole."""
    try:
        before = read_json(out / JSON)
        same = all(before[name] == plain(value) for name, value in {"settings": settings, **about}.items())
        done = [tuple(group) for group in before["groups"]]
        if not same or len(done) == len(settings["mode"]) * len(settings["batch"]):
            return []
        return [row for row in before["rows"] if (row["mode"], row["batch"]) in done]
    except (FileError, KeyError, TypeError):
        return []  # no such file, or not one of ours


def chart(document: Mapping[str, Any]) -> Figure:
    """The figure of a document that has rows."""
    panels = {
        f"{mode}, batch {batch}": [row for row in rows if row["ratio"] and row["ratio"]["median"]]
        for (mode, batch), rows in groups(document).items()
    }
    numbers = pd.DataFrame(
        {"panel": title, "row": label(row), **row["ratio"]} for title, rows in panels.items() for row in rows
    )
    return Figure(
        title=f"{document['title']}: time in units of one network",
        caption="Medians over rounds with their quartiles; the line at 1 is one network by plain torch.",
        numbers=numbers,
        draw=lambda width: _drawn(panels, width),
        name="bench",
    )


def _drawn(panels: Mapping[str, list[Mapping[str, Any]]], width: float) -> Drawing:
    marks = {title: [_mark(row) for row in rows] for title, rows in panels.items()}
    every = [mark for own in marks.values() for mark in own]
    left = name_room(every, width)
    heights = {title: ABOVE + LINE * len(own) + BELOW for title, own in marks.items()}
    height = sum(heights.values())
    figure = canvas(width, height)
    low = min(0.9, *(mark.low or mark.value for mark in every)) / 1.05
    high = max(1.1, *(mark.high or mark.value for mark in every)) * 1.05
    top = height
    for title, own in marks.items():
        bottom = top - heights[title] + BELOW
        shape = (left / width, bottom / height, (width - left - 14) / width, LINE * len(own) / height)
        axes = figure.add_axes(shape)
        draw_forest(axes, own, left - 12)
        log_axis(axes, "x", low, high)
        axes.axvline(1, color=MUTED, lw=1, ls=(0, (1, 2)), zorder=1)
        figure.text(0, (top - 8) / height, title, size=11, weight="bold", color=INK, va="top")
        top -= heights[title]
    return figure


def _mark(row: Mapping[str, Any]) -> Mark:
    colour = HUES[0] if row["library"] == "multum" else HUES[1]
    ratio = row["ratio"]
    return Mark(label(row), ratio["median"], ratio["lower"], ratio["upper"], colour, filled=row["members"] > 1)
