"""What the papers' two formulas promise: Figure 5's values, a bound that bounds, a decomposition that adds up."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from multum.errors import MetricError
from multum.metrics.theory import bias_variance, masking_kl, masking_kl_bound

properties = settings(max_examples=100, deadline=None, database=None, derandomize=True)
TENTHS = torch.full((100,), 0.1, dtype=torch.float64)  # w = mu = .1, C = 100


@pytest.mark.parametrize(
    ("p", "std", "exact", "bound"),
    [
        (0.5, 0.5, 1.124112, 1.255),
        (0.5, 1.0, 0.399701, 0.50125),
        (0.5, 2.0, 0.215225, 0.312812),
        (0.9, 1.0, 0.00837, 0.011561),
        (1.0, 0.5, 0.0, 0.0),
        (1.0, 1.0, 0.0, 0.0),
    ],
)
def test_figure_5(p: float, std: float, exact: float, bound: float):
    assert masking_kl(p, TENTHS, TENTHS, std).item() == pytest.approx(exact, abs=1e-6)
    assert masking_kl_bound(p, TENTHS, TENTHS, std).item() == pytest.approx(bound, abs=1e-6)


@properties
@given(st.integers(0, 2**31), st.floats(1e-3, 1.0), st.floats(0.05, 20.0), st.integers(1, 30))
def test_the_bound_bounds(seed: int, p: float, std: float, inputs: int):
    weights, means = torch.randn(2, inputs, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    exact, bound = masking_kl(p, weights, means, std).item(), masking_kl_bound(p, weights, means, std).item()
    assert 0 <= exact <= bound * (1 + 1e-12) + 1e-12
    assert masking_kl(1.0, weights, means, std) == 0 == masking_kl_bound(1.0, weights, means, std)


def test_the_exact_divergence_is_that_of_the_two_gaussians():
    weights, means = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([1.0, 0.3, -0.2])
    p, std = 0.7, 1.3
    mu, s = float((weights * means).sum()), float((weights * means).square().sum())
    z = torch.distributions.Normal(mu, std)
    masked = torch.distributions.Normal(p * mu, math.sqrt(p * (std**2 + (1 - p) * s)))
    expected = torch.distributions.kl_divergence(z, masked).item()
    assert masking_kl(p, weights, means, std).item() == pytest.approx(expected, rel=1e-5)


def test_whole_curves_at_once():
    p, std = torch.linspace(0.1, 1, 10), torch.tensor([[0.5], [1.0], [2.0]])
    found = masking_kl_bound(p, TENTHS, TENTHS, std)
    assert found.shape == (3, 10)
    assert found[1, 4].item() == pytest.approx(masking_kl_bound(p[4].item(), TENTHS, TENTHS, 1.0).item(), abs=1e-9)
    layer = masking_kl(0.5, torch.rand(8, 100), torch.rand(100), 1.0)
    assert layer.shape == (8,)


def test_the_error_is_bias_and_variance():
    generator = torch.Generator().manual_seed(0)
    predictions, targets = torch.randn(7, 50, generator=generator), torch.randn(50, generator=generator)
    found = bias_variance(predictions, targets)
    assert found.error == pytest.approx(found.bias + found.variance, abs=1e-12)
    assert found.error == pytest.approx((predictions - targets).square().mean().item(), abs=1e-6)
    assert found.variance == pytest.approx(predictions.var(0, correction=0).mean().item(), abs=1e-6)
    assert bias_variance(predictions[:1], targets).variance == 0


def test_what_is_refused():
    for p in (0.0, 1.5, math.nan):
        with pytest.raises(MetricError, match="above 0 and at most 1"):
            masking_kl(p, TENTHS, TENTHS, 1.0)
    with pytest.raises(MetricError, match="std"):
        masking_kl_bound(0.5, TENTHS, TENTHS, 0.0)
    with pytest.raises(MetricError, match=r"one shape, however: \[5\] and \[4\]"):
        bias_variance(torch.zeros(3, 5), torch.zeros(4))
    with pytest.raises(MetricError, match=r"\[trainings, items"):
        bias_variance(torch.zeros(3), torch.zeros(3))
    with pytest.raises(MetricError, match="predictions are finite"):
        bias_variance(torch.full((2, 3), math.nan), torch.zeros(3))
