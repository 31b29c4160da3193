"""Which candidates are timed, in which order, and what that says of the rest."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..errors import MultumError, first_line
from ..metrics.timing import ratio, spread
from ..processor import with_threads
from .backends import Backend
from .candidates import Candidate
from .counting import Base, Counts
from .latency import Latency, Predictor, seconds_of
from .limits import Limit, Limits
from .watching import Watch

__all__ = ["ends", "measured"]

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
