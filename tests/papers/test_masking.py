"""What masks cost, Packed-Ensembles C.1: Figure 5's values, and a bound that bounds."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from multum.errors import ConfigError
from multum.papers.exact import masking_kl, masking_kl_bound

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
    p, std = torch.tensor([0.5, 0.9, 1.0]), torch.tensor([[0.5], [1.0], [2.0]])
    bound = [[1.255, math.nan, 0.0], [0.50125, 0.011561, 0.0], [0.312812, math.nan, 0.0]]  # Figure 5, as above
    exact = [[1.124112, math.nan, 0.0], [0.399701, 0.00837, 0.0], [0.215225, math.nan, 0.0]]
    for curves, expected in ((masking_kl_bound, bound), (masking_kl, exact)):
        whole = curves(p, TENTHS, TENTHS, std)
        assert whole.shape == (3, 3)
        for value, wanted in zip(whole.flatten().tolist(), torch.tensor(expected).flatten().tolist(), strict=True):
            assert math.isnan(wanted) or value == pytest.approx(wanted, abs=1e-6)


def test_a_layer_has_a_divergence_per_neuron():
    weights = torch.stack([TENTHS, 0 * TENTHS])  # the second neuron hears nothing: only its variance shrinks
    layer = masking_kl(0.5, weights, TENTHS, 1.0)
    assert layer.tolist() == pytest.approx([0.399701, (1 - math.log(2)) / 2], abs=1e-6)


def test_what_is_refused():
    for p in (0.0, 1.5, math.nan):
        with pytest.raises(ConfigError, match="0 < p <= 1"):
            masking_kl(p, TENTHS, TENTHS, 1.0)
    with pytest.raises(ConfigError, match="std"):
        masking_kl_bound(0.5, TENTHS, TENTHS, 0.0)
