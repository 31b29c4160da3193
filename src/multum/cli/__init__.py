"""The command line. No logic here: every command calls a function of the library, and imports it when it is called."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Annotated

import typer
from typer import Option

from ..errors import ConfigError, MultumError
from ..memory import keep_memory
from ..version import __version__
from .comparing import compare
from .costs import bench, plan
from .listing import errors, methods
from .output import log, show
from .papers import reproduce
from .runs import evaluate, predict, train
from .shipping import card, export

__all__ = ["main"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,  # drawing help with rich takes longer than everything else before it
    pretty_exceptions_enable=False,
)
for command in (compare, train, evaluate, predict, export, bench, plan, card, reproduce, methods, errors):
    app.command()(command)


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"multum {__version__}")
        raise typer.Exit


@app.callback(epilog="Start with: multum compare --data digits --methods single,packed,deep --seeds 2")
def root(
    version: Annotated[
        bool, Option("--version", help="Print the version.", callback=print_version, is_eager=True)
    ] = False,
    quiet: Annotated[bool, Option("--quiet", help="Print only results and errors: no progress, no remarks.")] = False,
    verbose: Annotated[bool, Option("--verbose", help="Also print intermediate decisions, and tracebacks.")] = False,
) -> None:
    """Any PyTorch network as an ensemble, at about the price of one network.

    compare answers which ensemble suits your data and your budget, and writes a report. train
    makes one ensemble, evaluate measures it, predict uses it, and export writes it as one file.

    Long jobs show their progress, survive Ctrl-C and kill -9, and resume with the same command. Exit codes: 0 success,
    1 some methods of a comparison failed, 2 an invalid command or data, 130 stopped.
    """
    if quiet and verbose:
        raise ConfigError("the command must be --quiet or --verbose; got both. Leave one out")
    logging.basicConfig(format="%(message)s")  # warnings look the same without it, and remarks need it
    log.setLevel(logging.ERROR if quiet else logging.INFO if verbose else logging.NOTSET)


def main() -> None:
    """Run the command line; multum's own errors are printed without a traceback."""
    keep_memory()
    try:
        app()
    except MultumError as error:
        from rich.text import Text

        if log.isEnabledFor(logging.INFO):
            traceback.print_exc()
        more = (f"\nmore: multum errors {error.kind}".rstrip(), "dim")
        show(Text.assemble(("error", "red"), f": {error}", more), wrap=False, stderr=True)
        sys.exit(2)
