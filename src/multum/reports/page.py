"""The page: one self-contained HTML file that requests nothing from a network."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from ..figures.figure import NARROW, Figure, inline, svg
from ..figures.formats import NOTHING
from ..figures.palette import COLOURS, PAGE, look
from .summary import EDGE, advice_of, facts, listed, meaning, predictors, settings_words, tiles, tuned, tuning_words
from .table import BEST, TIED, columns_of, group_name, interval, marks, text

HERE = Path(__file__).parent
LONG_LIST = 16  # entries from which on a list has the width of the page
ARROWS = {"higher": "↑", "lower": "↓"}


def page(document: Mapping[str, Any], figures: Sequence[Figure], drawings: Mapping[str, str]) -> str:
    """The report as HTML.

    Args:
        document: the comparison.
        figures: what the page shows.
        drawings: the SVG file of each figure, by name.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters["breakable"] = _breakable
    environment.filters["glued"] = _glued
    cells = [_cell(cell) for cell in document.get("cells", [])]
    return environment.get_template("page.html").render(
        title=document["title"],
        facts=facts(document),
        advice=advice_of(document),
        tiles=tiles(document),
        **_table(document),
        figures=[_drawn(figure, drawings[figure.name]) for figure in figures],
        tuning=tuned(document),
        tuning_words=tuning_words(document),
        edge=EDGE,
        test=document.get("test") or "",
        predictors=predictors(document),
        command=document.get("command"),
        lists=sorted(
            ({"title": t, "entries": entries, "long": len(entries) > LONG_LIST} for t, entries in listed(document)),
            key=lambda part: part["long"],
        ),
        cells=cells,
        failures=sum(cell["failed"] for cell in cells),
        colours=[(name, light, dark) for light, (name, dark) in COLOURS.items()]
        + [(name, *both) for name, both in PAGE.items()],
        css=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        js=Markup((HERE / "page.js").read_text(encoding="utf-8")),
        data={
            "points": {name: point for figure in figures for name, point in figure.points.items()},
            "frames": {figure.name: _frame(figure.frame()) for figure in figures},
        },
    )


def _table(document: Mapping[str, Any]) -> dict[str, Any]:
    """The table with its legend."""
    columns = _columns(document)
    rows = [_row(row, i, columns, document) for i, row in enumerate(document["rows"])]
    values = [value for row in document["rows"] for value in row["values"].values()]
    groups = itertools.groupby(columns, key=lambda c: (c["main"], c["group"]))
    legend = {mark.name: mark for row in document["rows"] for mark in marks(row)}
    return {
        "columns": columns,
        "rows": rows,
        "groups": [{"main": main, "title": title, "size": len(list(own))} for (main, title), own in groups],
        "main": [column for column in columns if column["main"]],
        "rest": [column for column in columns if not column["main"]],
        "legend": list(legend.values()),
        "best": BEST,
        "tied_words": TIED,
        "errors": any(value.get("error") is not None for value in values),
        "tied": any(value.get("tied") for value in values),
        "intervals": any(interval(row["values"].get(c["key"]), c) for row in document["rows"] for c in columns),
    }


def _breakable(label: str) -> Markup:
    """A label that may go to the next line behind its marks."""
    return Markup("<wbr>").join(re.split(r"(?<=[:,;=/@])", label))


def _glued(sentence: str) -> str:
    """No line begins with a percent sign."""
    return re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", sentence)


def _columns(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns: list[dict[str, Any]] = []
    for column in columns_of(document):
        unit = column.get("unit", "")
        group = column.get("group") or ""
        before = columns[-1] if columns else {}
        columns.append(
            {
                "help": "",
                "better": None,
                **column,
                "group": group,
                "title": column.get("title", column["key"]),
                "meaning": meaning(column),
                "shown_unit": unit if unit != "count" else "",
                "arrow": ARROWS.get(column.get("better") or "", ""),
                "starts": (before.get("main"), before.get("group")) != (column["main"], group),
                "group_name": group_name(column),
            }
        )
    return columns


def _row(row: Mapping[str, Any], index: int, columns: list[dict[str, Any]], document: Mapping[str, Any]) -> dict:
    style = look(index)
    return {
        "label": row["label"],
        "reason": row.get("reason") or "",
        "failed": row["status"] == "failed",
        "marks": [{"name": m.name, "warns": m.warns, "help": row.get("reason") or m.help} for m in marks(row)],
        "advised": row["label"] == advice_of(document)["label"],
        "tuned": settings_words(row.get("tuned")),
        "colour": style.css,
        "fill": style.fill,
        "cells": [_value(row, column) for column in columns],
    }


def _value(row: Mapping[str, Any], column: Mapping[str, Any]) -> dict[str, Any]:
    value = row["values"].get(column["key"])
    mean, _, error = text(row, column).partition(" ± ")
    known = value is not None and value.get("mean") is not None and mean != NOTHING
    best = known and bool(value.get("best"))  # type: ignore[union-attr]
    names = {"best": best, "starts": column["starts"], "extra": not column["main"]}
    return {
        "mean": mean,
        "error": error,
        "interval": interval(value, column) if known else "",
        "value": value["mean"] if known else None,  # type: ignore[index]
        "tied": known and bool(value.get("tied")) and not best,  # type: ignore[union-attr]
        "class": " ".join(name for name, on in names.items() if on),
    }


def _cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    seconds = cell.get("seconds")
    return {
        "label": cell["label"],
        "seed": cell["seed"],
        "status": cell["status"],
        "failed": cell["status"] == "failed",
        "reason": cell.get("reason") or "",
        "seconds": NOTHING if seconds is None else f"{seconds:,.1f}",
    }


def _drawn(figure: Figure, drawing: str) -> dict[str, Any]:
    names = {name: str(point["label"]) for name, point in figure.points.items()}
    narrow = svg(figure.plot(NARROW))
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "points": bool(names),
        "wide": Markup(inline(drawing, f"{figure.name}-wide-", figure.alternative, names)),
        "narrow": Markup(inline(narrow, f"{figure.name}-narrow-", figure.alternative, names)),
    }


def _frame(frame: pd.DataFrame) -> dict[str, list]:
    return {"columns": list(frame.columns), "rows": [[_plain(v) for v in row] for row in frame.to_numpy().tolist()]}


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value if value is None or isinstance(value, (bool, str)) else str(value)
    if not math.isfinite(value):
        return None
    return value if isinstance(value, int) else int(value) if value == int(value) else float(f"{value:.6g}")
