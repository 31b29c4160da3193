"""One figure of a report: its drawing and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Drawing

from .palette import drawing

__all__ = ["NARROW", "WIDE", "Figure"]

WIDE = 1080  # CSS pixels: on a desk
NARROW = 343  # on a phone of 375, between its margins


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure with its title, a sentence that says how to read it, and its numbers.

    >>> from multum.reports.charts import figures
    >>> values = {k: {"mean": m, "error": None} for k, m in {"accuracy": 0.9, "macs": 1e6, "params": 1e5}.items()}
    >>> document = {
    ...     "columns": [{"key": k, "title": k, "unit": "", "better": None} for k in values],
    ...     "rows": [{"label": "single", "status": "done", "values": values}],
    ... }
    >>> [figure] = figures(document)
    >>> figure.name, figure.frame()["accuracy"].tolist(), round(figure.plot().get_figwidth() * 72)
    ('pareto', [0.9], 1080)
    """

    title: str
    caption: str
    numbers: pd.DataFrame
    draw: Callable[[float], Drawing]  # from a width in CSS pixels
    alternative: str = ""  # what the picture shows, for those who do not see it
    points: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what can be pointed at, by its id
    name: str = ""  # its id in the page and the name of its files

    def frame(self) -> pd.DataFrame:
        """The figure's numbers, one row for each thing drawn."""
        return self.numbers.copy()

    def plot(self, width: float = WIDE) -> Drawing:
        """The drawing, so many CSS pixels wide at most (72 to matplotlib's inch)."""
        with drawing():
            return self.draw(width)
