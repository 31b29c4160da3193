"""`multum.compare`: every method on one data set, trained, measured and gathered in a report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..data.corruptions import STANDARD
from ..data.identity import example_ids, fingerprint_of
from ..data.names import selection, with_selection
from ..data.ood import default_ood, ood_sets
from ..data.parts import check_files
from ..data.selecting import selected
from ..data.sources import Data, Part, load_data, load_examples
from ..errors import ConfigError, FileError, MultumError
from ..files import locked, plain, prepare_folder, read_json
from ..methods import Method
from ..runs.cells import Cell, chosen_methods
from ..runs.engine import run_cells, runner_for
from ..runs.networks import full_name, keep_network
from ..runs.train import held_out_by_default, print_guesses
from ..runs.work import Outcome
from ..training.recipe import Recipe
from .budget import Budget, cost_of_network, fit_to_budget, label_of_size
from .document import document_of
from .final import claim, class_notes, train_final

__all__ = ["compare"]

log = logging.getLogger("multum")

# One corruption of each family of CIFAR-C: noise, blur, weather, digital.
QUICK = ("gaussian_noise", "defocus_blur", "fog", "pixelate")
QUICK_EXAMPLES = 1000


def compare(
    data: str,
    model: str | Callable[..., nn.Module] | None = None,
    methods: str | Sequence[str | Method] = "all",
    *,
    seeds: int | Sequence[int] = 3,
    epochs: int | None = None,
    budget: str | None = None,
    ood: Sequence[str] | None = None,
    shift: str = "quick",
    out: str | Path = "runs/compare",
    jobs: int = 1,
    on: str = "here",
    address: str | None = None,
    threads: int | None = None,
    recipe: Mapping[str, Any] | None = None,
    final: bool = False,
    progress: bool = False,
    command: str | None = None,
) -> dict[str, Any]:
    """Train and measure every method with every seed, and write the report; what `report.json` holds.

    A cell (a method with a seed) that is done is never run again: the same call goes on where it was stopped. A cell
    that fails is shown with its reason and stops no other.

    Args:
        data: as `multum.load_data` takes it. Without `ood`, the last fifth of the classes is held out as OOD data.
        model: a name, as `mynet.py:Net:width=16` for one's own; or a class or function of a file that builds networks.
        methods: "all", a list as on the command line, or configs.
        seeds: how many, or which.
        budget: "1x", "params=1e6", "macs=1e7": methods are made as large as it allows.
        ood: OOD data sets by name; an empty list for none at all.
        shift: "none", "quick" (4 corruptions on 1,000 test examples) or "all" (the 15 of CIFAR-C).
        jobs: cells at once, each in a process of its own.
        on: "here", or "ray" (on this machine, or on the cluster at `address`).
        threads: of each cell; the same number gives the same results to the last bit, wherever cells run.
        recipe: fields of `multum.Recipe`.
        final: whether the method that is advised is then trained on all of `data`, held-out classes too.
    """
    out, listed = Path(out), _seeds(seeds)
    overrides = {**(recipe or {}), **({} if epochs is None else {"epochs": epochs})}
    full = Recipe().with_overrides(overrides)
    runner = runner_for(on, jobs, address)
    name, source, ood_names = _source(data, ood)
    outside = [Part(x, torch.zeros(len(x))) for x in map(load_examples, ood_names)]
    check_files(name, source.train, source.test, *outside)
    source = source.for_loss(full.loss)
    model = full_name(model, source, out)
    single = cost_of_network(model, source)
    limit = None if budget is None else Budget.parse(budget, single)
    labels = chosen_methods(methods)
    trained = {**overrides, **held_out_by_default(full, source)}
    full = full.with_overrides(trained)
    contents = _contents(name, source, listed, outside)
    cells, refused = _planned(labels, contents, name, source, model, limit, trained, ood_names, shift)
    threads = threads or max(1, torch.get_num_threads() // (jobs if on == "here" else 1))
    prepare_folder(out)
    parted = source.with_validation(full.held_out, listed[0]) if full.held_out else source
    if progress:
        print_guesses(parted)
    settings = {
        "data": name,
        "fingerprint": source.fingerprint,
        "model": model,
        "seeds": listed,
        "epochs": full.epochs,
        "budget": budget,
        "ood": list(ood_names),
        "shift": list(cells[0].shift),
        "threads": threads,
        "recipe": asdict(full),
    }
    with locked(out):
        claim(out, settings)
        _warn_of_change(out, name, source)
        keep_network(model, out)  # a cell in a process of its own finds it there
        outcomes = run_cells(cells, refused, out, full.epochs, runner, threads, progress)
        fields = {"seeds": listed, "recipe": overrides, "budget": budget, "ood": ood, "shift": shift, "final": final}
        fields["out"] = str(out)
        call = ", ".join([repr(data), repr(model), repr(",".join(labels)), *(f"{k}={v!r}" for k, v in fields.items())])
        command = command or f"multum.compare({call})"
        document = plain(document_of(cells, outcomes, out, parted, limit, command, settings))
        label = document["advice"]["label"]
        if final:
            run_one = partial(_run_one, out=out, epochs=full.epochs, runner=runner, threads=threads, progress=progress)
            document["final"] = plain(train_final(label, cells, data, out, run_one))
        document["advice"]["notes"] += class_notes(name, label, document["final"], out)
        from .. import reports  # brings matplotlib and pandas, which `import multum` should not

        reports.write(document, out)
    return document


def _run_one(cell: Cell, out: Path, **options: Any) -> Outcome:
    return run_cells([cell], {}, out, **options)[cell.name]


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


def _contents(name: str, source: Data, seeds: Sequence[int], outside: Sequence[Part]) -> dict[int, str]:
    """A fingerprint for each seed, as which examples a data set has may depend on it, that covers the OOD data too."""
    ids = [example_ids(part, ()) for part in outside]
    contents = {seed: (load_data(name, seed=seed) if seed else source).arrangement for seed in seeds}
    return {seed: fingerprint_of(ids, [content]) if ids else content for seed, content in contents.items()}


def _warn_of_change(out: Path, name: str, source: Data) -> None:
    """Say that the data is not what the last report here was made of; its cells are then run anew."""
    try:
        before = read_json(out / "report.json")
        settings, examples = before["settings"], sum(before["examples"].values())
        same = settings["data"] != name or settings.get("fingerprint") == source.fingerprint
    except (FileError, KeyError, TypeError, AttributeError):  # no report, or a damaged one
        return
    now = len(source.train) + len(source.test)
    what = f"{examples} examples are now {now}" if examples != now else "examples, targets or classes are others"
    if "fingerprint" not in settings:
        what = "multum 0.1, which wrote it, kept no fingerprint of it"
    if not same:
        log.warning("%s may not be what %s was made of: %s; every cell is run anew", name, out / "report.json", what)


def _planned(
    methods: Mapping[str, Method],
    seeds: Mapping[int, str],
    name: str,
    source: Data,
    model: str,
    budget: Budget | None,
    recipe: Mapping[str, Any],
    ood: tuple[str, ...],
    shift: str,
) -> tuple[list[Cell], dict[str, Outcome]]:
    """All cells, method after method within each seed; and those that no size of the method can serve.

    Args:
        seeds: with the fingerprint of the data of each.
    """
    corruptions, examples = _corruptions(shift, source)
    sized: dict[str, tuple[Method, str, str | None]] = {}
    for label, method in methods.items():
        try:
            fitted = fit_to_budget(method, model, source, budget) if budget else (method, model)
            sized[label_of_size(label, method, model, *fitted)] = (*fitted, None)
        except MultumError as error:
            sized[label] = (method, model, str(error))
    cells = [
        Cell(label, seed, name, size, method, recipe, ood, corruptions, examples, content)
        for seed, content in seeds.items()
        for label, (method, size, _) in sized.items()
    ]
    refused = {c.name: Outcome(c.name, sized[c.label][2]) for c in cells if sized[c.label][2] is not None}
    return cells, refused


def _corruptions(shift: str, source: Data) -> tuple[tuple[str, ...], int | None]:
    kinds = {"none": ((), None), "quick": (QUICK, QUICK_EXAMPLES), "all": (STANDARD, None)}
    if shift not in kinds:
        raise ConfigError(f"`shift` must be none, quick or all; got {shift!r}. Use --shift quick")
    return kinds[shift] if source.is_image and source.task == "classification" else ((), None)


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    listed = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not listed or len(set(listed)) < len(listed) or any(seed < 0 for seed in listed):
        raise ConfigError(f"`seeds` must be one or more different whole numbers >= 0; got {seeds!r}. Use --seeds 3")
    return listed
