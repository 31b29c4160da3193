"""Images per second of ensembles relative to one network: Packed-Ensembles' Table 8, and an axis of Figure 1."""

from __future__ import annotations

from collections.abc import Sequence

from ..metrics.speed import compare_speed
from .measured import Trained

SINGLE = "Single Model"
RELATIVE = "images/s relative"
BATCH = 128
ROUNDS = 10


def relative_rates(trained: Trained, labels: Sequence[str]) -> dict[int, dict[str, list[float]]]:
    """By batch size and row, the ratio in every round, in which all take turns; empty where one network is not done."""
    if SINGLE not in labels:
        return {}
    opened = {label: trained.open(label) for label in (SINGLE, *(label for label in labels if label != SINGLE))}
    example = opened[SINGLE][1].example(BATCH)
    measured = compare_speed({label: ens for label, (ens, _) in opened.items()}, example, rounds=ROUNDS)
    rates: dict[int, dict[str, list[float]]] = {}
    for size in dict.fromkeys(row.batch_size for row in measured.rows):
        seconds = {row.name: row.seconds for row in measured.rows if row.batch_size == size}
        rates[size] = {
            label: [one / own for one, own in zip(seconds[SINGLE], every, strict=True)]
            for label, every in seconds.items()
        }
    return rates
