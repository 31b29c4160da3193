"""The command line. No logic here: every command calls a function of the library, and imports it when it is called."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import MultumError
from .memory import keep_memory
from .parsing import assignments

__all__ = ["main"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,  # drawing help with rich takes longer than everything else before it
    pretty_exceptions_enable=False,
)


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """A job that goes on later: Ctrl-C and SIGTERM end it with a message and the usual exit code."""
    from .training.devices import is_first
    from .training.interrupt import Stopped

    try:
        yield
    except KeyboardInterrupt as stop:
        if is_first():
            reason = str(stop) or "stopped by SIGINT"
            say(f"{reason}; the same command goes on from here", stderr=True)
        raise typer.Exit(128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)) from None


def show(*parts: Any) -> None:
    """Print tables, and texts that are wrapped at words."""
    from rich.console import Console

    Console().print(*parts, sep="\n", highlight=False)


def say(line: Any, stderr: bool = False) -> None:
    """Print one line, however long, as it is."""
    from rich.console import Console

    Console(stderr=stderr).print(line, highlight=False, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    from .files import dumps

    print(dumps(value))


DATA = "digits, diabetes, NAME in $MULTUM_DATA, npz:FILE, folder:DIR, csv:FILE#target=COLUMN, hf:NAME"
MODEL = "small-cnn, resnet18, wrn-10-1, mlp, ... or timm:NAME; by default one that suits the data"


@app.callback(epilog="Start with: multum compare --data digits --methods single,packed,deep --seeds 2")
def root() -> None:
    """Any PyTorch network as an ensemble, at about the price of one network.

    compare answers which ensemble suits your data and your budget, and writes a report. train
    makes one ensemble, evaluate measures what its uncertainty is worth, and predict uses it.

    Long jobs show their progress, survive Ctrl-C and kill -9, and go on with the same command. Exit codes: 0 success,
    1 some methods of a comparison failed, 2 an invalid command or data, 130 stopped.
    """


@app.command()
def compare(
    settings: Annotated[list[str] | None, typer.Argument(help="Recipe fields, such as lr=0.01 batch_size=128")] = None,
    data: Annotated[str, typer.Option(help=DATA)] = "digits",
    model: Annotated[str | None, typer.Option(help=MODEL)] = None,
    methods: Annotated[
        str, typer.Option(help="all, or a list as single,packed:members=4,alpha=2,deep; see `multum methods`")
    ] = "all",
    seeds: Annotated[int, typer.Option(help="Runs of every method")] = 3,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training part")] = None,
    budget: Annotated[
        str | None, typer.Option(help="1x, 2.5x, params=1e6 or macs=1e7: methods are made as large as fits")
    ] = None,
    ood: Annotated[
        list[str] | None,
        typer.Option(help="An OOD data set; repeat for more, or none. By default, classes that are held out"),
    ] = None,
    shift: Annotated[
        str, typer.Option(help="Corrupted images: none, quick (4 kinds, 1,000 examples) or all (15)")
    ] = "quick",
    out: Annotated[Path, typer.Option(help="The folder of the report and all runs")] = Path("runs/compare"),
    jobs: Annotated[int, typer.Option(help="Cells at once, each in a process of its own")] = 1,
    on: Annotated[str, typer.Option(help="here, or ray")] = "here",
    address: Annotated[str | None, typer.Option(help="Of an existing Ray cluster")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of a cell; the same number gives the same bits")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the document as JSON instead of tables.")] = False,
) -> None:
    """Which ensemble for my data and my budget? Train and measure them all, and write a report.

    The same command goes on where it was stopped; what is done is not done again.

    Example: multum compare --data digits --methods single,packed,deep --seeds 2 --epochs 15

    Example: multum compare --data csv:churn.csv#target=left --budget 2x --out runs/churn
    """
    from .comparing.compare import compare as compare_methods

    with stoppable():
        document = compare_methods(
            data,
            model,
            methods,
            seeds=seeds,
            epochs=epochs,
            budget=budget,
            ood=[] if ood == ["none"] else ood,
            shift=shift,
            out=out,
            jobs=jobs,
            on=on,
            address=address,
            threads=threads,
            recipe=assignments(settings or []),
            progress=not as_json,
            command=shlex.join(["multum", *sys.argv[1:]]),
        )
    from . import reports  # with matplotlib and pandas, which other commands need not wait for

    if as_json:
        print_json(document)
    else:
        from rich.text import Text

        show(reports.terminal(document), Text(document["advice"]["sentence"], "bold"))
        for note in document["advice"]["notes"]:
            show(Text(note))
        say(f"report: {out / 'report.html'}")
    if any(row["status"] != "done" for row in document["rows"]):
        raise typer.Exit(1)


@app.command()
def train(
    settings: Annotated[list[str] | None, typer.Argument(help="Recipe fields, such as epochs=30 lr=0.01")] = None,
    data: Annotated[str, typer.Option(help=DATA)] = "digits",
    model: Annotated[str | None, typer.Option(help=MODEL)] = None,
    method: Annotated[str, typer.Option(help="A method, with fields behind a colon")] = "packed:members=4,alpha=2",
    out: Annotated[Path, typer.Option(help="The run folder")] = Path("runs/train"),
    resume: Annotated[bool, typer.Option(help="Go on with an interrupted run in that folder, or refuse it")] = True,
    devices: Annotated[int, typer.Option(help="Processes on this machine; torchrun brings its own")] = 1,
    nodes: Annotated[int, typer.Option(help="Machines")] = 1,
    accelerator: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto")] = "auto",
    checkpoint_seconds: Annotated[float, typer.Option(help="The longest time between checkpoints")] = 60.0,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the run as JSON.")] = False,
) -> None:
    """Train one ensemble and leave it in a run folder; the same command goes on with an interrupted run.

    Example: multum train --data digits --method deep:members=4 --out runs/deep epochs=20
    """
    from .runs import train as training
    from .training.devices import is_first

    with stoppable():
        trained = training.train(
            data,
            model,
            method,
            out,
            assignments(settings or []),
            resume=resume,
            progress=not as_json,
            tensorboard=tensorboard,
            devices=devices,
            nodes=nodes,
            accelerator=accelerator,
            checkpoint_seconds=checkpoint_seconds,
        )
    if is_first():
        print_json(trained) if as_json else print(training.summary(trained, out))


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder that `multum train` left")],
    ood: Annotated[list[str] | None, typer.Option(help="An OOD data set; repeat for more")] = None,
    shift: Annotated[
        bool, typer.Option("--shift", help="Also under the 15 corruptions of CIFAR-C, 5 severities each")
    ] = False,
    speed: Annotated[bool, typer.Option("--speed", help="Also time predictions and measure memory")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Measure what a trained ensemble's uncertainty is worth.

    Example: multum evaluate runs/deep --ood mnist --ood kmnist
    """
    from .runs.evaluate import evaluate_run, tables

    numbers = evaluate_run(run, ood or [], shift=shift, speed=speed, progress=not as_json)
    if as_json:
        print_json(numbers)
    else:
        show(*tables(numbers))


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A run folder that `multum train` left")],
    file: Annotated[
        Path, typer.Argument(help="A csv or parquet table, an npz or npy array, an image, or a folder of images")
    ],
    out: Annotated[Path | None, typer.Option(help="Write a .csv or .json file instead of printing a table")] = None,
    coverage: Annotated[float | None, typer.Option(help="Abstain so that this share of examples is answered")] = None,
    risk: Annotated[float | None, typer.Option(help="Abstain so that at most this share of answers is wrong")] = None,
    temperature: Annotated[bool, typer.Option("--temperature", help="Calibrate first, on the validation part")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Label, confidence, uncertainty and abstention for every row of a file.

    Example: multum predict runs/deep new.csv --coverage 0.9 --out answers.csv
    """
    from .runs import predict as prediction

    frame = prediction.predict_run(
        run, file, coverage=coverage, risk=risk, temperature=temperature, progress=not as_json
    )
    if out is not None:
        prediction.write(frame, out)
    elif as_json:
        print_json(frame.to_dict("records"))
    else:
        show(prediction.table(frame))


@app.command()
def reproduce(
    item: Annotated[str | None, typer.Argument(help="A table or figure, as packed/table1-cost; see --list")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List all items and what can be run here.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan: cells, mult-adds, hours.")] = False,
    scale: Annotated[str, typer.Option(help="cpu (reduced so that two cores finish it) or paper")] = "cpu",
    seed: Annotated[
        list[int] | None, typer.Option(help="One of the item's seeds; repeat for more, by default all")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the cells, shared by all items")] = Path("runs/reproduce"),
    pages: Annotated[Path | None, typer.Option(help="Where JSON, page and figures go; by default --out")] = None,
    jobs: Annotated[int, typer.Option(help="Cells at once, each in a process of its own")] = 1,
    on: Annotated[str, typer.Option(help="here, or ray")] = "here",
    address: Annotated[str | None, typer.Option(help="Of an existing Ray cluster")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of a cell; the same number gives the same bits")] = None,
    gather: Annotated[bool, typer.Option("--gather", help="Train nothing: write what is done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Run a table or figure of the papers again, and print our numbers beside theirs.

    The same command goes on where it was stopped; items share what they train.

    Example: multum reproduce --list

    Example: multum reproduce packed/table1-cost

    Example: multum reproduce mimo/figure2 --jobs 2
    """
    from .papers import catalogue as catalogue_of_items
    from .papers import find
    from .papers import show as screen
    from .papers.plan import plan
    from .papers.reproduce import reproduce as run_item

    if list_all or item is None:
        listing: Any = catalogue_of_items() if as_json else screen.listing()
    elif dry_run:
        planned = plan(find(item).run(scale))
        listing = planned.document() if as_json else screen.planned(planned, find(item), scale)
    else:
        listing = None
    if listing is not None:
        print_json(listing) if as_json else show(listing)
        return
    assert item is not None
    with stoppable():
        document = run_item(
            item,
            out,
            scale=scale,
            seeds=seed,
            jobs=jobs,
            on=on,
            address=address,
            threads=threads,
            gather=gather,
            pages=pages,
            progress=not as_json,
        )
    if as_json:
        print_json(document)
    else:
        show(screen.result(document))
        place = (pages or out) / item
        say(f"written: {place}.json, {place}.md")
    if any(cell["status"] == "failed" for cell in document["cells"]):
        raise typer.Exit(1)


@app.command()
def methods(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List every method with its fields.

    Example: multum methods
    """
    from .figures.tables import text_table
    from .methods import catalogue

    if as_json:
        print_json(catalogue())
        return
    rows = [
        [e["name"], e["summary"], "\n".join(f"{f['name']}={f['default']}  {f['comment']}" for f in e["fields"])]
        for e in catalogue()
    ]
    show(text_table(["name", "what it is", "fields"], rows, row_lines=True))


def main() -> None:
    """Run the command line; multum's own errors are printed without a traceback."""
    keep_memory()
    try:
        app()
    except MultumError as error:
        from rich.text import Text

        say(Text.assemble(("error", "red"), f": {error}"), stderr=True)
        sys.exit(2)
