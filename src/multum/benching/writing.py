"""The files of a benchmark: JSON, Markdown and a figure, each whole or not there at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import FileError
from ..figures.svg import png, svg
from ..files import plain, read_json, write_bytes, write_json, write_text

__all__ = ["kept_rows", "write"]

JSON, PAGE, PICTURE = "bench.json", "bench.md", "bench.svg"


def write(document: Mapping[str, Any], out: Path) -> list[Path]:
    """Write bench.json, bench.md, bench.svg and bench.png into a folder that is there."""
    from .chart import chart  # with matplotlib, which a table need not wait for
    from .tables import markdown

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
