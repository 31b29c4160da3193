"""What an ensemble puts out on the examples of a part, batch by batch, and on a validation part, whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..data.preparation import Preparation
from ..data.sources import Data, Part
from ..ensemble import Ensemble
from ..errors import MetricError
from ..outputs.prediction import Prediction, like_weights, predict
from .regression import in_units


def logits_of(
    ensemble: Ensemble,
    data: Data,
    part: Part,
    batch_size: int,
    change: Callable[[Tensor], Tensor] = lambda x: x,
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Which examples, their logits and their labels, batch by batch."""
    for rows in slices(len(part), batch_size):
        # Examples may be files that are decoded as they are indexed, so each batch is taken once.
        prediction = predict(ensemble, data.prepare(change(part.x[rows])).to(ensemble.device))
        assert isinstance(prediction, Prediction)
        yield rows, prediction.logits, part.y[rows]


def held_out_of(
    ensemble: Ensemble,
    data: Data,
    stored: Mapping[str, Tensor] | None,
    batch_size: int,
    advance: Callable[[int], None],
) -> tuple[Tensor, Tensor] | None:
    """The members' outputs on the validation part, in the target's units, and its targets; None where there is none."""
    if data.validation is not None:
        return all_outputs_of(ensemble, data, data.validation.x, batch_size, advance), data.validation.y
    if stored is None:
        return None
    if len(stored["outputs"]) != ensemble.members:
        raise MetricError(
            f"held-out outputs must be of the ensemble's {ensemble.members} members; got {len(stored['outputs'])}"
        )
    return stored["outputs"], stored["targets"]


def outputs_of(
    ensemble: Ensemble,
    data: Data | Preparation,
    x: Any,
    batch_size: int = 512,
    advance: Callable[[int], None] = lambda examples: None,
) -> Iterator[Tensor]:
    """Logits, or means and variances in the target's units, batch by batch. Shape: [members, batch, ...]."""
    for rows in slices(len(x), batch_size):
        prediction = predict(ensemble, like_weights(ensemble, data.prepare(x[rows])))
        if isinstance(prediction, Prediction):
            yield prediction.logits.cpu()
        else:
            yield in_units(prediction.to("cpu"), mean=data.target_mean, std=data.target_std).members
        advance(rows.stop - rows.start)


def all_outputs_of(ensemble: Ensemble, data: Data | Preparation, x: Any, *how: Any) -> Tensor:
    """The same of all examples at once, [members, examples, ...]."""
    return torch.cat(list(outputs_of(ensemble, data, x, *how)), dim=1)


def slices(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
