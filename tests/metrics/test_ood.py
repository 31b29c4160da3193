"""What detection of OOD examples promises: METHODS 3.9, ties, scikit-learn, invariances, many sets at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score
from torch import Tensor

from multum.errors import ConfigError, MetricError
from multum.metrics.aggregate import detection
from multum.metrics.ood import SCORES, aupr, auroc, fpr95, fpr_at_recall, histogram, scores
from multum.outputs.prediction import Prediction

INSIDE = torch.tensor([0.1, 0.2, 0.3, 0.35, 0.6, 0.7])
OUTSIDE = torch.tensor([0.25, 0.5, 0.8, 0.9])
FOUR_MEMBERS = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]], dtype=torch.float64)

properties = settings(max_examples=50, deadline=None, database=None, derandomize=True)
# Few distinct values: ties are the rule, as for the variation ratio.
values = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=25).map(
    lambda list_: torch.tensor(list_, dtype=torch.float64)
)


def binary(inside: Tensor, outside: Tensor) -> tuple[np.ndarray, np.ndarray]:
    return np.r_[np.zeros(len(inside)), np.ones(len(outside))], torch.cat([inside, outside]).numpy()


def naive_fpr(inside: Tensor, outside: Tensor, recall: float = 0.95) -> float:
    for threshold in sorted({*inside.tolist(), *outside.tolist()}, reverse=True):
        if sum(s >= threshold for s in outside.tolist()) / len(outside) >= recall:
            return sum(s >= threshold for s in inside.tolist()) / len(inside)
    raise AssertionError


def nearest_recall_fpr(inside: Tensor, outside: Tensor) -> float:
    """torch-uncertainty's rule: the recall nearest to .95 and, among its thresholds, the most false positives."""
    thresholds = sorted({*inside.tolist(), *outside.tolist()}, reverse=True)
    found = [(sum(s >= t for s in outside.tolist()) / len(outside), t) for t in thresholds]
    nearest = min(abs(recall - 0.95) for recall, _ in found)
    return max(
        sum(s >= t for s in inside.tolist()) / len(inside) for recall, t in found if abs(recall - 0.95) == nearest
    )


# Ranking


def test_hand_computed_values():
    assert auroc(INSIDE, OUTSIDE) == pytest.approx(0.75, abs=1e-12)
    assert aupr(INSIDE, OUTSIDE) == pytest.approx(0.775, abs=1e-12)
    assert fpr95(INSIDE, OUTSIDE) == pytest.approx(0.666667, abs=5e-7)


def test_hand_computed_values_with_known_examples_positive():
    assert auroc(-OUTSIDE, -INSIDE) == pytest.approx(0.75, abs=1e-12)
    assert aupr(-OUTSIDE, -INSIDE) == pytest.approx(0.835714, abs=5e-7)
    assert fpr95(-OUTSIDE, -INSIDE) == pytest.approx(0.5, abs=1e-12)


def test_aupr_is_a_step_and_not_a_trapezoid():
    precision, recall, _ = precision_recall_curve(*binary(INSIDE, OUTSIDE))
    assert auc(recall, precision) == pytest.approx(0.753571, abs=5e-7)
    assert aupr(INSIDE, OUTSIDE) == pytest.approx(0.775, abs=1e-12)


def test_the_first_threshold_and_not_the_nearest_recall():
    inside = torch.arange(1, 11) / 10
    outside = torch.tensor([2.0] * 19 + [-5.0])
    assert fpr95(inside, outside) == 0.0
    assert nearest_recall_fpr(inside, outside) == 1.0
    few = torch.tensor([2.0] * 14 + [0.0])
    assert fpr95(inside, few) == nearest_recall_fpr(inside, few) == 1.0


@properties
@given(values, values)
def test_scikit_learn_agrees_on_ties(inside: Tensor, outside: Tensor):
    assert auroc(inside, outside) == pytest.approx(roc_auc_score(*binary(inside, outside)), abs=1e-12)
    assert aupr(inside, outside) == pytest.approx(average_precision_score(*binary(inside, outside)), abs=1e-12)


@properties
@given(values, values, st.sampled_from([0.05, 0.5, 0.8, 0.95, 1.0]))
def test_fpr_has_a_plain_python_twin(inside: Tensor, outside: Tensor, recall: float):
    assert fpr_at_recall(inside, outside, recall=recall) == naive_fpr(inside, outside, recall)


@properties
@given(values, values)
def test_only_the_ranking_matters(inside: Tensor, outside: Tensor):
    for metric in (auroc, aupr, fpr95):
        assert metric(inside.exp(), outside.exp()) == metric(inside, outside)
        assert metric(3 * inside - 100, 3 * outside - 100) == metric(inside, outside)


@properties
@given(values, values)
def test_auroc_swapped_and_negated_is_the_same(inside: Tensor, outside: Tensor):
    assert auroc(-outside, -inside) == pytest.approx(auroc(inside, outside), abs=1e-15)
    assert auroc(outside, inside) == pytest.approx(1 - auroc(inside, outside), abs=1e-15)
    assert 0 <= fpr95(inside, outside) <= 1 and 0 < aupr(inside, outside) <= 1


def test_aupr_swapped_and_negated_is_not_the_same():
    assert abs(aupr(-OUTSIDE, -INSIDE) - aupr(INSIDE, OUTSIDE)) > 0.05


@pytest.mark.parametrize("share", [0.038, 0.72])
def test_a_score_that_says_nothing_gives_the_base_rate(share: float):
    inside, outside = torch.zeros(1000 - int(1000 * share)), torch.zeros(int(1000 * share))
    assert (auroc(inside, outside), fpr95(inside, outside)) == (0.5, 1.0)
    assert aupr(inside, outside) == pytest.approx(share)


def test_many_examples_are_counted_exactly():
    # 300 000 x 300 000 pairs are more than float32, or a float64 mean of ranks, keeps exactly.
    inside, outside = torch.arange(300_000).double(), torch.arange(300_000).double() + 0.5
    assert auroc(inside, outside) == (300_000 * 300_001 / 2) / 300_000**2


def test_infinite_scores_are_ranked_and_precisions_mixed():
    assert auroc(torch.tensor([0.0, -math.inf]), torch.tensor([math.inf, 1.0], dtype=torch.float64)) == 1.0
    assert auroc(torch.tensor([math.inf]), torch.tensor([math.inf])) == 0.5
    assert auroc(torch.tensor([0.5], dtype=torch.float16), torch.tensor([1], dtype=torch.int64)) == 1.0


# Scores


def test_scores_of_the_hand_computed_members():
    found = scores(Prediction.from_logits(FOUR_MEMBERS.log().unsqueeze(1)))
    assert list(found) == list(SCORES)
    assert found["msp"].item() == pytest.approx(-0.475, abs=1e-12)
    assert found["entropy"].item() == pytest.approx(0.947526, abs=5e-7)
    assert found["mutual_information"].item() == pytest.approx(0.126990, abs=5e-7)
    assert found["variation_ratio"].item() == pytest.approx(0.25, abs=1e-12)


def test_logit_scores_are_of_the_mean_logits():
    logits = torch.tensor([[[4.0, 0.0, 1.0]], [[0.0, 2.0, 1.0]]], dtype=torch.float64)  # mean (2, 1, 1)
    found = scores(Prediction.from_logits(logits))
    assert found["max_logit"].item() == -2.0  # the mean of the members' maxima would be -3
    assert found["energy"].item() == pytest.approx(-math.log(math.exp(2) + 2 * math.exp(1)), abs=1e-12)


def test_entropy_is_that_of_the_mean():
    sure_but_opposed = torch.tensor([[[50.0, 0.0]], [[0.0, 50.0]]], dtype=torch.float64)
    assert scores(Prediction.from_logits(sure_but_opposed), "entropy")["entropy"].item() == pytest.approx(math.log(2))


def test_every_score_is_high_for_foreign_items():
    generator = torch.Generator().manual_seed(0)
    common = 8 * torch.nn.functional.one_hot(torch.randint(5, (300,), generator=generator), 5)
    known = Prediction.from_logits(common + torch.randn(4, 300, 5, generator=generator))
    outside = Prediction.from_logits(torch.randn(4, 200, 5, generator=generator))
    found = detection(scores(known), {"noise": scores(outside), "itself": scores(known)})
    for name in SCORES:
        assert found["noise"][name]["auroc"] > 0.9, name
        assert found["itself"][name]["auroc"] == pytest.approx(0.5, abs=1e-12), name


def test_many_sets_equal_each_alone():
    generator = torch.Generator().manual_seed(1)
    known = {name: torch.randn(50, generator=generator) for name in ("msp", "entropy")}
    sets = {f"set {k}": {name: torch.randn(9 + k, generator=generator) for name in known} for k in range(4)}
    found = detection(known, sets)
    assert list(found) == list(sets)
    for place, outside in sets.items():
        for name in known:
            pair = known[name], outside[name]
            assert found[place][name] == {"auroc": auroc(*pair), "aupr": aupr(*pair), "fpr95": fpr95(*pair)}


def test_pixels_are_examples():
    logits = torch.randn(2, 3, 4, 5, 6, generator=torch.Generator().manual_seed(2))
    found = scores(Prediction.from_logits(logits))
    assert all(score.shape == (3, 5, 6) for score in found.values())
    assert auroc(found["msp"], found["msp"] + 1) == auroc(found["msp"].flatten(), found["msp"].flatten() + 1)


@properties
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(2, 6), st.sampled_from([0.0, 1.0, 30.0]))
def test_bounds_of_scores(seed: int, members: int, classes: int, scale: float):
    logits = scale * torch.randn(members, 8, classes, generator=torch.Generator().manual_seed(seed)).double()
    found = scores(Prediction.from_logits(logits))
    mutual_information, variation_ratio = found["mutual_information"], found["variation_ratio"]
    assert (mutual_information >= 0).all() and (mutual_information <= math.log(min(members, classes)) + 1e-12).all()
    assert (variation_ratio >= 0).all() and (variation_ratio <= 1 - 1 / min(members, classes) + 1e-12).all()
    assert (found["msp"] >= -1 - 1e-12).all() and (found["msp"] <= -1 / classes + 1e-12).all()
    assert (found["energy"] <= found["max_logit"] + 1e-12).all()


# Histograms


def test_histograms_share_their_edges():
    generator = torch.Generator().manual_seed(3)
    sets = {"known": torch.randn(500, generator=generator), "svhn": 3 + torch.randn(80, generator=generator)}
    found = histogram(sets, bins=20)
    assert found.edges[0] == sets["known"].min() and found.edges[-1] == torch.cat(list(sets.values())).max()
    for name, data in sets.items():
        expected, _ = np.histogram(data.double().numpy(), bins=found.edges.numpy())
        assert found.counts[name].tolist() == expected.tolist()


def test_a_histogram_of_one_value():
    found = histogram({"known": torch.zeros(7)}, bins=4)
    assert found.counts["known"].sum() == 7 and (found.edges.diff() > 0).all()


# What is refused


@pytest.mark.parametrize("metric", [auroc, aupr, fpr95])
def test_sets_that_are_refused(metric):
    with pytest.raises(MetricError, match="outside must hold at least one example; got none"):
        metric(INSIDE, torch.tensor([]))
    with pytest.raises(MetricError, match="inside must hold at least one example; got none"):
        metric(torch.tensor([]), OUTSIDE)
    with pytest.raises(MetricError, match="inside must be numbers; got nan for example 1"):
        metric(torch.tensor([0.0, math.nan]), OUTSIDE)


def test_calls_that_are_refused():
    known = {"msp": INSIDE}
    with pytest.raises(MetricError, match="msp of svhn, outside must hold at least one example"):
        detection(known, {"svhn": {"msp": torch.tensor([])}})
    with pytest.raises(MetricError, match="at least one OOD set"):
        detection(known, {})
    with pytest.raises(MetricError, match=r"got \['entropy'\] for svhn"):
        detection(known, {"svhn": {"entropy": OUTSIDE}})
    with pytest.raises(MetricError, match=r"'entropi'\. Did you mean entropy"):
        scores(Prediction.from_logits(torch.zeros(1, 2, 3)), "entropi")
    with pytest.raises(MetricError, match="got NaN"):
        scores(Prediction.from_logits(torch.full((1, 2, 3), math.nan)))
    with pytest.raises(ConfigError, match="at least 2 classes"):
        scores(Prediction.from_logits(torch.zeros(1, 2, 1)))
    with pytest.raises(MetricError, match="recall=95"):
        fpr_at_recall(INSIDE, OUTSIDE, recall=95)
    with pytest.raises(MetricError, match="svhn must be finite"):
        histogram({"svhn": torch.tensor([math.inf])})
    with pytest.raises(MetricError, match="bins=0"):
        histogram({"svhn": OUTSIDE}, bins=0)
