"""Tables and figures of a comparison, and the page that holds them.

A comparison is a document of plain values: columns, rows with the numbers of each method, cells with the curves of each
training run. Everything here is made of it alone.
"""

from __future__ import annotations

from ..figures.figure import Figure
from ..figures.formats import shown
from .charts import figures
from .console import advice_lines, model_lines, terminal
from .writing import write

__all__ = ["Figure", "advice_lines", "figures", "model_lines", "shown", "terminal", "write"]
