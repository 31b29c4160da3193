"""A program as torch.export saves it (.pt2): torch alone reads it, with `torch.export.load(path).module()(x)`.

Metadata stand in the file as JSON, the extra file "multum.json".
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from ..data.tables import Table
from ..errors import ExportError, FileError, first_line
from ..files import atomic
from .program import quiet

__all__ = ["TorchModel", "read_metadata"]

KEY = "multum.json"


class TorchModel:
    """A program that was saved and read again."""

    def __init__(self, program: ExportedProgram):
        self.program = program
        buffer = io.BytesIO()
        with quiet():
            try:
                torch.export.save(program, buffer)
                buffer.seek(0)
                self.module = torch.export.load(buffer).module()
            except Exception as error:  # torch raises its own kinds, which differ from version to version
                raise ExportError(
                    f"a program must be one that torch saves and reads; got {first_line(error)}"
                ) from error

    def answers(self, x: Any, table: Table | None) -> dict[str, Tensor]:
        """What the program says of what `Graph` takes."""
        with torch.no_grad():
            return self.module(x)

    def save(self, path: Path, metadata: Mapping[str, Any]) -> None:
        """Write the file, with its metadata."""
        with atomic(path) as temporary, quiet(), temporary.open("wb") as file:
            torch.export.save(self.program, file, extra_files={KEY: json.dumps(metadata)})


def read_metadata(path: Path) -> dict[str, Any]:
    """What `multum.export` wrote into a .pt2 file."""
    extra = {KEY: ""}
    with quiet():
        try:
            torch.export.load(path, extra_files=extra)
        except Exception as error:
            raise FileError(f"{path} must be a torch.export file; got {first_line(error)}") from error
    if not extra[KEY]:
        raise FileError(f"{path} must be written by multum.export; got a file without its metadata")
    return json.loads(extra[KEY])
