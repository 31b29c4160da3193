"""The examples that a finished run is measured on: its own test part as it was recorded, or other data that it reads.

Whatever its data looks like now, an example that the run was trained on is never one that it is measured on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..data.folder import Images
from ..data.identity import example_ids, positions
from ..data.names import selection
from ..data.preparation import Preparation
from ..data.sources import Data, Part, load_data
from ..errors import DataError, TrainingError
from .folder import RunFolder, changes

log = logging.getLogger("multum")


def own_test_part(folder: RunFolder, run: Mapping[str, Any], preparation: Preparation) -> Part:
    """The run's test part, example by example as it was recorded; refused where examples of it are gone."""
    data = _loaded(folder, run)
    if run.get("format", 1) == 1:
        return data.test
    split = folder.split()
    same = data.fingerprint == run["fingerprint"]
    if not same:
        what = changes(split, preparation.classes, data)
        log.warning("%s has changed since %s was trained: %s", run["data"], folder.path, what)
    if same and torch.equal(data.ids["test"], split["test"]):
        return data.test
    parts = _parts(run["data"], preparation, run["recipe"]["seed"], whole=True)
    every = torch.cat([example_ids(part, preparation.class_names) for part in parts])
    rows = positions(split["test"], every)
    gone = int((rows < 0).sum())
    if gone:
        raise TrainingError(
            f"the test part of {folder.path} must be as it was recorded; {gone} of its {len(rows)} examples are gone "
            f"from {run['data']}, or are others now. Bring that data back, or measure on other data with --data"
        )
    return _rows(parts, rows)


def unseen_part(folder: RunFolder, run: Mapping[str, Any], preparation: Preparation, name: str) -> Part:
    """Labelled examples of other data, read as the run reads its own, without those that it was trained on."""
    parts = _parts(name, preparation, run["recipe"]["seed"], whole=False)
    ids = torch.cat([example_ids(part, preparation.class_names) for part in parts])
    split = {} if run.get("format", 1) == 1 else folder.split()
    trained = torch.cat([ids[:0], *(split[part] for part in ("train", "validation") if part in split)])
    new = ~torch.isin(ids, trained)
    if not new.any():
        raise DataError(f"data to measure on must hold examples that the run was not trained on; got {name} with none")
    if not new.all():
        log.warning("%d examples of %s are left out: the run was trained on them", int((~new).sum()), name)
    return _rows(parts, new.nonzero().flatten())


def _loaded(folder: RunFolder, run: Mapping[str, Any]) -> Data:
    try:
        return load_data(run["data"], seed=run["recipe"]["seed"])
    except DataError as error:
        raise TrainingError(
            f"the data of {folder.path} must be readable to measure on its test part: {error}. Measure on other data "
            "with --data"
        ) from error


def _parts(name: str, preparation: Preparation, seed: int, *, whole: bool) -> list[Part]:
    """The `whole` of a data set, whatever its name selects, or what it has to measure on, in the run's terms."""
    while whole and selection(name)[1]:
        name = selection(name)[0]
    if preparation.table is not None and name.startswith(("csv:", "parquet:")):
        file, choice, classes = selection(name)
        if choice not in ("", "hold_out"):
            raise DataError(f"a table to measure on must be a whole file; got {choice}= in {name}. Leave that out")
        return preparation.table.labelled(file, whole=whole, without=classes)
    data = load_data(name, seed=seed)
    parts = [data.train, data.test] if whole or data.drawn else [data.test]
    return [_as_the_run_has_it(part, data, preparation, skip_unknown=whole) for part in parts]


def _as_the_run_has_it(part: Part, data: Data, preparation: Preparation, skip_unknown: bool) -> Part:
    if isinstance(part.x, Images):
        channels, size, _ = preparation.shape
        part = replace(part, x=Images(part.x.files, size, channels=channels))
    if data.task != preparation.task or tuple(part.x.shape[1:]) != preparation.shape:
        raise DataError(
            f"data must be of the run's kind, {preparation.task} with examples of shape {preparation.shape}; got "
            f"{data.task} with {tuple(part.x.shape[1:])} in {data.name}"
        )
    if data.task != "classification":
        return part
    place = {name: k for k, name in enumerate(preparation.class_names)}
    labels = torch.tensor([place.get(name, -1) for name in data.class_names])[part.y]
    unknown = sorted({data.class_names[k] for k in part.y[labels < 0].tolist()})
    if unknown and not skip_unknown:
        raise DataError(
            f"data must have the run's classes; got {', '.join(unknown[:5])} in {data.name}. Leave them out: "
            f"#hold_out={'+'.join(unknown)}"
        )
    return replace(part, y=labels).rows(labels >= 0)


def _rows(parts: list[Part], rows: Tensor) -> Part:
    """These rows of parts laid end to end, in their order."""
    if len(parts) == 1:
        return parts[0].rows(rows)
    first, y = parts[0].x, torch.cat([part.y for part in parts])
    if isinstance(first, Images):
        files = [file for part in parts for file in part.x.files]
        return Part(Images(files, first.size, channels=first.channels), y).rows(rows)
    x, start = torch.empty(len(rows), *first.shape[1:], dtype=first.dtype), 0
    for part in parts:  # of which some may be too large to be read whole
        mine = (rows >= start) & (rows < start + len(part))
        x[mine] = part.x[rows[mine] - start]
        start += len(part)
    return Part(x, y[rows])
