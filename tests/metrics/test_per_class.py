"""Class by class: held to scikit-learn, and thresholds to a search over all of them."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn import metrics as sk
from torch import Tensor

from multum.errors import MetricError
from multum.metrics import Accumulator, classification_metrics, fit_threshold, per_class, per_member
from multum.metrics.per_class import MOST_CLASSES, is_uneven
from multum.outputs.prediction import Prediction


def case(classes: int, examples: int = 400, seed: int = 0, members: int = 3) -> tuple[Prediction, Tensor]:
    """Uneven classes, scores that say something about them, and ties: probabilities of two digits."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.arange(1, classes + 1, dtype=torch.float64).square()
    labels = torch.multinomial(shares, examples, replacement=True, generator=generator)
    own = torch.nn.functional.one_hot(labels, classes)
    logits = 1.5 * own + torch.randn(members, examples, classes, generator=generator, dtype=torch.float64)
    rounded = (100 * logits.softmax(2)).round().clamp_min(1) / 100
    return Prediction.from_logits((rounded / rounded.sum(2, keepdim=True)).log()), labels


def stream(prediction: Prediction, labels: Tensor, batch: int = 37, **settings) -> Accumulator:
    accumulator = Accumulator(keep=True, rank_classes=True, **settings)
    for start in range(0, len(labels), batch):
        rows = slice(start, start + batch)
        accumulator.add(prediction.logits[:, rows], labels[rows])
    return accumulator


@pytest.mark.parametrize("positive", [0, 1])
def test_two_classes_are_those_of_scikit_learn(positive: int):
    prediction, labels = case(2)
    numbers = classification_metrics(prediction, labels, positive=positive)
    probs, predicted = prediction.probs[:, positive], prediction.labels
    truth = labels == positive
    assert numbers["class_auroc"] == pytest.approx(sk.roc_auc_score(truth, probs), abs=1e-12)
    assert numbers["class_auprc"] == pytest.approx(sk.average_precision_score(truth, probs), abs=1e-12)
    assert numbers["f1"] == pytest.approx(sk.f1_score(labels, predicted, pos_label=positive), abs=1e-12)
    assert numbers["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(labels, predicted), abs=1e-12)
    each = per_member(prediction, labels, positive=positive)["f1"]
    expected = [sk.f1_score(labels, own.argmax(1), pos_label=positive) for own in prediction.logits]
    assert each.tolist() == pytest.approx(expected, abs=1e-12)
    assert numbers["gain_f1"] == pytest.approx(numbers["f1"] - sum(expected) / 3, abs=1e-12)


def test_the_positive_class_matters_where_it_should():
    prediction, labels = case(2)
    first, second = (classification_metrics(prediction, labels, positive=c) for c in (0, 1))
    assert first["class_auroc"] == pytest.approx(second["class_auroc"], abs=1e-3)  # p and 1 - p tie differently
    assert first["class_auprc"] < second["class_auprc"] and first["f1"] < second["f1"]  # class 0 is the rare one


@pytest.mark.parametrize("classes", [3, 7])
def test_several_classes_are_means_over_classes(classes: int):
    prediction, labels = case(classes, examples=900)
    numbers = classification_metrics(prediction, labels)
    probs, predicted, one_hot = prediction.probs, prediction.labels, torch.nn.functional.one_hot(labels, classes)
    expected = sk.roc_auc_score(labels, probs, multi_class="ovr", average="macro")
    assert numbers["class_auroc"] == pytest.approx(expected, abs=1e-12)
    expected = sk.average_precision_score(one_hot, probs, average="macro")
    assert numbers["class_auprc"] == pytest.approx(expected, abs=1e-12)
    assert numbers["f1"] == pytest.approx(sk.f1_score(labels, predicted, average="macro"), abs=1e-12)
    assert numbers["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(labels, predicted), abs=1e-12)


def test_a_class_without_examples_is_left_out():
    prediction, labels = case(4)
    kept = labels != 2
    some = Prediction(prediction.logits[:, kept])
    numbers = classification_metrics(some, labels[kept])
    expected = [sk.roc_auc_score(labels[kept] == c, some.probs[:, c]) for c in (0, 1, 3)]
    assert numbers["class_auroc"] == pytest.approx(sum(expected) / 3, abs=1e-12)
    recalls = sk.recall_score(labels[kept], some.labels, labels=[0, 1, 3], average=None)
    assert numbers["balanced_accuracy"] == pytest.approx(recalls.mean(), abs=1e-12)
    alone = classification_metrics(Prediction(prediction.logits[:, labels == 3]), labels[labels == 3])
    assert math.isnan(alone["class_auroc"]) and math.isnan(alone["class_auprc"])


def test_the_table_is_that_of_scikit_learn():
    prediction, labels = case(5)
    table = per_class(prediction, labels)
    assert table.confusion.tolist() == sk.confusion_matrix(labels, prediction.labels).tolist()
    report = sk.precision_recall_fscore_support(labels, prediction.labels, zero_division=math.nan)
    for name, values in zip(("precision", "recall", "f1", "support"), report, strict=True):
        assert getattr(table, name).tolist() == pytest.approx(values.tolist(), abs=1e-12)
    frame = table.frame()
    assert list(frame) == ["class", "support", "precision", "recall", "f1", "ece"] and len(frame) == 5


def test_calibration_of_a_class_is_that_of_its_probability_alone():
    prediction, labels = case(3)
    table = per_class(prediction, labels, bins=7)
    for label in range(3):
        p, truth = prediction.probs[:, label], (labels == label).double()
        bins = (p * 7).ceil().clamp(1, 7)
        gaps = [abs(float((truth[bins == b] - p[bins == b]).sum())) for b in range(1, 8)]
        assert float(table.calibration[label]) == pytest.approx(sum(gaps) / len(labels), abs=1e-12)


@pytest.mark.parametrize("classes", [2, 5])
def test_a_stream_gives_the_same_table_and_scores(classes: int):
    prediction, labels = case(classes)
    accumulator, table = stream(prediction, labels, positive=0), per_class(prediction, labels)
    torch.testing.assert_close(accumulator.per_class().confusion, table.confusion)
    torch.testing.assert_close(accumulator.per_class().calibration, table.calibration)
    scores, kept = accumulator.class_scores()
    torch.testing.assert_close(scores, prediction.probs[:, :1].T if classes == 2 else prediction.probs.T)
    assert torch.equal(kept, labels)
    expected = classification_metrics(prediction, labels, positive=0)
    assert accumulator.compute()["class_auprc"] == pytest.approx(expected["class_auprc"], abs=1e-12)


def test_many_classes_are_counted_and_not_ranked():
    prediction, labels = case(MOST_CLASSES + 1, examples=300, members=1)
    numbers = classification_metrics(prediction, labels)
    assert "f1" in numbers and "class_auroc" not in numbers
    with pytest.raises(MetricError, match="at most 100 classes"):
        stream(prediction, labels).per_class()


def test_what_was_not_kept_is_refused():
    accumulator = Accumulator(keep=True)
    accumulator.add(torch.zeros(1, 2, 2), torch.tensor([0, 1]))
    with pytest.raises(MetricError, match="rank_classes=True"):
        accumulator.class_scores()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("by", "ratio"), [("f1", 1.0), ("balanced_accuracy", 1.0), ("cost", 0.3), ("cost", 8.0)])
def test_no_threshold_is_better_than_the_fitted_one(by: str, ratio: float, seed: int):
    prediction, labels = case(2, examples=60, seed=seed)
    scores, truth = prediction.probs[:, 0], labels == 0
    rule = fit_threshold(scores, truth, by=by, cost_ratio=ratio)

    def value(threshold: float) -> float:
        predicted = scores >= threshold
        if by == "f1":
            return sk.f1_score(truth, predicted, zero_division=0.0)
        if by == "balanced_accuracy":
            return sk.balanced_accuracy_score(truth, predicted)
        wrong, missed = int((predicted & ~truth).sum()), int((~predicted & truth).sum())
        return -(wrong + ratio * missed) / len(truth)

    every = {float(t): value(float(t)) for t in [*scores.unique(), math.inf]}
    best = max(every.values())
    assert every[rule.threshold] == pytest.approx(best, abs=1e-12)
    assert rule.value == pytest.approx(-best if by == "cost" else best, abs=1e-12)
    assert rule.threshold == max(t for t, v in every.items() if v >= best - 1e-12)
    assert torch.equal(rule(scores), scores >= rule.threshold)


def test_a_dear_miss_lowers_the_threshold():
    prediction, labels = case(2)
    scores, truth = prediction.probs[:, 0], labels == 0
    low, high = (fit_threshold(scores, truth, by="cost", cost_ratio=r).threshold for r in (20.0, 0.2))
    assert low < high


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"by": "f2"}, "by must be f1, balanced_accuracy or cost; got 'f2'"),
        ({"by": "cost", "cost_ratio": 0.0}, "cost_ratio=0.0"),
        ({"labels": torch.zeros(4)}, "both classes; got 0 positive of 4"),
        ({"labels": torch.ones(3)}, "same shape"),
    ],
)
def test_thresholds_that_are_refused(changes: dict, message: str):
    arguments = {"scores": torch.rand(4), "labels": torch.tensor([0, 1, 0, 1]), **changes}
    with pytest.raises(MetricError, match=message):
        fit_threshold(**arguments)


@pytest.mark.parametrize(
    ("counts", "uneven"), [([100, 100], True), ([100, 100, 100], False), ([95, 95, 10], True), ([93, 93, 14], False)]
)
def test_when_classes_are_uneven(counts: list[int], uneven: bool):
    assert is_uneven(torch.tensor(counts)) == uneven
