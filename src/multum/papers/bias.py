"""MIMO's Figure 2: error, bias and variance over training sets, by number of members.

    f_bar(x) = E_sets f(x)      bias^2 = E_x (f_bar - f_true)^2      variance = E_x E_sets (f - f_bar)^2

Their sum is the squared error against the function without noise. The paper's formula has the noisy targets in the
place of f_true: its bias has the noise in it, and is the test error less the variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ..data import Data
from ..data.sines import waves
from ..ensemble import Ensemble
from ..figures.palette import INK, MUTED, drawing, look
from ..metrics.regression import in_units
from ..outputs.prediction import RegressionPrediction, predict
from .results import Found, Line, Picture, mean_and_error
from .trained import Trained

__all__ = ["Decomposition", "bias_and_variance", "decomposed", "jackknife"]

EXAMPLE_MEMBERS = 3
GRID_POINTS = 61
SIDE = 300  # CSS pixels: the width of a panel
COLUMNS = ("test error", "members' test error", "bias^2", "variance", "bias^2 with the noise, as the paper's formula")

REMARKS = {"bias^2": "0.00005 if the targets' mean were learned perfectly: noise inside a sine lowers its mean"}


def jackknife(statistic: Callable[[Tensor], float], rows: Tensor) -> float:
    """The standard error of a statistic of rows, from its values with each row left out: three rows at least.

    >>> round(jackknife(lambda rows: float(rows.mean()), torch.tensor([1.0, 2.0, 6.0])), 4)  # a mean's is the usual one
    1.5275
    """
    n = len(rows)
    without = torch.tensor([statistic(torch.cat([rows[:i], rows[i + 1 :]])) for i in range(n)], dtype=torch.float64)
    return float(((n - 1) * without.var(correction=0)).sqrt())


@dataclass(frozen=True)
class Decomposition:
    """Bias and variance of one number of members, with the jackknife's standard errors; None for two sets."""

    bias: float  # squared
    variance: float
    bias_error: float | None
    variance_error: float | None


def decomposed(predictions: Tensor, truth: Tensor) -> Decomposition:
    """The squared bias and the variance of predictions. Shape: [sets, items] and [items].

    >>> found = decomposed(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0]))
    >>> found.bias, found.variance
    (1.0, 1.0)
    """

    def bias(rows: Tensor) -> float:
        return float((rows.mean(0) - truth).square().mean())

    def variance(rows: Tensor) -> float:
        return float(rows.var(0, correction=0).mean())

    errors = [jackknife(part, predictions) if len(predictions) > 2 else None for part in (bias, variance)]
    return Decomposition(bias(predictions), variance(predictions), errors[0], errors[1])


def bias_and_variance(trained: Trained) -> Found:
    """Lines of every number of members, and the figure; bias and variance need two training sets."""
    lines: list[Line] = []
    for row in trained.run.rows:
        seeds = trained.seeds(row.label)
        if not seeds:
            continue
        opened = [trained.open(row.label, seed) for seed in seeds]
        test = opened[0][1].test
        members = [means_of(ens, data, test.x) for ens, data in opened]
        predictions = torch.stack([each.mean(0) for each in members])
        errors = (predictions - test.y).square().mean(1)
        alone = [float((each - test.y).square().mean()) for each in members]
        found: list[tuple[float, float | None]] = [mean_and_error(errors.tolist()), mean_and_error(alone)]
        if len(seeds) > 1:
            parts = decomposed(predictions, without_noise(test.x))
            noisy = decomposed(predictions, test.y)
            found += [(parts.bias, parts.bias_error), (parts.variance, parts.variance_error)]
            found.append((noisy.bias, noisy.bias_error))
        lines += [
            Line(row.label, column, ours, error=error, seeds=len(seeds), remark=REMARKS.get(column, ""))
            for column, (ours, error) in zip(COLUMNS, found, strict=False)
        ]
    return Found(lines, {"": _picture(trained, lines)} if lines else {})


def without_noise(x: Tensor) -> Tensor:
    """The function that the data are noisy values of. Shape: [items, 1] to [items]."""
    return waves(x, torch.zeros_like(x)).squeeze(1)


def means_of(ensemble: Ensemble, data: Data, x: Tensor) -> Tensor:
    """What every member predicts, in the targets' unit. Shape: [members, items], float64."""
    found = predict(ensemble, data.prepare(x))
    assert isinstance(found, RegressionPrediction)
    return in_units(found, mean=data.target_mean, std=data.target_std).members.select(2, 0).double()


# -- the picture -------------------------------------------------------------------------------------------------------


def _picture(trained: Trained, lines: Sequence[Line]) -> Picture:
    shown = pd.DataFrame(
        [
            {"panel": line.column, "series": "over training sets", "x": members, "y": line.ours, "error": line.error}
            for members, line in _by_members(trained, lines)
            if line.column in COLUMNS[:4]
        ]
    )
    label = _example_row(trained)
    numbers = pd.concat([_example(trained, label), shown.astype({"error": float})], ignore_index=True).round(8)
    with drawing():
        figure = Drawing(
            figsize=((2 * SIDE + 120) / 72, 560 / 72), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
        )
        panels = figure.subplots(2, 2).flatten().tolist()
        _draw_example(panels[0], numbers[numbers["panel"] == "example"], f"one training set, {label}")
        for axes, column in zip(panels[1:3], COLUMNS[2:4], strict=True):
            _draw_curve(axes, numbers, column, 0)
            axes.set_title(column.replace("^2", "²"), loc="left", color=INK, size=11, weight="bold")
            axes.set_ylim(bottom=0)
        _draw_curve(panels[3], numbers, COLUMNS[0], 0, "ensemble")
        _draw_curve(panels[3], numbers, COLUMNS[1], 1, "its members, one by one")
        panels[3].set_title("error on the test set", loc="left", color=INK, size=11, weight="bold")
        panels[3].legend(frameon=False, labelcolor=MUTED, fontsize=10)
    return Picture(
        "A regression by MIMO: bias, variance and error by number of members",
        "First the members' predictions after one training set; then, over all training sets, the squared bias against "
        "the function without noise, the variance, and the squared error on noisy test targets. Bars are one standard "
        "error over training sets, the jackknife's for bias and variance.",
        figure,
        numbers,
    )


def _by_members(trained: Trained, lines: Sequence[Line]) -> list[tuple[int, Line]]:
    members = {row.label: row.method.members for row in trained.run.rows}
    return sorted(((members[line.row], line) for line in lines), key=lambda pair: pair[0])


def _example_row(trained: Trained) -> str:
    """The row with three members, as in the paper; if it is not done, the nearest."""
    done = [row for row in trained.run.rows if trained.seeds(row.label)]
    return min(done, key=lambda row: abs(row.method.members - EXAMPLE_MEMBERS)).label


def _example(trained: Trained, label: str) -> pd.DataFrame:
    """Training data, function and members' predictions of the row's first seed, in one long table."""
    ens, data = trained.open(label)
    x = torch.linspace(float(data.test.x.min()), float(data.test.x.max()), GRID_POINTS, dtype=torch.float64)
    series = {"data": (data.train.x.squeeze(1), data.train.y), "function": (x, without_noise(x.unsqueeze(1)))}
    series |= {f"member {i}": (x, y) for i, y in enumerate(means_of(ens, data, x.unsqueeze(1)))}
    columns: dict[str, Any] = {"panel": "example", "error": np.nan}
    return pd.concat(
        [pd.DataFrame({"series": name, "x": x.numpy(), "y": y.numpy(), **columns}) for name, (x, y) in series.items()],
        ignore_index=True,
    )[["panel", "series", "x", "y", "error"]]


def _draw_example(axes: Axes, numbers: pd.DataFrame, title: str) -> None:
    for name, mine in numbers.groupby("series", sort=False):
        if name == "data":
            axes.scatter(mine["x"], mine["y"], s=12, color=MUTED, lw=0, alpha=0.7, label="training data", zorder=2)
        elif name == "function":
            axes.plot(mine["x"], mine["y"], color=INK, lw=1.5, ls=(0, (4, 2)), label="without noise", zorder=4)
        else:
            colour = look(int(str(name).split()[-1])).colour
            axes.plot(mine["x"], mine["y"], color=colour, lw=1.8, label=name, zorder=3)
    axes.set_title(title, loc="left", color=INK, size=11, weight="bold")
    axes.set_xlabel("x")
    axes.legend(frameon=False, labelcolor=MUTED, fontsize=9)


def _draw_curve(axes: Axes, numbers: pd.DataFrame, column: str, index: int, label: str | None = None) -> None:
    mine = numbers[numbers["panel"] == column]
    style: dict[str, Any] = {"color": look(index).colour, "marker": "o", "markersize": 5, "capsize": 3, "label": label}
    axes.errorbar(mine["x"], mine["y"], yerr=mine["error"].fillna(0), elinewidth=1.2, **style)
    axes.set_xlabel("members")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
