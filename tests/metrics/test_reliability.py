"""What calibration errors promise: METHODS 3.9, where torchmetrics differs, edges, and order-free ties."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from multum.errors import MetricError
from multum.metrics.calibration import adaptive_ece, bin_sums, ece, ece_of_sums, reliability_curve, share_ties
from multum.outputs.prediction import Prediction

CONFIDENCE = torch.tensor([1, 1, 0.95, 0.94, 0.7, 0.68, 0.4, 0.1], dtype=torch.float64)
CORRECT = torch.tensor([1, 0, 1, 1, 1, 0, 0, 0])

properties = settings(max_examples=80, deadline=None, database=None, derandomize=True)
# A grid of confidences makes ties and edges common, which random ones never meet.
pairs = st.lists(st.tuples(st.sampled_from([0.0, 0.2, 0.4, 1 / 3, 0.61, 0.95, 1.0]), st.booleans()), min_size=1)


def split(pair: list[tuple[float, bool]]) -> tuple[Tensor, Tensor]:
    confidence, correct = zip(*pair, strict=True)
    return torch.tensor(confidence, dtype=torch.float64), torch.tensor(correct)


def naive_ece(confidence: Tensor, correct: Tensor, bins: int, closed: str = "high") -> float:
    total = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        if closed == "high":
            inside = [i for i, c in enumerate(confidence.tolist()) if low < c <= high or (b == 0 and c == 0)]
        else:
            inside = [i for i, c in enumerate(confidence.tolist()) if low <= c < high or (b == bins - 1 and c == 1)]
        total += abs(sum(float(correct[i]) - float(confidence[i]) for i in inside))
    return total / len(confidence)


def test_hand_computed_value_under_either_edge_rule():
    assert ece(CONFIDENCE, CORRECT) == pytest.approx(0.22125, abs=1e-12)
    assert naive_ece(CONFIDENCE, CORRECT, 15, closed="low") == pytest.approx(0.22125, abs=1e-12)


def test_torchmetrics_has_a_sixteenth_bin(torchmetrics):
    theirs = torchmetrics.binary_calibration_error(CONFIDENCE.float(), CORRECT, n_bins=15, norm="l1").item()
    assert theirs == pytest.approx(0.24875, abs=1e-6)
    assert ece(CONFIDENCE, CORRECT) == pytest.approx(0.22125, abs=1e-12)
    below = CONFIDENCE.clamp_max(1 - 1e-6)  # without confidences of exactly 1 both agree again
    theirs = torchmetrics.binary_calibration_error(below.float(), CORRECT, n_bins=15, norm="l1").item()
    assert theirs == pytest.approx(ece(below, CORRECT), abs=1e-6)


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_torchmetrics_agrees_on_unsaturated_networks(torchmetrics, bins: int):
    generator = torch.Generator().manual_seed(bins)
    logits, labels = torch.randn(2, 400, 5, generator=generator), torch.randint(5, (400,), generator=generator)
    prediction = Prediction.from_logits(logits)
    theirs = torchmetrics.multiclass_calibration_error(prediction.probs, labels, 5, n_bins=bins, norm="l1")
    ours = ece(prediction.confidence, prediction.labels == labels, bins=bins)
    assert ours == pytest.approx(theirs.item(), abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bins", [5, 10, 15])
def test_a_confidence_on_an_edge_belongs_below_it(bins: int, dtype: torch.dtype):
    edges = torch.tensor([k / bins for k in range(bins + 1)], dtype=dtype)
    counts = bin_sums(edges, torch.ones(bins + 1), bins=bins)[0]
    assert counts.tolist() == [2] + [1] * (bins - 1)  # 0 and the first edge share the first bin; 1 is in the last


def test_rounding_above_one_stays_in_the_last_bin():
    confidence = torch.tensor([1.0 + 2**-23, 1.0])
    assert bin_sums(confidence, torch.tensor([1, 1]))[:, -1].tolist() == [2, 2, 2]


@properties
@given(pairs, st.integers(1, 20))
def test_the_plain_python_twin(pair: list[tuple[float, bool]], bins: int):
    confidence, correct = split(pair)
    assert ece(confidence, correct, bins=bins) == pytest.approx(naive_ece(confidence, correct, bins), abs=1e-12)


@properties
@given(pairs, st.integers(1, 20), st.randoms(use_true_random=False))
def test_bounds_and_order(pair: list[tuple[float, bool]], bins: int, random):
    shuffled = list(pair)
    random.shuffle(shuffled)
    for metric in (ece, adaptive_ece):
        value = metric(*split(pair), bins=bins)
        assert 0 <= value <= 1
        assert metric(*split(shuffled), bins=bins) == pytest.approx(value, abs=1e-12)


def test_sums_add_up_over_batches():
    parts = bin_sums(CONFIDENCE[:3], CORRECT[:3]) + bin_sums(CONFIDENCE[3:], CORRECT[3:])
    assert ece_of_sums(parts) == pytest.approx(0.22125, abs=1e-12)


@pytest.mark.parametrize(("examples", "bins"), [(100, 15), (7, 3), (4, 15), (1, 2)])
def test_adaptive_bins_are_equally_full(examples: int, bins: int):
    generator = torch.Generator().manual_seed(examples)
    confidence = torch.rand(examples, generator=generator, dtype=torch.float64)
    correct = torch.rand(examples, generator=generator) < 0.6
    curve = reliability_curve(confidence, correct, bins=bins, adaptive=True)
    sizes = (curve.weight * examples).round()
    assert sizes.sum() == examples and sizes.max() - sizes.min() <= 1
    order = sorted(range(examples), key=lambda i: confidence[i].item())
    cuts = [order[k * examples // bins : (k + 1) * examples // bins] for k in range(bins)]
    gaps = [abs(sum(float(correct[i]) - float(confidence[i]) for i in cut)) for cut in cuts]
    assert adaptive_ece(confidence, correct, bins=bins) == pytest.approx(sum(gaps) / examples, abs=1e-12)
    assert curve.edges.shape == (bins + 1,) and (curve.edges.diff() >= 0).all()


@pytest.mark.parametrize("correct", [[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1]])
def test_a_cut_through_equal_confidences_gives_both_sides_their_common_accuracy(correct: list[int]):
    assert adaptive_ece(torch.full((4,), 0.5), torch.tensor(correct), bins=2) == 0.0


def test_the_curve_has_the_numbers_of_the_diagram():
    curve = reliability_curve(CONFIDENCE, CORRECT)
    assert curve.edges.tolist() == pytest.approx([k / 15 for k in range(16)])
    assert curve.weight.sum() == 1 and curve.weight[-1] == 0.5
    assert curve.confidence[-1] == pytest.approx((1 + 1 + 0.95 + 0.94) / 4) and curve.accuracy[-1] == 0.75
    empty = curve.weight == 0
    assert curve.accuracy[empty].isnan().all() and not curve.accuracy[~empty].isnan().any()
    assert curve.ece == pytest.approx(ece(CONFIDENCE, CORRECT), abs=1e-15)


def test_tied_values_become_their_mean():
    shared = share_ties(torch.tensor([5.0, 5.0, 5.0, 2.0]), torch.tensor([3.0, 0.0, 0.0, 7.0]))
    assert shared.tolist() == [1.0, 1.0, 1.0, 7.0]


@pytest.mark.parametrize("metric", [ece, adaptive_ece, reliability_curve])
def test_what_is_refused(metric):
    with pytest.raises(MetricError, match=r"between 0 and 1; got 3\.0"):
        metric(torch.tensor([0.5, 3.0]), torch.tensor([1, 0]))
    with pytest.raises(MetricError, match=r"the same shape; got \[3\] and \[2\]"):
        metric(torch.tensor([0.5, 0.5]), torch.tensor([1, 0, 1]))
    with pytest.raises(MetricError, match="hold 0 and 1 only"):
        metric(torch.tensor([0.5, 0.5]), torch.tensor([1, 2]))
    with pytest.raises(MetricError, match="got nan for example 1"):
        metric(torch.tensor([0.5, float("nan")]), torch.tensor([1, 0]))
    with pytest.raises(MetricError, match="at least one example; got none"):
        metric(torch.tensor([]), torch.tensor([]))
    with pytest.raises(MetricError, match="bins=0"):
        metric(torch.tensor([0.5]), torch.tensor([1]), bins=0)
