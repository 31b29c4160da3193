"""The figures of a report: those that a document has data for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...figures.figure import Figure
from ..view import View
from .curves import quantiles, reliability, risk_coverage, severity, training
from .foreign import foreign
from .heat import corruptions, diversity
from .pareto import pareto, pareto_nll

__all__ = ["CHARTS", "figures"]

# By the name of the figure, in the order of the page. A chart is a function of the document that may find no data.
CHARTS: dict[str, Callable[[View], Figure | None]] = {
    "pareto": pareto,
    "pareto-nll": pareto_nll,
    "reliability": reliability,
    "quantiles": quantiles,
    "risk-coverage": risk_coverage,
    "foreign": foreign,
    "shift": severity,
    "corruptions": corruptions,
    "diversity": diversity,
    "training": training,
}


def figures(document: Mapping[str, Any]) -> list[Figure]:
    """Every figure that the document has data for, each with `.frame()` and `.plot()`."""
    view = View(document)
    return [figure for chart in CHARTS.values() if (figure := chart(view)) is not None]
