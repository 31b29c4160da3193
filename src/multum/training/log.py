"""The log of a run: one JSON line per epoch, and TensorBoard where asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..files import write_text

__all__ = ["History", "Log"]

History = list[dict[str, Any]]


class Log:
    """`log.jsonl` of a run folder, written whole each time, so that a resumed run leaves no line twice."""

    def __init__(self, folder: Path, tensorboard: bool, shown: int = 0):
        self.path = folder / "log.jsonl"
        self.board = _board(folder) if tensorboard else None
        self.shown = shown  # rows that TensorBoard has

    def write(self, history: History) -> None:
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in history))
        if self.board is not None:
            for row in history[self.shown :]:
                for name, value in row.items():
                    self.board.add_scalar(name, value, row["epoch"])
        self.shown = len(history)

    def close(self) -> None:
        if self.board is not None:
            self.board.close()


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except Exception as error:  # the package is missing, or does not fit
        raise ConfigError(
            f"tensorboard=True needs the package tensorboard, however: it cannot be imported ({error}); "
            "pip install tensorboard"
        ) from error
    return SummaryWriter(str(folder / "tensorboard"))
