"""How far a plan is: a bar on a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

__all__ = ["Watch"]


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
