"""Metrics on corrupted test images: each corruption at each severity, and the means over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ..data.corruptions import CORRUPTIONS, check_corruption, corrupt
from ..data.sources import Data, Part
from ..errors import MetricError
from .aggregate import Accumulator
from .computations import Shifted
from .registry import CLASSES, computed

__all__ = ["SEVERITIES", "Shift", "known", "means", "severities", "shifted"]

SEVERITIES = (1, 2, 3, 4, 5)
CORRUPTED_AT_ONCE = 256  # fixed: random corruptions draw for a batch, and another size would give other images

Shift = Mapping[str, Mapping[str, Mapping[str, float]]]  # corruption -> severity -> metric -> value


def known(names: Sequence[str], data: Data) -> Sequence[str]:
    if not data.is_image:
        raise MetricError(f"corruptions need images; got the table {data.name}. Leave shift out")
    for name in names:
        check_corruption(name, channels=data.test.x.shape[1])
    return names


def shifted(run: Callable[..., Accumulator], part: Part, names: Sequence[str], seed: int) -> Shift:
    table: dict[str, dict[str, dict[str, float]]] = {}
    keys = [how.of for _, how in computed(CLASSES, Shifted)]
    for name in names:
        table[name] = {}
        for severity in SEVERITIES:
            # One stream per corruption and severity: a subset of them gives the same images.
            draw = torch.Generator().manual_seed(seed * 1000 + CORRUPTIONS.index(name) * 10 + severity)
            change = partial(corrupt, name=name, severity=severity, generator=draw)
            measured = run(part, keep=False, change=change, batch_size=CORRUPTED_AT_ONCE).compute()
            table[name][str(severity)] = {key: measured[key] for key in keys}
    return table


def means(table: Shift) -> dict[str, float]:
    cells = [cell for row in table.values() for cell in row.values()]
    return {m.key: sum(cell[how.of] for cell in cells) / len(cells) for m, how in computed(CLASSES, Shifted)}


def severities(clean: float, table: Shift) -> dict[str, Any]:
    """Accuracies by corruption, and their means by severity; severity 0 is the clean test part."""
    rows = {name: [row[str(s)]["accuracy"] for s in SEVERITIES] for name, row in table.items()}
    means = {str(s): sum(row[s - 1] for row in rows.values()) / len(rows) for s in SEVERITIES}
    return {"severity": {"0": clean, **means}, "corruptions": rows}
