"""A small network in which every kind of state moves while it trains."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Noisy(nn.Module):
    """Batch norm, which moves statistics, and dropout, which draws masks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop, self.last = (
            nn.Linear(8, 12),
            nn.BatchNorm1d(12),
            nn.Dropout(0.3),
            nn.Linear(12, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))
