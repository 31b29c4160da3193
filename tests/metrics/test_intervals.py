"""What conformal intervals promise: coverage whatever the network believes, and widths that follow its doubt."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from multum.errors import MetricError
from multum.metrics.conformal import INTERVALS, ConformalIntervals, fit_intervals
from multum.outputs.prediction import RegressionPrediction


def exchangeable(examples: int, seed: int, belief: float = 1.0) -> tuple[RegressionPrediction, Tensor]:
    """Two members around the truth, noise that differs between examples, and stds off by the factor ``belief``."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(examples, generator=generator, dtype=torch.float64)
    noise = 0.1 + 2 * torch.rand(examples, generator=generator, dtype=torch.float64)
    targets = truth + noise * torch.randn(examples, generator=generator, dtype=torch.float64)
    means = truth + 0.1 * torch.randn(2, examples, generator=generator, dtype=torch.float64)
    members = torch.stack([means, (belief * noise).square().expand(2, -1)], dim=2)
    return RegressionPrediction(members), targets


def part(prediction: RegressionPrediction, rows: slice) -> RegressionPrediction:
    return RegressionPrediction(prediction.members[:, rows])


@pytest.mark.parametrize("belief", [0.3, 3.0])
@pytest.mark.parametrize("method", INTERVALS)
def test_coverage_on_exchangeable_data(method: str, belief: float):
    alpha, calibration, trials = 0.2, 60, 40
    covered = 0.0
    for seed in range(trials):
        prediction, targets = exchangeable(calibration + 100, seed, belief)
        known, new = slice(0, calibration), slice(calibration, None)
        rule = fit_intervals(part(prediction, known), targets[known], alpha=alpha, method=method)
        covered += rule.coverage(part(prediction, new), targets[new]) / trials
    error = math.sqrt(alpha * (1 - alpha) * (1 / (calibration + 2) + 1 / 100) / trials)
    assert 1 - alpha - 4 * error <= covered <= 1 - alpha + 1 / (calibration + 1) + 4 * error
    low, high = prediction.interval(1 - alpha)  # what the network believes itself is far off
    assert abs(((low <= targets) & (targets <= high)).double().mean().item() - (1 - alpha)) > 0.1


def test_split_by_hand():
    prediction = RegressionPrediction(torch.tensor([[[0.0, 1.0], [0.0, 4.0], [0.0, 9.0]]]))
    targets = torch.tensor([1.0, -4.0, 3.0])  # residuals 1, 4, 3; in stds 1, 2, 1
    split = fit_intervals(prediction, targets, alpha=0.5, method="split")
    assert split.threshold == 3.0 and split.mean_width(prediction) == 6.0
    normalised = fit_intervals(prediction, targets, alpha=0.5, method="normalised")
    assert normalised.threshold == 1.0
    low, high = normalised(prediction)
    assert low.tolist() == [-1, -2, -3] and high.tolist() == [1, 2, 3]
    assert normalised.coverage(prediction, targets) == pytest.approx(2 / 3)


def test_cqr_moves_the_mixtures_own_quantiles():
    prediction, targets = exchangeable(500, seed=1, belief=0.5)
    rule = fit_intervals(prediction, targets, alpha=0.1, method="cqr")
    low, high = prediction.interval(0.9)
    scores = torch.maximum(low - targets, targets - high).sort().values
    assert rule.threshold == scores[math.ceil(501 * 0.9) - 1].item() > 0
    torch.testing.assert_close(rule(prediction)[0], low - rule.threshold)
    torch.testing.assert_close(rule(prediction)[1], high + rule.threshold)
    assert fit_intervals(*exchangeable(500, seed=1, belief=3.0), alpha=0.1).threshold < 0  # too wide: they shrink


def test_widths_follow_doubt_except_for_split():
    prediction, targets = exchangeable(2000, seed=2)
    doubt = prediction.variance
    wide, narrow = doubt > doubt.quantile(0.8), doubt < doubt.quantile(0.2)
    for method in INTERVALS:
        low, high = fit_intervals(prediction, targets, method=method)(prediction)
        width = high - low
        ratio = (width[wide].mean() / width[narrow].mean()).item()
        assert ratio == pytest.approx(1) if method == "split" else ratio > 2


def test_an_interval_turned_inside_out_is_its_middle():
    rule = ConformalIntervals("cqr", alpha=0.5, threshold=-100.0)
    low, high = rule(RegressionPrediction(torch.tensor([[[3.0, 1.0]]])))
    assert low.item() == high.item() == pytest.approx(3.0, abs=1e-9)


@pytest.mark.parametrize("method", INTERVALS)
def test_too_few_examples_give_the_whole_line(method: str):
    prediction, targets = exchangeable(8, seed=3)
    rule = fit_intervals(prediction, targets, alpha=0.1, method=method)
    assert rule.threshold == math.inf and rule.coverage(prediction, targets) == 1.0
    assert rule.mean_width(prediction) == math.inf


def test_what_is_refused():
    prediction, targets = exchangeable(20, seed=4)
    with pytest.raises(MetricError, match="Did you mean split"):
        fit_intervals(prediction, targets, method="splits")
    for alpha in (0, 1, 10):
        with pytest.raises(MetricError, match=f"alpha={alpha}"):
            fit_intervals(prediction, targets, alpha=alpha)
    with pytest.raises(MetricError, match="the same shape"):
        fit_intervals(prediction, targets[:5])
    with pytest.raises(MetricError, match="targets must be finite"):
        fit_intervals(prediction, targets * math.nan)
