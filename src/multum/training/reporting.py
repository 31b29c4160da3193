"""What a run says of itself: the sums of an epoch, the log, the progress, and the error when the loss is lost."""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from torch import Tensor

from ..checks import needed
from ..errors import TrainingError
from ..files import explained, write_text
from ..outputs.loss import loss

LIMIT = 1e8  # a loss beyond this is beyond repair

SHOWN = ("loss", "accuracy", "rmse", "validation_nll", "validation_accuracy")  # of a row, to a person

History = list[dict[str, Any]]


class Tally:
    """Sums over the rows that this process has seen. Shape: `sums` [4]: rows, loss, correct answers, squared errors."""

    def __init__(
        self,
        task: str,
        spread: float | Tensor = 1.0,
        sums: list[float] | None = None,
        seconds: float = 0.0,
        waited: float = 0.0,
    ):
        self.task, self.spread = task, spread
        self.sums = sums or [0.0, 0.0, 0.0, 0.0]
        self.earlier, self.waited, self.began = seconds, waited, time.monotonic()

    def add(self, value: float, outputs: Tensor, y: Tensor, per_member: bool) -> None:
        """One step: the loss per member, the outputs [members, batch, ...] and the targets."""
        rows = y.shape[1] if per_member else y.shape[0]
        self.sums[0] += rows
        self.sums[1] += value * rows
        outputs = outputs.detach()
        if self.task == "classification":
            labels = y.argmax(-1) if y.is_floating_point() else y
            self.sums[2] += float((outputs.argmax(2) == labels).double().mean()) * rows
        else:
            several = y.ndim - per_member > 1
            errors = (outputs[:, :, : y.shape[-1]] if several else outputs[..., 0]) - y
            if isinstance(self.spread, Tensor):  # several targets, each in its own unit
                errors = errors * self.spread.to(errors)
            self.sums[3] += float(errors.double().square().mean()) * rows

    def means(self, fabric: Any = None) -> dict[str, float]:
        """Mean loss, and the mean over members of accuracy, or of RMSE in the targets' own unit: of this process, or
        of all of Fabric's."""
        sums = self.sums if fabric is None else [sum(column) for column in zip(*self.everyone(fabric), strict=True)]
        rows = max(sums[0], 1.0)
        if self.task == "classification":
            return {"loss": sums[1] / rows, "accuracy": sums[2] / rows}
        spread = 1.0 if isinstance(self.spread, Tensor) else self.spread
        return {"loss": sums[1] / rows, "rmse": spread * (sums[3] / rows) ** 0.5}

    def everyone(self, fabric: Any) -> list[list[float]]:
        """Every process's sums."""
        if fabric.world_size == 1:
            return [self.sums]
        here = torch.tensor(self.sums, dtype=torch.float64, device=fabric.device)
        return fabric.all_gather(here).tolist()

    def times(self) -> dict[str, float]:
        """Seconds, and the share of them in which the loop waited for data."""
        seconds = self.seconds()
        return {"seconds": seconds, "waiting": self.waited / max(seconds, 1e-9)}

    def seconds(self) -> float:
        return self.earlier + time.monotonic() - self.began


class Log:
    """`log.jsonl` of a run folder, one line per epoch, and TensorBoard where asked for.

    The file is written whole each time, so that a resumed run leaves no line twice.
    """

    def __init__(self, folder: Path, tensorboard: bool, shown: int = 0):
        self.path, self.events = folder / "log.jsonl", folder / "tensorboard"
        self.board = self._board() if tensorboard else None
        self.shown = shown  # rows that TensorBoard has

    def write(self, history: History) -> None:
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in history))
        if self.board is not None:
            with self._writing():
                for row in history[self.shown :]:
                    for name, value in row.items():
                        self.board.add_scalar(name, value, row["epoch"])
                self.board.flush()
        self.shown = len(history)

    def close(self) -> None:
        if self.board is not None:
            with self._writing():
                self.board.close()

    def _board(self) -> Any:
        rule, fix = "tensorboard=True must find the package tensorboard", "Use pip install tensorboard"
        board = needed("torch.utils.tensorboard", rule, fix)
        with self._writing():
            return board.SummaryWriter(str(self.events))

    def _writing(self) -> AbstractContextManager[None]:
        fix = "Free space there, check its permissions, or train without tensorboard"
        return explained(f"{self.events} must be writable", fix)


class Bar:
    """Loss, accuracy or RMSE, examples per second and time left over all steps: a bar on a terminal, a plain line per
    epoch elsewhere, always on stderr; silent where it is not shown."""

    def __init__(self, run: Any, shown: bool):
        self.run, self.shown, self.console = run, shown, Console(stderr=True)
        self.moving = shown and self.console.is_terminal
        self.task = TaskID(0)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("epoch {task.fields[epoch]} {task.fields[measured]}"),
            TextColumn("{task.fields[speed]:,.0f} examples/s"),
            # The bar gives way where the terminal is narrow, the time left does not.
            TimeRemainingColumn(compact=True, table_column=Column(min_width=5, no_wrap=True)),
            console=self.console,
            disable=not self.moving,
        )

    def __enter__(self) -> None:
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
            measured = _measured({name: row[name] for name in SHOWN if name in row})
            waiting = f", {row['waiting']:.0%} waiting for data"
            self.say(f"epoch {row['epoch']}/{self.run.epochs}  {measured}  {row['seconds']:.1f} s{waiting}")

    def total(self) -> None:
        """How long it took, where no line per epoch has said so."""
        if self.moving:
            rows = self.run.history
            seconds = sum(row["seconds"] for row in rows)
            waited = sum(row["seconds"] * row.get("waiting", 0.0) for row in rows)
            self.say(f"{seconds:.1f} s of training, {waited / max(seconds, 1e-9):.0%} waiting for data")

    def say(self, line: str) -> None:
        if self.shown:
            self.console.print(line, highlight=False, soft_wrap=True)

    def __exit__(self, *_: Any) -> None:
        if self.moving:
            self.progress.stop()


def _measured(means: dict[str, float]) -> str:
    return " ".join(f"{name} {value:.4f}" for name, value in means.items())


def is_lost(value: float) -> bool:
    return not abs(value) < LIMIT


@torch.no_grad()
def lost(value: float, outputs: Tensor, step: Any, member: int | None, criterion: Any, place: str) -> TrainingError:
    """An error that names the place, the members, and the rows of the training part with the worst losses."""
    if not is_lost(value):
        return TrainingError(f"the loss must stay finite in all processes; another one lost it at {place}")
    members = range(outputs.shape[0]) if member is None else [member]
    means: dict[int, float] = {}
    rows: dict[int, list[int]] = {}
    mixed = step.per_member and step.rows.ndim == 1  # a method that gives members rows of its own choice
    for k, m in enumerate(members):
        y = step.y[k] if step.per_member else step.y
        losses = [float(loss(o[None, None], t[None], criterion=criterion)) for o, t in zip(outputs[k], y, strict=True)]
        means[m] = sum(losses) / len(losses)
        index = sorted(range(len(losses)), key=lambda i: (not is_lost(losses[i]), -abs(losses[i])))
        seen = step.rows[k] if step.rows.ndim > 1 else step.rows
        rows[m] = seen[:8].tolist() if mixed else [int(seen[i]) for i in index[:8]]
    # Members may be lost together where none is alone: then the worst of them is named.
    worst = [m for m in means if is_lost(means[m])] or [max(means, key=lambda m: abs(means[m]))]
    each = ", ".join(f"{m} ({means[m]:.4g})" for m in worst)
    shown = ", ".join(map(str, dict.fromkeys(row for m in worst for row in rows[m])))
    broken = "" if bool(torch.isfinite(step.x).all()) else "; the input itself holds NaN or infinity"
    return TrainingError(
        f"the loss must stay finite and below {LIMIT:g}; got {value:.4g} at {place}; member and its loss: {each}; "
        f"{'some' if mixed else 'worst'} rows of the training part: {shown}{broken}. "
        "Lower lr, add warmup or clip, and look at these rows"
    )
