"""What selective prediction promises: ties in expectation, thresholds that keep a risk or a coverage."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from multum.errors import MetricError
from multum.metrics.selective import aurc, fit_abstention, risk_coverage

properties = settings(max_examples=60, deadline=None, database=None, derandomize=True)
examples = st.lists(st.tuples(st.sampled_from([0.1, 0.4, 0.5, 0.9]), st.booleans()), min_size=1, max_size=6)


def split(pairs: list[tuple[float, bool]]) -> tuple[Tensor, Tensor]:
    confidence, correct = zip(*pairs, strict=True)
    return torch.tensor(confidence, dtype=torch.float64), torch.tensor(correct)


def aurc_of_order(correct: list[bool]) -> float:
    return sum(correct[:k].count(False) / k for k in range(1, len(correct) + 1)) / len(correct)


def simulate(examples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Calibrated confidences between .5 and 1: the risk above a threshold t is (1 - t) / 2."""
    confidence = 0.5 + 0.5 * torch.rand(examples, generator=generator, dtype=torch.float64)
    return confidence, torch.rand(examples, generator=generator, dtype=torch.float64) < confidence


@properties
@given(examples)
def test_ties_count_as_the_mean_over_their_orders(pairs: list[tuple[float, bool]]):
    orders = [
        order for order in itertools.permutations(pairs) if all(a[0] >= b[0] for a, b in itertools.pairwise(order))
    ]
    expected = sum(aurc_of_order([right for _, right in order]) for order in orders) / len(orders)
    assert aurc(*split(pairs)) == pytest.approx(expected, abs=1e-12)


def test_the_curve():
    curve = risk_coverage(torch.tensor([0.2, 0.9, 0.7, 0.7]), torch.tensor([1, 1, 0, 1]))
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert curve.risk.tolist() == pytest.approx([0, 0.25, 1 / 3, 0.25])
    assert curve.threshold.tolist() == pytest.approx([0.9, 0.7, 0.7, 0.2])
    assert curve.aurc == pytest.approx((0 + 0.25 + 1 / 3 + 0.25) / 4)


@properties
@given(examples)
def test_only_the_ranking_matters_and_the_end_is_the_error_rate(pairs: list[tuple[float, bool]]):
    confidence, correct = split(pairs)
    assert aurc(confidence.log() * 3 - 7, correct) == pytest.approx(aurc(confidence, correct), abs=1e-12)
    assert risk_coverage(confidence, correct).risk[-1].item() == pytest.approx(1 - correct.double().mean().item())


def test_a_good_ranking_beats_none_and_none_beats_the_reverse():
    confidence, correct = simulate(2000, torch.Generator().manual_seed(0))
    flat = aurc(torch.zeros(2000), correct)
    assert flat == pytest.approx(1 - correct.double().mean().item())
    assert aurc(confidence, correct) < flat - 0.05 < flat + 0.05 < aurc(-confidence, correct)


@pytest.mark.parametrize("coverage", [0.1, 0.5, 0.77, 1.0])
def test_a_wanted_coverage_is_kept_and_not_exceeded(coverage: float):
    confidence, correct = simulate(1000, torch.Generator().manual_seed(1))
    rule = fit_abstention(confidence, correct, coverage=coverage)
    answered = rule(confidence)
    assert answered.double().mean().item() == rule.coverage == pytest.approx(coverage, abs=1e-9)
    assert (~correct[answered]).double().mean().item() == pytest.approx(rule.risk)


@pytest.mark.parametrize("risk", [0.02, 0.1, 0.2, 0.26])
def test_a_wanted_risk_is_kept_at_the_largest_coverage(risk: float):
    confidence, correct = simulate(1000, torch.Generator().manual_seed(2))
    rule = fit_abstention(confidence, correct, risk=risk)
    curve = risk_coverage(confidence, correct)
    assert rule.risk <= risk
    assert rule.coverage == pytest.approx(curve.coverage[curve.risk <= risk].max().item())
    assert rule(confidence).double().mean().item() == rule.coverage


def test_a_threshold_takes_all_equal_confidences_or_none():
    confidence, correct = torch.tensor([0.9, 0.5, 0.5, 0.5]), torch.tensor([1, 1, 1, 0])
    assert fit_abstention(confidence, correct, coverage=0.5).coverage == 1.0
    assert fit_abstention(confidence, correct, risk=0.2).coverage == 0.25


def test_nothing_is_answered_where_no_threshold_will_do():
    rule = fit_abstention(torch.tensor([0.9, 0.8]), torch.tensor([0, 1]), risk=0.1)
    assert rule.threshold == math.inf and rule.coverage == 0 and not rule(torch.tensor([1.0, 0.5])).any()


def test_float32_confidences_meet_their_own_threshold():
    confidence = torch.tensor([0.1, 0.3, 0.7])
    rule = fit_abstention(confidence, torch.tensor([1, 1, 1]), coverage=0.66)
    assert rule(confidence).tolist() == [False, True, True]


def test_with_delta_the_risk_holds_on_new_items():
    generator = torch.Generator().manual_seed(3)
    broken = {None: 0, 0.1: 0}
    coverage = 0.0
    for _ in range(150):
        confidence, correct = simulate(1000, generator)
        for delta in broken:
            rule = fit_abstention(confidence, correct, risk=0.15, delta=delta)
            broken[delta] += (1 - rule.threshold) / 2 > 0.15 if rule.coverage else 0  # the true risk of this rule
            coverage += rule.coverage / 150 if delta else 0
    assert broken[0.1] <= 0.1 * 150
    assert broken[None] >= 0.4 * 150  # the empirical choice promises nothing
    assert coverage > 0.3


def test_every_threshold_tried_costs_a_share_of_delta():
    """A hundred right answers bound the risk by 1 - (delta / 20)^(1 / 100) = .0516, one threshold alone by .0228."""
    confidence, correct = torch.linspace(0.5, 1, 100), torch.ones(100)
    assert fit_abstention(confidence, correct, risk=0.0515, delta=0.1).coverage == 0
    assert fit_abstention(confidence, correct, risk=0.0517, delta=0.1).coverage == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either risk or coverage must"),
        ({"risk": 0.1, "coverage": 0.5}, "either risk or coverage must"),
        ({"risk": 5}, "risk=5"),
        ({"coverage": 0}, "coverage=0"),
        ({"risk": 0.1, "delta": 2.0}, "delta=2.0"),
    ],
)
def test_what_is_refused(arguments: dict, message: str):
    with pytest.raises(MetricError, match=message):
        fit_abstention(torch.tensor([0.9, 0.8]), torch.tensor([1, 0]), **arguments)
