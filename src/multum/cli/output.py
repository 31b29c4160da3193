"""What every command does with its options and its answer: printing, progress, and how a stop ends it."""

from __future__ import annotations

import contextlib
import logging
import shlex
import signal
import sys
from collections.abc import Iterator
from typing import Any

import typer

log = logging.getLogger("multum")


def without(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """A command's options for the function of the library that takes them by the same names, but for some."""
    return {name: value for name, value in options.items() if name not in names}


def watched(as_json: bool) -> bool:
    """Whether a person watches: progress is shown unless JSON or --quiet is asked for."""
    return not as_json and log.isEnabledFor(logging.WARNING)


def show(*parts: Any, wrap: bool = True, stderr: bool = False) -> None:
    """Print tables, and texts that are wrapped at words, or lines as they are."""
    from rich.console import Console

    Console(stderr=stderr).print(*parts, sep="\n", highlight=False, markup=False, soft_wrap=not wrap)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    from ..files import dumps

    print(dumps(value))


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """A job that goes on later: Ctrl-C and SIGTERM end it with a message and the usual exit code."""
    from ..training.devices import is_first
    from ..training.interrupt import Stopped

    try:
        yield
    except KeyboardInterrupt as stop:
        if is_first():
            reason = str(stop) or "stopped by SIGINT"
            show(f"{reason}; the same command goes on from here", wrap=False, stderr=True)
        raise typer.Exit(128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)) from None


def typed() -> str:
    """The command as it was typed."""
    return shlex.join(["multum", *sys.argv[1:]])
