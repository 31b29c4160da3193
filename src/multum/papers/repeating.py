"""Whether a second run gives the same bits: some finished runs, drawn at random, trained and measured once more."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from ..errors import DataError
from ..files import checksum
from ..runs.cells import Cell, finished, is_done
from ..runs.folder import RunFolder
from ..runs.machine import machine, versions
from ..runs.pool import Runner, run_cells
from ..training.recipe import Recipe

CELLS, AGAIN = "cells", "repeated"  # the folders of first and second runs
DRAW = 0  # the seed of the draw: another one would be a choice


def repeated(
    rows: Mapping[str, Sequence[Cell]],
    out: Path,
    count: int,
    before: Sequence[Mapping[str, Any]],
    *,
    runner: Runner,
    threads: int,
    progress: bool,
) -> list[Mapping[str, Any]]:
    """Draw `count` of the rows' cells that are done, run them again, and say which gave the same bits.

    Draws that were made `before`, of other cells in other folders, stay beside this one.
    """
    titles = {cell.name: title for title, cells in rows.items() for cell in cells}
    every = {cell.name: cell for cells in rows.values() for cell in cells if is_done(cell, out / CELLS)}
    if not every:
        raise DataError(f"runs must be finished before they are repeated; got none in {out / CELLS}. Run them first")
    drawn = random.Random(DRAW).sample([every[name] for name in sorted(every)], min(count, len(every)))
    epochs = max(Recipe().with_overrides(cell.recipe).epochs for cell in drawn)
    run_cells(drawn, out / AGAIN, epochs, runner=runner, threads=threads, progress=progress, titles=titles)
    cells = [{"run": titles[cell.name], "seed": cell.seed, "same": _same(cell, out)} for cell in drawn]
    now = {(cell["run"], cell["seed"]) for cell in cells}
    others = (draw for draw in before if not any((cell["run"], cell["seed"]) in now for cell in draw["cells"]))
    return [*others, {"of": len(every), "cells": cells, "machine": machine(), "versions": versions()}]


def told(draws: Sequence[Mapping[str, Any]]) -> str:
    """What came of it, in a sentence.

    >>> told([{"of": 9, "cells": [{"run": "R1: a", "seed": 3, "same": False}]}])
    'Second runs: 1 of 9 cells, drawn at random; 0 gave the same weights and numbers bit by bit. Not: R1: a (seed 3).'
    """
    cells = [cell for draw in draws for cell in draw["cells"]]
    others = ", ".join(f"{cell['run']} (seed {cell['seed']})" for cell in cells if not cell["same"])
    same = sum(bool(cell["same"]) for cell in cells)
    return (
        f"Second runs: {len(cells)} of {sum(draw['of'] for draw in draws)} cells, drawn at random; "
        f"{same if others else 'all'} gave the same weights and numbers bit by bit."
        f"{f' Not: {others}.' if others else ''}"
    )


def _same(cell: Cell, out: Path) -> bool:
    """Whether the weights, the metrics of every example, all numbers and curves of both runs are the same bits."""
    runs = []
    for folder in (out / CELLS, out / AGAIN):
        done = finished(cell, folder)
        if done is None:
            return False
        result = {name: value for name, value in done.result.items() if name not in ("seconds", "checksum")}
        runs.append((result, checksum(load_file(RunFolder(folder / cell.name).model))))
    return runs[0] == runs[1]
