"""Train by names: data, model, method and recipe in, a run folder out."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from ..building import ensemble
from ..checks import whole
from ..data.parts import check_files, default_share
from ..data.sources import Data, load_data
from ..ensemble import Ensemble
from ..errors import TrainingError
from ..files import locked, prepare_folder
from ..methods import Method, parse
from ..metrics.calibration import fit_temperature
from ..processor import with_threads
from ..training.devices import is_first
from ..training.find_lr import find_lr as find_rate
from ..training.loop import fit
from ..training.recipe import Recipe
from .defaults import default_recipe
from .folder import FORMAT, RunFolder
from .held_out import validation_outputs
from .machine import versions
from .networks import builder_for, full_name, keep_network


def train(
    data: str,
    model: str | Callable[..., nn.Module] | None,
    method: str | Method,
    out: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    resume: bool = True,
    find_lr: bool = False,
    threads: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train by names and leave all in the run folder; a finished run is not run again, an interrupted one goes on.

    Returns what `run.json` holds: the settings, versions, and the last row of the log.

    Args:
        model: a name, as `mynet.py:Net:width=16` for one's own; or a class or function of a file that builds networks;
            None for one that suits the data, see `defaults.py`.
        overrides: fields of `multum.Recipe`; the others are those that suit the data.
        find_lr: whether the learning rate is the one that `multum.find_lr` proposes; the run keeps it.
        threads: of torch, while it trains; the same number gives the same bits.
        temperature: whether a temperature is fitted on the validation part, and kept in run.json.
        options: as `multum.fit` takes them: progress, tensorboard, devices, ...
    """
    asked = Recipe().with_overrides(overrides or {})
    method = parse(method) if isinstance(method, str) else method
    source = load_data(data, seed=asked.seed)
    check_files(data, source.train, source.test)
    recipe = Recipe().with_overrides({**default_recipe(source), **(overrides or {})})
    recipe = recipe.with_overrides(held_out_by_default(recipe, source))
    with with_threads(threads if threads is None else whole("threads", threads)):
        if find_lr:
            recipe = _with_found_rate(recipe, source, model, method, RunFolder(Path(out)), options)
        return train_on(source, data, model, method, recipe, Path(out), resume=resume, **options)[0]


def train_on(
    source: Data,
    data: str,
    model: str | Callable[..., nn.Module] | None,
    method: Method,
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = True,
    temperature: bool = False,
    **options: Any,
) -> tuple[dict[str, Any], Ensemble | None]:
    """`train` on data that is loaded already: what `run.json` holds, and the ensemble if it was trained just now.

    Args:
        data: the name under which the data is loaded again.
    """
    model = full_name(model, source, out)
    source = source.for_loss(recipe.loss)
    if recipe.held_out and source.validation is None:
        source = source.with_validation(recipe.held_out, recipe.seed)
    if temperature:
        _check_calibratable(source)
    settings = {"data": data, "model": model, "method": method.as_dict(), "recipe": dataclasses.asdict(recipe)}
    settings = json.loads(json.dumps({"format": FORMAT, **settings, "fingerprint": source.fingerprint}))
    folder = RunFolder(out)
    run = folder.begun(settings, source, resume)
    if run is not None and folder.is_finished(run):
        if temperature and "temperature" not in run:
            assert source.validation is not None
            outputs = validation_outputs(folder.open(source), source)
            run["temperature"] = fit_temperature(outputs, source.validation.y).temperature
            folder.write(run)
        return run, None
    # Built first, so that what cannot be built leaves no folder behind.
    kind: dict[str, Any] = {"task": source.task, "targets": source.targets_count}
    ens = ensemble(builder_for(model, source), method, example=source.example(), seed=recipe.seed, **kind)
    prepare_folder(out)
    keep_network(model, out)
    if options.get("progress"):
        print_guesses(source)
    with locked(out) if is_first() else contextlib.nullcontext():
        folder.begun(settings, source, resume)  # again: another command may have begun here meanwhile
        run = {**settings, "versions": versions(), "threads": torch.get_num_threads(), "last": None}
        if is_first():  # before training, so that an interrupted run can be resumed and recognised
            folder.write_data(source)  # first: run.json says that all is there
            folder.write(run)
        history = fit(ens, source, recipe, out=out, **options)
        run |= {"threads": torch.get_num_threads(), "last": history[-1]}
        if is_first() and source.validation is not None:
            outputs, targets = validation_outputs(ens, source), source.validation.y
            folder.write_validation(outputs, targets)
            if temperature:
                run["temperature"] = fit_temperature(outputs, targets).temperature
        if is_first():
            folder.write(run)
    return run, ens


def held_out_by_default(recipe: Recipe, data: Data) -> dict[str, Any]:
    """The share that a run holds out where its recipe leaves that open, as a field of the recipe."""
    asked = recipe.validation is not None or recipe.keep == "best" or data.validation is not None
    return {} if asked else {"validation": default_share(data.train, data.task)}


def _with_found_rate(
    recipe: Recipe,
    source: Data,
    model: str | Callable[..., nn.Module] | None,
    method: Method,
    folder: RunFolder,
    options: Mapping[str, Any],
) -> Recipe:
    """The recipe with the rate of a trial; with that of the run in the folder, where it was begun already."""
    if (folder.path / "run.json").is_file():
        return replace(recipe, lr=folder.read()["recipe"]["lr"])
    source = source.for_loss(recipe.loss)
    builder = builder_for(full_name(model, source, folder.path), source)
    kind: dict[str, Any] = {"task": source.task, "targets": source.targets_count}
    ens = ensemble(builder, method, example=source.example(), seed=recipe.seed, **kind)
    curve = find_rate(ens, source, recipe, accelerator=options.get("accelerator", "auto"))
    if options.get("progress") and is_first():
        Console(stderr=True).print(str(curve), highlight=False, markup=False, soft_wrap=True)
    return replace(recipe, lr=curve.lr)


def _check_calibratable(source: Data) -> None:
    if source.task != "classification":
        raise TrainingError(f"a temperature must be for classification; got {source.task}. Leave --temperature out")
    if source.validation is None:
        raise TrainingError(
            "a temperature must be fitted on a validation part; got a recipe that holds none out. Use validation=0.1"
        )


def print_guesses(data: Data) -> None:
    """Print what was guessed about a table or a folder, where a person watches."""
    description = data.describe()
    if description and is_first():
        Console(stderr=True).print(description, highlight=False, markup=False, soft_wrap=True)


def summary(run: Mapping[str, Any], out: Path) -> str:
    """A finished run in one line."""
    last = run["last"]
    measured = ", ".join(f"training {k} {last[k]:.4f}" for k in ("loss", "accuracy", "rmse") if k in last)
    calibrated = f", temperature {run['temperature']:.3g}" if "temperature" in run else ""
    return (
        f"{run['method']['name']} on {run['data']}: {measured} after epoch {last['epoch']}{calibrated}; "
        f"model in {out / 'model.safetensors'}"
    )
