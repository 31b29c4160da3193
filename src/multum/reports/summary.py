"""What stands around the table: what was compared, the advice, its numbers, and how to run and use it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePath
from typing import Any

from ..figures.formats import shown, sized
from .table import EQUIVALENT, text

__all__ = ["advice_of", "facts", "listed", "meaning", "predictors", "tiles"]

TILES = (
    *("accuracy", "rmse", "calibrated_nll", "nll", "equivalent", "macs", "latency"),
    *("calibrated_ece", "ece", "params"),
)
MOST_TILES = 5
CALIBRATED = {"nll": "calibrated_nll", "ece": "calibrated_ece"}  # no tile where the calibrated one is there
PLAIN = "single"  # the method that others are measured against


def advice_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The advice with all its parts, empty where the document has none."""
    return {"label": None, "sentence": "", "sure": [], "unsure": [], "notes": [], **(document.get("advice") or {})}


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


def tiles(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """The numbers of the advised method, beside those of a single network."""
    rows = {row["label"]: row for row in document["rows"]}
    advised = rows.get(advice_of(document)["label"] or "")
    if advised is None:
        return []
    plain = next((row for row in document["rows"] if row.get("name", row["label"]) == PLAIN and row["values"]), None)
    columns = {column["key"]: column for column in sized(document)}
    named = [key for key in TILES if key in columns and (advised["values"].get(key) or {}).get("mean") is not None]
    shown_keys = [key for key in named if CALIBRATED.get(key) not in named][:MOST_TILES]
    return [_tile(columns[key], advised, None if plain is advised else plain) for key in shown_keys]


def meaning(column: Mapping[str, Any]) -> str:
    """A column in words, and which end of it is the good one.

    >>> meaning({"help": "share of answers that are right", "better": "higher"})
    'Share of answers that are right; higher is better.'
    """
    words = column.get("help") or ""
    good = f"; {column['better']} is better" if column.get("better") else ""
    return f"{words[:1].upper()}{words[1:]}{good}." if words else ""


def _tile(column: Mapping[str, Any], row: Mapping[str, Any], plain: Mapping[str, Any] | None) -> dict[str, str]:
    key, unit = column["key"], column.get("unit", "")
    other = plain["values"].get(key) if plain is not None and key != EQUIVALENT else None
    return {
        "key": key,
        "title": column.get("title", key),
        "value": text(row, column, error=False),
        "unit": unit if unit != "count" else "",
        "other": f"{plain['label']}: {shown({**other, 'error': None}, column)}" if other and plain else "",
        "help": meaning(column),
    }


def _words(value: Any) -> str:
    if value is None or value == [] or value == "":
        return "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_words(item)}" for name, item in value.items())
    return str(value)


def _day(created: str) -> str:
    try:
        day = datetime.fromisoformat(created)
    except ValueError:
        return created
    return f"{day.day} {day:%B %Y}"
