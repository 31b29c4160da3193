"""The figures of a report: those that a document has data for.

A chart is a function of a :class:`~multum.reports.view.View` that gives a figure, or None where the document has no
data for it, and one line of `CHARTS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ...figures.figure import Figure
from ..view import View
from .forests import differences, equivalent
from .heat import by_class, by_target, confusion, corruptions, diversity
from .lines import quantiles, reliability, risk_coverage, severity, training
from .ood import ood
from .pareto import pareto, pareto_nll

__all__ = ["CHARTS", "figures"]

# By the name of the figure and of its files, in the order of the page.
CHARTS: dict[str, Callable[[View], Figure | None]] = {
    "differences": differences,
    "pareto-nll": pareto_nll,
    "equivalent": equivalent,
    "pareto": pareto,
    "reliability": reliability,
    "quantiles": quantiles,
    "risk-coverage": risk_coverage,
    "ood": ood,
    "shift": severity,
    "corruptions": corruptions,
    "classes": by_class,
    "confusion": confusion,
    "targets": by_target,
    "diversity": diversity,
    "training": training,
}


def figures(document: Mapping[str, Any]) -> list[Figure]:
    """Every figure that the document has data for, each with `.frame()` and `.plot()`."""
    view = View(document)
    drawn = ((name, chart(view)) for name, chart in CHARTS.items())
    return [dataclasses.replace(figure, name=name) for name, figure in drawn if figure is not None]
