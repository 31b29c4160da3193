"""`multum.evaluate`: what a trained ensemble is worth on held-out data, on foreign data, and under shift.

Items stream through in batches; outputs are never kept, only sums and, where a metric ranks all items, one number per
item and score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..data.corruptions import CORRUPTIONS, corrupt
from ..data.sources import Data
from ..ensemble import Ensemble
from ..errors import DataError, MetricError
from .ood import detection
from .predict import Prediction, RegressionPrediction, predict
from .regression import regression
from .streaming import Accumulator

__all__ = ["SEVERITIES", "evaluate"]

SEVERITIES = (1, 2, 3, 4, 5)


def evaluate(
    ensemble: Ensemble,
    data: Data,
    *,
    ood: Mapping[str, Tensor] | None = None,
    shift: Sequence[str] = (),
    batch_size: int = 512,
    seed: int = 0,
    advance: Callable[[int], None] = lambda items: None,
) -> dict[str, Any]:
    """Every metric of an ensemble on the test part of a data set, by name.

    Args:
        ood: foreign sets by name, raw items as the data set's own; `found["ood"][set][score]` has auroc, aupr, fpr95.
        shift: corruptions by name; `found["shift"][name][severity]` has accuracy, nll and ece, and `found["cacc"]`,
            `found["cnll"]`, `found["cece"]` are the plain means over all of them.
        advance: called with the number of items after every batch, for a progress bar.
    """
    if data.task == "regression":
        if ood or shift:
            raise MetricError("foreign sets and corruptions are for image classification, however: this is regression")
        return _regression(ensemble, data, batch_size, advance)
    known = _accumulated(ensemble, data, data.test.x, data.test.y, batch_size, advance, keep=True)
    found: dict[str, Any] = {"items": known.items, "members": ensemble.members, **known.compute()}
    if ood:
        foreign = {}
        for name, x in ood.items():
            if x.shape[1:] != data.test.x.shape[1:]:
                raise DataError(
                    f"a foreign set has items of shape {tuple(data.test.x.shape[1:])} as the known one, however: "
                    f"{name} has {tuple(x.shape[1:])}; resize it first"
                )
            outside = _accumulated(ensemble, data, x, None, batch_size, advance, keep=True)
            foreign[name] = outside.scores()
        found["ood"] = detection(known.scores(), foreign)
    if shift:
        found |= _shifted(ensemble, data, shift, batch_size, seed, advance)
    return found


def _accumulated(
    ensemble: Ensemble,
    data: Data,
    x: Tensor,
    y: Tensor | None,
    batch_size: int,
    advance: Callable[[int], None],
    *,
    keep: bool,
    change: Callable[[Tensor], Tensor] = lambda x: x,
) -> Accumulator:
    sums = Accumulator(keep=keep)
    for rows in _slices(len(x), batch_size):
        # Items may be files that are decoded as they are indexed, so each batch is taken once.
        batch = change(x[rows])
        found = predict(ensemble, data.prepare(batch).to(ensemble.device))
        assert isinstance(found, Prediction)
        sums.add(found, None if y is None else y[rows])
        advance(len(batch))
    return sums


def _shifted(
    ensemble: Ensemble, data: Data, names: Sequence[str], batch_size: int, seed: int, advance: Callable[[int], None]
) -> dict[str, Any]:
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name in names:
        table[name] = {}
        for severity in SEVERITIES:
            # One stream per corruption and severity: a subset of them gives the same images.
            draw = torch.Generator().manual_seed(seed * 1000 + CORRUPTIONS.index(name) * 10 + severity)
            sums = _accumulated(
                ensemble,
                data,
                data.test.x,
                data.test.y,
                batch_size,
                advance,
                keep=False,
                change=partial(corrupt, name=name, severity=severity, generator=draw),
            )
            measured = sums.compute()
            table[name][str(severity)] = {key: measured[key] for key in ("accuracy", "nll", "ece")}
    cells = [cell for row in table.values() for cell in row.values()]
    means = {f"c{key}": sum(cell[of] for cell in cells) / len(cells) for key, of in _SHORT.items()}
    return {"shift": table, **means}


_SHORT = {"acc": "accuracy", "nll": "nll", "ece": "ece"}


def _regression(ensemble: Ensemble, data: Data, batch_size: int, advance: Callable[[int], None]) -> dict[str, Any]:
    parts = []
    for rows in _slices(len(data.test), batch_size):
        found = predict(ensemble, data.prepare(data.test.x[rows]).to(ensemble.device))
        assert isinstance(found, RegressionPrediction)
        parts.append(found.members)
        advance(found.members.shape[1])
    prediction = RegressionPrediction(torch.cat(parts, dim=1))
    measured = regression(prediction, data.test.y, mean=data.target_mean, std=data.target_std)
    return {"items": len(data.test), "members": ensemble.members, **measured}


def _slices(items: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, items)) for start in range(0, items, size))
