"""The latency of candidates: measured, or predicted from those that were.

measured     in small groups, each timed in turn with the one network: a latency is the median ratio to it within a
             round, times what it took when it was timed alone, so that whatever slows the machine down slows both
predicted    seconds = a * operations + b * mult-adds + c * bytes, with an a and a b of their own where all members run
             at once, fitted to what was measured (non-negative, by relative errors); then the power of it that the
             measured candidates of the same method follow, as the executor that is fastest differs among them
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ..errors import MultumError, first_line
from ..metrics.speed import back_and_forth
from ..metrics.timing import in_turn, ratio, spread
from ..processor import with_threads
from .backends import Backend
from .candidates import Candidate, Latency
from .counting import Base, Counts, Work
from .limits import Limit, Limits

SECONDS = 0.4  # that one candidate is timed for, within the rounds below
ROUNDS = (3, 30)
SPREAD = 0.2  # of the logs of costs, from which two candidates of a method tell how its latency grows
REFERENCE = "one network"
GROUP = 3  # candidates that are timed together with the one network, and are in memory at once


def measured(
    base: Base,
    single: Candidate,
    candidates: Sequence[Candidate],
    limits: Limits,
    latency: Limit,
    backend: Backend,
    seconds: float,
    threads: int | None,
    watch: Watch,
) -> tuple[list[Candidate], Candidate, Limits]:
    """The candidates, the one network and the limits, with latencies; those that take too long are excluded.

    The cheapest and the dearest of every method come first, as the others are predicted from them; then those whose
    predictions are closest to the limit, or the cheapest where there is none. Candidates that do the same work
    (Deep, Snapshot, SWAG and their like) are timed once.
    """
    if seconds <= 0:
        return list(candidates), single, limits
    with with_threads(threads):
        clock = _Measuring(base, single, backend, time.monotonic() + seconds)
        limits = replace(limits, latency=Limits.parse({"latency": clock.alone}, latency=latency).latency)
        timed = clock.run([c for c in candidates if c.feasible], limits.latency, watch)
    updated = [c if c.reason is not None else replace(c, **timed[c.counts]) for c in candidates]
    return [_judged(c, limits) for c in updated], replace(single, latency=Latency(clock.alone, True)), limits


def _judged(candidate: Candidate, limits: Limits) -> Candidate:
    if candidate.reason is not None or candidate.latency is None:
        return candidate
    reason = limits.broken(latency=candidate.latency.seconds)
    guessed = "" if candidate.latency.measured else " (predicted)"
    return replace(candidate, reason=reason and reason + guessed)


class _Measuring:
    def __init__(self, base: Base, single: Candidate, backend: Backend, until: float):
        self.base, self.backend, self.until = base, backend, until
        self.reference = backend(base.build(single.method, 1.0), base.example)
        self.alone = spread(seconds_of({REFERENCE: self.reference})[REFERENCE]).median
        self.timed: dict[Counts | None, dict[str, Any]] = {}  # what is found out about candidates of these counts
        self.known = [(single.method.name, single.counts, self.alone)]

    def run(
        self, candidates: Sequence[Candidate], limit: float | None, watch: Watch
    ) -> dict[Counts | None, dict[str, Any]]:
        """Latency, or why there is none, by counts."""
        candidates = list({c.counts: c for c in reversed(candidates)}.values())[::-1]  # the first of equals
        first = ends(candidates)
        rest = [c for c in candidates if c not in first]
        watch.begin("timing", len(candidates))
        self._time(first, watch)
        predictor = Predictor(self.known)

        def distance(c: Candidate) -> float:
            predicted = predictor.seconds(c.method.name, c.counts)
            return predicted if limit is None else abs(math.log(max(predicted, 1e-9) / limit))

        self._time(sorted(rest, key=distance), watch)
        predictor = Predictor(self.known)
        for c in candidates:
            if c.counts not in self.timed:
                seconds = predictor.seconds(c.method.name, c.counts)
                self.timed[c.counts] = {"latency": Latency(seconds, measured=False)}
        return self.timed

    def _time(self, candidates: Sequence[Candidate], watch: Watch) -> None:
        for start in range(0, len(candidates), GROUP):
            if time.monotonic() > self.until:
                return
            self._time_group(candidates[start : start + GROUP])
            for _ in candidates[start : start + GROUP]:
                watch.advance()

    def _time_group(self, group: Sequence[Candidate]) -> None:
        passes = {REFERENCE: self.reference}
        for c in group:
            try:
                passes[c.label] = self.backend(self.base.build(c.method, c.width), self.base.example)
            except MultumError as error:  # what the meta device could not show, or the backend cannot run
                self.timed[c.counts] = {"reason": f"cannot be run: {first_line(error)}"}
        seconds = seconds_of(passes)
        for c in group:
            if c.label in passes:
                times = ratio(seconds[c.label], seconds[REFERENCE])
                latency, lower, upper = (self.alone * each for each in (times.median, times.lower, times.upper))
                self.timed[c.counts] = {"latency": Latency(latency, True, lower, upper)}
                self.known.append((c.method.name, c.counts, latency))


def ends(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The cheapest and the dearest candidate of every method, the cheapest of all methods first."""
    by_method: dict[str, list[Candidate]] = {}
    for c in sorted(candidates, key=lambda c: c.counts.macs if c.counts else 0):
        by_method.setdefault(c.method.name, []).append(c)
    ends = [*(cs[0] for cs in by_method.values()), *(cs[-1] for cs in by_method.values())]
    return list(dict.fromkeys(ends))


def seconds_of(passes: Mapping[str, Callable[[], float]]) -> Mapping[str, Sequence[float]]:
    """Seconds of every round, all in turn: fewer rounds of what takes long."""
    slowest = max(min(once(), once()) for once in passes.values())  # the first pass prepares kernels
    rounds = min(max(int(SECONDS / max(slowest, 1e-6)), ROUNDS[0]), ROUNDS[1])
    seconds = in_turn(passes, 1 + rounds, partial(back_and_forth, 1))
    return {name: each[1:] for name, each in seconds.items()}


class Predictor:
    """Latencies of candidates that were not measured, by those that were."""

    def __init__(self, measured: Sequence[tuple[str, Counts | None, float]]):
        """`measured`: the name of the method, its counts, and its seconds."""
        from scipy.optimize import nnls  # slow to import

        works = [_work(counts) for _, counts, _ in measured]
        # What was never measured has no price of its own, and is taken to cost what was.
        self.together, self.grouped = any(w.together for w in works), any(w.grouped_macs for w in works)
        rows = np.array([self._features(work) for work in works], dtype=float)
        seconds = np.array([each for _, _, each in measured])
        scale = rows.max(0)
        scale[scale == 0] = 1
        self.prices = nnls(rows / scale / seconds[:, None], np.ones(len(seconds)))[0] / scale
        points: dict[str, list[tuple[float, float]]] = {}
        for (name, _, took), by_prices in zip(measured, rows @ self.prices, strict=True):
            if by_prices > 0:
                points.setdefault(name, []).append((math.log(by_prices), math.log(took)))
        self.lines = {name: _line(each) for name, each in points.items()}

    def seconds(self, name: str, counts: Counts | None) -> float:
        """The predicted latency of a candidate of this method."""
        by_prices = float(np.dot(self._features(_work(counts)), self.prices))
        slope, offset = self.lines.get(name, (1.0, 0.0))
        return math.exp(offset + slope * math.log(by_prices)) if by_prices > 0 else 0.0

    def _features(self, work: Work) -> tuple[float, ...]:
        together = float(work.together and self.together)
        macs, grouped = (work.macs, work.grouped_macs) if self.grouped else (work.macs + work.grouped_macs, 0)
        split = (work.operations * (1 - together), work.operations * together, together)
        return (*split, macs * (1 - together), macs * together, grouped, work.bytes)


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and offset of what a method took over what its operations cost, in logs: at most proportional.

    >>> [round(each, 6) for each in _line([(0.0, 1.0), (2.0, 2.0)])]
    [0.5, 1.0]
    """
    x, y = np.array(points).T
    wide = float(np.ptp(x)) > SPREAD
    slope = min(max(float(np.polyfit(x, y, 1)[0]), 0.0), 1.0) if wide else 1.0
    return slope, float(y.mean() - slope * x.mean())


def _work(counts: Counts | None) -> Work:
    assert counts is not None and counts.work is not None, "what is timed has passed the exact limits"
    return counts.work


class Watch:
    """One bar after another, on stderr; silent where it is not shown."""

    def __init__(self, shown: bool):
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
        )
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown)
        self.task: TaskID | None = None

    def __enter__(self) -> Watch:
        self.bar.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.bar.stop()

    def begin(self, what: str, total: int) -> None:
        if self.task is not None:
            self.bar.remove_task(self.task)
        self.task = self.bar.add_task(what, total=total)

    def advance(self) -> None:
        assert self.task is not None
        self.bar.advance(self.task)
