"""MIMO's Figure 9: accuracy and likelihood by the share of weights that L1 regularisation has made zero."""

from __future__ import annotations

import pandas as pd

from ..ensemble import Ensemble
from .charts.curves import BARS, MEASURES, Panel, Point, by_data, curves, gathered, parted, pictures
from .results import Found, Line, line_over_seeds
from .trained import Trained

__all__ = ["by_sparsity", "sparsity"]

ZERO = 1e-4  # the paper's footnote 6: a weight of at most this size is zero
COLUMN = "zero weights (%)"
MEASURED = ("accuracy", "nll")


def sparsity(ensemble: Ensemble) -> float:
    """The share of zeros among the weights of layers; biases and norms are not counted."""
    weights = [weight for weight in ensemble.network.parameters() if weight.dim() > 1]
    zeros = sum(int((weight.abs() <= ZERO).sum()) for weight in weights)
    return zeros / sum(weight.numel() for weight in weights)


def by_sparsity(trained: Trained) -> Found:
    """The sparsity of every network that was trained with L1 regularisation, and what is left of its performance."""
    lines: list[Line] = []
    for row in trained.run.rows:
        seeds = trained.seeds(row.label) if parted(row.label, "L1") else []
        shares = [100 * sparsity(trained.open(row.label, seed)[0]) for seed in seeds]
        if shares:
            lines.append(line_over_seeds(row.label, COLUMN, shares))
    found = {}
    for name, rows in by_data(trained).items():
        zeros = {line.row: line.ours for line in lines}
        points = [
            Point(row.label, f"M = {m.value:g}", zeros[row.label], {key: MEASURES[key] for key in MEASURED})
            for row in rows
            if row.label in zeros and (m := parted(row.label, "M"))
        ]
        numbers: pd.DataFrame = gathered(trained, COLUMN, points)
        drawn = curves([Panel(numbers, COLUMN, key, COLUMN, counts=True) for key in MEASURED])
        caption = f"Along a curve L1 regularisation grows; a weight of at most {ZERO:g} is zero. {BARS}"
        title = ", ".join(filter(None, ("MIMO by sparsity", name)))
        found["-".join(filter(None, ("sparsity", name)))] = (title, caption, drawn, numbers)
    return Found(lines, pictures(found))
