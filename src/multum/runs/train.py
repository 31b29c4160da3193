"""Train by names: data, model, method and recipe in, a run folder out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..building import ensemble
from ..data.parts import default_share
from ..data.sources import Data, load_data
from ..ensemble import Ensemble
from ..files import locked, prepare_folder
from ..methods import Method, parse
from ..training.devices import is_first
from ..training.loop import fit
from ..training.recipe import Recipe
from .folder import FORMAT, RunFolder
from .held_out import validation_outputs
from .machine import versions
from .networks import builder_for, default_model

__all__ = ["held_out_by_default", "print_guesses", "summary", "train", "train_on"]


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
    recipe = Recipe().with_overrides(overrides or {})
    method = parse(method) if isinstance(method, str) else method
    source = load_data(data, seed=recipe.seed)
    source.check_files()
    recipe = recipe.with_overrides(held_out_by_default(recipe, source))
    return train_on(source, data, model, method, recipe, Path(out), resume=resume, **options)[0]


def train_on(
    source: Data,
    data: str,
    model: str | None,
    method: Method,
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = True,
    **options: Any,
) -> tuple[dict[str, Any], Ensemble | None]:
    """`train` on data that is loaded already: what `run.json` holds, and the ensemble if it was trained just now.

    Args:
        data: the name under which the data is loaded again.
    """
    model = model or default_model(source)
    if recipe.held_out and source.validation is None:
        source = source.with_validation(recipe.held_out, recipe.seed)
    settings = {"data": data, "model": model, "method": method.as_dict(), "recipe": dataclasses.asdict(recipe)}
    settings = json.loads(json.dumps({"format": FORMAT, **settings, "fingerprint": source.fingerprint}))
    folder = RunFolder(out)
    run = folder.begun(settings, source, resume)
    if run is not None and folder.is_finished(run):
        return run, None
    # Built first, so that what cannot be built leaves no folder behind.
    ens = ensemble(builder_for(model, source), method, example=source.example(), task=source.task, seed=recipe.seed)
    prepare_folder(out)
    if options.get("progress"):
        print_guesses(source)
    with locked(out) if is_first() else contextlib.nullcontext():
        folder.begun(settings, source, resume)  # again: another command may have begun here meanwhile
        run = {**settings, "versions": versions(), "threads": torch.get_num_threads(), "last": None}
        if is_first():  # before training, so that an interrupted run can be resumed and recognised
            folder.write_data(source)
            folder.write(run)
        history = fit(ens, source, recipe, out=out, **options)
        run |= {"threads": torch.get_num_threads(), "last": history[-1]}
        if is_first():
            if source.validation is not None:
                folder.write_validation(validation_outputs(ens, source), source.validation.y)
            folder.write(run)
    return run, ens


def held_out_by_default(recipe: Recipe, data: Data) -> dict[str, Any]:
    """The share that a run holds out where its recipe leaves that open, as a field of the recipe."""
    asked = recipe.validation is not None or recipe.keep == "best" or data.validation is not None
    return {} if asked else {"validation": default_share(data.train, data.task)}


def print_guesses(data: Data) -> None:
    """Print what was guessed about a table or a folder, where a person watches."""
    description = data.describe()
    if description and is_first():
        Console(stderr=True).print(description, highlight=False, markup=False, soft_wrap=True)


def summary(run: Mapping[str, Any], out: Path) -> str:
    """A finished run in one line."""
    last = run["last"]
    measured = ", ".join(f"training {k} {last[k]:.4f}" for k in ("loss", "accuracy", "rmse") if k in last)
    return (
        f"{run['method']['name']} on {run['data']}: {measured} after epoch {last['epoch']}; "
        f"model in {out / 'model.safetensors'}"
    )
