"""What is said of a method beside its numbers: whether its runs can be judged, and what it is worth.

The worth is the deep-ensemble equivalent (Ashukha et al., 2020). The calibrated NLL of 1, 2, ..., M members of the
`deep` cells is a curve that falls; a method is worth the number of members, interpolated linearly, at which it has the
method's calibrated NLL. The interval is that of the method's difference from `deep`, paired over seeds and examples,
read off the same curve.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ..metrics.differences import Differences
from ..metrics.one_model import MEMBERS, SELF
from ..runs.cells import Finished
from ..training.recipe import Recipe
from ..training.stopping import still_falling
from .versus import DECIDES

COPIES = 0.1  # times the noise of one member: members that differ less are copies of each other, whoever made them
CLOSE = 2.0  # times the noise of one member, up to which members that cannot be told from it are called one model
CLEARLY = 3  # margins by which M independent networks must be better than one to be a yardstick


def converged(done: Iterable[Finished], recipe: Mapping[str, Any]) -> bool | None:
    """Whether the loss had stopped falling in most seeds, or early stopping ended the run; None where nobody can tell.

    Of members that were trained one by one, every log is looked at.
    """
    full = Recipe().with_overrides(recipe)
    verdicts = [verdict for cell in done if (verdict := _settled(cell, full)) is not None]
    return 2 * sum(verdicts) > len(verdicts) if verdicts else None


def _settled(cell: Finished, recipe: Recipe) -> bool | None:
    logs: dict[Any, list[float]] = {}
    for row in cell.result["curves"].get("training", ()):
        logs.setdefault(row.get("member"), []).append(row["loss"])
    if not logs or max(map(len, logs.values())) < 2:
        return None
    stopped = recipe.patience > 0 and all(len(losses) < recipe.epochs for losses in logs.values())
    return stopped or all(still_falling(losses) is None for losses in logs.values())


def is_one_model(done: Mapping[int, Finished]) -> bool | None:
    """Whether members are not further apart than one member is from itself under noise, by every measure of it.

    The same test over seeds and examples as everywhere; None where it was not measured.
    """
    names = _measures(done)
    return all(_close(name, done) for name in names) if names else None


def is_coarse(done: Mapping[int, Finished]) -> bool:
    """Whether the noise is too large a yardstick: networks that share nothing, and differ, would count as one model."""
    if not is_one_model(done):
        return False
    means = [[_mean(done, name + whose) for whose in (MEMBERS, SELF)] for name in _measures(done)]
    return any(members > COPIES * own for members, own in means)


def _measures(done: Mapping[int, Finished]) -> set[str]:
    return {
        name.removesuffix(MEMBERS)
        for cell in done.values()
        for name in cell.examples
        if name.endswith(MEMBERS) and name.removesuffix(MEMBERS) + SELF in cell.examples
    }


def _close(name: str, done: Mapping[int, Finished]) -> bool:
    values = {whose: {s: cell.examples[name + whose] for s, cell in done.items()} for whose in (MEMBERS, SELF)}
    same = len({cell.result["test_part"] for cell in done.values()}) == 1
    difference = Differences(values, same_examples=same).between(MEMBERS, SELF)
    return difference.low <= 0 and difference.mean <= (CLOSE - 1) * _mean(done, name + SELF)


def _mean(done: Mapping[int, Finished], name: str) -> float:
    return sum(float(cell.examples[name].double().mean()) for cell in done.values()) / len(done)


def learned_share(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> float | None:
    """How much of the way from chance to the best of the rows a method's calibrated NLL has come."""
    chance = row["chance"]
    if chance is None or DECIDES not in row["values"]:
        return None
    best = min(other["values"][DECIDES]["mean"] for other in rows if DECIDES in other["values"])
    way = chance["nll"] - best
    return (chance["nll"] - row["values"][DECIDES]["mean"]) / way if way > 0 else None


@dataclass(frozen=True)
class Worth:
    """In independent networks, with its interval; `text` says where it is beyond the ends of the curve."""

    text: str
    mean: float
    low: float
    high: float


def yardstick(curves: Sequence[Mapping[str, Any]], margin: float) -> list[float] | None:
    """The mean over seeds of the NLL of 1..M independent networks; None where M are hardly better than one.

    >>> yardstick([{"members": [1, 2], "nll": [0.5, 0.3]}, {"members": [1, 2], "nll": [0.3, 0.3]}], margin=0.01)
    [0.4, 0.3]
    """
    lengths = {len(curve["nll"]) for curve in curves}
    if len(lengths) != 1:
        return None
    means = [sum(at) / len(curves) for at in zip(*(curve["nll"] for curve in curves), strict=True)]
    falling = list(accumulate(means, min))  # more members are never worth less
    return falling if falling[0] - falling[-1] > CLEARLY * margin else None


def worth_of(nll: float, low: float, high: float, curve: Sequence[float], margin: float) -> Worth:
    """The worth of a method with this NLL and the interval of it relative to the curve's last point.

    >>> worth_of(0.35, 0.34, 0.36, [0.4, 0.3, 0.28], margin=0.001)
    Worth(text='1.5', mean=1.5, low=1.4, high=1.6)
    >>> worth_of(0.5, 0.5, 0.5, [0.4, 0.3], margin=0.001).text, worth_of(0.2, 0.2, 0.2, [0.4, 0.3], margin=0.001).text
    ('< 1', '> 2')
    """
    below, above = nll > curve[0] + margin, nll < curve[-1] - margin
    members = _inverse(nll, curve)
    text = "< 1" if below else f"> {len(curve)}" if above else f"{members:.1f}"
    return Worth(text, members, _inverse(high, curve), _inverse(low, curve))


def _inverse(nll: float, curve: Sequence[float]) -> float:
    """The number of members with this NLL, between 1 and M."""
    if nll >= curve[0]:
        return 1.0
    for k in range(1, len(curve)):
        if nll >= curve[k]:
            return round(k + (curve[k - 1] - nll) / (curve[k - 1] - curve[k]), 6)
    return float(len(curve))
