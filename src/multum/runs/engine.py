"""The engine of comparisons and reproductions: cells of a folder, run once each, whatever stops it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ..errors import ConfigError
from . import pool as runners
from .cells import Cell
from .watch import Watch
from .work import Outcome

__all__ = ["Runner", "run_cells", "runner_for"]

Runner: TypeAlias = Callable[..., Iterator[Outcome]]


def runner_for(on: str, jobs: int, address: str | None) -> Runner:
    """Where cells run: "here", in this process or in several, or on "ray"."""
    if jobs < 1:
        raise ConfigError(f"jobs is a whole number >= 1, however: jobs={jobs}")
    if on == "ray":
        return partial(runners.on_ray, jobs=jobs, address=address)
    if on != "here":
        raise ConfigError(f"cells run here or on ray, however: on={on!r}")
    return runners.here if jobs == 1 else partial(runners.processes, jobs=jobs)


def run_cells(
    cells: Sequence[Cell],
    refused: Mapping[str, Outcome],
    out: Path,
    epochs: int,
    runner: Runner,
    threads: int,
    progress: bool,
    titles: Mapping[str, str] | None = None,
) -> dict[str, Outcome]:
    """Run the cells that are not done yet, watched by a person or not; how each of them ended.

    Args:
        refused: cells that are not run, and why.
        epochs: of the longest, for the progress bars.
        titles: what cells are called there, by their names; their labels where there are none.
    """
    with Watch(cells, out, epochs, progress, titles) as watch:
        for outcome in refused.values():
            watch.end(outcome)
        for outcome in runner([c for c in cells if c.name not in watch.ended], out, threads, watch.begin):
            watch.end(outcome)
        return watch.ended
