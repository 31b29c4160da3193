"""The books of an epoch: sums over its steps so far."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

__all__ = ["Tally"]


class Tally:
    """Sums over the rows that this process has seen. Shape: `sums` [4]: rows, loss, correct answers, squared errors."""

    def __init__(self, task: str, spread: float = 1.0, sums: list[float] | None = None, seconds: float = 0.0):
        self.task, self.spread = task, spread
        self.sums = sums or [0.0, 0.0, 0.0, 0.0]
        self.earlier, self.began = seconds, time.monotonic()

    def add(self, value: float, outputs: Tensor, y: Tensor, per_member: bool) -> None:
        """One step: the loss as it was trained, the outputs [members, batch, ...] and the targets."""
        rows = y.shape[1] if per_member else y.shape[0]
        self.sums[0] += rows
        self.sums[1] += value * rows
        found = outputs.detach()
        if self.task == "classification":
            labels = y.argmax(-1) if y.is_floating_point() else y
            self.sums[2] += float((found.argmax(2) == labels).double().mean()) * rows
        else:
            self.sums[3] += float((found[..., 0] - y).double().square().mean()) * rows

    def means(self) -> dict[str, float]:
        """Mean loss, and the mean over members of accuracy, or of RMSE in the targets' own unit."""
        return self.of(self.sums)

    def of(self, sums: list[float]) -> dict[str, float]:
        rows = max(sums[0], 1.0)
        if self.task == "classification":
            return {"loss": sums[1] / rows, "accuracy": sums[2] / rows}
        return {"loss": sums[1] / rows, "rmse": self.spread * (sums[3] / rows) ** 0.5}

    def together(self, fabric: Any) -> dict[str, float]:
        """The same over all processes."""
        if fabric.world_size == 1:
            return self.means()
        return self.of(fabric.all_reduce(self.tensor(fabric.device), reduce_op="sum").tolist())

    def everyone(self, fabric: Any) -> list[list[float]]:
        """Every process's sums, for a checkpoint."""
        if fabric.world_size == 1:
            return [self.sums]
        every = torch.zeros(fabric.world_size, len(self.sums), dtype=torch.float64, device=fabric.device)
        every[fabric.global_rank] = self.tensor(fabric.device)
        return fabric.all_reduce(every, reduce_op="sum").tolist()

    def tensor(self, device: torch.device) -> Tensor:
        return torch.tensor(self.sums, dtype=torch.float64, device=device)

    def seconds(self) -> float:
        return self.earlier + time.monotonic() - self.began
