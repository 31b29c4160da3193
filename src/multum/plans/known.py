"""What a comparison has measured of candidates: the rows of its report.json that have their method and network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError, FileError
from ..files import read_json
from ..methods import Method, parse
from .candidates import cost_fields

__all__ = ["Comparison"]

DECIDES = ("calibrated_nll", "nll")  # the first that a row has


class Comparison:
    """A folder that `multum compare` left."""

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
    return a.name == b.name and all(getattr(a, field) == getattr(b, field) for field in cost_fields(a))


def _known(row: Mapping[str, Any], data: str) -> dict[str, Any] | None:
    values: Mapping[str, Any] = row["values"]
    key = next((key for key in DECIDES if key in values), None)
    if key is None:
        return None
    ends: Sequence[Any] = [values[key].get(end) for end in ("low", "high")]
    of = {"label": row["label"], "data": data, "metric": key, "mean": values[key]["mean"]}
    accuracy = values["accuracy"]["mean"] if "accuracy" in values else None
    return {**of, "low": ends[0], "high": ends[1], "seeds": len(values[key]["seeds"]), "accuracy": accuracy}
