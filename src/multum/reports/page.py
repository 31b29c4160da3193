"""The page: one self-contained HTML file that requests nothing from a network."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from ..figures.figure import NARROW, Figure
from ..figures.formats import NOTHING, shown, sized
from ..figures.palette import COLOURS, PAGE, look
from ..figures.svg import inline, svg

__all__ = ["facts", "listed", "page", "predictors"]

HERE = Path(__file__).parent
TILES = ("accuracy", "rmse", "nll", "ece", "macs", "params", "latency")
MOST_TILES = 5
LONG_LIST = 16  # entries from which on a list has the width of the page
PLAIN = "single"  # the method that others are measured against
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
    columns = _columns(document)
    rows = [_row(row, i, columns, document) for i, row in enumerate(document["rows"])]
    values = [value for row in document["rows"] for value in row["values"].values()]
    cells = [_cell(cell) for cell in document.get("cells", [])]
    return environment.get_template("page.html").render(
        title=document["title"],
        facts=facts(document),
        advice={"sentence": "", "notes": [], **(document.get("advice") or {})},
        tiles=_tiles(document),
        groups=[
            {"title": title, "size": len(list(group))}
            for title, group in itertools.groupby(c["group"] for c in columns)
        ],
        columns=columns,
        rows=rows,
        errors=any(value.get("error") is not None for value in values),
        tied=any(value.get("tied") for value in values),
        figures=[_drawn(figure, drawings[figure.name]) for figure in figures],
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


def facts(document: Mapping[str, Any]) -> list[str]:
    """What was compared, in a few words each.

    >>> facts({"settings": {"seeds": [0, 1], "epochs": 10}, "examples": {"train": 1258, "test": 539}})
    ['2 seeds', '10 epochs', '1,258 train and 539 test examples']
    """
    settings, words = document.get("settings") or {}, []
    sizes = document.get("examples")
    for name in ("seeds", "epochs"):
        n = settings.get(name)
        n = len(n) if isinstance(n, (list, tuple)) else n
        if n is not None:
            words.append(f"{n} {name if n != 1 else name[:-1]}")
    if sizes:
        words.append(" and ".join(f"{n:,} {name}" for name, n in sizes.items()) + " examples")
    if document.get("classes"):
        words.append(f"{len(document['classes'])} classes")
    if settings.get("budget"):
        words.append(f"budget {settings['budget']}")
    if document.get("created"):
        words.append(_day(document["created"]))
    return words


def listed(document: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Settings, versions and machine, each as names and words."""
    settings = {name: value for name, value in (document.get("settings") or {}).items() if name != "recipe"}
    shown_settings = {"task": document.get("task"), **settings, "created": document.get("created")}
    parts = [
        ("Settings", shown_settings),
        ("Recipe", (document.get("settings") or {}).get("recipe") or {}),
        ("Versions", document.get("versions") or {}),
        ("Machine", document.get("machine") or {}),
    ]
    return [(title, [(str(name), _words(value)) for name, value in part.items()]) for title, part in parts if part]


def predictors(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every method with the command that predicts with its model, which names the folder where it lies.

    >>> rows = [{"label": "deep", "folder": "deep-seed0-1f"}, {"label": "packed", "folder": None}]
    >>> predictors({"folder": "runs/my data", "rows": rows})
    [('deep', "multum predict 'runs/my data/deep-seed0-1f' FILE")]
    """
    final = document.get("final") or {}
    models = [(row["label"], row.get("folder")) for row in document["rows"]]
    models += [(f"{final['label']}, final", final["folder"])] if final.get("status") == "done" else []
    place = PurePath(document.get("folder") or "")
    return [(label, f"multum predict {shlex.quote(str(place / folder))} FILE") for label, folder in models if folder]


def _words(value: Any) -> str:
    if value is None or value == [] or value == "":
        return "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_words(item)}" for name, item in value.items())
    return str(value)


def _breakable(label: str) -> Markup:
    """A label that may go to the next line behind its marks."""
    return Markup("<wbr>").join(re.split(r"(?<=[:,;=/])", label))


def _day(created: str) -> str:
    try:
        day = datetime.fromisoformat(created)
    except ValueError:
        return created
    return f"{day.day} {day:%B %Y}"


def _columns(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns: list[dict[str, Any]] = []
    for column in sized(document):
        unit = column.get("unit", "")
        group = column.get("group") or ""
        columns.append(
            {
                "help": "",
                "better": None,
                **column,
                "group": group,
                "title": column.get("title", column["key"]),
                "shown_unit": unit if unit != "count" else "",
                "arrow": ARROWS.get(column.get("better") or "", ""),
                "starts": not columns or columns[-1]["group"] != group,
                "group_name": group if group not in ("quality", "cost") else "",
            }
        )
    return columns


def _row(row: Mapping[str, Any], index: int, columns: list[dict[str, Any]], document: Mapping[str, Any]) -> dict:
    style = look(index)
    return {
        "label": row["label"],
        "reason": row.get("reason") or "",
        "failed": row["status"] == "failed",
        "partly": row["status"] == "partly",
        "advised": row["label"] == (document.get("advice") or {}).get("label"),
        "colour": style.css,
        "fill": style.fill,
        "cells": [_value(row["values"].get(column["key"]), column) for column in columns],
    }


def _value(value: Mapping[str, Any] | None, column: Mapping[str, Any]) -> dict[str, Any]:
    mean, _, error = shown(value, column, unit=False).partition(" ± ")
    known = mean != NOTHING and value is not None
    best = known and bool(value.get("best"))  # type: ignore[union-attr]
    return {
        "mean": mean,
        "error": error,
        "value": value["mean"] if known else None,  # type: ignore[index]
        "tied": known and bool(value.get("tied")) and not best,  # type: ignore[union-attr]
        "class": " ".join(name for name, on in (("best", best), ("starts", column["starts"])) if on),
    }


def _tiles(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """The numbers of the advised method, beside those of a single network."""
    rows = {row["label"]: row for row in document["rows"]}
    advised = rows.get((document.get("advice") or {}).get("label") or "")
    if advised is None:
        return []
    plain = next((row for row in document["rows"] if row.get("name", row["label"]) == PLAIN and row["values"]), None)
    tiles = []
    for column in sized(document):
        value = advised["values"].get(column["key"])
        if column["key"] not in TILES or value is None or value.get("mean") is None:
            continue
        other = plain["values"].get(column["key"]) if plain is not None and plain is not advised else None
        unit = column.get("unit", "")
        tiles.append(
            {
                "key": column["key"],
                "title": column["title"],
                "value": shown({**value, "error": None}, column, unit=False),
                "unit": unit if unit != "count" else "",
                "other": f"{plain['label']}: {shown({**other, 'error': None}, column)}" if other and plain else "",
            }
        )
    tiles.sort(key=lambda tile: TILES.index(tile["key"]))
    return tiles[:MOST_TILES]


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
