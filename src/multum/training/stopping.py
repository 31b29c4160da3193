"""When training has done enough: the rule of early stopping, and the rule by which a run has not converged.

Both read the log alone, so that a resumed run decides as an uninterrupted one does.

    early stopping   the best held-out score lies `patience` epochs back
    not converged    the last tenth of the epochs (one at least) brought more than 5 % of all that the training loss
                     fell since the first epoch, and more than the loss ever rose between two epochs in the second half

The second compares the mean loss of the last k epochs with that of the k before. A schedule that ends near rate 0
flattens any loss, so that it finds runs that are too short, and not rates that are too small: see `find_lr`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

log = logging.getLogger("multum")

CLEARLY = 0.05  # share of the whole fall of the loss that the last epochs may bring in a run that has converged


def is_stalled(scores: Sequence[float], patience: int) -> bool:
    """Whether the best score, the lowest, lies so many epochs back.

    >>> is_stalled([3, 2, 1, 1, 1.5], patience=2), is_stalled([3, 2, 1, 1, 0.9], patience=2)
    (True, False)
    """
    return patience > 0 and len(scores) - 1 - min(range(len(scores)), key=scores.__getitem__, default=0) >= patience


class Fall(NamedTuple):
    """How the loss fell in the last epochs."""

    epochs: int
    before: float
    last: float
    share: float  # of all that it fell since the first epoch


def still_falling(losses: Sequence[float]) -> Fall | None:
    """The fall of the last epochs where it is a clear one, by the rule at the top of this file.

    >>> still_falling([2.0, 1.5, 1.0, 0.5])
    Fall(epochs=1, before=1.0, last=0.5, share=0.3333333333333333)
    >>> still_falling([2.0, 1.0, 0.6, 0.5, 0.49])
    """
    n = len(losses)
    k = max(1, n // 10)
    if n < 2 * k:
        return None
    before, last = sum(losses[-2 * k : -k]) / k, sum(losses[-k:]) / k
    rise = max((b - a for a, b in itertools.pairwise(losses[n // 2 :])), default=0.0)
    fall, whole = before - last, losses[0] - last
    if fall <= max(rise, 0.0) or fall <= CLEARLY * whole:
        return None
    return Fall(k, before, last, fall / whole if whole > 0 else 1.0)


def warn_if_falling(history: Sequence[Mapping[str, Any]], epochs: int) -> None:
    """Say that a run has not converged, if it has not; of members that trained one by one, the last is looked at."""
    rows = [row for row in history if row.get("member") == history[-1].get("member")]
    fall = still_falling([row["loss"] for row in rows])
    if fall is not None:
        log.warning(
            "not converged: in the last %d of %d epochs the loss per member still fell from %.4g to %.4g, which is "
            "%.0f %% of its whole fall. Train longer (epochs=%d), or with another lr: multum.find_lr proposes one",
            *(fall.epochs, epochs, fall.before, fall.last, 100 * fall.share, 2 * epochs),
        )
