"""`multum.evaluate`: what a trained ensemble is worth on held-out data, on foreign data, and under shift.

Items stream through in batches; outputs are never kept, only sums and, where a metric ranks all items, one number per
item and score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..data.corruptions import CORRUPTIONS, check_corruption, corrupt
from ..data.sources import Data, Part
from ..ensemble import Ensemble
from ..errors import DataError, MetricError
from ..outputs.prediction import Prediction, RegressionPrediction, predict
from .curves import classification_curves, regression_curves
from .ood import detection
from .regression import in_units, item_nll, regression
from .streaming import Accumulator

__all__ = ["SEVERITIES", "Measured", "evaluate", "measure"]

SEVERITIES = (1, 2, 3, 4, 5)
CORRUPTED_AT_ONCE = 256  # fixed: random corruptions draw for a batch, and another size would give other images

_MEANS = {"cacc": "accuracy", "cnll": "nll", "cece": "ece"}


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything measured: numbers by name, curves as a report draws them, and what each item contributes.

    Shape: `items` has a tensor ``[items]`` per metric that is a mean over items, in the order of the test part.
    """

    numbers: dict[str, Any]
    curves: dict[str, Any] = field(default_factory=dict)
    items: dict[str, Tensor] = field(default_factory=dict)


def evaluate(ensemble: Ensemble, data: Data, **options: Any) -> dict[str, Any]:
    """Every metric of an ensemble on the test part of a data set, by name; the options are those of `measure`.

    >>> import multum
    >>> data = multum.load_data("digits")
    >>> net = multum.models.build("small-cnn", classes=10, in_channels=1)
    >>> ens = multum.ensemble(net, multum.Deep(members=2), example=data.example(), seed=0)
    >>> found = evaluate(ens, data)
    >>> found["items"], found["nll"] < found["member_nll"]
    (539, True)
    """
    return measure(ensemble, data, **options).numbers


def measure(
    ensemble: Ensemble,
    data: Data,
    *,
    ood: Mapping[str, Tensor] | None = None,
    shift: Sequence[str] = (),
    shift_items: int | None = None,
    batch_size: int = 512,
    seed: int = 0,
    advance: Callable[[int], None] = lambda items: None,
) -> Measured:
    """All that `evaluate` gives, with the curves and the values of every item.

    Args:
        ood: foreign sets by name, raw items as the data set's own; `numbers["ood"][set][score]` has auroc, aupr, fpr95;
            `numbers["ood_mutual_information"][set]` is the mean over its items.
        shift: corruptions by name; `numbers["shift"][name][severity]` has accuracy, nll and ece, and `numbers["cacc"]`,
            `["cnll"]`, `["cece"]` are the plain means over all of them.
        shift_items: how many test items are corrupted, chosen by the seed; None for all.
        advance: called with the number of items after every batch, for a progress bar.
    """
    _check(ensemble, data, batch_size, shift_items)
    if data.task == "regression":
        if ood or shift:
            raise MetricError("foreign sets and corruptions are for classification, however: this is regression")
        return _regression(ensemble, data, batch_size, advance)
    run = partial(_accumulated, ensemble, data, batch_size=batch_size, advance=advance)
    known = run(data.test, keep=True)
    numbers: dict[str, Any] = {"items": known.items, "members": ensemble.members, **known.compute()}
    foreign = {}
    for name, x in (ood or {}).items():
        if x.shape[1:] != data.test.x.shape[1:]:
            raise DataError(
                f"a foreign set has items of shape {tuple(data.test.x.shape[1:])} as the known one, however: "
                f"{name} has {tuple(x.shape[1:])}; resize it first"
            )
        if len(x) == 0:
            raise DataError(f"a foreign set has items, however: {name} is empty")
        foreign[name] = run(Part(x, x), keep=True, labelled=False).scores()
    if foreign:
        numbers["ood"] = detection(known.scores(), foreign)
        numbers["ood_mutual_information"] = {
            name: float(found["mutual_information"].double().mean()) for name, found in foreign.items()
        }
    severity: dict[str, Any] = {}
    if shift:
        table = _shifted(run, _some(data.test, shift_items, seed), _known(shift, data), seed)
        numbers |= {"shift": table, **_means(table)}
        severity = _severities(numbers["accuracy"], table)
    scores = {name: found["msp"] for name, found in foreign.items()}
    return Measured(numbers, classification_curves(known, scores, severity), known.item_values())


def _check(ensemble: Ensemble, data: Data, batch_size: int, shift_items: int | None) -> None:
    """Refuse, before anything runs, what would end in a wrong number or in torch's own words."""
    if batch_size < 1:
        raise MetricError(f"batch_size is at least 1, however: batch_size={batch_size}")
    if shift_items is not None and shift_items < 1:
        raise MetricError(f"shift_items is at least 1, or None, however: shift_items={shift_items}")
    if ensemble.task != data.task:
        raise MetricError(f"data and ensemble have one task, however: {data.task} and {ensemble.task}")
    items, shape = data.test, data.train.x.shape[1:]
    if len(items.x) != len(items.y):
        raise DataError(
            f"items and targets of {data.name} are equally many, however: {len(items.x)} and {len(items.y)}"
        )
    if len(items) == 0:
        raise DataError(f"the test part of {data.name} has items, however: it is empty")
    if items.x.shape[1:] != shape:
        raise DataError(
            f"test items have the training items' shape {tuple(shape)}, however: {tuple(items.x.shape[1:])}"
        )


def _accumulated(
    ensemble: Ensemble,
    data: Data,
    part: Part,
    *,
    batch_size: int,
    advance: Callable[[int], None],
    keep: bool,
    labelled: bool = True,
    change: Callable[[Tensor], Tensor] = lambda x: x,
) -> Accumulator:
    sums = Accumulator(keep=keep)
    for rows in _slices(len(part), batch_size):
        # Items may be files that are decoded as they are indexed, so each batch is taken once.
        batch = change(part.x[rows])
        found = predict(ensemble, data.prepare(batch).to(ensemble.device))
        assert isinstance(found, Prediction)
        sums.add(found, part.y[rows] if labelled else None)
        advance(len(batch))
    return sums


def _known(names: Sequence[str], data: Data) -> Sequence[str]:
    if not data.is_image:
        raise MetricError(f"corruptions are for images, however: {data.name} is a table; leave shift out")
    for name in names:
        check_corruption(name, channels=data.test.x.shape[1])
    return names


def _some(part: Part, items: int | None, seed: int) -> Part:
    """So many items, at random: a test part may be sorted by class."""
    if items is None or items >= len(part):
        return part
    chosen = torch.randperm(len(part), generator=torch.Generator().manual_seed(seed))[:items]
    return part.rows(chosen.sort().values)


def _shifted(run: Callable[..., Accumulator], part: Part, names: Sequence[str], seed: int) -> dict[str, Any]:
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name in names:
        table[name] = {}
        for severity in SEVERITIES:
            # One stream per corruption and severity: a subset of them gives the same images.
            draw = torch.Generator().manual_seed(seed * 1000 + CORRUPTIONS.index(name) * 10 + severity)
            change = partial(corrupt, name=name, severity=severity, generator=draw)
            measured = run(part, keep=False, change=change, batch_size=CORRUPTED_AT_ONCE).compute()
            table[name][str(severity)] = {key: measured[key] for key in _MEANS.values()}
    return table


def _means(table: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, float]:
    cells = [cell for row in table.values() for cell in row.values()]
    return {name: sum(cell[of] for cell in cells) / len(cells) for name, of in _MEANS.items()}


def _severities(clean: float, table: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, Any]:
    """Accuracies by corruption, and their means by severity; severity 0 is the clean test part."""
    rows = {name: [row[str(s)]["accuracy"] for s in SEVERITIES] for name, row in table.items()}
    means = {str(s): sum(row[s - 1] for row in rows.values()) / len(rows) for s in SEVERITIES}
    return {"severity": {"0": clean, **means}, "corruptions": rows}


def _regression(ensemble: Ensemble, data: Data, batch_size: int, advance: Callable[[int], None]) -> Measured:
    parts = []
    for rows in _slices(len(data.test), batch_size):
        found = predict(ensemble, data.prepare(data.test.x[rows]).to(ensemble.device))
        assert isinstance(found, RegressionPrediction)
        parts.append(found.members.cpu())
        advance(found.members.shape[1])
    standardised = RegressionPrediction(torch.cat(parts, dim=1))
    prediction = in_units(standardised, mean=data.target_mean, std=data.target_std)
    numbers = regression(prediction, data.test.y)
    return Measured(
        {"items": len(data.test), "members": ensemble.members, **numbers},
        regression_curves(prediction, data.test.y),
        {"nll": item_nll(prediction, data.test.y), "rmse": (prediction.mean - data.test.y).square()},
    )


def _slices(items: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, items)) for start in range(0, items, size))
