"""Which ensemble: `multum compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from ..parsing import assignments
from .options import Address, DataName, Json, ModelName, On, Settings, Threads
from .output import print_json, show, stoppable, typed, watched, without

__all__ = ["compare"]


def compare(
    settings: Settings = None,
    data: DataName = "digits",
    model: ModelName = None,
    methods: Annotated[
        str, Option(help="all, or a list as single,packed:members=4,alpha=2,deep; see `multum methods`")
    ] = "all",
    seeds: Annotated[int, Option(help="Runs of every method")] = 3,
    epochs: Annotated[int | None, Option(help="Passes over the training part")] = None,
    tune: Annotated[
        int, Option(help="Learning rates that are tried for every method on the validation part, 0 for none")
    ] = 4,
    budget: Annotated[
        str | None, Option(help="1x, 2.5x, params=1e6 or macs=1e7: methods are made as large as fits")
    ] = None,
    plan: Annotated[
        str | None, Option(help="As params=1.2x,latency=5ms: of every method what `multum plan` proposes")
    ] = None,
    ood: Annotated[
        list[str] | None,
        Option(help="An OOD data set; repeat for more, or none. By default, classes that are held out"),
    ] = None,
    shift: Annotated[str, Option(help="Corrupted images: none, quick (4 kinds, 150 examples) or all (15)")] = "quick",
    out: Annotated[Path, Option(help="The folder of the report and all runs")] = Path("runs/compare"),
    jobs: Annotated[
        int | None, Option(help="Cells at once, each in a process of its own; by default as the machine allows")
    ] = None,
    on: On = "here",
    address: Address = None,
    threads: Threads = None,
    final: Annotated[bool, Option("--final", help="Then train the advised method on all classes, and keep it")] = False,
    as_json: Json = False,
) -> None:
    """Which ensemble for my data and my budget? Train and measure them all, and write a report.

    The same command goes on where it was stopped; what is done is not done again.

    Example: multum compare --data digits --methods single,packed,deep --seeds 2 --epochs 15

    Example: multum compare --data csv:churn.csv#target=left --budget 2x --out runs/churn
    """
    options = without(locals(), "settings", "ood", "plan", "as_json")
    from ..comparing.compare import compare as compare_methods

    if plan is not None:
        from ..plans.proposing import proposed

        options["methods"] = proposed(plan, data, model, methods, progress=watched(as_json))
    with stoppable():
        document = compare_methods(
            **options,
            ood=[] if ood == ["none"] else ood,
            recipe=assignments(settings or []),
            progress=watched(as_json),
            command=typed(),
        )
    from .. import reports  # with matplotlib and pandas, which other commands need not wait for

    if as_json:
        print_json(document)
    else:
        show(reports.terminal(document), *reports.advice_lines(document))
        show("", *reports.model_lines(document), f"report: {out / 'report.html'}", wrap=False)
    if any(part["status"] != "done" for part in [*document["rows"], document["final"]] if part is not None):
        raise typer.Exit(1)
