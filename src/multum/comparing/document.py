"""What a comparison leaves: its document, everything that a report shows in plain values; its folder; a final model."""

from __future__ import annotations

import datetime
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..data.names import selection
from ..data.sources import Data, load_data
from ..errors import ConfigError, FileError
from ..files import plain, read_json, write_json
from ..metrics.speed import compare_speed
from ..runs.cells import Cell, Finished, Outcome, finished
from ..runs.folder import RunFolder
from ..runs.machine import machine, versions
from .advice import advise
from .budget import Budget
from .gather import Results, rows_of
from .planning import Entry
from .versus import explained, margin_of

log = logging.getLogger("multum")
COMPARISON = "comparison.json"
SAME = ("data", "model", "tune", "budget", "ood", "shift", "recipe")  # methods and seeds may be added to a comparison


def document_of(
    entries: Sequence[Entry],
    cells: Sequence[Cell],
    outcomes: Mapping[str, Outcome],
    out: Path,
    source: Data,
    budget: Budget | None,
    command: str,
    settings: Mapping[str, Any],
    tuning: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Gather all cells of a comparison; the document repeats the command and the settings."""
    reasons = {name: outcome.reason for name, outcome in outcomes.items() if outcome.reason is not None}
    results: dict[str, dict[int, Finished]] = {}
    for cell in cells:
        result = None if cell.name in reasons else finished(cell, out)
        if result is not None:
            results.setdefault(cell.label, {})[cell.seed] = result
    latencies = _latencies(cells, results, source, out, settings["threads"])
    about = {entry.label: {"control": entry.control, "tuned": entry.tuned} for entry in entries}
    columns, rows, versus = rows_of(cells, results, reasons, latencies, about)
    margin = margin_of(rows, source.task)
    models = {cell.label: cell.name for cell in reversed(cells) if cell.seed in results.get(cell.label, {})}
    return {
        "format": 1,
        "title": _title(settings["data"], settings["model"]),
        "command": command,
        "settings": settings,
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "task": source.task,
        "examples": {name: len(ids) for name, ids in source.ids.items()},
        "classes": list(source.classes) or [str(i) for i in range(source.outputs)],
        "versions": versions(),
        "machine": machine(),
        "columns": [column.described() for column in columns],
        "folder": str(out),
        "rows": [{**row, "folder": models.get(row["label"])} for row in rows],
        "tuning": tuning,
        "advice": advise(rows, budget, versus, margin, settings["epochs"]),
        "test": explained(versus, margin, source.task),
        "margin": margin,
        "final": None,
        "cells": [_cell(cell, results.get(cell.label, {}).get(cell.seed), reasons.get(cell.name)) for cell in cells],
    }


def _title(data: str, model: str) -> str:
    """
    >>> _title("digits#hold_out=8+9", "small-cnn")
    'digits without 8, 9: small-cnn'
    >>> _title("cifar10#first=10000", "wrn-10-1")
    'cifar10, 10000 training examples: wrn-10-1'
    """
    selections = ""
    while (parts := selection(data))[1]:
        data, choice, chosen = parts
        listed = ", ".join(chosen)
        words = {"hold_out": f" without {listed}", "only": f", {listed} alone"}
        words |= {"first": f", {listed} training examples", "test": f", {listed} test examples"}
        selections = words[choice] + selections
    return f"{data}{selections}: {model}"


def _cell(cell: Cell, done: Finished | None, reason: str | None) -> dict[str, Any]:
    return {
        "label": cell.label,
        "seed": cell.seed,
        "folder": cell.name,
        "status": "failed" if done is None else "done",
        "reason": reason,
        "seconds": None if done is None else sum(done.result["seconds"].values()),
        "curves": {} if done is None else done.result["curves"],
    }


def _latencies(cells: Sequence[Cell], results: Results, source: Data, out: Path, threads: int) -> dict[str, float]:
    """Milliseconds of one prediction, interleaved over all methods; kept, so that a second call gives the same."""
    first = {label: next(c for c in cells if c.label == label and c.seed in results[label]) for label in results}
    names = sorted(cell.name for cell in first.values())
    path = out / "speed.json"
    before = _kept_latencies(path, names, set(first))
    if before is not None or not first:
        return before or {}
    models = {}
    for label, cell in first.items():
        try:
            models[label] = RunFolder(out / cell.name).open(source)
        except FileError as error:  # its numbers were measured when it was whole
            log.warning("%s has no latency: %s", label, error)
    if not models:
        return {}
    speeds = compare_speed(models, source.example(1), batch_sizes=(1,), threads=threads)
    latency = {row.name: 1000 * row.latency for row in speeds.rows}
    write_json(path, {"cells": names, "latency": latency})
    return latency


def _kept_latencies(path: Path, names: Sequence[str], labels: set[str]) -> dict[str, float] | None:
    """What was measured before for these cells; None where it is not there or damaged, and is measured again."""
    try:
        before = read_json(path)
    except FileError:
        return None
    latency = before.get("latency")
    if before.get("cells") != names or not isinstance(latency, dict) or latency.keys() != labels:
        return None
    valid = all(isinstance(value, (int, float)) and 0 < value < math.inf for value in latency.values())
    return latency if valid else None


def claim(out: Path, settings: Mapping[str, Any]) -> None:
    """Make a folder that of this comparison; refuse one that holds another: two would be mixed in one report.

    Data that has become other data under the same name is said: its cells are run anew.
    """
    now = plain(settings)
    before = _settings(out)
    changed = {name: _change(before.get(name), now[name]) for name in SAME} if before is not None else {}
    if any(changed.values()):
        words = "; ".join(f"{name} {change}" for name, change in changed.items() if change)
        raise ConfigError(
            f"a folder must hold one comparison; got {out}, which holds another: {words}. Choose another --out"
        )
    if before is not None and before.get("fingerprint") != now["fingerprint"]:
        what = "examples, their order, targets or classes are others"
        if "fingerprint" not in before:
            what = "the multum 0.1 that began it kept no fingerprint of it"
        elif before.get("examples", now["examples"]) != now["examples"]:
            what = f"{before['examples']} examples are now {now['examples']}"
        log.warning("%s may not be what %s was begun with: %s; every cell is run anew", now["data"], out, what)
    write_json(out / COMPARISON, {name: now[name] for name in (*SAME, "fingerprint", "examples")})


def train_final(
    label: str | None, cells: Sequence[Cell], data: str, out: Path, run: Callable[[list[Cell]], Mapping[str, Outcome]]
) -> dict[str, Any] | None:
    """The chosen method on all of the data as it was named, with the first seed; None where none was chosen.

    Where no classes were held out, that is the comparison's own model, which is not trained again.
    """
    if label is None:
        return None
    chosen = next(cell for cell in cells if cell.label == label)
    cell = chosen
    if chosen.data != data:
        content = load_data(data, seed=chosen.parts_seed).arrangement
        cell = replace(chosen, data=data, fingerprint=content, ood=(), shift=(), shift_examples=None)
    reason = run([cell])[cell.name].reason
    result = None if reason else finished(cell, out)
    numbers = {} if result is None else result.result["numbers"]
    return {
        "label": label,
        "seed": cell.seed,
        "data": data,
        "folder": cell.name,
        "status": "failed" if result is None else "done",
        "reason": reason,
        "numbers": {key: numbers[key] for key in ("accuracy", "rmse", "nll") if key in numbers},
    }


def class_notes(name: str, label: str | None, final: Mapping[str, Any] | None, out: Path) -> list[str]:
    """What to know of classes that were held out, and of the model that was trained on everything."""
    _, choice, held = selection(name)
    notes = []
    if choice == "hold_out":
        classes = ", ".join(held)
        notes.append(f"None of the compared models knows the classes {classes}: they were held out as OOD data.")
        if final is None and label is not None:
            notes.append(f"--final (in Python, final=True) also trains {label} on all of the data.")
    if final is not None:
        model = f"The final model, {final['label']} on all of {final['data']},"
        numbers = ", ".join(_measured(key, value) for key, value in final["numbers"].items())
        done = f"lies in {out / final['folder']} ({numbers})."
        notes.append(f"{model} {done if final['status'] == 'done' else 'failed: ' + final['reason']}")
    return notes


def _measured(key: str, value: float) -> str:
    return f"accuracy {100 * value:.1f} %" if key == "accuracy" else f"{key.upper()} {value:.4g}"


def _settings(out: Path) -> dict[str, Any] | None:
    """What the comparison in a folder was begun with; None where there is none."""
    try:
        if (out / COMPARISON).is_file():
            return read_json(out / COMPARISON)
        return read_json(out / "report.json").get("settings") if (out / "report.json").is_file() else None
    except FileError:  # a damaged file says nothing, and is written anew
        return None


def _change(before: Any, now: Any) -> str:
    """What was and what is, of fields those that differ; a field that the older multum did not have is none of them."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = [name for name, value in before.items() if name in now and now[name] != value]
        return ", ".join(f"{name}={before[name]} instead of {now[name]}" for name in names)
    return "" if before == now else f"{before!r} instead of {now!r}"
