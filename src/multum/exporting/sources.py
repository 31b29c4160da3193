"""What is exported: an ensemble as it is; or a run, with its preparation and the rules fitted on what it held out."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ..cascades.cascade import Cascade
from ..data.preparation import Preparation
from ..data.tables import Table
from ..ensemble import Ensemble
from ..errors import ConfigError, MultumError, check_known, first_line
from ..metrics.calibration import Temperature
from ..runs.folder import RunFolder, open_run
from ..runs.held_out import HeldOut, Rules, fit_rules, held_out
from ..runs.recorded import own_test_part
from ..saving import load
from .columns import cells_of

__all__ = ["Source", "source_of"]

log = logging.getLogger("multum")

RULES = ("coverage", "risk", "delta", "conformal", "temperature", "threshold")
FITTED = ("temperature", "abstention", "conformal", "threshold")
BY_DEFAULT = 0.9  # coverage and conformal level, where a run held examples out


@dataclass(frozen=True, eq=False)
class Source:
    """An ensemble, how it reads examples, and what was fitted for it."""

    ensemble: Ensemble
    preparation: Preparation | None = None
    rules: Rules = field(default_factory=Rules)
    run: Mapping[str, Any] = field(default_factory=dict)  # what run.json holds
    folder: RunFolder | None = None
    cascade: Cascade | None = None  # that asks the ensemble's members one after another

    def examples(self, count: int) -> tuple[Any, str]:
        """So many inputs as a file takes them, and what they are in words."""
        if self.preparation is None:
            return _random_like(self.ensemble.example, count), "random numbers"
        try:
            assert self.folder is not None
            x = own_test_part(self.folder, self.run, self.preparation).x[:count]
        except (MultumError, OSError) as error:
            log.warning("the file is checked on random examples: %s", first_line(error))
            return _random_examples(self.preparation, count), "random examples"
        table = self.preparation.table
        return x if table is None else cells_of(table, x), "test examples"


def source_of(source: Ensemble | Cascade | str | Path, members: int | None, rules: Mapping[str, Any]) -> Source:
    """What to export, with its rules for so many members."""
    if isinstance(source, Cascade):
        return Source(source.ensemble, rules=_given_rules(rules), cascade=source)
    if isinstance(source, Ensemble):
        return Source(source, rules=_given_rules(rules))
    path = Path(source)
    if path.is_file():
        return Source(load(path), rules=_given_rules(rules))
    _check_names(rules, RULES)
    ensemble, preparation, run = open_run(path)
    folder = RunFolder(path)
    fitted = _fitted_rules(folder, run, preparation, ensemble, members, rules)
    return Source(ensemble, preparation, fitted, run, folder)


def _given_rules(rules: Mapping[str, Any]) -> Rules:
    _check_names(rules, FITTED)
    temperature = rules.get("temperature")
    if isinstance(temperature, (int, float)) and not isinstance(temperature, bool):
        rules = {**rules, "temperature": Temperature(float(temperature))}
    for name, rule in rules.items():
        if isinstance(rule, (bool, int, float, str)):
            raise ConfigError(
                f"`{name}` of an ensemble must be a fitted rule (multum.metrics.fit_...); got {rule!r}. Export a run "
                "folder to have it fitted on what the run held out"
            )
    return Rules(**rules, fitted_on="examples of the user's" if rules else "")


def _check_names(rules: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in rules:
        check_known(name, known, "an option must be one that this export has")


def _fitted_rules(
    folder: RunFolder,
    run: Mapping[str, Any],
    preparation: Preparation,
    ensemble: Ensemble,
    members: int | None,
    rules: Mapping[str, Any],
) -> Rules:
    def held(*, labelled: bool) -> HeldOut | None:
        part = held_out(folder, run, preparation, ensemble, labelled=labelled)
        return None if part is None else replace(part, outputs=part.outputs[:members])

    asked = {name: rules.get(name) for name in RULES}
    asked["temperature"] = "temperature" in run if asked["temperature"] is None else asked["temperature"]
    fit = partial(fit_rules, held, preparation)
    return fit(**_defaults(asked, rules, folder, preparation))


def _defaults(
    asked: dict[str, Any], rules: Mapping[str, Any], folder: RunFolder, preparation: Preparation
) -> dict[str, Any]:
    """Coverage and conformal level where nothing was said of them, if the held-out examples suffice."""
    stored = folder.validation()
    enough = stored is not None and len(stored["targets"]) >= math.ceil(BY_DEFAULT / (1 - BY_DEFAULT))
    if not enough or (preparation.targets_count or 1) > 1 or (len(preparation.shape) > 0 and _has_positions(stored)):
        return asked
    if "coverage" not in rules and "risk" not in rules:
        asked["coverage"] = BY_DEFAULT
    if "conformal" not in rules:
        asked["conformal"] = BY_DEFAULT
    return asked


def _has_positions(stored: Mapping[str, Tensor] | None) -> bool:
    """Whether an example has many answers, as the pixels of a segmentation."""
    return stored is not None and stored["targets"].ndim > 1


def _random_like(example: Any, count: int) -> Any:
    generator = torch.Generator().manual_seed(0)

    def draw(t: Tensor) -> Tensor:
        shape = (count, *t.shape[1:])
        if t.is_floating_point():
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(t.dtype)
        return torch.randint(0, 2, shape, generator=generator).to(t.dtype)  # the numbers that any vocabulary has

    return tree_map_only(Tensor, draw, example)


def _random_examples(preparation: Preparation, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    if preparation.table is not None:
        return _random_cells(preparation.table, count, generator)
    shape = (count, *preparation.shape)
    if preparation.dtype == torch.uint8:
        return torch.randint(0, 256, shape, generator=generator).to(torch.uint8)
    mean, std = preparation.mean, preparation.std
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (x if mean is None or std is None else x * std + mean).to(preparation.dtype)


def _random_cells(table: Table, count: int, generator: torch.Generator) -> Tensor:
    columns = []
    for column in table.columns:
        if column.categories is None:
            spread = 1 + abs(column.median)
            values = column.median + spread * torch.randn(count, generator=generator, dtype=torch.float64)
            missing = torch.rand(count, generator=generator) < 0.1
            columns.append(torch.where(missing, torch.nan, values))
        else:
            columns.append(torch.randint(-1, len(column.names), (count,), generator=generator).double())
    return torch.stack(columns, 1)
