"""Cells of a folder, each run once, whatever stops it: in this process, in several, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeAlias

from ..checks import needed
from ..errors import ConfigError, first_line
from ..files import write_bytes
from ..memory import keep_memory
from ..training.interrupt import Stopped
from .cells import RESULT, Cell, Outcome, set_damaged_aside, work
from .watch import Watch

QUIET_WAITING = ("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin while they wait slow every other process down
Runner: TypeAlias = Callable[..., Iterator[Outcome]]
Begun: TypeAlias = Callable[[Cell], None]  # called when a cell is begun, for the live table


def here(cells: Sequence[Cell], out: Path, threads: int, begun: Begun) -> Iterator[Outcome]:
    """One cell after another, in this process."""
    for cell in cells:
        begun(cell)
        yield work(cell, out / cell.name, threads)


def processes(cells: Sequence[Cell], out: Path, threads: int, begun: Begun, jobs: int) -> Iterator[Outcome]:
    """Up to `jobs` cells at once, each in a process of its own: one that dies takes no other with it."""
    context = _context()
    waiting, running = list(cells), dict[Any, tuple[Any, Cell]]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell = waiting.pop(0)
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(cell, out / cell.name, threads, sender), daemon=True)
                process.start()
                sender.close()  # so that a dead child ends the pipe
                running[receiver] = (process, cell)
                begun(cell)
            for ready in wait(list(running)):
                process, cell = running.pop(ready)
                yield _received(ready, process, cell)
    finally:
        for process, _ in running.values():
            process.terminate()  # SIGTERM: the cell writes where it is
        for process, _ in running.values():
            process.join()


def _context() -> Any:
    """Where processes of cells come from: a server that has imported, once for all, what they need, or begins to."""
    from multiprocessing import forkserver  # not on every system

    os.environ.setdefault(*QUIET_WAITING)
    context = multiprocessing.get_context("forkserver")
    # What training imports when it begins, and what reading this data took here.
    readers = [name for name in ("pandas", "sklearn.datasets") if name in sys.modules]
    context.set_forkserver_preload(["multum.runs.cells", "lightning_fabric", "torch._dynamo", *readers])
    forkserver.ensure_running()
    return context


def _child(cell: Cell, folder: Path, threads: int, sender: Any) -> None:
    parent = multiprocessing.parent_process()

    def follow() -> None:  # a killed parent must not leave cells behind that write into its folder
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    keep_memory()
    try:
        sender.send(work(cell, folder, threads))
    except Stopped as stop:
        os._exit(128 + stop.number)


def _received(receiver: Any, process: Any, cell: Cell) -> Outcome:
    try:
        outcome = receiver.recv()
    except EOFError:
        process.join()
        code = process.exitcode
        if code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
            raise Stopped(code - 128) from None
        if code is not None and code < 0:
            reason = f"its process ended with {signal.Signals(-code).name}; out of memory is the usual cause"
        else:  # a script that such a process imports, and that begins the work again
            main = 'if __name__ == "__main__":'
            reason = f"its process ended with exit code {code}; a script must begin its work below `{main}`"
        outcome = Outcome(cell.name, reason)
    process.join()
    return outcome


def on_ray(
    cells: Sequence[Cell], out: Path, threads: int, begun: Begun, jobs: int | None, address: str | None
) -> Iterator[Outcome]:
    """One cell a Ray task, on this machine or on the cluster at `address`.

    Workers that see the run folder write into it; others send their files back through Ray's store.
    """
    ray = needed("ray", "--on ray must find the package ray", "Run pip install 'multum[ray]'")
    mark = out / ".shared"
    mark.write_text(f"{os.getpid()}\n")
    options: dict[str, Any] = {"num_cpus": threads * jobs} if jobs and not address else {}
    if address:
        options = {"address": address}
    options["runtime_env"] = {"env_vars": dict([QUIET_WAITING])}
    ray.init(**options, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    try:
        task = ray.remote(num_cpus=threads, max_retries=0)(_task)
        names = {task.remote(cell, str(out), mark.read_text(), threads): cell for cell in cells}
        for cell in cells:
            begun(cell)
        while names:
            (ready,), _ = ray.wait(list(names), num_returns=1)
            cell = names.pop(ready)
            try:
                outcome, files = ray.get(ready)
            except ray.exceptions.RayError as error:
                yield Outcome(cell.name, f"its Ray task failed: {first_line(error)}")
                continue
            (out / cell.name).mkdir(parents=True, exist_ok=True)
            for name in sorted(files, key=lambda name: name == RESULT):  # the result last: it says that all is there
                write_bytes(out / cell.name / name, files[name])
            yield outcome
    finally:
        mark.unlink(missing_ok=True)
        ray.shutdown()


def _task(cell: Cell, out: str, mark: str, threads: int) -> tuple[Outcome, dict[str, bytes]]:
    keep_memory()
    shared = Path(out) / ".shared"
    if shared.is_file() and shared.read_text() == mark:
        return work(cell, Path(out) / cell.name, threads), {}
    with tempfile.TemporaryDirectory() as folder:
        outcome = work(cell, Path(folder), threads)
        return outcome, {p.name: p.read_bytes() for p in Path(folder).iterdir() if p.is_file()}


def runner_for(on: str, jobs: int, address: str | None) -> Runner:
    """Where cells run: "here", in this process or in several, which begin to import at once, or on "ray"."""
    if jobs < 1:
        raise ConfigError(f"`jobs` must be a whole number >= 1; got jobs={jobs}. Use --jobs 1")
    if on == "ray":
        return partial(on_ray, jobs=jobs, address=address)
    if on != "here":
        raise ConfigError(f"`on` must be 'here' or 'ray'; got on={on!r}. Use --on here")
    if jobs == 1:
        return here
    _context()
    return partial(processes, jobs=jobs)


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    epochs: int,
    heading: str = "",
    *,
    runner: Runner,
    threads: int,
    progress: bool,
    refused: Mapping[str, Outcome] | None = None,
    titles: Mapping[str, str] | None = None,
) -> dict[str, Outcome]:
    """Run the cells that are not done yet, watched by a person or not; how each of them ended.

    Args:
        epochs: of the longest, for the progress bars.
        heading: what these cells are for.
        refused: cells that are not run, and why.
        titles: what cells are called there, by their names; their labels where there are none.
    """
    for cell in cells:
        set_damaged_aside(cell, out)
    with Watch(cells, out, epochs, progress, titles, heading) as watch:
        for outcome in (refused or {}).values():
            watch.end(outcome)
        for outcome in runner([c for c in cells if c.name not in watch.ended], out, threads, watch.begin):
            watch.end(outcome)
        return watch.ended
