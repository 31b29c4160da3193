"""What measures of diversity promise: METHODS 3.9 and 6, plain twins over pairs, sums that add up."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from multum.errors import MetricError
from multum.metrics import diversity as module
from multum.metrics.aggregate import diversity_metrics
from multum.metrics.diversity import disagreement, disagreement_matrix, pair_sums
from multum.outputs.prediction import Prediction

FOUR_MEMBERS = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]], dtype=torch.float64)

properties = settings(max_examples=50, deadline=None, database=None, derandomize=True)


def random_case(seed: int, members: int = 4, examples: int = 60, classes: int = 4) -> tuple[Prediction, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (examples,), generator=generator)
    common = torch.randn(examples, classes, generator=generator) + torch.nn.functional.one_hot(labels, classes)
    logits = common + torch.randn(members, examples, classes, generator=generator)
    return Prediction.from_logits(logits.double()), labels


def votes_for(rows: list[list[int]], classes: int = 3) -> Prediction:
    return Prediction.from_logits(5.0 * torch.nn.functional.one_hot(torch.tensor(rows), classes).double())


def test_hand_computed_values():
    found = diversity_metrics(Prediction.from_logits(FOUR_MEMBERS.log().unsqueeze(1)))
    assert found["disagreement"] == pytest.approx(0.5, abs=1e-12)
    assert found["kl"] == pytest.approx(0.401010, abs=5e-7)
    assert found["kl_both"] == pytest.approx(0.384628, abs=5e-7)
    assert found["mutual_information"] == pytest.approx(0.126990, abs=5e-7)


def test_plain_twins_over_pairs():
    prediction, labels = random_case(0)
    members, n = prediction.members, len(labels)
    votes = members.argmax(2)
    pairs = list(itertools.combinations(range(4), 2))
    ordered = list(itertools.permutations(range(4), 2))
    differ = {(i, j): sum(int(votes[i, k] != votes[j, k]) for k in range(n)) / n for i, j in ordered}
    kl = {(i, j): float(stats.entropy(members[i], members[j], axis=1).mean()) for i, j in ordered}
    accuracy = [(votes[i] == labels).double().mean().item() for i in range(4)]
    ensemble = (prediction.labels == labels).double().mean().item()
    expected = {
        "disagreement": sum(differ[p] for p in pairs) / 6,
        "kl": sum(kl[p] for p in pairs) / 6,
        "kl_both": sum(kl[p] for p in ordered) / 12,
        "mutual_information": prediction.mutual_information.mean().item(),
        "normalised_disagreement": sum(differ[i, j] / (1 - accuracy[i]) for i, j in ordered) / 12,
        "normalised_disagreement_ensemble": sum(differ[p] for p in pairs) / 6 / (1 - ensemble),
    }
    found = diversity_metrics(prediction, labels)
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    matrix, divergences = disagreement_matrix(prediction), pair_sums(prediction).kl_sums / n
    for i, j in ordered:
        assert matrix[i, j].item() == pytest.approx(differ[i, j], abs=1e-12)
        assert divergences[i, j].item() == pytest.approx(kl[i, j], abs=1e-12)
    assert not matrix.diagonal().any() and not divergences.diagonal().any()


def test_without_labels_only_what_needs_none():
    prediction, labels = random_case(1)
    assert diversity_metrics(prediction, labels)["disagreement"] == disagreement(prediction)
    assert set(diversity_metrics(prediction)) == {"disagreement", "kl", "kl_both", "mutual_information"}


def normalised_disagreement(prediction: Prediction, labels: Tensor) -> float:
    return diversity_metrics(prediction, labels)["normalised_disagreement"]


def q_statistic(prediction: Prediction, labels: Tensor) -> float:
    return diversity_metrics(prediction, labels)["q_statistic"]


def test_normalised_by_hand():
    # Member 0 is right on 2 of 4, member 1 on 3 of 4; they differ on one example.
    prediction, labels = votes_for([[0, 0, 1, 1], [0, 0, 0, 1]]), torch.tensor([0, 0, 0, 0])
    assert normalised_disagreement(prediction, labels) == pytest.approx((0.25 / 0.5 + 0.25 / 0.25) / 2)


def test_the_q_statistic_by_hand():
    labels = torch.zeros(10, dtype=torch.long)
    # right: both 4, only the first 1, only the second 2, none 3 -> (12 - 2) / (12 + 2)
    first, second = [0] * 5 + [1] * 5, [0] * 4 + [1] + [0] * 2 + [2] * 3
    assert q_statistic(votes_for([first, second]), labels) == pytest.approx(10 / 14)
    assert q_statistic(votes_for([first, first]), labels) == 1.0
    # A member without errors has no Q with any other: left out, and NaN where nothing is left.
    perfect = [0] * 10
    assert q_statistic(votes_for([first, second, perfect]), labels) == pytest.approx(10 / 14)
    assert math.isnan(q_statistic(votes_for([perfect, perfect]), labels))


@properties
@given(st.integers(0, 2**31), st.integers(1, 5), st.integers(1, 20), st.integers(2, 5))
def test_bounds(seed: int, members: int, examples: int, classes: int):
    found = diversity_metrics(*random_case(seed, members, examples, classes))
    assert 0 <= found["disagreement"] <= 1
    assert found["kl"] >= 0 and found["kl_both"] >= 0
    assert 0 <= found["mutual_information"] <= math.log(min(members, classes)) + 1e-12
    assert math.isnan(found["q_statistic"]) or -1 <= found["q_statistic"] <= 1


def test_equal_members_do_not_differ():
    one, labels = random_case(2, members=1)
    found = diversity_metrics(Prediction.from_logits(one.logits.expand(4, -1, -1)), labels)
    assert found["disagreement"] == found["normalised_disagreement"] == 0
    assert found["kl"] == pytest.approx(0, abs=1e-12) and found["mutual_information"] == pytest.approx(0, abs=1e-12)
    assert found["q_statistic"] == 1.0


def test_one_member_disagrees_with_nobody():
    found = diversity_metrics(*random_case(3, members=1))
    assert math.isnan(found.pop("q_statistic"))
    assert len(found) == 6 and all(value == pytest.approx(0, abs=1e-12) for value in found.values())


def test_perfect_members_have_no_error_to_divide_by():
    prediction, labels = votes_for([[0, 1], [0, 1]]), torch.tensor([0, 1])
    assert math.isnan(normalised_disagreement(prediction, labels))
    assert math.isnan(diversity_metrics(prediction, labels)["normalised_disagreement_ensemble"])


def test_a_class_of_probability_zero():
    masked = torch.tensor([[[0.0, 0.0, -math.inf]], [[0.0, 0.0, 0.0]]], dtype=torch.float64)
    matrix = pair_sums(Prediction.from_logits(masked)).kl_sums
    assert matrix[0, 1].item() == pytest.approx(math.log(1.5)) and matrix[1, 0] == math.inf
    both = pair_sums(Prediction.from_logits(masked[:1].expand(2, -1, -1))).kl_sums
    assert both.tolist() == [[0, 0], [0, 0]]


def test_mutual_information_in_and_out_of_distribution():
    known, _ = random_case(4)
    outside = Prediction.from_logits(known.logits * torch.tensor([1.0, -1.0, 1.0, -1.0]).double().view(4, 1, 1))
    assert diversity_metrics(outside)["mutual_information"] > diversity_metrics(known)["mutual_information"] + 0.1


@pytest.mark.parametrize("size", [1, 100, 16 * 7])
def test_slices_do_not_change_anything(size: int, monkeypatch: pytest.MonkeyPatch):
    prediction, labels = random_case(5)
    whole = diversity_metrics(prediction, labels)
    monkeypatch.setattr(module, "SLICE", size)
    assert diversity_metrics(prediction, labels) == pytest.approx(whole, abs=1e-12)


def test_sums_add_up():
    prediction, labels = random_case(6)
    halves = [Prediction.from_logits(prediction.logits[:, part]) for part in (slice(0, 25), slice(25, None))]
    total = pair_sums(halves[0], labels[:25]) + pair_sums(halves[1], labels[25:])
    for name, value in diversity_metrics(prediction, labels).items():
        assert getattr(total, name) == pytest.approx(value, abs=1e-12), name
    with pytest.raises(MetricError, match="labels True and False"):
        pair_sums(halves[0], labels[:25]) + pair_sums(halves[1])
    with pytest.raises(MetricError, match="4 and 3 members"):
        pair_sums(prediction) + pair_sums(Prediction.from_logits(prediction.logits[:3]))


def test_pixels_are_examples():
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(3, 2, 4, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (2, 5), generator=generator)
    flat = diversity_metrics(Prediction.from_logits(logits.movedim(2, -1).reshape(3, 10, 4)), labels.flatten())
    assert diversity_metrics(Prediction.from_logits(logits), labels) == pytest.approx(flat, abs=1e-12)


def test_what_is_refused():
    prediction, labels = random_case(8)
    with pytest.raises(MetricError, match="got 9 for example 3"):
        diversity_metrics(prediction, labels.clone().index_fill_(0, torch.tensor([3]), 9))
    with pytest.raises(MetricError, match="got NaN for member 2, example 5"):
        logits = prediction.logits.clone()
        logits[2, 5, 1] = math.nan
        diversity_metrics(Prediction.from_logits(logits))
    with pytest.raises(MetricError, match="at least one example"):
        diversity_metrics(Prediction.from_logits(torch.zeros(2, 0, 3)))
