"""Class by class and target by target: what single numbers hide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Drawing

from ...figures.figure import Figure
from ...figures.palette import INK
from ...figures.panels import fitted, multiples, text_width
from ..view import Row, View, over_seeds
from .heat import _cells, _norm

__all__ = ["by_class", "by_target", "confusion"]

MOST_CLASSES = 30  # more rows are not read
MEASURES = ("precision", "recall", "f1")
SIZE = 9  # of the numbers and names


def confusion(view: View) -> Figure | None:
    """How often the examples of each class are predicted as each class."""
    methods = _methods(view)
    if not methods:
        return None
    names = _names(view, methods)
    matrices = {m.label: np.mean([_shares(t["confusion"]) for t in view.curves(m, "by_class")], 0) for m in methods}
    numbers = pd.DataFrame(
        [
            {"method": label, "class": names[i], "predicted": names[j], "share": matrix[i, j]}
            for label, matrix in matrices.items()
            for i, j in np.ndindex(*matrix.shape)
        ]
    )
    return Figure(
        "Confusions",
        "Of the test examples of each class (rows), the share in per cent that is predicted as each class (columns), "
        "mean over seeds. All would be on the diagonal.",
        numbers,
        lambda width: _panels(matrices, names, names, width, room=len(names) <= 5),
        "Matrices of true against predicted classes, one panel a method.",
    )


def by_class(view: View) -> Figure | None:
    """Precision, recall and F1 of each class."""
    methods = _methods(view)
    if not methods:
        return None
    names = _names(view, methods)
    rows = [
        {"method": m.label, "class": row["class"], "measure": measure, "value": np.nan if value is None else value}
        for m in methods
        for table in view.curves(m, "by_class")
        for row in table["rows"]
        for measure, value in row.items()
        if measure != "class"
    ]
    numbers = over_seeds(rows, ["class", "measure", "value"])
    shown = numbers.pivot(index=["method", "class"], columns="measure", values="value")
    matrices = {m.label: shown.loc[m.label].loc[names, list(MEASURES)].to_numpy(dtype=float) for m in methods}
    positive = next((t["positive"] for m in methods for t in view.curves(m, "by_class") if t.get("positive")), None)
    return Figure(
        "Class by class",
        "Precision (how many of those predicted as a class belong to it), recall (how many of a class are found) and "
        "F1, in per cent, mean over seeds." + (f" The positive class is {positive}." if positive else ""),
        numbers,
        lambda width: _panels(matrices, names, MEASURES, width, room=True),
        "Tables of precision, recall and F1 by class, one panel a method.",
    )


def by_target(view: View) -> Figure | None:
    """The error of each target, against that of the best method."""
    methods = view.having("by_target")
    if not methods:
        return None
    rows = [
        {"method": m.label, "target": row["target"], "rmse": row["rmse"]}
        for m in methods
        for table in view.curves(m, "by_target")
        for row in table
    ]
    numbers = over_seeds(rows, ["target", "rmse"])
    table = numbers.pivot(index="method", columns="target", values="rmse")
    table = table.loc[[m.label for m in methods], list(numbers["target"].unique())]
    ratios = (table / table.min()).to_numpy(dtype=float)

    def draw(width: float) -> Drawing:
        one = {"RMSE over the best": ratios}
        return _panels(one, list(table.index), list(table.columns), width, room=True, shown=lambda v: f"{v:.2f}")

    return Figure(
        "Target by target",
        "The RMSE of each target over that of the method which predicts it best: 1 is the best. Mean over seeds.",
        numbers,
        draw,
        "A heat map of relative errors by method and target.",
    )


def _methods(view: View) -> list[Row]:
    """The methods with a table by class, where there are not too many classes to read."""
    tables = {m: view.curves(m, "by_class")[0] for m in view.having("by_class")}
    return [m for m, table in tables.items() if 0 < len(table.get("rows", ())) <= MOST_CLASSES]


def _names(view: View, methods: Sequence[Row]) -> list[str]:
    return [row["class"] for row in view.curves(methods[0], "by_class")[0]["rows"]]


def _shares(counts: Sequence[Sequence[int]]) -> np.ndarray:
    """Rows that sum to 1; NaN for a class without examples."""
    matrix = np.asarray(counts, dtype=float)
    totals = matrix.sum(1, keepdims=True)
    return matrix / np.where(totals > 0, totals, np.nan)


def _panels(
    matrices: Mapping[str, np.ndarray],
    rows: Sequence[str],
    columns: Sequence[str],
    width: float,
    *,
    room: bool,
    shown: Callable[[float], str] = lambda v: f"{100 * v:.0f}",
) -> Drawing:
    """A heat map a panel, with the names of rows and columns; numbers on the cells where there is room."""
    left = min(max(text_width(name, SIZE) for name in rows) + 10, 120)
    ratio = 1.0 if len(rows) == len(columns) else min(1.6, max(0.3, 0.16 * len(rows)))
    figure, panels = multiples(
        list(matrices), [""] * len(matrices), width, x="", y="", left=left, least=130, most=220, ratio=ratio
    )
    values = np.concatenate([matrix.ravel() for matrix in matrices.values()])
    norm = _norm(float(np.nanmin(values)), float(np.nanmax(values)))
    for axes, matrix in zip(panels, matrices.values(), strict=True):
        _cells(axes, matrix, norm, shown if room else lambda v: "", SIZE)
        axes.set_xlim(0, len(columns))
    wide = panels[0].get_window_extent().width / len(columns)
    panels[0].set_yticks(np.arange(len(rows)) + 0.5, [fitted(name, left - 8, SIZE) for name in rows])
    panels[0].set_xticks(np.arange(len(columns)) + 0.5, [fitted(name, wide - 2, SIZE) for name in columns])
    for axes in panels:
        axes.tick_params(length=0, labelsize=SIZE, labelcolor=INK)
    return figure
