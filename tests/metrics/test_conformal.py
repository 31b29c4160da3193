"""What conformal sets promise: the finite-sample quantile, coverage on exchangeable data, plain twins."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from multum.errors import MetricError
from multum.metrics.conformal import ConformalSets, conformal_quantile, fit_sets

properties = settings(max_examples=25, deadline=None, database=None, derandomize=True)
KINDS = [("lac", False), ("aps", False), ("aps", True), ("raps", False), ("raps", True)]


def exchangeable(examples: int, seed: int, classes: int = 6, honest: float = 1.0) -> tuple[Tensor, Tensor]:
    """Labels drawn from probabilities that the network sharpens by the factor ``honest``: coverage must not care."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(examples, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return (honest * logits).softmax(1), labels


def naive_aps_set(probs: list[float], threshold: float, penalty: float = 0.0, rank: int = 0) -> list[bool]:
    order = sorted(range(len(probs)), key=lambda c: -probs[c])
    total, inside = 0.0, [False] * len(probs)
    for place, c in enumerate(order, start=1):
        total += probs[c]
        inside[c] = total + penalty * max(0, place - rank) <= threshold
    return inside


@pytest.mark.parametrize(
    ("n", "alpha", "rank"), [(9, 0.1, 9), (19, 0.05, 19), (99, 0.1, 90), (10, 0.3, 8), (10, 0.5, 6)]
)
def test_the_quantile_is_the_ceiling_of_n_plus_one(n: int, alpha: float, rank: int):
    scores = torch.arange(1, n + 1).double()[torch.randperm(n, generator=torch.Generator().manual_seed(n))]
    assert conformal_quantile(scores, alpha) == rank == math.ceil(round((n + 1) * (1 - alpha), 6))


def test_too_few_examples_give_full_sets():
    assert conformal_quantile(torch.arange(8.0), 0.1) == math.inf
    probs, labels = exchangeable(8, seed=0)
    sets = fit_sets(probs, labels, alpha=0.1)
    assert sets.threshold == math.inf and sets(probs).all() and sets.mean_size(probs) == 6


@pytest.mark.parametrize(("method", "randomised"), KINDS)
def test_coverage_on_exchangeable_data(method: str, randomised: bool):
    alpha, calibration, trials = 0.2, 60, 120
    covered = 0.0
    for seed in range(trials):
        probs, labels = exchangeable(calibration + 100, seed, honest=3.0)  # far too sure of itself
        sets = fit_sets(probs[:calibration], labels[:calibration], alpha=alpha, method=method, randomised=randomised)
        covered += sets.coverage(probs[calibration:], labels[calibration:]) / trials
    # The trials' coverages are Beta distributed around at least 1 - alpha.
    error = math.sqrt(alpha * (1 - alpha) * (1 / (calibration + 2) + 1 / 100) / trials)
    assert covered >= 1 - alpha - 4 * error
    if method == "lac" or randomised:  # no ties: not more than 1 / (n + 1) above
        assert covered <= 1 - alpha + 1 / (calibration + 1) + 4 * error


@properties
@given(st.integers(0, 2**20), st.sampled_from([0.05, 0.1, 0.3, 0.5]), st.sampled_from(KINDS), st.integers(2, 8))
def test_coverage_within_binomial_error(seed: int, alpha: float, kind: tuple[str, bool], classes: int):
    probs, labels = exchangeable(4000, seed, classes)
    method, randomised = kind
    sets = fit_sets(probs[:2000], labels[:2000], alpha=alpha, method=method, randomised=randomised)
    error = math.sqrt(alpha * (1 - alpha) * 2 / 2000)
    assert sets.coverage(probs[2000:], labels[2000:]) >= 1 - alpha - 5 * error


def test_without_the_promise_the_network_covers_less():
    probs, labels = exchangeable(4000, seed=1, honest=3.0)
    sets = fit_sets(probs[:2000], labels[:2000], alpha=0.1)
    naive = ConformalSets("aps", alpha=0.1, threshold=0.9)
    assert naive.coverage(probs[2000:], labels[2000:]) < 0.8 < 0.87 < sets.coverage(probs[2000:], labels[2000:])


def test_the_plain_twin_of_aps_and_raps():
    probs, labels = exchangeable(50, seed=2)
    for method, penalty, rank in [("aps", 0.0, 0), ("raps", 0.05, 2)]:
        sets = fit_sets(probs, labels, alpha=0.3, method=method, penalty=penalty, rank=rank)
        expected = [naive_aps_set(row, sets.threshold + 1e-12, penalty, rank) for row in probs.tolist()]
        found = ConformalSets(method, 0.3, sets.threshold + 1e-12, penalty=penalty, rank=rank)(probs)
        assert found.tolist() == expected


def test_the_plain_twin_of_lac():
    probs = torch.tensor([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]])
    assert ConformalSets("lac", 0.1, threshold=0.65)(probs).tolist() == [[True, False, False], [True, True, False]]


def test_a_randomised_score_lies_between_two_sums():
    probs, _ = exchangeable(200, seed=3)
    plain, drawn = ConformalSets("aps", 0.1, 1.0), ConformalSets("aps", 0.1, 1.0, randomised=True)
    low, high = plain.scores(probs) - probs, plain.scores(probs)
    scores = drawn.scores(probs, seed=7)
    assert (low - 1e-12 <= scores).all() and (scores <= high + 1e-12).all()
    assert torch.equal(scores, drawn.scores(probs, seed=7)) and not torch.equal(scores, drawn.scores(probs, seed=8))


def test_randomising_and_penalties_make_sets_smaller():
    probs, labels = exchangeable(4000, seed=4, classes=30)
    fit, test = slice(0, 2000), slice(2000, None)
    sizes = {
        name: fit_sets(probs[fit], labels[fit], alpha=0.1, **arguments).mean_size(probs[test])
        for name, arguments in {
            "aps": {"method": "aps"},
            "randomised": {"method": "aps", "randomised": True},
            "lac": {"method": "lac"},
        }.items()
    }
    assert sizes["lac"] < sizes["randomised"] < sizes["aps"]
    long = fit_sets(probs[fit], labels[fit], alpha=0.1)(probs[test]).sum(1)
    penalised = fit_sets(probs[fit], labels[fit], alpha=0.1, method="raps", penalty=0.2)(probs[test]).sum(1)
    assert penalised.max() < long.max()


def test_raps_without_a_penalty_is_aps():
    probs, labels = exchangeable(100, seed=5)
    raps, aps = (fit_sets(probs, labels, method=method, penalty=0.0) for method in ("raps", "aps"))
    assert raps.threshold == aps.threshold and torch.equal(raps(probs), aps(probs))


def test_harder_examples_get_larger_sets():
    probs, labels = exchangeable(2000, seed=6)
    sizes = fit_sets(probs, labels, alpha=0.1)(probs).sum(1).double()
    sure = probs.amax(1) > probs.amax(1).median()
    assert sizes[sure].mean() < sizes[~sure].mean() - 0.5


def test_empty_sets_can_be_refused():
    probs = torch.tensor([[0.4, 0.35, 0.25]])
    assert ConformalSets("lac", 0.1, threshold=0.1)(probs).sum() == 0
    assert ConformalSets("lac", 0.1, threshold=0.1, allow_empty=False)(probs).tolist() == [[True, False, False]]


def test_size_and_coverage_by_hand():
    sets = ConformalSets("lac", 0.1, threshold=0.5)
    probs = torch.tensor([[0.75, 0.25], [0.5, 0.5], [1.0, 0.0], [0.25, 0.75]])
    assert sets.mean_size(probs) == 5 / 4
    assert sets.coverage(probs, torch.tensor([0, 1, 1, 0])) == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "asp"}, "Did you mean aps"),
        ({"alpha": 10}, "alpha=10"),
        ({"alpha": 0.0}, "alpha=0.0"),
        ({"method": "lac", "randomised": True}, "aps or raps where randomised=True"),
        ({"penalty": -1.0}, "penalty=-1.0"),
        ({"labels": torch.tensor([0, 6])}, "got 6 for example 1"),
        ({"labels": torch.tensor([0])}, r"got \[1\]"),
        ({"probs": torch.ones(2, 6)}, "sum to one"),
        ({"probs": torch.full((2, 6), math.nan)}, "got NaN for example 0"),
        ({"probs": torch.ones(2, 1)}, "at least 2 classes"),
        ({"probs": torch.ones(2, 6, 3)}, "Flatten"),
        ({"probs": torch.ones(0, 6), "labels": torch.zeros(0, dtype=torch.long)}, "at least one example"),
    ],
)
def test_what_is_refused(change: dict, message: str):
    probs, labels = exchangeable(2, seed=0)
    with pytest.raises(MetricError, match=message):
        fit_sets(**({"probs": probs, "labels": labels} | change))
