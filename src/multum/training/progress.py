"""The progress of a training run: a bar on a terminal, a plain line per epoch elsewhere, always on stderr."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

__all__ = ["Bar"]


class Bar:
    """Loss, accuracy or RMSE, items per second and time left over all steps of a run; silent where it is not shown."""

    def __init__(self, run: Any, shown: bool):
        self.run, self.shown, self.console = run, shown, Console(stderr=True)
        self.moving = shown and self.console.is_terminal
        self.task = TaskID(0)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("epoch {task.fields[epoch]} {task.fields[measured]}"),
            TextColumn("{task.fields[speed]:,.0f} items/s"),
            # The bar gives way where the terminal is narrow, the time left does not.
            TimeRemainingColumn(compact=True, table_column=Column(min_width=5, no_wrap=True)),
            console=self.console,
            disable=not self.moving,
        )

    def start(self) -> None:
        if self.moving:
            self.progress.start()
            total = self.run.epochs * self.run.batches.per_epoch
            fields: dict[str, Any] = {"epoch": f"{self.run.epoch}/{self.run.epochs}", "measured": "", "speed": 0.0}
            name = type(self.run.method).__name__
            self.task = self.progress.add_task(name, total=total, completed=self.run.step, **fields)

    def advance(self) -> None:
        if self.moving:
            tally = self.run.tally
            self.progress.update(
                self.task,
                completed=self.run.step,
                epoch=f"{self.run.epoch + 1}/{self.run.epochs}",
                measured=_measured(tally.means()),
                speed=tally.sums[0] * self.run.fabric.world_size / max(tally.seconds(), 1e-9),
            )

    def epoch(self, row: dict[str, Any]) -> None:
        """The end of an epoch, with its row of the log."""
        if self.shown and not self.moving:
            found = {name: value for name, value in row.items() if name in ("loss", "accuracy", "rmse")}
            line = f"epoch {row['epoch']}/{self.run.epochs}  {_measured(found)}  {row['seconds']:.1f} s"
            self.console.print(line, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        if self.moving:
            self.progress.stop()


def _measured(means: dict[str, float]) -> str:
    return " ".join(f"{name} {value:.4f}" for name, value in means.items())
