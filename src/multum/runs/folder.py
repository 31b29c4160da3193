"""The folder of one run.

run.json            settings, versions, and the last row of the log once training has ended
training.json       what a resumed run must have in common with its beginning (training/resume.py)
checkpoints/        where an interrupted run goes on
log.jsonl           one row per epoch
model.safetensors   the trained ensemble
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.sources import Data, load_data
from ..ensemble import Ensemble
from ..errors import ConfigError, FileError, TrainingError
from ..files import read_json, write_json
from ..saving import load
from ..training.checkpoint import guard
from ..training.recipe import Recipe
from .networks import builder_for

__all__ = ["RunFolder", "open_run"]

SETTINGS = {"data": str, "model": str, "method": dict, "recipe": dict}


@dataclass(frozen=True)
class RunFolder:
    """The files of one run, checked as they are read."""

    path: Path

    @property
    def model(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def _description(self) -> Path:
        return self.path / "run.json"

    def read(self) -> dict[str, Any]:
        """What run.json holds; a FileError where it is not what `train` writes."""
        if not self._description.is_file():
            raise TrainingError(f"a run folder must hold run.json; got {self.path}. Train with --out {self.path}")
        run = read_json(self._description)
        fix = "Remove it and train again with the same settings"
        for name, kind in SETTINGS.items():
            if not isinstance(run.get(name), kind):
                raise FileError(f"{self._description} must hold the run's {name}; got {run.get(name)!r}. {fix}")
        try:
            Recipe(**run["recipe"])
        except (TypeError, ConfigError) as error:
            raise FileError(f"{self._description} must hold a recipe; got {error}. {fix}") from error
        if not isinstance(run["method"].get("name"), str):
            raise FileError(f"{self._description} must hold the method's name; got {run['method']}. {fix}")
        last = run.get("last")
        if last is not None and not (isinstance(last, dict) and isinstance(last.get("epoch"), int)):
            raise FileError(f"{self._description} must hold the last row of the log; got {last!r}. {fix}")
        return run

    def write(self, run: Mapping[str, Any]) -> None:
        """Write run.json."""
        write_json(self._description, run)

    def begun(self, settings: Mapping[str, Any], resume: bool) -> dict[str, Any] | None:
        """The run that was begun here with these settings, None where there is none; any other run is refused."""
        if not self._description.is_file():
            return None
        run = self.read()
        if not resume:
            raise TrainingError(
                f"a folder must hold one run; got {self.path}, which holds one already. Choose another --out"
            )
        guard(run, settings, self.path)
        return run

    def is_finished(self, run: Mapping[str, Any]) -> bool:
        """Whether the run was trained to its end."""
        return run.get("last") is not None and self.model.is_file()

    def log(self) -> list[dict[str, Any]]:
        """The rows of the log, one per epoch."""
        return [json.loads(line) for line in (self.path / "log.jsonl").read_text().splitlines()]

    def open(self, data: Data) -> Ensemble:
        """The trained ensemble, given the data of the run."""
        name = self.read()["model"]
        if not self.model.is_file():
            raise TrainingError(
                f"a finished run must hold model.safetensors; got {self.path}, which does not. Train it to the end"
            )
        # A saved model names its network; a thinned one is built again from the data's example.
        return load(self.model, network=builder_for(name, data)) if "thin=" in name else load(self.model)


def open_run(folder: str | Path) -> tuple[Ensemble, Data, dict[str, Any]]:
    """The trained ensemble of a run folder, its data, and its settings."""
    run_folder = RunFolder(Path(folder))
    run = run_folder.read()
    data = load_data(run["data"], seed=run["recipe"]["seed"])
    return run_folder.open(data), data, run
