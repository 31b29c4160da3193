"""MIMO's Figure 2: error, bias and variance over training sets, by number of members.

    f_bar(x) = E_sets f(x)      bias^2 = E_x (f_bar - f_true)^2      variance = E_x E_sets (f - f_bar)^2

Their sum is the squared error against the function without noise. The paper's formula has the noisy targets in the
place of f_true: its bias has the noise in it, and is the test error less the variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ..data import Data
from ..data.sines import waves
from ..ensemble import Ensemble
from ..figures.palette import INK, MUTED, drawing, look
from ..figures.panels import heading, side_by_side
from ..metrics.regression import in_units
from ..outputs.prediction import RegressionPrediction, predict
from .base import Row
from .measured import Trained
from .results import Extra, Line, Picture, line_over_seeds

EXAMPLE_MEMBERS = 3
GRID_POINTS = 61
SIDE = 300  # CSS pixels: the width of a panel
COLUMNS = ("test error", "members' test error", "bias^2", "variance", "bias^2 with the noise, as the paper's formula")

REMARKS = {"bias^2": "0.00005 if the targets' mean were learned perfectly: noise inside a sine lowers its mean"}


@dataclass(frozen=True)
class Estimate:
    """A statistic of rows, and its values with each row left out, which its standard error comes from."""

    value: float
    left_out: tuple[float, ...]

    @classmethod
    def of(cls, statistic: Callable[[Tensor], float], rows: Tensor) -> Estimate:
        left_out = tuple(statistic(torch.cat([rows[:i], rows[i + 1 :]])) for i in range(len(rows)))
        return cls(statistic(rows), left_out)

    @property
    def error(self) -> float | None:
        """The jackknife's standard error, which needs three rows.

        >>> mean = Estimate.of(lambda rows: float(rows.mean()), torch.tensor([1.0, 2.0, 6.0]))
        >>> round(mean.error, 4)  # a mean's is the usual one
        1.5275
        """
        n, values = len(self.left_out), torch.tensor(self.left_out, dtype=torch.float64)
        return float(((n - 1) * values.var(correction=0)).sqrt()) if n > 2 else None


def decomposed(predictions: Tensor, truth: Tensor) -> tuple[Estimate, Estimate]:
    """The squared bias and the variance of predictions. Shape: [sets, examples] and [examples].

    >>> bias, variance = decomposed(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0]))
    >>> bias.value, variance.value
    (1.0, 1.0)
    """

    def bias(rows: Tensor) -> float:
        return float((rows.mean(0) - truth).square().mean())

    def variance(rows: Tensor) -> float:
        return float(rows.var(0, correction=0).mean())

    return Estimate.of(bias, predictions), Estimate.of(variance, predictions)


def bias_and_variance(trained: Trained) -> Extra:
    """Lines of every number of members, and the figure; bias and variance need two training sets."""
    extra = Extra()
    for row in trained.run.rows:
        seeds = trained.seeds(row.label)
        if not seeds:
            continue
        opened = [trained.open(row.label, seed) for seed in seeds]
        test = opened[0][1].test
        members = [_means_of(ens, data, test.x) for ens, data in opened]
        predictions = torch.stack([each.mean(0) for each in members])
        errors = (predictions - test.y).square().mean(1)
        alone = [float((each - test.y).square().mean()) for each in members]
        extra.lines += [
            line_over_seeds(row.label, column, values)
            for column, values in zip(COLUMNS, (errors.tolist(), alone), strict=False)
        ]
        if len(seeds) > 1:
            estimates = (*decomposed(predictions, _without_noise(test.x)), decomposed(predictions, test.y)[0])
            for column, estimate in zip(COLUMNS[2:], estimates, strict=True):
                ours: dict[str, Any] = {"error": estimate.error, "left_out": estimate.left_out, "seeds": len(seeds)}
                extra.lines.append(Line(row.label, column, estimate.value, **ours, remark=REMARKS.get(column, "")))
    if extra.lines:
        extra.pictures[""] = _picture(trained, extra.lines)
    return extra


def _without_noise(x: Tensor) -> Tensor:
    """The function that the data are noisy values of. Shape: [examples, 1] to [examples]."""
    return waves(x, torch.zeros_like(x)).squeeze(1)


def _means_of(ensemble: Ensemble, data: Data, x: Tensor) -> Tensor:
    """What every member predicts, in the targets' unit. Shape: [members, examples], float64."""
    prediction = predict(ensemble, data.prepare(x))
    assert isinstance(prediction, RegressionPrediction)
    return in_units(prediction, mean=data.target_mean, std=data.target_std).members.select(2, 0).double()


def _picture(trained: Trained, lines: Sequence[Line]) -> Picture:
    """An example of members' predictions, and the numbers of the lines by number of members."""
    columns = ["panel", "series", "x", "y", "error"]
    row = _example_row(trained)
    members = {row.label: row.method.members for row in trained.run.rows}
    points = [(members[line.row], line) for line in lines if line.column in COLUMNS[:4]]
    series = [
        *(("example", name, x.numpy(), y.numpy(), None) for name, (x, y) in _example(trained, row.label).items()),
        *(
            (line.column, "over training sets", [m], line.ours, line.error)
            for m, line in sorted(points, key=lambda p: p[0])
        ),
    ]
    frames = [pd.DataFrame(dict(zip(columns, parts, strict=True))).astype({"error": float}) for parts in series]
    numbers = pd.concat(frames, ignore_index=True).round(8)
    return Picture(
        "A regression by MIMO: bias, variance and error by number of members",
        "First the members' predictions after one training set; then, over all training sets, the squared bias against "
        "the function without noise, the variance, and the squared error on noisy test targets. Bars are one standard "
        "error over training sets, the jackknife's for bias and variance.",
        draw_bias(numbers, f"one training set, {row.label}"),
        numbers,
    )


def _example_row(trained: Trained) -> Row:
    """The row with three members, as in the paper; if it is not done, the nearest."""
    done = [row for row in trained.run.rows if trained.seeds(row.label)]
    return min(done, key=lambda row: abs(row.method.members - EXAMPLE_MEMBERS))


def _example(trained: Trained, label: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Training data, function and members' predictions of the row's first seed, each as x and y."""
    ens, data = trained.open(label)
    x = torch.linspace(float(data.test.x.min()), float(data.test.x.max()), GRID_POINTS, dtype=torch.float64)
    members = {f"member {i}": (x, y) for i, y in enumerate(_means_of(ens, data, x.unsqueeze(1)))}
    return {"data": (data.train.x.squeeze(1), data.train.y), "function": (x, _without_noise(x.unsqueeze(1))), **members}


@drawing()
def draw_bias(numbers: pd.DataFrame, title: str) -> Drawing:
    """An example, bias, variance and errors, of numbers with the columns panel, series, x, y, error."""
    figure, panels = side_by_side(4, 2 * SIDE + 120, 560, columns=2, pads=(0.12, 0.1))
    _draw_example(panels[0], numbers[numbers["panel"] == "example"], title)
    for axes, column in zip(panels[1:3], COLUMNS[2:4], strict=True):
        _draw_curve(axes, numbers, column, 0)
        heading(axes, column.replace("^2", "²"))
        axes.set_ylim(bottom=0)
    for i, label in enumerate(("ensemble", "its members, one by one")):
        _draw_curve(panels[3], numbers, COLUMNS[i], i, label)
    heading(panels[3], "error on the test set")
    panels[3].legend(frameon=False, labelcolor=MUTED, fontsize=10)
    return figure


def _draw_example(axes: Axes, numbers: pd.DataFrame, title: str) -> None:
    data, function, *members = (own for _, own in numbers.groupby("series", sort=False))
    axes.scatter(data["x"], data["y"], s=12, color=MUTED, lw=0, alpha=0.7, label="training data", zorder=2)
    axes.plot(function["x"], function["y"], color=INK, lw=1.5, ls=(0, (4, 2)), label="without noise", zorder=4)
    for i, own in enumerate(members):
        axes.plot(own["x"], own["y"], color=look(i).colour, lw=1.8, label=own["series"].iloc[0], zorder=3)
    heading(axes, title)
    axes.set_xlabel("x")
    axes.legend(frameon=False, labelcolor=MUTED, fontsize=9)


def _draw_curve(axes: Axes, numbers: pd.DataFrame, column: str, index: int, label: str | None = None) -> None:
    own = numbers[numbers["panel"] == column]
    style: dict[str, Any] = {"color": look(index).colour, "marker": "o", "markersize": 5, "capsize": 3, "label": label}
    axes.errorbar(own["x"], own["y"], yerr=own["error"].fillna(0), elinewidth=1.2, **style)
    axes.set_xlabel("members")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
