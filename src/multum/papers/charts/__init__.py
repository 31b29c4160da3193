"""Figures of the papers, drawn from our own numbers in the house's colours."""

from .forest import ordering_chart
from .items import CHARTS, EXACT_CHARTS

__all__ = ["CHARTS", "EXACT_CHARTS", "ordering_chart"]
