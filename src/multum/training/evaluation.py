"""Evaluate a run folder by names, with a progress bar, and show the numbers as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress
from rich.table import Table

from ..data.corruptions import CORRUPTIONS
from ..data.foreign import foreign_sets
from ..evaluation.evaluate import SEVERITIES, evaluate
from .job import open_run

__all__ = ["evaluate_run", "tables"]


def evaluate_run(
    folder: str | Path, ood: Sequence[str] = (), *, shift: bool = False, progress: bool = True
) -> dict[str, Any]:
    """Every metric of a finished run on its test part, on foreign sets by name, and under corruptions."""
    ens, data, settings = open_run(folder)
    foreign = foreign_sets(ood, data)
    names = CORRUPTIONS if shift else ()
    items = len(data.test) * (1 + len(names) * len(SEVERITIES)) + sum(len(x) for x in foreign.values())
    with Progress(disable=not progress) as bar:
        task = bar.add_task("evaluating", total=items)
        found = evaluate(ens, data, ood=foreign, shift=names, advance=lambda n: bar.advance(task, n))
    return {"data": settings["data"], "model": settings["model"], "method": settings["method"]["name"], **found}


def tables(found: dict[str, Any]) -> Iterator[Table]:
    """The metrics as tables: the ensemble beside its members' mean, foreign sets, corruptions."""
    title = f"{found['method']} on {found['data']}: {found['items']} items, {found['members']} members"
    table = Table("metric", title=title, title_justify="left")
    for column in ("ensemble", "members' mean", "gain"):
        table.add_column(column, justify="right")
    numbers = {k: v for k, v in found.items() if isinstance(v, float) and not k.startswith(("member_", "gain_"))}
    for name, value in numbers.items():
        rest = (found.get(f"{kind}_{name}") for kind in ("member", "gain"))
        table.add_row(name, f"{value:.4f}", *("" if v is None else f"{v:.4f}" for v in rest))
    yield table
    if "ood" in found:
        table = Table("foreign set", "score", title="telling foreign items from known ones", title_justify="left")
        for column in ("AUROC", "AUPR", "FPR95"):
            table.add_column(column, justify="right")
        for place, scores in found["ood"].items():
            for score, cell in scores.items():
                table.add_row(place, score, *(f"{cell[k]:.4f}" for k in ("auroc", "aupr", "fpr95")))
        yield table
    if "shift" in found:
        table = Table("corruption", title="accuracy under shift, by severity", title_justify="left")
        for severity in SEVERITIES:
            table.add_column(str(severity), justify="right")
        for name, row in found["shift"].items():
            table.add_row(name, *(f"{row[str(severity)]['accuracy']:.4f}" for severity in SEVERITIES))
        yield table
