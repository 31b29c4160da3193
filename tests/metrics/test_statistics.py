"""What the uncertainty of numbers promises: scipy's tests, and an answer where there is no spread."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from multum.errors import MetricError
from multum.metrics.statistics import over_seeds, paired_t


def skewed(examples: int, seed: int) -> Tensor:
    """Losses per example as networks have them: mostly small, a few large; their mean is 1."""
    return -torch.rand(examples, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).log()


def test_seeds_against_scipy():
    runs = [0.91, 0.93, 0.90, 0.95, 0.92]
    seeds = over_seeds(runs)
    assert seeds.error == pytest.approx(stats.sem(runs)) and seeds.mean == pytest.approx(0.922) and seeds.n == 5
    assert seeds.interval() == pytest.approx(stats.t.interval(0.95, 4, loc=seeds.mean, scale=seeds.error))
    assert str(seeds) == "0.922 +- 0.0086 (n=5)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        seeds.n = 1


def test_one_seed_has_no_error():
    seeds = over_seeds(torch.tensor([0.9]))
    assert seeds.n == 1 and math.isnan(seeds.error) and math.isnan(seeds.std) and math.isnan(seeds.interval()[0])


def test_paired_t_by_the_formula():
    a, b = skewed(60, seed=6), skewed(60, seed=7)
    d = a - b
    mean, error = d.mean().item(), d.std().item() / math.sqrt(60)
    test = paired_t(a, b, level=0.9)
    assert test.difference == pytest.approx(mean)
    assert test.p_value == pytest.approx(2 * stats.t.sf(abs(mean) / error, 59))
    assert (test.low, test.high) == pytest.approx(stats.t.interval(0.9, 59, loc=mean, scale=error))


def test_differences_without_spread():
    a = torch.arange(5.0)
    same, above = paired_t(a, a), paired_t(a + 1, a)
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    assert (above.difference, above.low, above.high, above.p_value) == (1, 1, 1, 0)
    assert paired_t(skewed(60, seed=6) + 1, skewed(60, seed=6)).p_value < 1e-6  # rounding is no spread


def test_no_difference_is_found_as_rarely_as_promised():
    small = sum(paired_t(skewed(60, 2 * seed), skewed(60, 2 * seed + 1)).p_value < 0.1 for seed in range(200))
    assert 0.03 <= small / 200 <= 0.19


def test_what_is_refused():
    values = torch.ones(5)
    with pytest.raises(MetricError, match="values of runs must hold at least one example"):
        over_seeds([])
    with pytest.raises(MetricError, match="level=95"):
        over_seeds([1.0, 2.0]).interval(95)
    with pytest.raises(MetricError, match=r"the same shape; got \[5\] and \[4\]"):
        paired_t(values, values[:4])
    with pytest.raises(MetricError, match="finite"):
        paired_t(values * math.nan, values)
    with pytest.raises(MetricError, match="level=95"):
        paired_t(values, values, level=95)
    with pytest.raises(MetricError, match="at least 2 examples"):
        paired_t(values[:1], values[:1])
