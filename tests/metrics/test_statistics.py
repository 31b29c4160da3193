"""What the uncertainty of numbers promises: scipy's tests, intervals that cover, fast paths equal to slow ones."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from multum.errors import MetricError
from multum.metrics import statistics as module
from multum.metrics.ood import auroc
from multum.metrics.reliability import ece
from multum.metrics.statistics import bootstrap, bootstrap_metric, mcnemar, over_seeds, paired_bootstrap, paired_t


def skewed(items: int, seed: int) -> Tensor:
    """Losses per item as networks have them: mostly small, a few large; their mean is 1."""
    return -torch.rand(items, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).log()


def mean(values: Tensor) -> float:
    return float(values.double().mean())


# Bootstrap


def test_the_fast_path_is_resampling():
    values = skewed(300, seed=0)
    fast, slow = bootstrap(values, samples=2000), bootstrap_metric(mean, values, samples=2000, seed=1)
    assert fast.method == slow.method == "bootstrap" and fast.value == slow.value == mean(values)
    assert fast.error == pytest.approx(slow.error, rel=0.08)
    assert (fast.low, fast.high) == pytest.approx((slow.low, slow.high), abs=0.02)
    assert fast.error == pytest.approx(values.std(correction=0).item() / math.sqrt(300), rel=0.08)


def test_hits_and_misses_are_binomial():
    correct = torch.arange(200) < 170
    fast, slow = bootstrap(correct, samples=4000), bootstrap_metric(mean, correct, samples=4000)
    assert fast.method == "binomial" and fast.value == 0.85
    assert fast.error == pytest.approx(slow.error, rel=0.06) and fast.low == pytest.approx(slow.low, abs=0.0101)
    assert bootstrap(torch.ones(50)).low == bootstrap(torch.ones(50)).high == 1.0


def test_many_items_are_normal(monkeypatch: pytest.MonkeyPatch):
    values = skewed(5000, seed=1)
    drawn = bootstrap(values, samples=3000)
    monkeypatch.setattr(module, "MANY", 4999)
    normal = bootstrap(values, samples=3000)
    assert (drawn.method, normal.method) == ("bootstrap", "normal")
    assert (normal.low, normal.high) == pytest.approx((drawn.low, drawn.high), abs=0.2 * drawn.error)
    assert normal.error == pytest.approx(drawn.error, rel=0.06)


def test_chunks_of_draws_do_not_matter(monkeypatch: pytest.MonkeyPatch):
    values = skewed(50, seed=2)
    whole = bootstrap(values, samples=100)
    monkeypatch.setattr(module, "DRAWS", 130)
    assert bootstrap(values, samples=100) == whole


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_the_interval_covers_the_truth_as_often_as_it_says(level: float):
    hits = 0
    for seed in range(300):
        found = bootstrap(skewed(100, seed), level=level, samples=300, seed=seed)
        hits += found.low <= 1.0 <= found.high
    assert hits / 300 == pytest.approx(level, abs=0.04 + 3 * math.sqrt(level * (1 - level) / 300))


def test_the_seed_decides():
    values = skewed(100, seed=3)
    assert bootstrap(values, seed=5) == bootstrap(values, seed=5) != bootstrap(values, seed=6)
    state = torch.random.get_rng_state()
    bootstrap(values)
    bootstrap_metric(mean, values, samples=3)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_any_metric_over_the_same_items():
    generator = torch.Generator().manual_seed(4)
    confidence = torch.rand(400, generator=generator)
    correct = torch.rand(400, generator=generator) < confidence
    found = bootstrap_metric(ece, confidence, correct, samples=100)
    assert found.value == ece(confidence, correct) and found.items == 400 and found.low < found.high
    # Resampled together, a pair stays a pair; apart, these would hardly correlate.
    twins = bootstrap_metric(lambda a, b: float((a == b).double().mean()), confidence, confidence, samples=10)
    assert twins.low == twins.high == 1.0


def test_two_sets_are_resampled_apart():
    generator = torch.Generator().manual_seed(5)
    inside, outside = torch.randn(200, generator=generator), 1 + torch.randn(80, generator=generator)
    found = bootstrap_metric(auroc, inside, outside, samples=200, together=False)
    assert found.items == 280 and found.low < found.value == auroc(inside, outside) < found.high
    hanley = math.sqrt(found.value * (1 - found.value) / 80)
    assert 0.3 * hanley < found.error < 2 * hanley
    with pytest.raises(MetricError, match=r"one length, however: \[80, 200\].*together=False"):
        bootstrap_metric(auroc, inside, outside)


# Seeds


def test_seeds_against_scipy():
    runs = [0.91, 0.93, 0.90, 0.95, 0.92]
    found = over_seeds(runs)
    assert found.error == pytest.approx(stats.sem(runs)) and found.mean == pytest.approx(0.922) and found.n == 5
    expected = stats.t.interval(0.95, 4, loc=found.mean, scale=found.error)
    assert found.interval() == pytest.approx(expected)
    assert str(found) == "0.922 +- 0.0086 (n=5)"


def test_one_seed_has_no_error():
    found = over_seeds(torch.tensor([0.9]))
    assert found.n == 1 and math.isnan(found.error) and math.isnan(found.std) and math.isnan(found.interval()[0])


# Two methods on the same items


def test_paired_t_against_scipy():
    a, b = skewed(60, seed=6), skewed(60, seed=7)
    found, expected = paired_t(a, b), stats.ttest_rel(a, b)
    assert found.p_value == pytest.approx(expected.pvalue) and found.difference == pytest.approx(mean(a - b))
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert paired_t(a, a).p_value == 1.0 and paired_t(a + 1, a).p_value < 1e-6


def test_mcnemar_against_scipy():
    generator = torch.Generator().manual_seed(8)
    a, b = torch.rand(300, generator=generator) < 0.9, torch.rand(300, generator=generator) < 0.85
    only_a, only_b = int((a & ~b).sum()), int((~a & b).sum())
    found = mcnemar(a, b)
    assert found.p_value == pytest.approx(stats.binomtest(only_a, only_a + only_b).pvalue)
    assert found.difference == pytest.approx(mean(a) - mean(b)) and found.items == 300
    assert found.low < found.difference < found.high
    assert mcnemar(a, a).p_value == 1.0 and mcnemar(a, b).p_value == pytest.approx(mcnemar(b, a).p_value)


def test_paired_bootstrap_agrees_with_the_t_test():
    base = skewed(400, seed=9)
    for shift in (0.0, 0.05, 0.1):
        noise = torch.randn(400, generator=torch.Generator().manual_seed(10), dtype=torch.float64)
        a, b = base + shift + 0.5 * noise, base
        drawn, exact = paired_bootstrap(a, b, samples=4000), paired_t(a, b)
        assert drawn.difference == exact.difference
        assert (drawn.low, drawn.high) == pytest.approx((exact.low, exact.high), abs=0.01)
        assert drawn.p_value == pytest.approx(exact.p_value, abs=0.03)


def test_pairing_sees_what_two_intervals_do_not():
    base = skewed(200, seed=11)
    better = base - 0.01 * (1 + skewed(200, seed=12))
    assert bootstrap(better).high > bootstrap(base).low  # the intervals overlap
    assert paired_bootstrap(better, base).p_value < 0.01 and paired_bootstrap(better, base).high < 0


@pytest.mark.parametrize("test", [paired_bootstrap, paired_t])
def test_no_difference_is_found_as_rarely_as_promised(test):
    small = 0
    for seed in range(200):
        small += test(skewed(60, 2 * seed), skewed(60, 2 * seed + 1)).p_value < 0.1
    assert 0.03 <= small / 200 <= 0.19


def test_results_are_frozen():
    for found in (bootstrap(torch.ones(3)), over_seeds([1.0]), mcnemar(torch.ones(3), torch.ones(3))):
        with pytest.raises(dataclasses.FrozenInstanceError):
            found.level = 1


# What is refused


def test_what_is_refused():
    values = torch.ones(5)
    with pytest.raises(MetricError, match="at least one item"):
        bootstrap(torch.tensor([]))
    with pytest.raises(MetricError, match="finite, however: item 0 is inf"):
        bootstrap(torch.tensor([math.inf, 1.0]))
    with pytest.raises(MetricError, match="level=95"):
        bootstrap(values, level=95)
    with pytest.raises(MetricError, match="samples=1"):
        bootstrap(values, samples=1)
    with pytest.raises(MetricError, match="at least one item"):
        bootstrap_metric(mean, torch.tensor([]))
    with pytest.raises(MetricError, match="at least one item"):
        over_seeds([])
    for test in (paired_bootstrap, paired_t, mcnemar):
        with pytest.raises(MetricError, match=r"one shape, however: \[5\] and \[4\]"):
            test(values, values[:4])
        with pytest.raises(MetricError, match="finite"):
            test(values * math.nan, values)
    with pytest.raises(MetricError, match="at least 2 items"):
        paired_t(values[:1], values[:1])
    with pytest.raises(MetricError, match="right \\(1\\) and wrong \\(0\\)"):
        mcnemar(values * 0.3, values)
