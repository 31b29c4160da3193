"""Evaluate a run folder by names, with a progress bar, and show the numbers as tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress
from rich.table import Table

from ..data.corruptions import STANDARD
from ..data.ood import ood_sets
from ..figures.tables import text_table
from ..metrics.cost import cost
from ..metrics.evaluate import SEVERITIES, evaluate
from ..metrics.speed import speed as measured_speed
from .train import open_run

__all__ = ["evaluate_run", "tables"]


def evaluate_run(
    folder: str | Path,
    ood: Sequence[str] = (),
    *,
    shift: bool = False,
    speed: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Every metric of a finished run on its test part, on foreign sets by name, under corruptions, and its cost."""
    ens, data, settings = open_run(folder)
    foreign = ood_sets(ood, data)
    names = STANDARD if shift else ()
    items = len(data.test) * (1 + len(names) * len(SEVERITIES)) + sum(len(x) for x in foreign.values())
    with Progress(disable=not progress) as bar:
        task = bar.add_task("evaluating", total=items)
        found = evaluate(ens, data, ood=foreign, shift=names, advance=lambda n: bar.advance(task, n))
    spent = cost(ens, example=data.example())
    found["cost"] = {"params": spent.params, "macs": spent.macs, "flops": spent.flops, "torchinfo": spent.torchinfo}
    if speed:
        rows = measured_speed(ens, data.example()).rows
        found["speed"] = [{**dataclasses.asdict(row), "throughput": row.throughput} for row in rows]
    return {"data": settings["data"], "model": settings["model"], "method": settings["method"]["name"], **found}


def tables(found: dict[str, Any]) -> Iterator[Table]:
    """The metrics as tables: the ensemble beside its members' mean, foreign sets, corruptions."""
    title = f"{found['method']} on {found['data']}: {found['examples']} examples, {found['members']} members"
    table = text_table(["metric", "ensemble", "members' mean", "gain"], align="lr", title=title)
    numbers = {k: v for k, v in found.items() if isinstance(v, float) and not k.startswith(("member_", "gain_"))}
    for name, value in numbers.items():
        rest = (found.get(f"{kind}_{name}") for kind in ("member", "gain"))
        table.add_row(name, _shown(value), *map(_shown, rest))
    yield table
    yield from _costs(found)
    if "ood" in found:
        head = ["OOD data", "score", "AUROC", "AUPR", "FPR95"]
        table = text_table(head, align="llr", title="detecting OOD data")
        for place, scores in found["ood"].items():
            for score, cell in scores.items():
                table.add_row(place, score, *(f"{cell[k]:.4f}" for k in ("auroc", "aupr", "fpr95")))
        yield table
    if "shift" in found:
        head = ["corruption", *map(str, SEVERITIES)]
        table = text_table(head, align="lr", title="accuracy under distribution shift, by severity")
        for name, row in found["shift"].items():
            table.add_row(name, *(f"{row[str(severity)]['accuracy']:.4f}" for severity in SEVERITIES))
        yield table


def _costs(found: dict[str, Any]) -> Iterator[Table]:
    table = text_table(["cost", ""], align="lr", title="cost of a prediction of all members")
    names = {"params": "parameters", "macs": "mult-adds", "flops": "2 mult-adds + 2 parameters"}
    for key, title in names.items():
        table.add_row(title, f"{found['cost'][key]:,}")
    for row in found.get("speed", ()):
        what = f"batch of {row['batch_size']}, {row['threads']} threads, {row['executor'] or 'plain'}"
        spread = f"{1000 * row['latency']:.2f} ms ({1000 * row['lower']:.2f} to {1000 * row['upper']:.2f})"
        table.add_row(f"latency, {what}", spread)
        table.add_row(f"throughput, {what}", f"{row['throughput']:,.0f} items/s")
        table.add_row(
            f"memory, {what}", f"{row['peak'] / 2**20:,.2f} MB and {row['weights'] / 2**20:,.2f} MB of weights"
        )
    if found.get("speed"):
        table.add_row("on disk", f"{found['speed'][0]['disk'] / 2**20:,.2f} MB")
    yield table


def _shown(value: float | None) -> str:
    """Four digits; nothing where there is nothing, a dash where a ratio has no value (0 / 0)."""
    return "" if value is None else f"{value:.4f}" if math.isfinite(value) else "-"
