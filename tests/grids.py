"""Grids of parameters of which some cells always run, and all of them with `make test-slow`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

__all__ = ["grid"]


def grid(cells: Iterable[Any], always: Iterable[Any] | Callable[..., bool]) -> list[Any]:
    """The cells, those slow that are not among `always`, or for which `always` says no; a tuple is several parameters.

    >>> [bool(cell.marks) for cell in grid(["a", "b"], always=["b"])]
    [True, False]
    """
    chosen = None if callable(always) else list(always)
    cells = [cell if isinstance(cell, tuple) else (cell,) for cell in cells]
    plain = [cell[0] if len(cell) == 1 else cell for cell in cells]
    unknown = [cell for cell in chosen or [] if cell not in plain]
    assert not unknown, f"`always` must name cells of the grid; got {unknown}"
    runs = [always(*cell) if callable(always) else p in chosen for cell, p in zip(cells, plain, strict=True)]
    return [pytest.param(*cell, marks=() if run else pytest.mark.slow) for cell, run in zip(cells, runs, strict=True)]
