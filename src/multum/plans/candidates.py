"""What a plan chooses from: configs of methods, each with what it costs, whether that is allowed, and what is known."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..comparing.planning import Wanted
from ..errors import ConfigError, FileError
from ..files import read_json
from ..methods import Method, parse
from ..parsing import named
from ..runs.cells import spec_of
from .counting import Counts

DECIDES = ("calibrated_nll", "nll")  # the first that a comparison's row has


@dataclasses.dataclass(frozen=True)
class Latency:
    """Seconds of one pass, and the quartiles where it was measured."""

    seconds: float
    measured: bool
    lower: float | None = None
    upper: float | None = None


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A method's config on the network, or on a thinner one; None for what could not be found out."""

    method: Method
    width: float = 1.0  # the network's, as a share: below 1 the members are of a thinner network
    counts: Counts | None = None
    latency: Latency | None = None
    reason: str | None = None  # why it is excluded: the limit that it breaks, or why it cannot be built
    known: Mapping[str, Any] | None = None  # what a comparison measured of it

    @property
    def feasible(self) -> bool:
        return self.reason is None

    @property
    def members(self) -> int:
        return self.method.members

    @property
    def label(self) -> str:
        """As the command line writes the method, with the width of the network where it is another.

        >>> from multum.methods import Deep
        >>> Candidate(Deep(members=2), width=0.5).label
        'deep:members=2 (thin=0.5)'
        """
        return spec_of(self.method) + ("" if self.width == 1 else f" (thin={self.width:g})")

    @property
    def alternatives(self) -> tuple[dict[str, Any], ...]:
        """Other values of fields that change no cost: which is best, a comparison finds by tuning."""
        return tuple(variant for variant in self.method.variants if not variant.keys() & _cost_fields(self.method))

    def document(self) -> dict[str, Any]:
        """All of it as plain values; times in seconds, sizes in bytes."""
        counts, latency = self.counts, self.latency
        return {
            "label": self.label,
            "method": self.method.as_dict(),
            "width": self.width,
            "members": self.members,
            "params": counts and counts.params,
            "macs": counts and counts.macs,
            "weights": counts and counts.weights,
            "peak": counts and counts.peak,
            "memory": counts and counts.memory,
            "latency": latency and dataclasses.asdict(latency),
            "feasible": self.feasible,
            "reason": self.reason,
            "alternatives": list(self.alternatives),
            "known": self.known,
        }


def _cost_fields(method: Method) -> set[str]:
    """The fields that set what a prediction costs."""
    return {"members", *method.knobs}


def configs_of(wanted: Wanted, members: Sequence[int]) -> list[Method]:
    """The configs of one method that a plan tries: every number of members with every value of its knobs.

    Fields that were asked for stay as they are; a config is taken as it is.

    >>> from multum.comparing.planning import chosen_methods
    >>> [method.alpha for method in configs_of(chosen_methods("packed:members=4,gamma=1")[0], (2, 4))]
    [1.5, 2, 3]
    """
    fixed = named(wanted.label)[1]
    values = {"members": tuple(members), **wanted.method.knobs}
    grid = {name: choices for name, choices in values.items() if name not in fixed}
    return list(_valid(wanted.method, grid)) or [wanted.method]


def _valid(method: Method, grid: Mapping[str, Sequence[Any]]) -> Iterator[Method]:
    for chosen in itertools.product(*grid.values()):
        try:
            yield dataclasses.replace(method, **dict(zip(grid, chosen, strict=True)))
        except ConfigError:  # as an alpha beyond the members
            continue


class Comparison:
    """What a folder that `multum compare` left has measured of candidates."""

    def __init__(self, folder: str | Path):
        path = Path(folder) / "report.json"
        try:
            self.document: Mapping[str, Any] = read_json(path)
            self.rows = [(parse(row["spec"]), row) for row in self.document["rows"] if row["status"] == "done"]
        except (FileError, KeyError, TypeError) as error:
            raise ConfigError(
                f"a comparison must be a folder that `multum compare` left, with its report.json; got {folder} "
                f"({error}). Use for example --from runs/compare"
            ) from error

    @property
    def models(self) -> list[str]:
        """The networks that it trained."""
        return list(dict.fromkeys(row["model"] for _, row in self.rows))

    def of(self, method: Method, model: str | None) -> dict[str, Any] | None:
        """What was measured of this method at this size on this network: the NLL that decides, with its interval."""
        matching = [row for config, row in self.rows if row["model"] == model and _same_cost(config, method)]
        known = [_known(row, self.document["settings"]["data"]) for row in matching]
        return min(filter(None, known), key=lambda each: each["mean"], default=None)


def _same_cost(a: Method, b: Method) -> bool:
    return a.name == b.name and all(getattr(a, field) == getattr(b, field) for field in _cost_fields(a))


def _known(row: Mapping[str, Any], data: str) -> dict[str, Any] | None:
    values: Mapping[str, Any] = row["values"]
    key = next((key for key in DECIDES if key in values), None)
    if key is None:
        return None
    ends: Sequence[Any] = [values[key].get(end) for end in ("low", "high")]
    of = {"label": row["label"], "data": data, "metric": key, "mean": values[key]["mean"]}
    accuracy = values["accuracy"]["mean"] if "accuracy" in values else None
    return {**of, "low": ends[0], "high": ends[1], "seeds": len(values[key]["seeds"]), "accuracy": accuracy}
