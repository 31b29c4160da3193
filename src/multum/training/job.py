"""A whole training job by names: data, model, method and recipe in, a run folder out."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import models
from ..building import ensemble
from ..data.sources import Data, load_data
from ..ensemble import Ensemble
from ..errors import TrainingError
from ..methods import Method, parse
from ..parsing import named
from ..saving import load
from ..version import __version__
from . import checkpoint
from .batches import stream
from .loop import fit
from .recipe import Recipe

__all__ = ["model_for", "open_run", "train"]


def model_for(text: str, data: Data, seed: int) -> nn.Module:
    """A model by name, with the inputs and outputs of the data, initialised under the seed.

    >>> model_for("small-cnn", load_data("digits"), seed=0).conv1.in_channels
    1
    """
    if text.startswith("timm:"):
        name, _, rest = text.removeprefix("timm:").partition(":")
        keywords, name = named(f"x:{rest}")[1], f"timm:{name}"
    else:
        name, keywords = named(text)
    shape = data.train.x.shape[1:]
    size = {"in_channels": shape[0]} if data.is_image else {"in_features": shape.numel()}
    with torch.random.fork_rng():
        torch.manual_seed(stream(seed, "model").initial_seed())
        return models.build(name, **{**size, "classes": data.outputs, **keywords})


def train(
    data: str,
    model: str,
    method: str | Method,
    out: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    progress: bool = True,
    **fabric: Any,
) -> dict[str, Any]:
    """Train by names and leave all in the run folder; a finished run is not run again, an interrupted one goes on.

    Returns what `run.json` holds: the settings, versions, and the last row of the log.
    """
    out = Path(out)
    recipe = Recipe().with_overrides(overrides or {})
    config = parse(method) if isinstance(method, str) else method
    source = load_data(data, seed=recipe.seed)
    settings = {
        "data": data,
        "model": model,
        "method": {"name": type(config).__name__.lower(), **dataclasses.asdict(config)},
        "recipe": dataclasses.asdict(recipe),
    }
    settings = json.loads(json.dumps(settings))
    described = out / "run.json"
    if described.is_file():
        before = json.loads(described.read_text())
        changed = [k for k in settings if before.get(k) != settings[k]]
        if changed:
            raise TrainingError(
                f"a run folder holds one run, however: {out} was begun with another {', '.join(changed)}; "
                "choose another folder with --out"
            )
        if (out / "model.safetensors").is_file():
            return before
    checkpoint.prepare_folder(out)
    net = model_for(model, source, recipe.seed)
    ens = ensemble(net, config, example=source.example(), task=source.task, seed=recipe.seed)
    versions = {"multum": __version__, "torch": torch.__version__, "python": platform.python_version()}
    # Written before training, so that an interrupted run can be resumed and recognised.
    _write(described, {**settings, "versions": versions, "threads": torch.get_num_threads(), "last": None})
    history = fit(ens, source, recipe, out=out, progress=progress, **fabric)
    found = {**settings, "versions": versions, "threads": torch.get_num_threads(), "last": history[-1]}
    _write(described, found)
    return found


def open_run(folder: str | Path) -> tuple[Ensemble, Data, dict[str, Any]]:
    """The trained ensemble of a run folder, its data, and its settings."""
    folder = Path(folder)
    described, model = folder / "run.json", folder / "model.safetensors"
    if not described.is_file():
        raise TrainingError(f"a run folder holds run.json, however: {folder} does not; train with --out {folder}")
    if not model.is_file():
        raise TrainingError(f"a finished run holds model.safetensors, however: {folder} does not; train it to the end")
    settings = json.loads(described.read_text())
    return load(model), load_data(settings["data"], seed=settings["recipe"]["seed"]), settings


def _write(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    temporary.replace(path)
