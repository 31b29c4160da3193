"""A whole training job by names: data, model, method and recipe in, a run folder out."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from .. import models
from ..building import ensemble
from ..data.sources import Data, load_data
from ..ensemble import Ensemble
from ..errors import TrainingError
from ..files import prepare_folder, write_json
from ..methods import Method, parse
from ..saving import load
from ..training.batches import stream
from ..training.checkpoint import guard
from ..training.devices import is_first
from ..training.loop import fit
from ..training.recipe import Recipe
from ..version import __version__

__all__ = ["builder_for", "default_model", "model_for", "open_model", "open_run", "summary", "tell_guesses", "train"]


def default_model(data: Data) -> str:
    """The name of a small model that suits the data."""
    return "small-cnn" if data.is_image else "mlp"


def builder_for(text: str | None, data: Data) -> Callable[[], nn.Module]:
    """What builds a model by name, with the inputs and outputs of the data; None: one that suits the data.

    Any model takes `thin`, a share of its width: `resnet18:thin=0.5`.

    >>> builder_for("mlp:hidden=8+8", load_data("diabetes"))().hidden[0].in_features
    10
    >>> builder_for("small-cnn:thin=0.5", load_data("digits"))().conv1.out_channels
    8
    """
    return models.builder(text or default_model(data), data.train.x.shape[1:], data.outputs)


def model_for(text: str | None, data: Data, seed: int) -> nn.Module:
    """A model by name, with the inputs and outputs of the data, initialised under the seed.

    >>> model_for("small-cnn", load_data("digits"), seed=0).conv1.in_channels
    1
    """
    with torch.random.fork_rng():
        torch.manual_seed(stream(seed, "model").initial_seed())
        return builder_for(text, data)()


def train(
    data: str,
    model: str | None,
    method: str | Method,
    out: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    resume: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Train by names and leave all in the run folder; a finished run is not run again, an interrupted one goes on.

    Returns what `run.json` holds: the settings, versions, and the last row of the log.

    Args:
        options: as `multum.fit` takes them: progress, tensorboard, devices, ...
    """
    out = Path(out)
    recipe = Recipe().with_overrides(overrides or {})
    config = parse(method) if isinstance(method, str) else method
    source = load_data(data, seed=recipe.seed)
    build = builder_for(model, source)
    settings = {
        "data": data,
        "model": model or default_model(source),
        "method": config.as_dict(),
        "recipe": dataclasses.asdict(recipe),
    }
    settings = json.loads(json.dumps(settings))
    described = out / "run.json"
    if described.is_file():
        before = json.loads(described.read_text())
        if not resume:
            raise TrainingError(f"a run folder holds one run; got {out}, which holds one already. Choose another --out")
        guard(before, settings, out)
        if before["last"] is not None and (out / "model.safetensors").is_file():
            return before
    ens = ensemble(build, config, example=source.example(), task=source.task, seed=recipe.seed)
    prepare_folder(out)
    if options.get("progress"):
        tell_guesses(source)
    versions = {"multum": __version__, "torch": torch.__version__, "python": platform.python_version()}
    found = {**settings, "versions": versions, "threads": torch.get_num_threads(), "last": None}
    if is_first():  # before training, so that an interrupted run can be resumed and recognised
        write_json(described, found)
    history = fit(ens, source, recipe, out=out, **options)
    found = {**found, "threads": torch.get_num_threads(), "last": history[-1]}
    if is_first():
        write_json(described, found)
    return found


def tell_guesses(data: Data) -> None:
    """Say what was guessed about a table, where a person watches."""
    if data.table is not None and is_first():
        Console(stderr=True).print(data.table.describe(), highlight=False, markup=False, soft_wrap=True)


def summary(found: Mapping[str, Any], out: Path) -> str:
    """A finished run in one line."""
    last = found["last"]
    measured = ", ".join(f"training {k} {last[k]:.4f}" for k in ("loss", "accuracy", "rmse") if k in last)
    return (
        f"{found['method']['name']} on {found['data']}: {measured} after epoch {last['epoch']}; "
        f"model in {out / 'model.safetensors'}"
    )


def open_run(folder: str | Path) -> tuple[Ensemble, Data, dict[str, Any]]:
    """The trained ensemble of a run folder, its data, and its settings."""
    settings = _settings(Path(folder))
    data = load_data(settings["data"], seed=settings["recipe"]["seed"])
    return open_model(folder, data), data, settings


def open_model(folder: str | Path, data: Data) -> Ensemble:
    """The trained ensemble of a run folder whose data is at hand."""
    folder = Path(folder)
    model = folder / "model.safetensors"
    if not model.is_file():
        raise TrainingError(f"a finished run holds model.safetensors, however: {folder} does not; train it to the end")
    name = _settings(folder)["model"]
    return load(model, network=builder_for(name, data)) if "thin=" in name else load(model)


def _settings(folder: Path) -> dict[str, Any]:
    described = folder / "run.json"
    if not described.is_file():
        raise TrainingError(f"a run folder holds run.json, however: {folder} does not; train with --out {folder}")
    return json.loads(described.read_text())
