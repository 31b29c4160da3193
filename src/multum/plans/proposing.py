"""What a comparison trains where limits are named instead of methods: `multum compare --plan params=1.2x`."""

from __future__ import annotations

from typing import Any

from ..data.sources import load_data
from ..errors import ConfigError
from ..runs.cells import spec_of
from ..runs.networks import default_model
from .limits import NAMES
from .plan import plan

__all__ = ["proposed"]


def proposed(limits: str, data: str, model: str | None, methods: str, *, progress: bool = False) -> list[str]:
    """One network, and of every method the largest config that keeps to the limits, as `multum compare` takes them.

    Args:
        limits: as `params=1.2x,latency=5ms`. Latencies are measured, so that only other limits always propose the same.
        methods: those that are asked.

    >>> proposed("params=1.2x,macs=1.2x", "diabetes", "mlp", "deep,multihead")
    ['single', 'multihead:members=2']
    """
    parts: dict[str, Any] = dict(part.partition("=")[::2] for part in limits.replace(" ", "").split(","))
    if not parts.keys() <= NAMES.keys():
        raise ConfigError(
            f"`plan` must be limits on {', '.join(NAMES)}; got {limits!r}. Use for example --plan params=1.2x,macs=2x"
        )
    name = model or default_model(load_data(data))
    seconds = 30.0 if "latency" in parts else 0.0
    planned = plan(name, data=data, methods=methods, seconds=seconds, progress=progress, **parts)
    if not planned.proposal:
        raise ConfigError(
            f"some method must keep to the limits; got none for {limits!r}. See multum plan --model {name}"
        )
    return ["single", *(spec_of(candidate.method) for candidate in planned.proposal)]
