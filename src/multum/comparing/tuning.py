"""Every method tuned with the same budget, on the validation part alone.

    stage 1   N learning rates around the recipe's, a factor of 10 ** 0.5 apart, for a quarter of the epochs
    stage 2   N // 2 + 1 runs for half of the epochs: the best rate with the method as it is and with its variants
              (`Method.variants`), then the next best rates

The best of stage 2 is what the comparison trains, by the calibrated NLL on the validation part. All methods get the
same number of runs, which together take (N + 1) / 2 trainings: less than the comparison itself has with 3 seeds and
N = 4. What a user names is not tuned: a learning rate, or fields of a method. Test examples are not looked at.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError, MultumError
from ..files import prepare_folder
from ..runs.cells import Cell, Outcome, finished
from ..runs.networks import keep_network
from .planning import Entry, Setting

log = logging.getLogger("multum")

FOLDER = "tuning"
SHARES = (4, 2)  # a stage has this part of the epochs

RunCells = Callable[[Sequence[Cell], Path, int, str], Mapping[str, Outcome]]  # cells, folder, epochs, title
Fits = Callable[[Entry], bool]  # whether an entry is within the budget


@dataclass(frozen=True)
class Trial:
    """One short run of an entry, and what came of it."""

    lr: float
    fields: Mapping[str, Any]
    cell: Cell
    nll: float | None = None  # None where it failed
    reason: str | None = None

    @property
    def score(self) -> float:
        return math.inf if self.nll is None else self.nll

    def described(self) -> dict[str, Any]:
        """In plain values, as the report has it."""
        epochs = self.cell.recipe["epochs"]
        return {"lr": self.lr, "fields": dict(self.fields), "epochs": epochs, "nll": self.nll, "reason": self.reason}


@dataclass
class Search:
    """One entry while it is tuned."""

    entry: Entry
    rates: list[float]
    variants: list[dict[str, Any]]
    stages: list[list[Trial]] = field(default_factory=list)

    def next_settings(self, runs: int) -> list[tuple[float, dict[str, Any]]]:
        """What the next stage tries: so many settings."""
        if not self.stages and len(self.rates) > 1:
            return [(rate, {}) for rate in self.rates]
        last = self.stages[-1] if self.stages else []
        best, *others = [trial.lr for trial in sorted(last, key=lambda trial: trial.score)] or self.rates
        settings: list[tuple[float, dict[str, Any]]] = [(best, {}), *((best, variant) for variant in self.variants)]
        return [*settings, *((rate, {}) for rate in others)][:runs]

    @property
    def best(self) -> Trial | None:
        """The best setting of the last stage; None where nothing was tried, or no run of it ended well."""
        ended = [trial for trial in (self.stages[-1] if self.stages else []) if trial.nll is not None]
        return min(ended, key=lambda trial: trial.score, default=None)

    def tuned(self) -> Entry:
        """The entry with the best setting; as it was, where there is none."""
        return self.entry if self.best is None else self.entry.with_tuned(self.best.lr, self.best.fields)

    def described(self) -> dict[str, Any]:
        ends = (min(self.rates), max(self.rates))
        return {
            "chosen": None if self.best is None else {"lr": self.best.lr, **self.best.fields},
            "edge": self.best is not None and len(self.rates) > 2 and self.best.lr in ends,
            "tried": [trial.described() for stage in self.stages for trial in stage],
        }


def tune(
    entries: Sequence[Entry],
    setting: Setting,
    *,
    candidates: int,
    epochs: int,
    lr: float,
    fixed_lr: bool,
    seed: int,
    out: Path,
    run: RunCells,
    fits: Fits,
) -> tuple[list[Entry], dict[str, Any]]:
    """The entries as tuning chose them, and what was tried.

    Args:
        candidates: N, the learning rates of the first stage.
        epochs: of the comparison.
        lr: the recipe's learning rate, in the middle of the ladder; the only one where `fixed_lr`.
        run: runs cells in a folder.
        fits: tells which variants the budget allows.
    """
    rates = [lr] if fixed_lr else ladder(lr, candidates)
    searches = [Search(e, rates, _variants(e, fits)) for e in entries if e.reason is None]
    folder = out / FOLDER
    prepare_folder(folder)
    for model in dict.fromkeys(search.entry.model for search in searches):
        keep_network(model, folder)
    stages = []
    for share, runs in zip(SHARES, (candidates, candidates // 2 + 1), strict=True):
        if share == SHARES[0] and len(rates) == 1:
            continue  # nothing to choose from
        stages.append({"epochs": math.ceil(epochs / share), "runs": runs})
        title = f"tuning, stage {len(stages)}"
        _run_stage(searches, setting, runs, math.ceil(epochs / share), epochs, seed, folder, run, title)
    chosen = {search.entry.label: search.tuned() for search in searches}
    document = {
        "candidates": candidates,
        "stages": stages,
        "methods": {search.entry.label: search.described() for search in searches},
    }
    return [chosen.get(entry.label, entry) for entry in entries], document


def ladder(lr: float, count: int) -> list[float]:
    """Learning rates around one, 10 ** 0.5 apart, one more above than below.

    >>> ladder(0.002, 4), ladder(0.002, 2)
    ([0.00063, 0.002, 0.0063, 0.02], [0.002, 0.0063])
    """
    below = (count - 1) // 2
    return [float(f"{lr * 10 ** (step / 2):.2g}") if step else lr for step in range(-below, count - below)]


def _run_stage(
    searches: Sequence[Search],
    setting: Setting,
    runs: int,
    epochs: int,
    whole: int,
    seed: int,
    folder: Path,
    run: RunCells,
    title: str,
) -> None:
    trials: list[list[Trial]] = []
    for search in searches:
        settings = search.next_settings(runs)
        lengths = [_enough(dataclasses.replace(search.entry.method, **fields), epochs, whole) for _, fields in settings]
        trials.append(
            [
                Trial(rate, fields, search.entry.trial(seed, setting, rate, fields, length))
                for (rate, fields), length in zip(settings, lengths, strict=True)
                if len(settings) > 1
            ]
        )
    cells = {trial.cell.name: trial.cell for stage in trials for trial in stage}
    outcomes = run(list(cells.values()), folder, epochs, title)
    for search, stage in zip(searches, trials, strict=True):
        search.stages.append([_ended(trial, outcomes[trial.cell.name], folder) for trial in stage])


def _ended(trial: Trial, outcome: Outcome, folder: Path) -> Trial:
    result = None if outcome.reason else finished(trial.cell, folder)
    nll = None if result is None else result.result["numbers"]["nll"]
    if nll is None or not math.isfinite(nll):
        unread = "its result could not be read" if result is None else "its held-out NLL is not finite"
        return dataclasses.replace(trial, reason=outcome.reason or unread)
    return dataclasses.replace(trial, nll=nll)


def _variants(entry: Entry, fits: Fits) -> list[dict[str, Any]]:
    """The method's variants that change nothing the user or a budget has set, can be made, and are affordable."""
    variants = []
    for fields in entry.method.variants:
        if entry.fixed & fields.keys():
            continue
        try:
            changed = dataclasses.replace(entry, method=dataclasses.replace(entry.method, **fields))
            if changed.method != entry.method and fits(changed):
                variants.append(dict(fields))
        except MultumError as error:  # of other members, say, than those it was made for
            log.info("%s is not tried with %s: %s", entry.label, fields, error)
    return variants


def _enough(method: Any, epochs: int, whole: int) -> int:
    """The fewest epochs, so many at least, in which this method can make its members."""
    for length in range(epochs, whole):
        try:
            method.check_epochs(length)
        except ConfigError:
            continue
        return length
    return whole
