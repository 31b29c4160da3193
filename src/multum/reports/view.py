"""A comparison document as the figures read it: methods with their looks, and curves gathered over seeds."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..figures.formats import shown, sized
from ..figures.palette import Look, look


@dataclass(frozen=True, eq=False)
class Row:
    """A method of the comparison that has numbers."""

    label: str
    index: int  # among all rows: it decides the look, and is the id of the method in a drawing
    entry: Mapping[str, Any]  # of the document

    @property
    def values(self) -> Mapping[str, Any]:
        return self.entry["values"]

    @property
    def look(self) -> Look:
        return look(self.index)

    def mean(self, key: str) -> float | None:
        return (self.values.get(key) or {}).get("mean")


class View:
    """What figures ask of a document."""

    def __init__(self, document: Mapping[str, Any]):
        self.document = document
        self.columns = {column["key"]: column for column in sized(document)}
        self.rows = [
            Row(row["label"], index, row) for index, row in enumerate(document["rows"]) if row["status"] != "failed"
        ]

    @property
    def regression(self) -> bool:
        return self.document.get("task") == "regression"

    @functools.cached_property
    def _cells(self) -> dict[str, list[Mapping[str, Any]]]:
        cells: dict[str, list[Mapping[str, Any]]] = {}
        for cell in self.document.get("cells", []):
            if cell["status"] != "failed":
                cells.setdefault(cell["label"], []).append(cell)
        return cells

    def curves(self, row: Row, kind: str) -> list[Any]:
        """The curves of one kind, one for each seed that has it."""
        cells = self._cells.get(row.label, [])
        return [cell["curves"][kind] for cell in cells if cell["curves"].get(kind)]

    def having(self, kind: str) -> list[Row]:
        """The methods with at least one curve of the kind."""
        return [row for row in self.rows if self.curves(row, kind)]

    def title(self, key: str) -> str:
        return self.columns[key]["title"]

    def number(self, row: Row, key: str, name: str = "") -> str:
        """A method's number of the table behind its name, or nothing: "ECE 1.20 %"."""
        value = row.values.get(key)
        if key not in self.columns or not value or value.get("mean") is None:
            return ""
        return f"{name or self.columns[key]['title']} {shown({**value, 'error': None}, self.columns[key])}"


def over_seeds(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """The mean over seeds of the last column, its standard error, and the number of seeds; by method and the others.

    >>> rows = [{"method": "deep", "epoch": 1, "loss": loss} for loss in (0.25, 0.75)]
    >>> over_seeds(rows, ["epoch", "loss"]).to_dict("records")[0]
    {'method': 'deep', 'epoch': 1, 'loss': 0.5, 'error': 0.25, 'seeds': 2}
    """
    *by, value = columns
    frame = pd.DataFrame(rows).astype({value: float})
    means = frame.groupby(["method", *by], sort=False, dropna=False)[value].agg(["mean", "sem", "count"]).reset_index()
    return means.set_axis(["method", *by, value, "error", "seeds"], axis=1).replace({np.inf: np.nan})
