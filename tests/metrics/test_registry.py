"""A metric is one entry: arrays, streams, `multum.evaluate`, a comparison's columns and the catalogue read it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import multum
from multum import metrics
from multum.comparing.reading import columns, columns_of, value_of
from multum.metrics import registry
from multum.metrics.computations import Mean, Pairs, Sums, Whole
from multum.metrics.evaluate import measure
from multum.metrics.registry import CLASSES, NUMBERS, Metric

ERROR = Metric(
    *("label_gap", "label gap", "", "lower", "quality", "1 - p of the label", CLASSES),
    of=Mean(lambda examples: 1 - examples.probs.gather(1, examples.labels.unsqueeze(1)).squeeze(1)),
    per_example=True,
)
TOYS = (
    ERROR,
    replace(ERROR, key="sure", of=Sums(lambda c, right, bins: (c > 0.3).sum().double(), float), per_example=False),
    replace(ERROR, key="best", of=Whole(lambda c, right, bins: float(c.max())), per_example=False),
    replace(ERROR, key="apart", of=Pairs(lambda sums: float(sums.differ.max())), per_example=False, column=False),
)


def images() -> tuple[multum.Ensemble, multum.Data]:
    data = multum.load_data("digits#test=60")
    net = multum.models.build("small-cnn", classes=10, in_channels=1)
    return multum.ensemble(net, multum.Deep(members=2), example=data.example(), seed=0), data


def test_a_toy_metric_is_one_entry(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry, "METRICS", (*registry.METRICS, *TOYS))
    ens, data = images()
    measured = measure(ens, data, batch_size=7)
    prediction = multum.predict(ens, data.prepare(data.test.x))
    arrays = metrics.classification_metrics(prediction, data.test.y)
    arrays |= metrics.diversity_metrics(prediction, data.test.y)
    for name in (
        "label_gap",
        "member_label_gap",
        "gain_label_gap",
        "sure",
        "member_sure",
        "best",
        "gain_best",
        "apart",
    ):
        assert measured.numbers[name] == pytest.approx(arrays[name], rel=1e-6, abs=1e-7), name
    wrong = 1 - prediction.probs.gather(1, data.test.y.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(measured.examples["label_gap"], wrong)
    assert arrays["label_gap"] == pytest.approx(wrong.mean().item(), rel=1e-6)

    shown = columns_of("classification", measured.numbers.__contains__)
    assert [c.key for c in shown][-3:] == ["label_gap", "sure", "best"]  # and not "apart", which is no column
    assert [c.per_example for c in shown][-3:] == [True, False, False]
    assert value_of({"numbers": measured.numbers}, "label_gap") == measured.numbers["label_gap"]
    assert {toy.key for toy in TOYS} <= {row["key"] for row in metrics.catalogue()}


def test_a_toy_metric_of_regressions(monkeypatch: pytest.MonkeyPatch):
    toy = Metric(*("mae", "MAE", "", "lower", "quality", "mean absolute error", NUMBERS), per_example=True)
    toy = replace(toy, of=Mean(lambda prediction, targets: (prediction.mean - targets).abs()))
    monkeypatch.setattr(registry, "METRICS", (*registry.METRICS, toy))
    data = multum.load_data("diabetes")
    net = multum.models.build("mlp", in_features=10, classes=2, hidden=(8,))
    ens = multum.ensemble(net, multum.Deep(members=2), example=data.example(), task="regression", seed=0)
    measured = measure(ens, data, batch_size=50)
    assert measured.numbers["mae"] == pytest.approx(measured.examples["mae"].mean().item())
    assert measured.numbers["gain_mae"] == measured.numbers["mae"] - measured.numbers["member_mae"]
    assert "mae" in [c.key for c in columns_of("regression", measured.numbers.__contains__)]
    assert "mae" not in [c.key for c in columns_of("classification", lambda key: True)]


def test_columns_keep_their_order():
    classification = "accuracy nll calibrated_nll equivalent ece brier calibrated_ece calibrated_brier aurc"
    classification += " balanced_accuracy f1 class_auroc class_auprc gain_nll"
    classification += (
        " params macs latency train_seconds auroc aupr fpr95 cacc cnll cece disagreement mutual_information"
    )
    regression = "rmse nll calibrated_nll equivalent coverage_95 width_95 quantile_error gain_nll"
    regression += " params macs latency train_seconds epistemic_share"
    assert [c.key for c in columns_of("classification", lambda key: True)] == classification.split()
    assert [c.key for c in columns_of("regression", lambda key: True)] == regression.split()
    per_example = [c.key for c in columns() if c.per_example]
    assert per_example == ["accuracy", "rmse", "nll", "nll", "calibrated_nll", "calibrated_nll", "brier"]
    assert list(columns()[0].described()) == ["key", "title", "unit", "better", "group", "help", "main"]


@pytest.mark.parametrize(
    ("task", "main"),
    [
        ("classification", "accuracy nll calibrated_nll equivalent macs latency auroc"),
        ("regression", "rmse nll calibrated_nll equivalent coverage_95 macs latency"),
    ],
)
def test_the_first_table_has_at_most_seven_columns(task: str, main: str):
    assert [c.key for c in columns_of(task, lambda key: True) if c.main] == main.split()


def test_values_of_a_cell():
    ood = {name: {"msp": {"auroc": value, "aupr": 0.5, "fpr95": 1.0}} for name, value in (("a", 0.5), ("b", 1.0))}
    result = {
        "numbers": {"nll": 0.25, "ood": ood, "epistemic": 1.0, "aleatoric": 3.0, "kl": 7.0},
        "cost": {"params": 3, "macs": 4},
        "seconds": {"training": 5.0},
    }
    expected = {
        "nll": 0.25,
        "auroc": 0.75,
        "epistemic_share": 0.25,
        "params": 3,
        "macs": 4,
        "train_seconds": 5.0,
        "kl": 7,
    }
    assert {key: value_of(result, key) for key in expected} == expected
    nothing = {**result, "numbers": {}}
    assert [value_of(nothing, key) for key in ("nll", "auroc", "epistemic_share", "latency")] == [None] * 4


def test_every_metric_of_every_task_has_one_entry():
    for task in ("classification", "regression"):
        keys = [m.key for m in registry.METRICS if m.task in (None, task)]
        assert len(keys) == len(set(keys))
    for row in metrics.catalogue():
        assert row["title"] and row["help"] and row["unit"] in ("%", "", "count", "ms", "s"), row
        assert row["better"] in ("higher", "lower", None) and row["group"], row


def test_the_catalogue_is_what_is_measured():
    ens, data = images()
    numbers = multum.evaluate(ens, data)
    beyond = {"examples", "members", "by_class", "calibrated_by"}
    measured = {name.removeprefix("member_").removeprefix("gain_") for name in numbers} - beyond
    assert measured <= {row["key"] for row in metrics.catalogue()}
