"""Examples in the place of a tensor, read where they are indexed: files, rows of a mapped file or of a data set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


class Lazy:
    """What a `Part` asks of examples that are not in memory: `x[rows]` is a tensor. Shape: [n, ...]."""

    shape: torch.Size
    dtype: torch.dtype
    sampled = False  # whether some rows stand for all where a mean and a spread are taken

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Tensor:
        raise TypeError(f"{type(self).__name__} has no rows to be read by number")

    def split(self, rows: int) -> Iterator[Tensor]:
        """All of it in pieces of so many rows."""
        return (self[start : start + rows] for start in range(0, len(self), rows))

    def contents(self) -> Iterator[bytes]:
        """What tells every example apart from others."""
        return row_bytes(self)

    def unreadable(self) -> list[str]:
        """What is wrong with examples that cannot be read."""
        return []


def row_bytes(x: Tensor | Lazy, at_once: int = 4096) -> Iterator[bytes]:
    """The bytes of every row."""
    for start in range(0, len(x), at_once):
        rows = x[start : start + at_once].cpu().contiguous()
        yield from (row.tobytes() for row in rows.view(len(rows), -1).numpy())
