"""The papers' tables and figures: `multum reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from .options import Address, Jobs, Json, On, Threads
from .output import print_json, show, stoppable, watched, without


def reproduce(
    item: Annotated[
        str | None, Argument(help="A table or figure, as packed/table1-cost, or headlines; see --list")
    ] = None,
    list_all: Annotated[bool, Option("--list", help="List all items, and which can be run here.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the plan: training runs, mult-adds, hours.")] = False,
    scale: Annotated[str, Option(help="cpu (reduced so that two cores finish it) or paper")] = "cpu",
    seed: Annotated[list[int] | None, Option(help="One of the item's seeds; repeat for more; all by default")] = None,
    out: Annotated[Path, Option(help="The folder for training runs, shared by all items")] = Path("runs/reproduce"),
    pages: Annotated[Path | None, Option(help="The folder for JSON, page and figures; by default --out")] = None,
    jobs: Jobs = 1,
    on: On = "here",
    address: Address = None,
    threads: Threads = None,
    gather: Annotated[bool, Option("--gather", help="Train nothing: write the results so far.")] = False,
    repeat: Annotated[
        int, Option(min=0, help="Run so many finished runs again, and record whether they are the same.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Reproduce a table or figure of the papers, and print our numbers next to theirs.

    The same command resumes where it was stopped; items share training runs.

    Example: multum reproduce --list

    Example: multum reproduce packed/table1-cost

    Example: multum reproduce mimo/figure2 --jobs 2

    Example: multum reproduce headlines --gather --pages docs/results
    """
    options = without(locals(), "list_all", "dry_run", "seed", "as_json")
    from ..papers import catalogue as catalogue_of_items
    from ..papers import find
    from ..papers import show as screen
    from ..papers.counting import plan
    from ..papers.headlines import NAME as HEADLINES
    from ..papers.plan import plan_page
    from ..papers.repeating import told
    from ..papers.reproduce import reproduce as run_item

    if list_all or item is None:
        print_json(catalogue_of_items()) if as_json else show(screen.listing())
        return
    if dry_run and item == HEADLINES:
        show(plan_page(), wrap=False)
        return
    if dry_run:
        planned = plan(find(item).run(scale))
        print_json(planned.document()) if as_json else show(screen.planned(planned, find(item), scale))
        return
    with stoppable():
        document = run_item(**options, seeds=seed, progress=watched(as_json))
    if as_json:
        print_json(document)
    elif item == HEADLINES:
        show(screen.claims(document))
    else:
        show(screen.result(document))
    if not as_json:
        if "repeated" in document:
            show(told(document["repeated"]))
        place = (pages or out) / item
        show(f"written: {place}.json" + ("" if item == HEADLINES else f", {place}.md"), wrap=False)
    if any(cell["status"] == "failed" for cell in document.get("cells", ())):
        raise typer.Exit(1)
