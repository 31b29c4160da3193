"""The command line. No logic here: every command calls a function of the library."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .errors import MultumError
from .methods import catalogue
from .parsing import assignments
from .training import evaluation, job
from .training.devices import is_first
from .training.interrupt import Stopped

__all__ = ["main"]

app = typer.Typer(
    help="Any PyTorch network as an ensemble, at about the price of one network.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@app.callback()
def root() -> None:
    """Any PyTorch network as an ensemble, at about the price of one network."""


@app.command()
def methods(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List every method with its fields.

    Example: [bold]multum methods[/bold]
    """
    found = catalogue()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    table = Table(title="methods", title_justify="left", show_lines=True)
    table.add_column("name", no_wrap=True)
    table.add_column("what it is")
    table.add_column("fields")
    for entry in found:
        fields = "\n".join(f"{f['name']}={f['default']}  {f['comment']}" for f in entry["fields"])
        table.add_row(entry["name"], entry["summary"], fields)
    Console().print(table)


@app.command()
def train(
    settings: Annotated[list[str] | None, typer.Argument(help="Recipe fields, such as epochs=30 lr=0.01")] = None,
    data: Annotated[
        str, typer.Option(help="digits, diabetes, NAME (NAME.npz in $MULTUM_DATA), npz:FILE, folder:DIR")
    ] = "digits",
    model: Annotated[
        str | None, typer.Option(help="small-cnn, resnet18, wrn-10-1, mlp, ... or timm:NAME; by default one that suits")
    ] = None,
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

    Example: [bold]multum train --data digits --method deep:members=4 --out runs/deep epochs=20[/bold]
    """
    try:
        found = job.train(
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
    except Stopped as stop:
        if is_first():
            Console(stderr=True).print(f"{stop}; the same command goes on from here")
        raise typer.Exit(128 + stop.number) from None
    if is_first():
        print(json.dumps(found, indent=2) if as_json else job.summary(found, out))


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder that `multum train` left")],
    ood: Annotated[list[str] | None, typer.Option(help="A foreign data set; may be given more than once")] = None,
    shift: Annotated[
        bool, typer.Option("--shift", help="Also under the corruptions of CIFAR-C, 5 severities each")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Measure what a trained ensemble's uncertainty is worth.

    Example: [bold]multum evaluate runs/deep --ood mnist --ood kmnist[/bold]
    """
    found = evaluation.evaluate_run(run, ood or [], shift=shift, progress=not as_json)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        for table in evaluation.tables(found):
            Console().print(table)


def main() -> None:
    """Run the command line; multum's own errors are told without a traceback."""
    try:
        app()
    except MultumError as error:
        Console(stderr=True).print(f"[red]error[/]: {escape(str(error))}", soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; the same command goes on from here")
        sys.exit(130)
