"""What regression metrics promise: METHODS 3.9, original units, exact mixtures, calibrated quantiles."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from multum.errors import MetricError
from multum.metrics.aggregate import regression_metrics
from multum.metrics.regression import coverage, example_nll, in_units, mean_width, pit, quantile_curve, rmse
from multum.outputs.prediction import RegressionPrediction

properties = settings(max_examples=50, deadline=None, database=None, derandomize=True)


def random_case(seed: int, members: int = 3, examples: int = 50) -> tuple[RegressionPrediction, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(members, examples, generator=generator, dtype=torch.float64)
    variances = 0.1 + torch.rand(members, examples, generator=generator, dtype=torch.float64)
    targets = 2 * torch.randn(examples, generator=generator, dtype=torch.float64)
    return RegressionPrediction(torch.stack([means, variances], dim=2)), targets


def well_specified(examples: int, scale: float = 1.0) -> tuple[RegressionPrediction, Tensor]:
    """Targets drawn from the mixture itself; predicted stds are off by the factor ``scale``."""
    prediction, _ = random_case(0, examples=examples)
    generator = torch.Generator().manual_seed(1)
    chosen = torch.randint(3, (examples,), generator=generator)
    means, variances = (part.gather(0, chosen.unsqueeze(0))[0] for part in prediction.members.unbind(2))
    targets = means + variances.sqrt() * torch.randn(examples, generator=generator, dtype=torch.float64)
    members = prediction.members.clone()
    members[:, :, 1] *= scale**2
    return RegressionPrediction(members), targets


def test_hand_computed_mixture():
    prediction = RegressionPrediction(torch.tensor([[[1.0, 0.5]], [[3.0, 1.5]]], dtype=torch.float64))
    found = regression_metrics(prediction, torch.tensor([2.5], dtype=torch.float64))
    assert found["aleatoric"] + found["epistemic"] == pytest.approx(2.0, abs=1e-12)  # not the paper's 4.0
    assert found["rmse"] == pytest.approx(0.5)
    density = stats.norm(1, math.sqrt(0.5)).pdf(2.5) / 2 + stats.norm(3, math.sqrt(1.5)).pdf(2.5) / 2
    assert found["nll"] == pytest.approx(-math.log(density), abs=1e-12)
    assert found["nll_moments"] == pytest.approx(-stats.norm(2, math.sqrt(2)).logpdf(2.5), abs=1e-12)
    assert found["member_rmse"] == pytest.approx(1.0) and found["gain_rmse"] == pytest.approx(-0.5)


def test_original_units():
    prediction, targets = random_case(0)
    alone, units = (
        regression_metrics(prediction, targets),
        regression_metrics(prediction, 20 + 7 * targets, mean=20.0, std=7.0),
    )
    for name, expected in {
        "rmse": 7 * alone["rmse"],
        "nll": alone["nll"] + math.log(7),
        "nll_moments": alone["nll_moments"] + math.log(7),
        "aleatoric": 49 * alone["aleatoric"],
        "epistemic": 49 * alone["epistemic"],
        "width_90": 7 * alone["width_90"],
        "coverage_90": alone["coverage_90"],
        "quantile_error": alone["quantile_error"],
        "member_nll": alone["member_nll"] + math.log(7),
    }.items():
        assert units[name] == pytest.approx(expected, abs=1e-9), name


def test_units_survive_float32():
    prediction = RegressionPrediction(torch.tensor([[[0.001, 1e-4]]]))
    found = in_units(prediction, mean=1e8, std=1.0).mean.item()
    assert found == pytest.approx(1e8 + 0.001, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_scipy_agrees(seed: int):
    prediction, targets = random_case(seed)
    means, variances = (part.numpy() for part in prediction.members.unbind(2))
    gaussians = stats.norm(means, variances**0.5)
    density, below = gaussians.pdf(targets).mean(0), gaussians.cdf(targets).mean(0)
    assert example_nll(prediction, targets).numpy() == pytest.approx(-torch.tensor(density).log().numpy(), abs=1e-10)
    assert pit(prediction, targets).numpy() == pytest.approx(below, abs=1e-12)
    assert rmse(prediction.mean, targets) == pytest.approx(((prediction.mean - targets) ** 2).mean().item() ** 0.5)


@properties
@given(st.integers(0, 2**31), st.integers(1, 5), st.integers(1, 20))
def test_pooling_never_hurts(seed: int, members: int, examples: int):
    found = regression_metrics(*random_case(seed, members, examples))
    assert found["gain_nll"] <= 1e-12 and found["gain_rmse"] <= 1e-12
    if members == 1:
        assert found["epistemic"] == 0 and found["nll"] == pytest.approx(found["nll_moments"], abs=1e-12)


def test_the_nll_of_a_far_target_does_not_underflow():
    prediction = RegressionPrediction(torch.tensor([[[0.0, 1.0]], [[1.0, 1.0]]]))
    assert example_nll(prediction, torch.tensor([1e4])).item() == pytest.approx(0.5 * 9999**2, rel=1e-6)


def test_well_specified_predictions_are_calibrated():
    prediction, targets = well_specified(20_000)
    found = regression_metrics(prediction, targets)
    for level in (0.5, 0.9, 0.95):
        assert found[f"coverage_{100 * level:g}"] == pytest.approx(
            level, abs=4 * math.sqrt(level * (1 - level) / 20_000)
        )
    assert found["quantile_error"] < 0.01
    assert found["width_50"] < found["width_90"] < found["width_95"]


@pytest.mark.parametrize(("scale", "sign"), [(0.5, -1), (2.0, 1)])
def test_wrong_spreads_are_seen(scale: float, sign: int):
    prediction, targets = well_specified(5000, scale)
    found = regression_metrics(prediction, targets)
    assert sign * (found["coverage_90"] - 0.9) > 0.04
    assert found["quantile_error"] > 0.04


def test_the_quantile_curve_is_a_share_of_targets():
    prediction, targets = random_case(4)
    curve = quantile_curve(prediction, targets, levels=9)
    assert curve.expected.tolist() == pytest.approx([k / 10 for k in range(1, 10)])
    low, high = prediction.interval(0.8)
    assert curve.observed[0].item() == (targets <= low).double().mean().item()
    assert curve.observed[-1].item() == (targets <= high).double().mean().item()
    assert curve.error == pytest.approx((curve.observed - curve.expected).abs().mean().item())


def test_intervals_by_hand():
    low, high = torch.tensor([0.0, 1.0, 2.0]), torch.tensor([1.0, 2.0, 5.0])
    assert coverage(low, high, torch.tensor([1.0, 3.0, 2.0])) == pytest.approx(2 / 3)  # the ends belong to it
    assert mean_width(low, high) == pytest.approx(5 / 3)


def test_further_axes_are_items():
    generator = torch.Generator().manual_seed(5)
    outputs, targets = torch.randn(3, 4, 2, 5, generator=generator), torch.randn(4, 5, generator=generator)
    dense = regression_metrics(RegressionPrediction.from_outputs(outputs), targets)
    flat = regression_metrics(
        RegressionPrediction.from_outputs(outputs.movedim(2, -1).reshape(3, 20, 2)), targets.flatten()
    )
    assert dense == pytest.approx(flat, abs=1e-6)


def test_what_is_refused():
    prediction, targets = random_case(6)
    with pytest.raises(MetricError, match=r"the same shape; got \[50, 1\] and \[50\]"):
        regression_metrics(prediction, targets.unsqueeze(1))
    with pytest.raises(MetricError, match="std=0"):
        regression_metrics(prediction, targets, std=0.0)
    with pytest.raises(MetricError, match="targets must be finite; got nan for example 0"):
        regression_metrics(prediction, targets * math.nan)
    with pytest.raises(MetricError, match="predicted means must be finite"):
        regression_metrics(RegressionPrediction(prediction.members * math.nan), targets)
    with pytest.raises(MetricError, match="variances must be positive"):
        regression_metrics(RegressionPrediction(-prediction.members.abs()), targets)
    with pytest.raises(MetricError, match="'modes'"):
        example_nll(prediction, targets, of="modes")
    with pytest.raises(MetricError, match="levels=0"):
        quantile_curve(prediction, targets, levels=0)
