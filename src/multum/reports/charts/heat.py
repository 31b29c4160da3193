"""Heat maps: accuracy by corruption, how often two members differ, and classes and targets one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure as Drawing

from ...figures.figure import Figure
from ...figures.palette import HEAT, INK, PAPER, heat_ink
from ...figures.panels import axes_at, canvas, fitted, multiples, text_width
from ..view import Row, View, over_seeds

CELL = 22  # the height of a row
TURN = math.radians(40)  # of the names over columns
DRAWN_AS_CELLS = 12  # more members than that are one image in the drawing
MOST_CLASSES = 30  # more rows are not read
MEASURES = ("precision", "recall", "f1")
SIZE = 9  # of the numbers and names of classes and targets


def corruptions(view: View) -> Figure | None:
    """Accuracy of each method under each corruption, mean over severities."""
    methods = view.having("corruptions")
    if not methods:
        return None
    rows = [
        {"method": m.label, "corruption": name, "accuracy": float(np.mean(accuracies))}
        for m in methods
        for curve in view.curves(m, "corruptions")
        for name, accuracies in curve.items()
    ]
    numbers = over_seeds(rows, ["corruption", "accuracy"])
    table = numbers.pivot(index="method", columns="corruption", values="accuracy")
    table = table.loc[[m.label for m in methods], list(numbers["corruption"].unique())]

    def draw(width: float) -> Drawing:
        narrow = width < 600
        size = 9 if narrow else 10
        left = min(max(text_width(label, size) for label in table.index) + 8, 96 if narrow else 190)
        names = [name.replace("_", " ") for name in table.columns]
        longest = max(text_width(name, size) for name in names)
        above, right = longest * math.sin(TURN) + 16, longest * math.cos(TURN) - (14 if narrow else 20)
        fitting = max(1, int((width - left - right) // (30 if narrow else 44)))
        blocks = math.ceil(table.shape[1] / fitting)
        columns = math.ceil(table.shape[1] / blocks)
        wide = min(64, (width - left - right) / columns)
        height = blocks * (above + CELL * len(table)) + 6
        drawn = left + wide * columns + right
        figure = canvas(drawn, height)
        norm = _norm(float(np.nanmin(table)), float(np.nanmax(table)))
        for block in range(blocks):
            part = table.iloc[:, block * columns : (block + 1) * columns]
            bottom = height - (block + 1) * (above + CELL * len(table)) + 2
            axes = axes_at(figure, left, bottom, wide * part.shape[1], CELL * len(table))
            _cells(axes, part.to_numpy(dtype=float), norm, lambda v: f"{100 * v:.0f}", size)
            axes.set_yticks(np.arange(len(table)) + 0.5, [fitted(name, left - 8, size) for name in table.index])
            shown = names[block * columns : (block + 1) * columns]
            axes.set_xticks(np.arange(part.shape[1]) + 0.5, shown)
            axes.tick_params(top=False, labeltop=True, labelbottom=False, bottom=False, labelsize=size)
            for text in axes.get_xticklabels():
                text.set(rotation=math.degrees(TURN), ha="left", va="bottom", rotation_mode="anchor")
            for text in axes.get_yticklabels():
                text.set_color(INK)
        return figure

    return Figure(
        "Accuracy by corruption",
        "Accuracy in per cent under each corruption, mean over severities and seeds. A darker cell is a higher "
        "accuracy (on a dark page, a brighter one).",
        numbers,
        draw,
        "A heat map of accuracy by method and corruption.",
    )


def diversity(view: View) -> Figure | None:
    """The share of test examples on which two members predict different classes."""
    methods = view.having("disagreement")
    matrices = {
        m.label: np.mean([np.asarray(c, dtype=float) for c in view.curves(m, "disagreement")], 0) for m in methods
    }
    if not methods:
        return None
    numbers = pd.DataFrame(
        [
            {"method": label, "member": i, "other": j, "disagreement": matrix[i, j]}
            for label, matrix in matrices.items()
            for i in range(len(matrix))
            for j in range(i + 1, len(matrix))
        ],
        columns=["method", "member", "other", "disagreement"],
    )

    def draw(width: float) -> Drawing:
        notes = [f"mean {100 * _off_diagonal(matrix).mean():.1f} %" for matrix in matrices.values()]
        figure, panels = multiples(
            list(matrices),
            notes,
            width,
            x="",
            y="",
            ratio=1.0,
            left=4,
            least=130 if width > 600 else 96,
            most=180,
            shared=False,
        )
        norm = _norm(0.0, max(float(np.nanmax(m)) for m in matrices.values()))
        for axes, matrix in zip(panels, matrices.values(), strict=True):
            hidden = np.where(np.eye(len(matrix), dtype=bool), np.nan, matrix)
            name = (lambda v: f"{100 * v:.1f}") if len(matrix) <= 5 else (lambda v: "")
            _cells(axes, hidden, norm, name, 9)
            axes.set(xticks=[], yticks=[], xlim=(0, len(matrix)), ylim=(len(matrix), 0))
        return figure

    return Figure(
        "Diversity",
        "How often two members of an ensemble predict different classes, in per cent of the test examples. "
        "Members that never disagree are no better than one of them.",
        numbers,
        draw,
        "Matrices of disagreement between members, one panel a method.",
    )


def _norm(low: float, high: float) -> BoundaryNorm:
    if not high > low:
        high = low + 1e-6
    return BoundaryNorm(np.linspace(low, high, len(HEAT) + 1), len(HEAT))


def _cells(axes: Axes, values: np.ndarray, norm: BoundaryNorm, name: Callable[[float], str], size: float) -> None:
    """Cells in the colours of the palette, so that the page can change them, with a number on each."""
    raster = len(values) > DRAWN_AS_CELLS and values.shape[0] == values.shape[1]
    axes.pcolormesh(
        np.ma.masked_invalid(values),
        cmap=ListedColormap(list(HEAT)),
        norm=norm,
        edgecolors="none" if raster else PAPER,
        linewidth=0 if raster else 1.5,
        rasterized=raster,
    )
    for (i, j), value in np.ndenumerate(values):
        words = name(value) if np.isfinite(value) else ""
        if words:
            colour = heat_ink(min(int(norm(value)), len(HEAT) - 1))
            axes.text(j + 0.5, i + 0.5, words, size=size, color=colour, ha="center", va="center_baseline")
    axes.set_ylim(len(values), 0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _off_diagonal(matrix: np.ndarray) -> np.ndarray:
    return matrix[~np.eye(len(matrix), dtype=bool)]


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
        panel = {"RMSE over the best": ratios}
        return _panels(panel, list(table.index), list(table.columns), width, room=True, shown=lambda v: f"{v:.2f}")

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
