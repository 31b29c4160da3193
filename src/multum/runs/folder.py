"""The folder of one run, which can be moved and needs nothing else to predict.

run.json                 settings, versions, a fingerprint of the data, and the last row of the log once training ended
preparation.json         scalers, categories, class names: what turns raw examples into a network's input
split.safetensors        what tells the examples of each part apart, 8 bytes each (data/identity.py)
validation.safetensors   the trained members' outputs on the held-out part, and its targets
training.json            what a resumed run must have in common with its beginning (training/resume.py)
checkpoints/             where an interrupted run goes on
log.jsonl                one row per epoch
model.safetensors        the trained ensemble

Folders of format 1 have neither fingerprint nor preparation, split and validation outputs.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..data.identity import positions
from ..data.preparation import Preparation
from ..data.sources import Data, load_data
from ..ensemble import Ensemble
from ..errors import ConfigError, FileError, TrainingError, first_line
from ..files import plain, read_json, signature, write_json, write_tensors
from ..outputs.prediction import predict
from ..saving import load
from ..training.checkpoint import guard
from ..training.recipe import Recipe
from .networks import announce_network, kept_builder

log = logging.getLogger("multum")

FORMAT = 2
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
        settings = SETTINGS if run.get("format", 1) == 1 else {**SETTINGS, "fingerprint": str}
        for name, kind in settings.items():
            if not isinstance(run.get(name), kind):
                raise FileError(f"{self._description} must hold the run's {name}; got {run.get(name)!r}. {fix}")
        if run.get("format", 1) not in range(1, FORMAT + 1):
            raise FileError(f"{self._description} must be of format {FORMAT}; got {run['format']!r}. Upgrade multum")
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

    def write_data(self, data: Data) -> None:
        """Write what the run must know of its data: the preparation and the split."""
        self.write_preparation(data.preparation.as_dict())
        write_tensors(self.path / "split.safetensors", data.ids, {})

    def write_preparation(self, preparation: Mapping[str, Any]) -> None:
        """Write preparation.json, of what `Preparation.as_dict` gives."""
        write_json(self.path / "preparation.json", {**preparation, "checksum": digest(preparation)})

    def write_validation(self, outputs: Tensor, targets: Tensor) -> None:
        """Write the members' outputs on the validation part. Shape: [members, examples, ...] and [examples]."""
        write_tensors(self.path / "validation.safetensors", {"outputs": outputs, "targets": targets}, {})

    def preparation(self, run: Mapping[str, Any]) -> Preparation:
        """How the run reads examples; of a folder of format 1, how its data is read now."""
        if run.get("format", 1) == 1:
            log.warning(
                "%s is of multum 0.1, which kept no preparation: scaling and class names come from %s as it is now",
                *(self.path, run["data"]),
            )
            return load_data(run["data"], seed=run["recipe"]["seed"]).preparation
        path = self.path / "preparation.json"
        values = read_json(path)
        if values.pop("checksum", None) != digest(values):
            raise FileError(f"{path} must be as it was written; got another checksum. Copy the folder again")
        return Preparation.from_dict(values)

    def split(self) -> dict[str, Tensor]:
        """The numbers of each part's examples, in their order."""
        return self._tensors("split.safetensors")

    def validation(self) -> dict[str, Tensor] | None:
        """`outputs` and `targets` of the validation part; None where the run has none."""
        path = self.path / "validation.safetensors"
        return self._tensors(path.name) if path.is_file() else None

    def _tensors(self, name: str) -> dict[str, Tensor]:
        try:
            with safe_open(self.path / name, framework="pt") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
                written = json.loads((file.metadata() or {})["multum"])["checksum"]
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise FileError(
                f"{self.path / name} must be readable; got {first_line(error)}. Copy the folder again"
            ) from error
        if written != signature({}, tensors):
            raise FileError(
                f"{self.path / name} must be as it was written; got another checksum. Copy the folder again"
            )
        return tensors

    def begun(self, settings: Mapping[str, Any], data: Data, resume: bool) -> dict[str, Any] | None:
        """The run that was begun here with these settings, None where there is none; any other run is refused."""
        if not self._description.is_file():
            return None
        run = self.read()
        if not resume:
            raise TrainingError(
                f"a folder must hold one run; got {self.path}, which holds one already. Choose another --out"
            )
        if run.get("format", 1) == 1:
            raise TrainingError(
                f"a run must know its data to go on; got {self.path}, of multum 0.1, which recorded no fingerprint of "
                "it. Choose another --out"
            )
        others = {name: value for name, value in settings.items() if name != "fingerprint"}
        guard(run, others, self.path)
        if run["fingerprint"] != settings["fingerprint"]:
            what = changes(self.split(), self.preparation(run).classes, data)
            raise TrainingError(
                f"{settings['data']} has changed since {self.path} was begun: {what}. Choose another --out"
            )
        split = self.split()
        if not self.is_finished(run) and any(
            not torch.equal(split.get(n, ids[:0]), ids) for n, ids in data.ids.items()
        ):
            raise TrainingError(
                f"a run must go on with its examples in their order; got {settings['data']} in another one. Bring it "
                "back, or choose another --out"
            )
        return run

    def is_finished(self, run: Mapping[str, Any]) -> bool:
        """Whether the run was trained to its end."""
        return run.get("last") is not None and self.model.is_file()

    def log(self) -> list[dict[str, Any]]:
        """The rows of the log, one per epoch."""
        return [json.loads(line) for line in (self.path / "log.jsonl").read_text().splitlines()]

    def open(self, data: Data | Preparation) -> Ensemble:
        """The trained ensemble, given the data of the run or its preparation."""
        run = self.read()
        name = run["model"]
        if isinstance(data, Data):
            data = data.for_loss(run["recipe"].get("loss"))
        if not self.model.is_file():
            raise TrainingError(
                f"a finished run must hold model.safetensors; got {self.path}, which does not. Train it to the end"
            )
        # A saved model names its network; a thinned one, and one of the user's own, is built again.
        return load(self.model, network=kept_builder(name, data, self.path))


def digest(value: Mapping[str, Any]) -> str:
    """The checksum of a JSON object."""
    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()


def open_run(folder: str | Path) -> tuple[Ensemble, Preparation, dict[str, Any]]:
    """The trained ensemble of a run folder, how it reads examples, and its settings."""
    run_folder = RunFolder(Path(folder))
    run = run_folder.read()
    announce_network(run["model"], run_folder.path)
    preparation = run_folder.preparation(run)
    return run_folder.open(preparation), preparation, run


def open_model(path: str | Path) -> tuple[Ensemble, Preparation, dict[str, Any]]:
    """The same of a run folder, or of a saved model alone, whose examples are a network's inputs."""
    path = Path(path)
    if not path.is_file():
        return open_run(path)
    ensemble = load(path)
    return ensemble, _as_it_is(ensemble, path.name), {}


def _as_it_is(ensemble: Ensemble, name: str) -> Preparation:
    """Of a model without data: its inputs as they come, and outputs in their own units."""
    example = ensemble.example
    if not isinstance(example, Tensor):
        raise FileError(f"{name} must have one input to read examples for it; got several. Use multum.load and predict")
    zeros = torch.zeros(1, *example.shape[1:], dtype=example.dtype, device=ensemble.device)
    prediction: Any = predict(ensemble, zeros)
    classes = ensemble.task == "classification"
    targets = 1 if classes or prediction.mean.ndim == 1 else prediction.mean.shape[1]
    return Preparation(
        name,
        ensemble.task,
        outputs=prediction.probs.shape[1] if classes else 2,
        shape=tuple(example.shape[1:]),
        dtype=example.dtype,
        mean=torch.zeros(()),
        std=torch.ones(()),
        target_mean=0.0 if targets == 1 else [0.0] * targets,
        target_std=1.0 if targets == 1 else [1.0] * targets,
    )


def changes(split: Mapping[str, Tensor], classes: tuple[str, ...], data: Data) -> str:
    """What became of data since its split was recorded, in words."""
    before, now = (torch.cat(list(parts.values())) for parts in (split, data.ids))
    words = [f"{len(before)} examples are now {len(now)}"] if len(before) != len(now) else []
    others = int((positions(before, now) < 0).sum())
    if others:
        words.append(f"{others} of {len(before)} are gone, or are others now")
    if classes != data.classes:
        words.append(f"the classes {', '.join(classes)} are now {', '.join(data.classes)}")
    return "; ".join(words)
