"""The progress bar of a training run: loss, accuracy, items per second, time left."""

from __future__ import annotations

from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["Bar"]


class Bar:
    """A bar over all steps of a run; silent where it is not shown."""

    def __init__(self, run: Any, shown: bool):
        self.run, self.shown, self.completed = run, shown, 0
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn(
                "epoch {task.fields[epoch]}  loss {task.fields[loss]:.4f}  accuracy {task.fields[accuracy]:.4f}"
            ),
            TextColumn("{task.fields[speed]:,.0f} items/s"),
            TimeRemainingColumn(),
            disable=not shown,
        )

    def start(self) -> None:
        self.progress.start()
        self.task = self.progress.add_task(
            type(self.run.method).__name__,
            total=self.run.epochs * self.run.batches.per_epoch,
            completed=self.completed,
            epoch=f"{self.run.epoch}/{self.run.epochs}",
            loss=0.0,
            accuracy=0.0,
            speed=0.0,
        )

    def advance(self, tally: Any) -> None:
        if self.shown:
            speed = tally.items / max(tally.seconds(), 1e-9)
            epoch = f"{self.run.epoch + 1}/{self.run.epochs}"
            self.progress.update(self.task, completed=self.run.step, epoch=epoch, speed=speed, **tally.mean())

    def stop(self) -> None:
        self.progress.stop()
