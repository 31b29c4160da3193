"""`multum bench`: one network, ensembles of it by every executor, and peers, timed in turn within every round.

    inference   one pass over a batch, without gradients
    training    one step: forward, loss, backward, and a step of plain SGD

Every number stands beside that of one network in the same round. What is measured so far is a document at any time.
"""

from __future__ import annotations

import datetime
import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from ..checks import one_of, whole
from ..comparing.planning import Wanted, chosen_methods
from ..errors import ConfigError, MultumError, first_line
from ..files import prepare_folder
from ..methods import Method
from ..metrics.timing import in_turn, ratio, spread
from ..processor import with_threads
from ..runs.machine import machine, versions
from .memory import peak_memory
from .peers import PEERS, installed_versions
from .report import kept_rows, write
from .setting import Setting, setting_of
from .subjects import MODES, NETWORK, OPTIMIZED, Call, Subject, Workshop, backends_named, executors_named

WARM_UP = 2  # passes: the first sets things up, the second says how often one must be repeated
LEAST = 0.03  # seconds that are timed at once, so that a clock and a scheduler do not matter
MOST = 100  # repetitions

Clock = Callable[[], float]


def bench(
    model: str | None = None,
    *,
    methods: str | Sequence[str | Method] = "all",
    executors: str = "all",
    backends: str = OPTIMIZED,
    batch: Sequence[int] = (1, 16),
    shape: Sequence[int] | None = None,
    data: str | None = None,
    mode: Sequence[str] = MODES,
    rounds: int = 5,
    threads: int | None = None,
    peers: bool = False,
    memory: bool = True,
    out: Path | None = None,
    seed: int = 0,
    progress: bool = False,
    command: str = "",
    clock: Clock = time.perf_counter,
) -> dict[str, Any]:
    """Latency, throughput and peak memory of ensembles in units of one network, as a document.

    Args:
        model: a network by name, or the default one for `data`.
        executors: "all", or some of them; "auto" is the one that an ensemble chooses for itself.
        backends: of `multum.optimize`: "all", "none", or some of them; "optimized" is the one without a compiler.
        shape: of one example, where there is no data.
        peers: whether torch-uncertainty's and tabm's twins are measured too.
        memory: whether peak memory is measured, each row in a process of its own.
        out: a folder for JSON, Markdown and a figure; a run that was stopped goes on there.
    """
    for name, value in (("rounds", rounds), *(("batch", size) for size in batch)):
        whole(name, value)
    for name in mode:
        one_of("mode", name, MODES)
    setting = setting_of(model, shape, data, seed)
    settings: dict[str, Any] = {
        "model": setting.model,
        "shape": list(setting.shape),
        "outputs": setting.outputs,
        "data": data,
        "methods": [w.label for w in chosen_methods(methods, controls=False)],
        "executors": executors,
        "backends": backends,
        "batch": list(batch),
        "mode": list(mode),
        "rounds": rounds,
        "peers": peers,
        "memory": memory,
        "seed": seed,
        "threads": threads or torch.get_num_threads(),
    }
    about = {"machine": machine(), "versions": {**versions(), **installed_versions()}}
    if out is not None:
        prepare_folder(out)
    job = _Job(setting, settings, about, out, clock, command)
    with with_threads(settings["threads"]), Progress(console=Console(stderr=True), disable=not progress) as bar:
        job.run(chosen_methods(methods, controls=False), bar)
    return job.document()


class _Job:
    """One benchmark, group by group of a mode and a batch size."""

    def __init__(self, setting: Setting, settings: dict, about: dict, out: Path | None, clock: Clock, command: str):
        self.setting, self.settings, self.about, self.out, self.clock = setting, settings, about, out, clock
        self.command, self.stopped, self.workshop = command, False, Workshop(setting)
        self.rows: list[dict[str, Any]] = [] if out is None else kept_rows(out, settings, about)
        self.groups = list(dict.fromkeys((row["mode"], row["batch"]) for row in self.rows))  # that are finished
        self.left_out: list[dict[str, str]] = []

    def run(self, methods: Sequence[Wanted], bar: Progress) -> None:
        """Measure all groups; Ctrl-C ends it with what there is."""
        settings, task = self.settings, bar.add_task("building", total=None)
        try:
            groups = [g for g in itertools.product(settings["mode"], settings["batch"]) if g not in self.groups]
            subjects = {mode: self._subjects(methods, mode) for mode in dict.fromkeys(mode for mode, _ in groups)}
            passes = settings["rounds"] + WARM_UP + settings["memory"]
            bar.update(task, total=passes * sum(len(subjects[mode]) for mode, _ in groups))
            for mode, batch in groups:
                bar.update(task, description=f"{mode}, batch {batch}")
                self._group(subjects[mode], mode, batch, lambda name: bar.advance(task))
                self.groups.append((mode, batch))
                self._write()
        except KeyboardInterrupt:
            self.stopped = True
            self._write()

    def _write(self) -> None:
        if self.out is not None:
            write(self.document(), self.out)

    def _subjects(self, methods: Sequence[Wanted], mode: str) -> list[Subject]:
        subjects, settings = [Subject(NETWORK)], self.settings
        ways = executors_named(settings["executors"]), backends_named(settings["backends"])
        for wanted in methods:
            if wanted.cost is not None:
                raise ConfigError(f"a benchmark has no controls; got {wanted.label}. Use --model NAME:wide=2")
            try:
                subjects += self.workshop.subjects(wanted.label, wanted.method, *ways, mode)
            except MultumError as error:
                self._leave_out(Subject(wanted.label), f"{mode}: {error}")
            if settings["peers"]:
                theirs = [peer.name for peer in PEERS.values() if peer.has(self.setting, wanted.method)]
                subjects += [Subject(wanted.label, name, wanted.method, name) for name in theirs]
        return subjects

    def _group(self, subjects: Sequence[Subject], mode: str, batch: int, advance: Callable[[Any], None]) -> None:
        timed: dict[Subject, Timed] = {}
        for subject in subjects:
            try:
                timed[subject] = Timed(self.workshop.call(subject, mode, batch), self.clock)
            except Exception as error:  # of any library that is measured: the reason stands in its place
                if subject.method is None:
                    raise
                reason = (
                    str(error) if isinstance(error, MultumError) else f"{type(error).__name__}: {first_line(error)}"
                )
                self._leave_out(subject, f"{mode}, batch {batch}: {reason}")
            for _ in range(WARM_UP):
                advance(subject)
        times: dict[Subject, list[float]] = {}
        try:
            in_turn(timed, self.settings["rounds"], shuffled(self.settings["seed"]), advance, times)
        finally:
            rows = timed_rows(timed, times, mode, batch)
            self.rows += rows.values()
        if not self.settings["memory"]:
            return
        for subject, row in rows.items():
            row["memory"] = peak_memory(self.setting, subject, mode, batch, self.settings["threads"])
            if isinstance(row["memory"], str):
                self._leave_out(subject, f"memory of {mode}, batch {batch}: {row['memory']}")
                row["memory"] = None
            unit = next(iter(rows.values()))["memory"]
            row["memory_ratio"] = row["memory"] / unit if row["memory"] and unit else None
            advance(subject)

    def _leave_out(self, subject: Subject, reason: str) -> None:
        self.left_out.append({"name": subject.name, "way": subject.way, "reason": reason})

    def document(self) -> dict[str, Any]:
        """What is measured so far."""
        return {
            "format": 1,
            "title": f"{self.setting.model}, {'x'.join(map(str, self.setting.shape))}",
            "command": self.command,
            "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "settings": self.settings,
            **self.about,
            "stopped": self.stopped,
            "groups": self.groups,
            "rows": self.rows,
            "left_out": self.left_out,
        }


@dataclass
class Timed:
    """A call that says how many seconds it took, the mean of as many repetitions as make it worth timing."""

    call: Call
    clock: Clock = time.perf_counter
    repeats: int = 1

    def __post_init__(self) -> None:
        seconds = [self() for _ in range(WARM_UP)][-1]
        self.repeats = max(1, min(MOST, math.ceil(LEAST / seconds))) if seconds > 0 else MOST

    def __call__(self) -> float:
        self.call.prepare()
        start = self.clock()
        for _ in range(self.repeats):
            self.call.run()
        return (self.clock() - start) / self.repeats


def shuffled(seed: int) -> Callable[[int, list[Any]], list[Any]]:
    """Every round in an order of its own, the same for the same seed.

    >>> order = shuffled(0)
    >>> order(0, ["a", "b", "c", "d"]), order(1, ["a", "b", "c", "d"])
    (['c', 'b', 'a', 'd'], ['b', 'c', 'a', 'd'])
    """

    def order(number: int, names: list[Any]) -> list[Any]:
        return random.Random(f"{seed} {number}").sample(names, len(names))

    return order


def timed_rows(
    timed: dict[Subject, Timed], times: dict[Subject, list[float]], mode: str, batch: int
) -> dict[Subject, dict[str, Any]]:
    """A row for each that was timed at least once; the first is the one network that all others are counted in."""
    measured = {subject: seconds for subject, seconds in times.items() if seconds}
    unit = next(iter(times.values()), [])
    rows: dict[Subject, dict[str, Any]] = {}
    for subject, seconds in measured.items():
        took = spread(seconds)
        rows[subject] = {
            "name": subject.name,
            "way": subject.way,
            "library": subject.peer or "multum",
            "mode": mode,
            "batch": batch,
            "members": subject.method.members if subject.method else 1,
            "seconds": asdict(took),
            "ratio": asdict(ratio(seconds, unit)) if unit else None,
            "throughput": batch / took.median if took.median else None,
            "memory": None,
            "memory_ratio": None,
            "rounds": len(seconds),
            "repeats": timed[subject].repeats,
        }
    return rows
