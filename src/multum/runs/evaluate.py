"""Evaluate a run folder by names, with a progress bar, and show the numbers as tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress
from rich.table import Table

from ..data.corruptions import SEVERITIES, STANDARD
from ..data.sources import Data, ood_sets
from ..figures.formats import text_table
from ..metrics.cost import cost
from ..metrics.evaluate import evaluate
from ..metrics.speed import speed as measured_speed
from .folder import RunFolder, open_run
from .recorded import own_test_part, unseen_part

WIDEST_CONFUSION = 12  # classes whose confusions fit a terminal


def evaluate_run(
    folder: str | Path,
    ood: Sequence[str] = (),
    *,
    data: str | None = None,
    shift: bool = False,
    speed: bool = False,
    cost_ratio: float | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Every metric of a finished run on its test part, on OOD data sets by name, under corruptions, and its cost.

    Args:
        data: other data to measure on, by name, read as the run reads its own: its test part where it came with one,
            else all of it; without examples that the run was trained on.
        cost_ratio: what a missed positive costs in false alarms, for a threshold of two classes.
    """
    ens, preparation, settings = open_run(folder)
    run = RunFolder(Path(folder)), settings, preparation
    measured = Data.of(preparation, own_test_part(*run) if data is None else unseen_part(*run, data))
    ood_examples = ood_sets(ood, measured)
    names = STANDARD if shift else ()
    examples = len(measured.test) * (1 + len(names) * len(SEVERITIES)) + sum(len(x) for x in ood_examples.values())
    options = {"ood": ood_examples, "shift": names, "cost_ratio": cost_ratio, "held_out": run[0].validation()}
    with Progress(disable=not progress) as bar:
        task = bar.add_task("evaluating", total=examples)
        numbers = evaluate(ens, measured, **options, advance=lambda n: bar.advance(task, n))
    example = preparation.example()
    spent = cost(ens, example=example)
    numbers["cost"] = {"params": spent.params, "macs": spent.macs, "flops": spent.flops, "torchinfo": spent.torchinfo}
    if speed:
        rows = measured_speed(ens, example).rows
        numbers["speed"] = [{**dataclasses.asdict(row), "throughput": row.throughput} for row in rows]
    return {
        "data": data or settings["data"],
        "model": settings["model"],
        "method": settings["method"]["name"],
        **numbers,
    }


def tables(numbers: dict[str, Any]) -> Iterator[Table]:
    """The metrics as tables: the ensemble beside its members' mean, cost, OOD data, corruptions."""
    title = f"{numbers['method']} on {numbers['data']}: {numbers['examples']} examples, {numbers['members']} members"
    title += f"; calibration: {numbers['calibrated_by']}" if "calibrated_by" in numbers else ""
    yield text_table(
        ["metric", "ensemble", "members' mean", "gain"],
        (
            [name, *(_shown(numbers.get(key)) for key in (name, f"member_{name}", f"gain_{name}"))]
            for name, value in numbers.items()
            if isinstance(value, float) and not name.startswith(("member_", "gain_"))
        ),
        align="lr",
        title=title,
    )
    yield from _by_class(numbers.get("by_class", {}))
    if "by_target" in numbers:
        columns = ["rmse", "nll", "coverage_95", "width_95", "aleatoric", "epistemic"]
        yield text_table(
            ["target", *columns],
            ([row["target"], *(_shown(row[name]) for name in columns)] for row in numbers["by_target"]),
            align="lr",
            title="target by target",
        )
    yield text_table(["cost", ""], _costs(numbers), align="lr", title="cost of one prediction of all members")
    if "ood" in numbers:
        yield text_table(
            ["OOD data set", "score", "AUROC", "AUPR", "FPR95"],
            (
                [place, score, *(f"{cell[key]:.4f}" for key in ("auroc", "aupr", "fpr95"))]
                for place, scores in numbers["ood"].items()
                for score, cell in scores.items()
            ),
            align="llr",
            title="detection of OOD data",
        )
    if "shift" in numbers:
        severities = [str(severity) for severity in SEVERITIES]
        yield text_table(
            ["corruption", *severities],
            ([name, *(f"{row[s]['accuracy']:.4f}" for s in severities)] for name, row in numbers["shift"].items()),
            align="lr",
            title="accuracy under distribution shift, by severity",
        )


def _by_class(measured: dict[str, Any]) -> Iterator[Table]:
    """Each class, the confusions where a terminal has room for them, and the thresholds of two classes."""
    rows, names = measured.get("rows", []), [row["class"] for row in measured.get("rows", [])]
    if rows:
        columns = ["precision", "recall", "f1", "ece"]
        yield text_table(
            ["class", "examples", *columns],
            ([row["class"], str(row["support"]), *(_shown(row[name]) for name in columns)] for row in rows),
            align="lr",
            title="class by class" + (f"; positive: {measured['positive']}" if "positive" in measured else ""),
        )
    if 0 < len(names) <= WIDEST_CONFUSION:
        yield text_table(
            ["true class", *(f"as {name}" for name in names)],
            ([name, *map(str, row)] for name, row in zip(names, measured["confusion"], strict=True)),
            align="lr",
            title="how often each class is predicted as each",
        )
    if measured.get("thresholds"):
        columns = ["threshold", "precision", "recall", "f1", "balanced_accuracy", "cost"]
        first = next(iter(measured["thresholds"].values()))
        yield text_table(
            ["best for", *(name.replace("_", " ") for name in columns)],
            (
                [by.replace("_", " "), *(_shown(row.get(name)) for name in columns)]
                for by, row in measured["thresholds"].items()
            ),
            align="lr",
            title=f"thresholds for {measured['positive']}, chosen on {first['held_out']} held-out examples",
        )


def _costs(numbers: dict[str, Any]) -> Iterator[list[str]]:
    for key, title in {"params": "parameters", "macs": "mult-adds", "flops": "2 mult-adds + 2 parameters"}.items():
        yield [title, f"{numbers['cost'][key]:,}"]
    for row in numbers.get("speed", ()):
        what = f"batch of {row['batch_size']}, {row['threads']} threads, {row['executor'] or 'plain'}"
        latency, lower, upper = (f"{1000 * row[key]:.2f}" for key in ("latency", "lower", "upper"))
        peak, weights = (f"{row[key] / 2**20:,.2f} MB" for key in ("peak", "weights"))
        yield [f"latency, {what}", f"{latency} ms ({lower} to {upper})"]
        yield [f"throughput, {what}", f"{row['throughput']:,.0f} examples/s"]
        yield [f"memory, {what}", f"{peak} and {weights} of weights"]
    if numbers.get("speed"):
        yield ["on disk", f"{numbers['speed'][0]['disk'] / 2**20:,.2f} MB"]


def _shown(value: float | None) -> str:
    """Four digits; nothing where there is nothing, a dash where a ratio has no value (0 / 0)."""
    return "" if value is None else f"{value:.4f}" if math.isfinite(value) else "-"
