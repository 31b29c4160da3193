"""The command line. No logic here: every command calls a function of the library."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from .methods import catalogue

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


def main() -> None:
    """Run the command line."""
    app()
