"""What stands around the table: what was compared and how it was tuned, the advice, how to run and use it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Any

from ..figures.formats import NOTHING, shown, sized
from .table import EQUIVALENT, text

TILES = (
    *("accuracy", "rmse", "calibrated_nll", "nll", "equivalent", "macs", "latency"),
    *("calibrated_ece", "ece", "params"),
)
MOST_TILES = 5
CALIBRATED = {"nll": "calibrated_nll", "ece": "calibrated_ece"}  # no tile where the calibrated one is there
PLAIN = "single"  # the method that others are measured against
EDGE = "the chosen learning rate is the lowest or the highest that was tried: one beyond it may be better"
APART = ("epochs", "nll", "reason", "fields")  # of a tried setting: what is not part of it


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
    others = (row for row in document["rows"] if row["values"] and not row.get("control"))
    plain = next((row for row in others if row.get("name", row["label"]) == PLAIN), None)
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


@dataclass(frozen=True)
class Tried:
    """One setting with its held-out NLL after each stage: a number, the reason of a failure, or a dash."""

    setting: str
    results: Sequence[str]
    chosen: bool
    reason: str  # of a failure


@dataclass(frozen=True)
class Tuned:
    """What one method tried."""

    label: str
    chosen: str
    edge: bool
    epochs: Sequence[int]  # of each stage
    tried: Sequence[Tried]


def tuned(document: Mapping[str, Any]) -> list[Tuned]:
    """Every method's settings in the order they were first tried; none where nothing was tuned."""
    methods = (document.get("tuning") or {}).get("methods") or {}
    return [_tuned(label, entry) for label, entry in methods.items()]


def tuning_words(document: Mapping[str, Any]) -> str:
    """One sentence on the effort, the same for every method.

    >>> stages = [{"epochs": 8, "runs": 4}, {"epochs": 20, "runs": 1}]
    >>> tuning_words({"tuning": {"candidates": 4, "stages": stages, "methods": {}}}).partition(".")[0]
    'Every method had the same effort: 4 runs of 8 epochs, then 1 run of 20 epochs'
    """
    tuning = document.get("tuning")
    if not tuning:
        return ""
    stages = [f"{_counted(stage['runs'], 'run')} of {_counted(stage['epochs'], 'epoch')}" for stage in tuning["stages"]]
    effort = ", then ".join(stages) or "no run"
    return (
        f"Every method had the same effort: {effort}. The setting with the lowest calibrated NLL on a held-out part of "
        "the training data was taken (in bold); no test example was used."
    )


def settings_words(settings: Mapping[str, Any] | None) -> str:
    """
    >>> settings_words({"lr": 0.006, "alpha": 3})
    'lr 0.006, alpha 3'
    """
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in _flat(settings).items()
    )


def _tuned(label: str, entry: Mapping[str, Any]) -> Tuned:
    epochs = sorted({each["epochs"] for each in entry["tried"]})
    by_setting: dict[str, dict[int, Mapping[str, Any]]] = {}
    for each in entry["tried"]:
        by_setting.setdefault(settings_words(each), {})[each["epochs"]] = each
    chosen = settings_words(entry.get("chosen"))
    tried = [
        Tried(
            setting,
            [_result(stages.get(epoch)) for epoch in epochs],
            setting == chosen,
            "; ".join(dict.fromkeys(each["reason"] for each in stages.values() if each.get("reason"))),
        )
        for setting, stages in by_setting.items()
    ]
    return Tuned(label, chosen, bool(entry.get("edge")), epochs, tried)


def _result(each: Mapping[str, Any] | None) -> str:
    if each is None:
        return NOTHING
    return "failed" if each.get("nll") is None else f"{each['nll']:.4f}"


def _flat(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The learning rate and a method's fields as equals."""
    settings = settings or {}
    return {name: v for name, v in settings.items() if name not in APART} | dict(settings.get("fields") or {})


def _counted(n: int, name: str) -> str:
    return f"{n} {name}{'' if n == 1 else 's'}"
