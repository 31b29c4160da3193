"""What the accumulator promises: the numbers of all examples at once to 1e-12, in memory that does not grow."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from multum.errors import ConfigError, MetricError
from multum.metrics import ood
from multum.metrics.aggregate import Accumulator, classification_metrics, detection, diversity_metrics
from multum.metrics.calibration import reliability_curve
from multum.metrics.classification import example_brier, example_nll
from multum.metrics.diversity import disagreement_matrix
from multum.metrics.selective import risk_coverage
from multum.outputs.prediction import Prediction


def random_case(seed: int = 0, examples: int = 500, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(5, (examples,), generator=generator)
    common = 2 * torch.randn(examples, 5, generator=generator) + 2 * torch.nn.functional.one_hot(labels, 5)
    return (common + torch.randn(3, examples, 5, generator=generator)).to(dtype), labels


def stream(logits: Tensor, labels: Tensor | None, batch: int, **arguments) -> Accumulator:
    accumulator = Accumulator(**arguments)
    for start in range(0, logits.shape[1], batch):
        rows = slice(start, start + batch)
        accumulator.add(logits[:, rows], None if labels is None else labels[rows])
    return accumulator


def numbers_held(thing: object) -> int:
    """How many numbers an object holds on to, wherever they are."""
    if isinstance(thing, Tensor):
        return thing.untyped_storage().nbytes() // thing.element_size()
    if isinstance(thing, (list, tuple)):
        return sum(map(numbers_held, thing))
    if isinstance(thing, dict):
        return sum(map(numbers_held, thing.values()))
    return numbers_held(vars(thing)) if hasattr(thing, "__dict__") else 1


@pytest.mark.parametrize("batch", [1, 7, 64, 500, 1000])
def test_batches_equal_all_at_once(batch: int):
    logits, labels = random_case(examples=500 if batch > 1 else 60)
    prediction = Prediction.from_logits(logits)
    expected = classification_metrics(prediction, labels) | diversity_metrics(prediction, labels)
    accumulator = stream(logits, labels, batch, keep=True, rank_classes=True)
    found = accumulator.compute()
    assert list(found) == list(expected) and accumulator.count == len(labels)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-12, rel=1e-12), name


def test_without_keeping_only_rankings_are_missing():
    logits, labels = random_case()
    prediction = Prediction.from_logits(logits)
    expected = classification_metrics(prediction, labels) | diversity_metrics(prediction, labels)
    found = stream(logits, labels, 50).compute()
    missing = set(expected) - set(found)
    ranked = {f"{p}{n}" for p in ("", "member_", "gain_") for n in ("adaptive_ece", "aurc")}
    assert missing == ranked | {"class_auroc", "class_auprc"}
    assert all(found[name] == pytest.approx(expected[name], abs=1e-12) for name in found)


def test_memory_does_not_grow_with_examples():
    logits, labels = random_case(examples=2000)
    few, many = stream(logits[:, :100], labels[:100], 50), stream(logits, labels, 50)
    assert numbers_held(few) == numbers_held(many) < 1000
    kept = stream(logits, labels, 50, keep=True)
    per_example = 6 + 2 * (1 + 3) + 2  # scores; confidence and hit of the ensemble and 3 members; NLL and Brier
    assert numbers_held(kept) - numbers_held(many) == 2000 * per_example
    ranked = stream(logits, labels, 50, keep=True, rank_classes=True)
    assert numbers_held(ranked) - numbers_held(kept) == 2000 * (5 + 1)  # a probability of every class, and the label
    two = stream(logits[:, :, :2], labels % 2, 50, keep=True, rank_classes=True)
    assert numbers_held(two) - numbers_held(stream(logits[:, :, :2], labels % 2, 50, keep=True)) == 2000 * 2


def test_curves_and_example_values_are_those_of_all_examples():
    logits, labels = random_case()
    prediction = Prediction.from_logits(logits)
    accumulator = stream(logits, labels, 50, keep=True)
    curve = reliability_curve(prediction.confidence, prediction.labels == labels)
    torch.testing.assert_close(accumulator.reliability().accuracy, curve.accuracy, equal_nan=True)
    assert accumulator.reliability().ece == pytest.approx(curve.ece, abs=1e-12)
    torch.testing.assert_close(accumulator.disagreement_matrix(), disagreement_matrix(prediction))
    values = accumulator.example_values()
    torch.testing.assert_close(values["nll"], example_nll(prediction.log_probs, labels))
    torch.testing.assert_close(values["brier"], example_brier(prediction.probs, labels))
    assert values["accuracy"].tolist() == (prediction.labels == labels).tolist()


def test_other_bins():
    logits, labels = random_case()
    expected = classification_metrics(Prediction.from_logits(logits), labels, bins=4)
    found = stream(logits, labels, 77, bins=4, keep=True).compute()
    assert found["ece"] == pytest.approx(expected["ece"], abs=1e-12)
    assert found["adaptive_ece"] == pytest.approx(expected["adaptive_ece"], abs=1e-12)


def test_float32_is_summed_in_float64():
    logits, labels = random_case(dtype=torch.float32)
    expected = classification_metrics(Prediction.from_logits(logits), labels)
    found = stream(logits, labels, 30).compute()
    assert all(found[name] == pytest.approx(expected[name], abs=1e-6) for name in ("nll", "brier", "ece", "accuracy"))


def test_ood_sets_give_scores_for_detection():
    known, labels = random_case()
    noise = torch.randn(3, 120, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    inside, outside = stream(known, labels, 64, keep=True), stream(noise, None, 50, keep=True)
    assert set(outside.compute()) == {"disagreement", "kl", "kl_both", "mutual_information"}
    expected = detection(
        ood.scores(Prediction.from_logits(known)), {"noise": ood.scores(Prediction.from_logits(noise))}
    )
    found = detection(inside.scores(), {"noise": outside.scores()})
    for name in ood.SCORES:
        assert found["noise"][name] == pytest.approx(expected["noise"][name], abs=1e-12)
    with pytest.raises(MetricError, match="labels must be added"):
        outside.confidence_and_correct()


def test_curves_from_what_was_kept():
    logits, labels = random_case()
    prediction = Prediction.from_logits(logits)
    confidence, correct = stream(logits, labels, 64, keep=True).confidence_and_correct()
    expected = risk_coverage(prediction.confidence, prediction.labels == labels)
    torch.testing.assert_close(risk_coverage(confidence, correct).risk, expected.risk)


def test_predictions_and_pixels_are_taken_too():
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(2, 6, 4, 3, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (6, 3, 3), generator=generator)
    accumulator = Accumulator(keep=True, rank_classes=True)
    for rows in (slice(0, 4), slice(4, 6)):
        accumulator.add(Prediction.from_logits(logits[:, rows]), labels[rows])
    expected = classification_metrics(Prediction.from_logits(logits), labels)
    found = accumulator.compute()
    assert accumulator.count == 54
    assert all(found[name] == pytest.approx(value, abs=1e-12) for name, value in expected.items())


def test_a_refused_batch_changes_nothing():
    logits, labels = random_case()
    accumulator = stream(logits, labels, 100, keep=True)
    before = accumulator.compute()
    for bad_logits, bad_labels, message in [
        (logits * math.nan, labels, "NaN"),
        (logits, labels + 5, "labels of 5 classes"),
        (logits, labels[:10], "have shape"),
        (logits[:2], labels, "3 and 2 members"),
        (logits, None, "labels True and False"),
        (logits[:, :0], labels[:0], "at least one example"),
    ]:
        with pytest.raises(MetricError, match=message):
            accumulator.add(bad_logits, bad_labels)
        assert accumulator.compute() == before
    with pytest.raises(ConfigError, match="at least 2 classes"):
        accumulator.add(logits[:, :, :1], labels)
    assert accumulator.compute() == before and accumulator.count == 500


def test_computing_twice_and_going_on():
    logits, labels = random_case()
    accumulator = stream(logits[:, :200], labels[:200], 100)
    assert accumulator.compute() == accumulator.compute()
    accumulator.add(logits[:, 200:], labels[200:])
    expected = classification_metrics(Prediction.from_logits(logits), labels)
    assert accumulator.compute()["nll"] == pytest.approx(expected["nll"], abs=1e-12)


def test_what_is_not_there_is_refused():
    with pytest.raises(MetricError, match="Call add first"):
        Accumulator().compute()
    logits, labels = random_case(examples=10)
    with pytest.raises(MetricError, match="keep=False, 10 examples"):
        stream(logits, labels, 5).scores()
    with pytest.raises(MetricError, match="keep=True, 0 examples"):
        Accumulator(keep=True).scores()
