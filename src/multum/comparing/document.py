"""The document of a comparison: everything that a report shows, in plain values."""

from __future__ import annotations

import datetime
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..data.names import selection
from ..data.sources import Data
from ..errors import FileError
from ..files import read_json, write_json
from ..metrics.speed import compare_speed
from ..runs.cells import Cell, Finished, Outcome, finished
from ..runs.folder import RunFolder
from ..runs.machine import machine, versions
from .advice import advise
from .budget import Budget
from .gather import Results, rows_of
from .planning import Entry
from .versus import explained, margin_of

__all__ = ["document_of"]

log = logging.getLogger("multum")


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
