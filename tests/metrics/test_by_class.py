"""`multum.evaluate` on two classes and on uneven ones: the positive class, tables by name, thresholds."""

from __future__ import annotations

import pytest
import torch
from sklearn import metrics as sk
from torch import Tensor, nn

import multum
from multum.comparing.reading import value_of
from multum.data import Data, Part
from multum.errors import MetricError
from multum.files import dumps
from multum.metrics.evaluate import evaluate, measure
from multum.metrics.registry import METRICS

UNEVEN_KEYS = ("balanced_accuracy", "f1", "class_auroc", "class_auprc")


def part(n: int, shares: list[float], seed: int) -> Part:
    generator = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.tensor(shares), n, replacement=True, generator=generator)
    return Part(torch.randn(n, 4, generator=generator) + y.unsqueeze(1), y)


def data(shares: list[float], *, validation: bool = False, classes: tuple[str, ...] = ()) -> Data:
    parts = part(300, shares, 0), part(200, shares, 1)
    held = part(150, shares, 2) if validation else None
    return Data("own", "classification", *parts, len(shares), None, None, validation=held, classes=classes)


def ensemble(of: Data) -> multum.Ensemble:
    net = multum.models.build("mlp", in_features=4, classes=of.outputs, hidden=(8,))
    ens = multum.ensemble(net, multum.Deep(members=2), example=of.example(), seed=0)
    multum.fit(ens, of, multum.Recipe(epochs=3, lr=0.01))
    return ens


def probs(ens: multum.Ensemble, x: Tensor) -> Tensor:
    return multum.predict(ens, x).probs.double()


@pytest.mark.parametrize(("shares", "positive"), [([0.1, 0.9], 0), ([0.9, 0.1], 1)])
def test_the_rarer_class_of_two_is_positive(shares: list[float], positive: int):
    of = data(shares, classes=("go", "stay"))
    ens = ensemble(of)
    numbers = evaluate(ens, of)
    p, y = probs(ens, of.test.x), of.test.y
    assert of.positive == positive and numbers["by_class"]["positive"] == ("go", "stay")[positive]
    assert numbers["by_class"]["uneven"]
    assert numbers["f1"] == pytest.approx(sk.f1_score(y, p.argmax(1), pos_label=positive))
    assert numbers["class_auprc"] == pytest.approx(sk.average_precision_score(y == positive, p[:, positive]))
    assert numbers["class_auroc"] == pytest.approx(sk.roc_auc_score(y == positive, p[:, positive]))


def test_of_equally_many_the_second_is_positive():
    even = Part(torch.zeros(4, 1), torch.tensor([0, 1, 1, 0]))
    assert Data("even", "classification", even, even, 2, None, None).positive == 1


def test_classes_come_by_name_and_as_json():
    of = data([0.6, 0.3, 0.1], classes=("a", "b", "c"))
    ens = ensemble(of)
    numbers = evaluate(ens, of)
    rows, predicted = numbers["by_class"]["rows"], probs(ens, of.test.x).argmax(1)
    assert [row["class"] for row in rows] == ["a", "b", "c"]
    assert [row["support"] for row in rows] == of.test.y.bincount().tolist()
    recalls = sk.recall_score(of.test.y, predicted, average=None)
    assert [row["recall"] for row in rows] == pytest.approx(recalls.tolist())
    assert numbers["by_class"]["confusion"] == sk.confusion_matrix(of.test.y, predicted).tolist()
    assert "positive" not in numbers["by_class"] and "thresholds" not in numbers["by_class"]
    assert '"confusion"' in dumps(numbers)


def test_thresholds_are_chosen_on_the_validation_part_and_measured_on_the_test_part():
    of = data([0.15, 0.85], validation=True)
    ens = ensemble(of)
    table = evaluate(ens, of, cost_ratio=5.0)["by_class"]["thresholds"]
    assert set(table) == {"f1", "balanced_accuracy", "cost"}
    held, y = probs(ens, of.validation.x)[:, 0], of.validation.y == 0
    every = [float(t) for t in held.float().unique()]
    best = max(sk.f1_score(y, held.float() >= t) for t in every)
    chosen = table["f1"]["threshold"]
    assert sk.f1_score(y, held.float() >= chosen) == pytest.approx(best) and table["f1"]["held_out"] == 150
    predicted, truth = probs(ens, of.test.x)[:, 0].float() >= chosen, of.test.y == 0
    assert table["f1"]["f1"] == pytest.approx(sk.f1_score(truth, predicted))
    assert table["f1"]["precision"] == pytest.approx(sk.precision_score(truth, predicted))
    assert table["f1"]["balanced_accuracy"] == pytest.approx(sk.balanced_accuracy_score(truth, predicted))
    predicted = probs(ens, of.test.x)[:, 0].float() >= table["cost"]["threshold"]
    missed, wrong = int((truth & ~predicted).sum()), int((predicted & ~truth).sum())
    assert table["cost"]["cost"] == pytest.approx((wrong + 5 * missed) / 200)
    # Other test labels change what a threshold gives, and never the threshold.
    other = Data("own", "classification", of.train, Part(of.test.x, 1 - of.test.y), 2, None, None, of.validation)
    again = evaluate(ens, other, cost_ratio=5.0)["by_class"]["thresholds"]
    assert [row["threshold"] for row in again.values()] == [row["threshold"] for row in table.values()]
    assert again["f1"]["f1"] != table["f1"]["f1"]


def test_without_a_validation_part_there_is_no_threshold():
    of = data([0.2, 0.8])
    assert "thresholds" not in evaluate(ensemble(of), of)["by_class"]


@pytest.mark.parametrize("of", [data([0.2, 0.8]), data([0.2, 0.3, 0.5], validation=True)], ids=["no part", "three"])
def test_a_cost_without_a_threshold_is_refused(of: Data):
    with pytest.raises(MetricError, match="cost_ratio must be for two classes, with a validation part"):
        evaluate(ensemble(of), of, cost_ratio=2.0)


def test_a_comparison_shows_them_where_classes_are_two_or_uneven():
    uneven, even = data([0.6, 0.39, 0.01]), data([0.3, 0.3, 0.4])
    for of, shown in ((uneven, True), (even, False)):
        measured = measure(ensemble(of), of)
        assert measured.numbers["by_class"]["uneven"] == shown
        assert all(key in measured.numbers for key in UNEVEN_KEYS)
        result = {"numbers": measured.numbers, "cost": {}, "seconds": {}}
        assert all((value_of(result, key) is not None) == shown for key in UNEVEN_KEYS)
    assert [m.key for m in METRICS if m.uneven] == list(UNEVEN_KEYS)


def test_a_network_with_more_outputs_than_classes_is_measured():
    of = data([0.5, 0.5])
    net = nn.Linear(4, 3)
    ens = multum.ensemble(net, multum.Deep(members=2), example=of.example(), seed=0)
    numbers = evaluate(ens, of)
    assert [row["class"] for row in numbers["by_class"]["rows"]] == ["0", "1", "2"]


def test_pixels_are_examples_too():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 1, 4, 4, generator=generator), torch.randint(3, (6, 4, 4), generator=generator)
    of = Data("pixels", "classification", Part(x, y), Part(x, y), 3, None, None)
    ens = multum.ensemble(nn.Conv2d(1, 3, 3, padding=1), multum.Deep(members=2), example=x, seed=0)
    numbers = evaluate(ens, of)
    predicted = multum.predict(ens, x).labels.flatten()
    assert numbers["by_class"]["confusion"] == sk.confusion_matrix(y.flatten(), predicted).tolist()
    assert numbers["f1"] == pytest.approx(sk.f1_score(y.flatten(), predicted, average="macro"))
