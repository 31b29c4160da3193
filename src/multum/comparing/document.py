"""The document of a comparison: everything that a report shows, in plain values."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..data.names import selection
from ..data.sources import Data
from ..files import write_json
from ..metrics.speed import compare_speed
from ..runs import train as job
from ..runs.cells import Cell
from ..runs.work import Outcome, finished
from ..version import __version__
from .advice import advise
from .budget import Budget
from .gather import Found, rows_of

__all__ = ["document_of", "machine", "versions"]


def document_of(
    cells: Sequence[Cell],
    outcomes: Mapping[str, Outcome],
    out: Path,
    source: Data,
    budget: Budget | None,
    told: Mapping[str, Any],
) -> dict[str, Any]:
    """Gather all cells of a comparison.

    Args:
        told: the command and the settings, as the document repeats them.
    """
    reasons = {name: outcome.reason for name, outcome in outcomes.items() if outcome.reason is not None}
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for cell in cells:
        result = None if cell.name in reasons else finished(out / cell.name)
        if result is not None:
            found.setdefault(cell.label, {})[cell.seed] = result
    latencies = _latencies(cells, found, source, out, told["settings"]["threads"])
    columns, rows = rows_of(cells, found, reasons, latencies, out)
    return {
        "format": 1,
        "title": _title(told["settings"]["data"], told["settings"]["model"]),
        **told,
        "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "task": source.task,
        "items": {"train": len(source.train), "test": len(source.test)},
        "classes": list(source.classes) or [str(i) for i in range(source.outputs)],
        "versions": versions(),
        "machine": machine(),
        "columns": [column.described() for column in columns],
        "rows": rows,
        "advice": advise(rows, budget),
        "cells": [_cell(cell, found.get(cell.label, {}).get(cell.seed), reasons.get(cell.name)) for cell in cells],
    }


def _title(data: str, model: str) -> str:
    """
    >>> _title("digits#hold_out=8+9", "small-cnn")
    'digits without 8, 9: small-cnn'
    >>> _title("cifar10#first=10000", "wrn-10-1")
    'cifar10, 10000 training items: wrn-10-1'
    """
    told = ""
    while (found := selection(data))[1]:
        data, choice, chosen = found
        listed = ", ".join(chosen)
        words = {"hold_out": f" without {listed}", "only": f", {listed} alone"}
        words |= {"first": f", {listed} training items", "test": f", {listed} test items"}
        told = words[choice] + told
    return f"{data}{told}: {model}"


def versions() -> dict[str, str]:
    """Of what numbers depend on."""
    return {"multum": __version__, "torch": torch.__version__, "python": platform.python_version()}


def machine() -> dict[str, Any]:
    """The machine that measured, as far as it can be told."""
    memory = None
    with contextlib.suppress(OSError, ValueError, AttributeError):
        memory = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB"
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": memory,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cell(cell: Cell, result: Mapping[str, Any] | None, reason: str | None) -> dict[str, Any]:
    return {
        "label": cell.label,
        "seed": cell.seed,
        "folder": cell.name,
        "status": "failed" if result is None else "done",
        "reason": reason,
        "seconds": None if result is None else sum(result["seconds"].values()),
        "curves": {} if result is None else result["curves"],
    }


def _latencies(cells: Sequence[Cell], found: Found, source: Data, out: Path, threads: int) -> dict[str, float]:
    """Milliseconds of one prediction, all methods in turns in one go; kept, so that a second call tells the same."""
    first = {label: next(c for c in cells if c.label == label and c.seed in found[label]) for label in found}
    names = sorted(cell.name for cell in first.values())
    kept = out / "speed.json"
    if kept.is_file():
        before = json.loads(kept.read_text())
        if before["cells"] == names:
            return before["latency"]
    if not first:
        return {}
    models = {label: job.open_model(out / cell.name, source) for label, cell in first.items()}
    speeds = compare_speed(models, source.example(1), batch_sizes=(1,), threads=threads)
    latency = {row.name: 1000 * row.latency for row in speeds.rows}
    write_json(kept, {"cells": names, "latency": latency})
    return latency
