"""Ctrl-C and SIGTERM ask a run to stop after its present step; the second time they stop it at once."""

from __future__ import annotations

import contextlib
import signal
from typing import Any


class Stopped(KeyboardInterrupt):
    """The run was asked to stop and has written where it is."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Interrupts:
    """A context in which the signals are noted instead of obeyed."""

    def __init__(self) -> None:
        self.asked = 0  # the signal's number
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            # Only the main thread may set handlers; elsewhere the caller keeps its own.
            with contextlib.suppress(ValueError):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _note(self, number: int, *_: Any) -> None:
        if self.asked:
            raise Stopped(number)
        self.asked = number
