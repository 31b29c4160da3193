"""How many independent networks a method is worth: the deep-ensemble equivalent (Ashukha et al., 2020).

The calibrated NLL of 1, 2, ..., M members of the `deep` cells is a curve that falls; a method is worth the number of
members, interpolated linearly, at which it has the method's calibrated NLL. The interval is that of the method's
difference from `deep`, paired over seeds and examples, read off the same curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

__all__ = ["Worth", "worth_of", "yardstick"]


CLEARLY = 3  # margins by which M independent networks must be better than one to be a yardstick


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
