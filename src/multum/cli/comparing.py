"""Which ensemble: `multum compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from ..parsing import assignments
from .options import Address, DataName, Json, ModelName, On, Settings, Threads
from .output import print_json, show, stoppable, typed, watched, without


def compare(
    settings: Settings = None,
    data: DataName = "digits",
    model: ModelName = None,
    methods: Annotated[
        str, Option(help="all, or a list such as single,packed:members=4,alpha=2,deep; see `multum methods`")
    ] = "all",
    seeds: Annotated[int, Option(help="Training runs per method")] = 3,
    epochs: Annotated[int | None, Option(help="Passes over the training set")] = None,
    tune: Annotated[
        int, Option(help="Learning rates to try for every method, on the validation set; 0 for no tuning")
    ] = 4,
    budget: Annotated[str | None, Option(help="1x, 2.5x, params=1e6 or macs=1e7: methods are scaled to fit")] = None,
    plan: Annotated[
        str | None,
        Option(help="Limits such as params=1.2x,latency=5ms: use what `multum plan` proposes for each method"),
    ] = None,
    ood: Annotated[
        list[str] | None,
        Option(help="An OOD data set; repeat for more, or none. By default some classes are held out"),
    ] = None,
    shift: Annotated[
        str, Option(help="Corrupted images: none, quick (4 types, 150 examples) or all (15 types)")
    ] = "quick",
    out: Annotated[Path, Option(help="The folder for the report and all runs")] = Path("runs/compare"),
    jobs: Annotated[
        int | None, Option(help="Training runs at a time, each in its own process; by default one per core")
    ] = None,
    on: On = "here",
    address: Address = None,
    threads: Threads = None,
    final: Annotated[
        bool, Option("--final", help="Then train the recommended method on all of the data, and keep it")
    ] = False,
    as_json: Json = False,
) -> None:
    """Which ensemble suits my data and my budget? Tune, train and evaluate methods, and write a report.

    The same command resumes where it was stopped; finished work is not repeated.

    Example: multum compare --data digits --methods single,packed,deep --seeds 2 --epochs 15

    Example: multum compare --data csv:churn.csv#target=left --budget 2x --out runs/churn
    """
    options = without(locals(), "settings", "ood", "plan", "as_json")
    from ..comparing.compare import compare as compare_methods

    if plan is not None:
        from ..plans.plan import proposed

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
