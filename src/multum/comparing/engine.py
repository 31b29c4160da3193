"""The engine of comparisons and reproductions: cells of a folder, run once each, whatever stops it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ..errors import ConfigError, TrainingError
from . import runners
from .cells import Cell
from .live import Watch
from .work import Outcome

__all__ = ["Runner", "locked", "run_cells", "runner_for"]

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


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Two that work in one folder would run the same cells twice."""
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        yield
        return
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TrainingError(
                f"one command works in a folder at a time, however: another one works in {out}; "
                "wait for it, or choose another folder with --out"
            ) from None
        yield
