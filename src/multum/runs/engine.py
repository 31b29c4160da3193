"""Cells of a folder, each run once, whatever stops it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ..errors import ConfigError
from . import pool
from .cells import Cell
from .watch import Watch
from .work import Outcome, set_damaged_aside

__all__ = ["Runner", "run_cells", "runner_for"]

Runner: TypeAlias = Callable[..., Iterator[Outcome]]


def runner_for(on: str, jobs: int, address: str | None) -> Runner:
    """Where cells run: "here", in this process or in several, or on "ray"."""
    if jobs < 1:
        raise ConfigError(f"`jobs` must be a whole number >= 1; got jobs={jobs}. Use --jobs 1")
    if on == "ray":
        return partial(pool.on_ray, jobs=jobs, address=address)
    if on != "here":
        raise ConfigError(f"`on` must be 'here' or 'ray'; got on={on!r}. Use --on here")
    return pool.here if jobs == 1 else partial(pool.processes, jobs=jobs)


def run_cells(
    cells: Sequence[Cell],
    refused: Mapping[str, Outcome],
    out: Path,
    epochs: int,
    runner: Runner,
    threads: int,
    progress: bool,
    titles: Mapping[str, str] | None = None,
    heading: str = "",
) -> dict[str, Outcome]:
    """Run the cells that are not done yet, watched by a person or not; how each of them ended.

    Args:
        refused: cells that are not run, and why.
        epochs: of the longest, for the progress bars.
        titles: what cells are called there, by their names; their labels where there are none.
        heading: what these cells are for.
    """
    for cell in cells:
        set_damaged_aside(cell, out)
    with Watch(cells, out, epochs, progress, titles, heading) as watch:
        for outcome in refused.values():
            watch.end(outcome)
        for outcome in runner([c for c in cells if c.name not in watch.ended], out, threads, watch.begin):
            watch.end(outcome)
        return watch.ended
