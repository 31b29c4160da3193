"""What an ensemble may cost where it is used.

1.2x            of one network: parameters, mult-adds, latency or memory
1e6             parameters, or mult-adds of one prediction
5ms, 0.2s       latency
200MB, 1.5GB    memory: the weights, and the activations that are alive at once
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ..comparing.budget import Budget
from ..errors import ConfigError
from ..figures.formats import count

UNITS: dict[str, dict[str, float]] = {
    "params": {"": 1},
    "macs": {"": 1},
    "memory": {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30},
    "latency": {"": 1, "s": 1, "ms": 1e-3, "us": 1e-6},
}
EXAMPLES = {"params": "1.2x or 1e6", "macs": "1.1x or 5e8", "memory": "200MB or 2x", "latency": "5ms or 1.5x"}
NAMES = {"params": "parameters", "macs": "mult-adds", "memory": "memory", "latency": "latency"}

Limit = str | float | None


@dataclass(frozen=True)
class Limits:
    """The most that is allowed: numbers, bytes, seconds; None where there is no limit."""

    params: float | None = None
    macs: float | None = None
    memory: float | None = None
    latency: float | None = None

    @classmethod
    def parse(cls, single: Mapping[str, float], **texts: Limit) -> Limits:
        """Limits as a user writes them, given what the one network costs.

        >>> Limits.parse({"params": 100.0}, params="1.2x", latency="5ms", memory="200MB")
        Limits(params=120.0, macs=None, memory=200000000.0, latency=0.005)
        """
        return cls(**{name: _parsed(name, text, single) for name, text in texts.items()})

    @property
    def budget(self) -> Budget:
        """The limits on what is counted of the network itself."""
        return Budget("the limits", self.params, self.macs)

    def broken(self, **costs: float | None) -> str | None:
        """The first limit that these costs break, in words; None where none is broken or a cost is not known."""
        for name, value in costs.items():
            limit = getattr(self, name)
            if limit is None or value is None:
                continue
            allowed = self.budget.allows(**{"params": 0, "macs": 0, name: value}) if name in EXACT else value <= limit
            if not allowed:
                return f"{NAMES[name]} {_written(name, value)}, and {_written(name, limit)} are allowed"
        return None

    def __str__(self) -> str:
        stated = [(f.name, getattr(self, f.name)) for f in fields(self)]
        words = [f"{NAMES[name]} up to {_written(name, limit)}" for name, limit in stated if limit is not None]
        return ", ".join(words) or "no limits"


EXACT = ("params", "macs")


def _parsed(name: str, text: Limit, single: Mapping[str, float]) -> float | None:
    if text is None:
        return None
    matched = re.fullmatch(r"([0-9.]+(?:e[+-]?[0-9]+)?) *([a-z]*)", str(text).strip().lower())
    units = UNITS[name] | ({"x": single[name]} if name in single else {})
    try:
        limit = float(matched[1]) * units[matched[2]] if matched else 0.0
    except (KeyError, ValueError):
        limit = 0.0
    if not 0 < limit < float("inf"):
        raise ConfigError(f"`{name}` must be a limit above 0, such as {EXAMPLES[name]}; got {name}={text!r}")
    return limit


def _written(name: str, value: float) -> str:
    """A cost in its unit.

    >>> _written("latency", 0.00512), _written("memory", 2.5e8), _written("params", 11_173_962)
    ('5.12 ms', '250 MB', '11.2 M')
    """
    return in_ms(value) if name == "latency" else size(value) if name == "memory" else count(value)


def in_ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def size(bytes_: float) -> str:
    """
    >>> size(2500), size(123e6)
    ('2.50 kB', '123 MB')
    """
    number, _, power = count(bytes_).partition(" ")
    return f"{number} {power}B"
