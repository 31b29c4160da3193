"""`multum.compare`: every method on one data set, tuned, trained, measured and gathered in a report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..checks import whole
from ..data.corruptions import STANDARD
from ..data.identity import example_ids, fingerprint_of
from ..data.names import selection, with_selection
from ..data.parts import check_files
from ..data.sources import Data, Part, default_ood, load_data, load_examples, ood_sets, selected
from ..errors import ConfigError, check_known
from ..files import locked, plain, prepare_folder
from ..methods import Method
from ..runs.cells import Outcome
from ..runs.defaults import default_recipe
from ..runs.machine import jobs_and_threads
from ..runs.networks import full_name, keep_network
from ..runs.pool import run_cells, runner_for
from ..runs.train import held_out_by_default, print_guesses
from ..training.recipe import Recipe
from .budget import Budget, cost_of, cost_of_network
from .document import claim, class_notes, document_of, train_final
from .planning import Entry, Setting, chosen_methods, entries_of
from .tuning import tune as tune_entries

log = logging.getLogger("multum")

# One corruption of each family of CIFAR-C: noise, blur, weather, digital.
QUICK = ("gaussian_noise", "defocus_blur", "fog", "pixelate")
QUICK_EXAMPLES = 150  # of each kind and severity: 3,000 images in all
SPLIT = 0  # the seed of the test and the validation part: the same examples for all methods and seeds
HELD_OUT, LARGEST_SHARE = 300, 0.25  # examples to tune and calibrate on, where a quarter of the training part is more


def compare(
    data: str,
    model: str | Callable[..., nn.Module] | None = None,
    methods: str | Sequence[str | Method] = "all",
    *,
    seeds: int | Sequence[int] = 3,
    epochs: int | None = None,
    tune: int = 4,
    budget: str | None = None,
    ood: Sequence[str] | None = None,
    shift: str = "quick",
    out: str | Path = "runs/compare",
    jobs: int | None = 1,
    on: str = "here",
    address: str | None = None,
    threads: int | None = None,
    recipe: Mapping[str, Any] | None = None,
    final: bool = False,
    progress: bool = False,
    command: str | None = None,
) -> dict[str, Any]:
    """Tune, train and evaluate every method with every seed, write the report; returns the content of `report.json`.

    A cell (a method with a seed) that is done is never run again: the same call goes on where it was stopped. A cell
    that fails is shown with its reason and stops no other. The test part is the same for all seeds, which vary the
    training alone.

    Args:
        data: as `multum.load_data` takes it. Without `ood`, the last fifth of the classes is held out as OOD data.
        model: a name, as `mynet.py:Net:width=16` for one's own; or a class or function of a file that builds networks.
        methods: "all", a list as on the command line, or configs; `deep@1x` is a method at the cost of one network.
        seeds: how many, or which.
        tune: learning rates that are tried for every method on the validation part, 0 for none (see tuning.py).
        budget: "1x", "params=1e6", "macs=1e7": methods are made as large as it allows.
        ood: OOD data sets by name; an empty list for none at all.
        shift: "none", "quick" (4 corruptions on 150 test examples) or "all" (the 15 of CIFAR-C).
        jobs: cells at once, each in a process of its own; None: as the machine allows.
        on: "here", or "ray" (on this machine, or on the cluster at `address`).
        threads: of each cell; the same number gives the same results to the last bit, wherever cells run.
        recipe: fields of `multum.Recipe`.
        final: whether the method that is advised is then trained on all of `data`, held-out classes too.
    """
    out, listed = Path(out), _seeds(seeds)
    wanted = chosen_methods(methods, controls=budget is None)
    name, source, ood_names = _source(data, ood)
    overrides = {**(recipe or {}), **({} if epochs is None else {"epochs": epochs})}
    trained = {**default_recipe(source), **overrides}
    full = Recipe().with_overrides(trained)
    _check_tune(tune)
    outside = [Part(x, torch.zeros(len(x))) for x in map(load_examples, ood_names)]
    check_files(name, source.train, source.test, *outside)
    source = source.for_loss(full.loss)
    trained |= _held_out(full, source, tune)
    full = full.with_overrides(trained)
    model = full_name(model, source, out)
    network = cost_of_network(model, source)  # builds it, so that what cannot be built is said first
    limit = None if budget is None else Budget.parse(budget, network)
    jobs, threads = jobs_and_threads(jobs, threads, on, cells=len(wanted) * len(listed))
    runner = runner_for(on, jobs, address)  # its processes import while entries are planned
    entries = entries_of(wanted, model, source, limit)
    setting = Setting(name, _content(source, outside), SPLIT, ood_names, *_corruptions(shift, source), trained)
    prepare_folder(out)
    parted = source.with_validation(full.held_out, SPLIT) if full.held_out and source.validation is None else source
    if progress:
        print_guesses(parted)
    settings = {
        "data": name,
        "fingerprint": source.arrangement,
        "model": model,
        "seeds": listed,
        "epochs": full.epochs,
        "tune": tune,
        "budget": budget,
        "ood": list(ood_names),
        "shift": list(setting.shift),
        "threads": threads,
        "recipe": asdict(full),
    }
    run = partial(run_cells, runner=runner, threads=threads, progress=progress)
    with locked(out):
        claim(out, {**settings, "examples": len(source.train) + len(source.test)})
        for name_of_network in dict.fromkeys(entry.model for entry in entries):
            keep_network(name_of_network, out)  # a cell in a process of its own finds it there
        labels = [entry.label for entry in entries]
        entries.sort(key=lambda entry: not entry.control)  # widened networks take longest: run last, they run alone
        tuning = None
        if tune and parted.validation is not None:
            entries, tuning = tune_entries(
                *(entries, setting),
                candidates=tune,
                epochs=full.epochs,
                lr=full.lr,
                fixed_lr="lr" in overrides,
                seed=listed[0],
                out=out,
                run=run,
                fits=partial(_affordable, data=source, budget=limit),
            )
        entries.sort(key=lambda entry: labels.index(entry.label))
        cells = [entry.cell(seed, setting) for seed in listed for entry in entries]
        controls = {entry.label for entry in entries if entry.control}
        reasons = {entry.label: entry.reason for entry in entries if entry.reason is not None}
        refused = {cell.name: Outcome(cell.name, reasons[cell.label]) for cell in cells if cell.label in reasons}
        first = sorted(cells, key=lambda cell: cell.label not in controls)
        outcomes = run(first, out, full.epochs, refused=refused)
        if command is None:
            asked = {"seeds": listed, "tune": tune, "recipe": overrides, "budget": budget, "ood": ood}
            asked |= {"shift": shift, "final": final, "out": str(out)}
            command = _as_call(data, model, ",".join(each.label for each in wanted), **asked)
        document = plain(document_of(entries, cells, outcomes, out, parted, limit, command, settings, tuning))
        label = document["advice"]["label"]
        if final:
            alone = partial(run, out=out, epochs=full.epochs, heading="the advised method, on all of the data")
            document["final"] = plain(train_final(label, cells, data, out, alone))
        if tune and tuning is None:
            document["advice"]["notes"].append("Nothing was tuned: there are too few examples to hold some out.")
        document["advice"]["notes"] += class_notes(name, label, document["final"], out)
        from .. import reports  # brings matplotlib and pandas, which `import multum` should not

        reports.write(document, out)
    return document


def _as_call(*values: Any, **named: Any) -> str:
    return f"multum.compare({', '.join([*map(repr, values), *(f'{name}={value!r}' for name, value in named.items())])})"


def _affordable(entry: Entry, data: Data, budget: Budget | None) -> bool:
    """Whether an entry can be built, within the budget if there is one."""
    if budget is None:
        return True
    spent = cost_of(entry.method, entry.model, data)
    return budget.allows(spent.params, spent.macs)


def _check_tune(tune: int) -> None:
    if whole("tune", tune, 0) == 1:
        raise ConfigError("`tune` must be 0, or 2 learning rates or more to choose from; got tune=1. Use --tune 4")


def _held_out(recipe: Recipe, data: Data, tune: int) -> dict[str, Any]:
    """The share that is held out where the recipe leaves it open: more of few examples, as a choice hangs on them."""
    by_default = held_out_by_default(recipe, data)
    share = by_default.get("validation", 0.0)
    if not share or not tune:
        return by_default
    return {"validation": max(share, min(LARGEST_SHARE, HELD_OUT / len(data.train)))}


def _source(name: str, ood: Sequence[str] | None) -> tuple[str, Data, tuple[str, ...]]:
    """The data and its OOD data sets: with none named, classes of its own that are held out, where it has enough."""
    data = load_data(name)
    if ood is not None:
        if data.task == "regression" and ood:
            raise ConfigError(f"`ood` must be for classification; got {name}, a regression. Leave --ood out")
        ood_sets(ood, data)  # what cannot be read is refused now, and not by every cell
        return name, data, tuple(ood)
    whole, choice, held = selection(name)
    if choice == "hold_out":
        return name, data, (with_selection(whole, "only", held),)
    known, ood_names = (name, ()) if choice == "only" else default_ood(name, data)
    return known, selected(data, *selection(known)[1:]) if ood_names else data, ood_names


def _content(source: Data, outside: Sequence[Part]) -> str:
    """A fingerprint of the data, its order included, and of the OOD data."""
    ids = [example_ids(part, ()) for part in outside]
    return fingerprint_of(ids, [source.arrangement]) if ids else source.arrangement


def _corruptions(shift: str, source: Data) -> tuple[tuple[str, ...], int | None]:
    kinds = {"none": ((), None), "quick": (QUICK, QUICK_EXAMPLES), "all": (STANDARD, None)}
    check_known(shift, kinds, "`shift` must be none, quick or all")
    return kinds[shift] if source.is_image and source.task == "classification" else ((), None)


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    listed = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not listed or len(set(listed)) < len(listed) or any(seed < 0 for seed in listed):
        raise ConfigError(f"`seeds` must be one or more different whole numbers >= 0; got {seeds!r}. Use --seeds 3")
    return listed
