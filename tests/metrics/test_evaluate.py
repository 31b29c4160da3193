"""`multum.evaluate`: the numbers of the metrics on all examples at once, streamed; OOD sets, shift, and refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import multum
from multum.data import Data, Part
from multum.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from multum.errors import ConfigError, DataError, MetricError, MultumError
from multum.files import dumps
from multum.metrics.aggregate import classification_metrics, detection, diversity_metrics, regression_metrics
from multum.metrics.evaluate import evaluate, measure
from multum.metrics.ood import scores
from multum.outputs.prediction import RegressionPrediction


def images(n: int, seed: int) -> Tensor:
    return torch.randint(256, (n, 1, 8, 8), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def data(n: int = 90, classes: int = 4) -> Data:
    """Noise with labels at random, a third of it for testing."""
    y = torch.randint(classes, (n,), generator=torch.Generator().manual_seed(1))
    x, cut = images(n, seed=0), 2 * n // 3
    parts = Part(x[:cut], y[:cut]), Part(x[cut:], y[cut:])
    return Data("noise", "classification", *parts, classes, torch.tensor(0.5), torch.tensor(0.25))


def build(source: Data, method: multum.methods.Method | None = None, outputs: int | None = None) -> multum.Ensemble:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(1, 6, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(54, outputs or source.outputs)
        )
        net[3].weight.data *= 5
    return multum.ensemble(net, method or multum.Deep(members=3), example=source.example(), seed=0)


def said(ens: multum.Ensemble, source: Data, x: Tensor) -> multum.Prediction:
    return multum.predict(ens, source.prepare(x))


@pytest.fixture(scope="module")
def known() -> tuple[multum.Ensemble, Data]:
    source = data()
    return build(source), source


@pytest.mark.parametrize("batch_size", [7, 512])
def test_the_numbers_are_those_of_all_examples_at_once(known, batch_size):
    ens, source = known
    told: list[int] = []
    found = evaluate(ens, source, batch_size=batch_size, advance=told.append)
    prediction = said(ens, source, source.test.x)
    expected = classification_metrics(prediction, source.test.y) | diversity_metrics(prediction, source.test.y)
    assert found.pop("examples") == 30 and found.pop("members") == 3
    assert len(found.pop("by_class")["rows"]) == source.outputs
    assert found.pop("calibrated_by") == "cross-validation on the test part"
    apart = [f"{what}_of_{whose}" for what in ("information", "disagreement") for whose in ("members", "one_member")]
    assert min(found.pop(name) for name in apart) >= 0 and found.pop("chance_nll") > 0 < found.pop("chance_accuracy")
    calibrated = {"calibrated_nll", "calibrated_brier", "calibrated_ece", "temperature"}
    assert all(math.isfinite(found.pop(name)) for name in calibrated)  # held to arrays in test_calibrated.py
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert sum(told) == 30


def test_ood_sets_are_told_apart_as_on_all_examples_at_once(known):
    ens, source = known
    outside = {"dark": images(25, seed=2) // 4, "other": images(11, seed=3)}
    numbers = evaluate(ens, source, ood=outside, batch_size=8)
    found = numbers["ood"]
    inside = scores(said(ens, source, source.test.x))
    expected = detection(inside, {name: scores(said(ens, source, x)) for name, x in outside.items()})
    assert found.keys() == {"dark", "other"} and found["dark"].keys() == inside.keys()
    for name, table in expected.items():
        for score, cell in table.items():
            assert found[name][score] == pytest.approx(cell, abs=1e-9), (name, score)
    informed = {name: float(said(ens, source, x).mutual_information.mean()) for name, x in outside.items()}
    assert numbers["ood_mutual_information"] == pytest.approx(informed, rel=1e-5)


def test_shift_measures_the_corrupted_examples(known):
    ens, source = known
    found = evaluate(ens, source, shift=["contrast", "gaussian_noise"], seed=3)
    assert list(found["shift"]) == ["contrast", "gaussian_noise"]
    cells = []
    for name, row in found["shift"].items():
        assert list(row) == [str(s) for s in SEVERITIES]
        for severity, cell in row.items():
            draw = torch.Generator().manual_seed(3000 + CORRUPTIONS.index(name) * 10 + int(severity))
            x = corrupt(source.test.x, name=name, severity=int(severity), generator=draw)
            measured = classification_metrics(said(ens, source, x), source.test.y)
            assert cell == pytest.approx({k: measured[k] for k in ("accuracy", "nll", "ece")}, rel=1e-5)
            cells.append(cell)
    for mean, of in (("cacc", "accuracy"), ("cnll", "nll"), ("cece", "ece")):
        assert found[mean] == pytest.approx(sum(cell[of] for cell in cells) / 10)


def test_one_corruption_is_the_same_alone_as_among_others_and_on_fewer_examples(known):
    ens, source = known
    both = evaluate(ens, source, shift=["impulse_noise", "fog"])["shift"]
    assert evaluate(ens, source, shift=["fog"])["shift"]["fog"] == both["fog"]
    told: list[int] = []
    few = measure(ens, source, shift=["fog"], shift_examples=10, advance=told.append)
    assert sum(told) == 30 + 5 * 10
    assert {round(cell["accuracy"] * 10, 9) % 1 for cell in few.numbers["shift"]["fog"].values()} == {0.0}


def test_values_of_examples_average_to_the_numbers(known):
    ens, source = known
    found = measure(ens, source, batch_size=8)
    for name in ("accuracy", "nll", "brier"):
        assert found.examples[name].shape == (30,)
        assert float(found.examples[name].double().mean()) == pytest.approx(found.numbers[name], rel=1e-6)


def test_a_regression_is_measured_in_the_targets_units():
    source = multum.load_data("diabetes")
    net = multum.models.build("mlp", in_features=10, classes=2, hidden=(8,))
    ens = multum.ensemble(net, multum.Deep(members=2), example=source.example(), task="regression", seed=0)
    found = evaluate(ens, source, batch_size=50)
    prediction = multum.predict(ens, source.prepare(source.test.x))
    assert isinstance(prediction, RegressionPrediction)
    expected = regression_metrics(prediction, source.test.y, mean=source.target_mean, std=source.target_std)
    assert {k: found[k] for k in expected} == pytest.approx(expected, rel=1e-5)
    json.dumps(found, allow_nan=False)
    with pytest.raises(MetricError, match="need task classification; got regression"):
        evaluate(ens, source, shift=["fog"])


def test_all_of_it_survives_json(known):
    ens, source = known
    found = evaluate(ens, source, ood={"other": images(5, seed=3)}, shift=["fog"])
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def nulls(value: object, place: str = "") -> set[str]:
    if isinstance(value, dict):
        return {name for key, item in value.items() for name in nulls(item, key)}
    return {place} if value is None else set()


def test_what_has_no_value_is_null_in_strict_json(known):
    """One member has no pair to speak of, and members without an error have no error to divide by."""
    _, source = known
    single = evaluate(build(source, multum.Single()), source)
    assert nulls(json.loads(dumps(single))) == {"q_statistic"}
    perfect = replace(source, test=Part(source.test.x, said(known[0], source, source.test.x).logits[0].argmax(1)))
    assert nulls(json.loads(dumps(evaluate(known[0], perfect)))) == {"normalised_disagreement"}


def test_the_ensemble_is_left_as_it_was(known):
    ens, source = known
    ens.train()
    ens.network[0].eval()
    flags, random = [m.training for m in ens.modules()], torch.get_rng_state()
    one, two = (evaluate(ens, source, ood={"a": images(5, 1)}, shift=["gaussian_noise"]) for _ in range(2))
    assert one == two and [m.training for m in ens.modules()] == flags
    assert torch.equal(torch.get_rng_state(), random)


# -- bad input ---------------------------------------------------------------------------------------------------------


class Fixed(nn.Module):
    """A network with one output for everything."""

    def __init__(self, row: list[float]):
        super().__init__()
        self.row = nn.Parameter(torch.tensor(row))

    def forward(self, x: Tensor) -> Tensor:
        return self.row.expand(len(x), -1) + 0 * x.flatten(1).sum(1, keepdim=True)


def fixed(row: list[float]) -> multum.Ensemble:
    return multum.ensemble(Fixed(row), multum.Single(), example=data().example())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0.0, math.nan, 0.0, 0.0], "got NaN for member 0, example 0. Look for overflow"),
        ([0.0, math.inf, 0.0, 0.0], r"got \+inf, or nothing but -inf, for member 0, example 0"),
    ],
)
def test_outputs_that_are_no_numbers_are_refused(row, message):
    source = data()
    with pytest.raises(MetricError, match=message):
        evaluate(fixed(row), source)
    with pytest.raises(MetricError, match=message):
        evaluate(fixed(row), replace(source, test=source.train), ood={"other": images(4, 0)})


def test_foreign_outputs_that_are_no_numbers_are_refused():
    """Known examples are fine; a outside one overflows."""

    class Overflows(Fixed):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + torch.where(x.flatten(1).amax(1, keepdim=True) > 3, math.nan, 0.0)

    source = data()
    ens = multum.ensemble(Overflows([0.0, 1.0, 0.0, 0.0]), multum.Single(), example=source.example())
    bright = torch.full((3, 1, 8, 8), 255, dtype=torch.uint8)
    dim = replace(source, test=Part(source.test.x // 2, source.test.y), mean=torch.tensor(0.0), std=torch.tensor(0.25))
    assert math.isfinite(evaluate(ens, dim)["nll"])
    with pytest.raises(MetricError, match="got NaN"):
        evaluate(ens, dim, ood={"bright": bright})


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0] * 29 + [4]), "labels of 4 classes must be 0 to 3; got 4 for example 29"),
        (torch.tensor([-1] + [0] * 29), "got -1 for example 0"),
        (torch.zeros(30), "labels must be integers; got torch.float32"),
        (torch.zeros(30, 2, dtype=torch.long), r"got \[30, 2\]"),
    ],
)
def test_labels_that_are_refused(known, labels, message):
    ens, source = known
    with pytest.raises(MultumError, match=message):
        evaluate(ens, replace(source, test=Part(source.test.x, labels)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ood": {"empty": images(0, 0)}}, "an OOD set must have examples; got none for empty"),
        (
            {"ood": {"large": images(4, 0).repeat(1, 1, 2, 2)}},
            r"shape \(1, 8, 8\); got \(1, 16, 16\) for large. Resize",
        ),
        ({"ood": {"flat": images(4, 0).flatten(1)}}, r"got \(64,\) for flat"),
        ({"shift": ["fogg"]}, "got 'fogg'. Did you mean fog"),
        ({"shift": ["fog", "saturate"]}, "saturate must have images in colour; got grey ones"),
    ],
)
def test_options_that_are_refused(known, options, message):
    with pytest.raises(MultumError, match=message):
        evaluate(*known, **options)


def test_one_class_only():
    """Labels of one class are fine; a network that knows one class alone is refused."""
    source = data()
    same = replace(source, test=Part(source.test.x, torch.zeros_like(source.test.y)))
    found = evaluate(build(source), same)
    assert all(math.isfinite(found[name]) for name in ("accuracy", "nll", "brier", "ece", "adaptive_ece", "aurc"))
    with pytest.raises(ConfigError, match="at least 2 classes"):
        evaluate(build(source, outputs=1), same)


def test_a_foreign_table_is_refused(known):
    with pytest.raises(DataError, match="examples of an OOD set must have"):
        evaluate(*known, ood={"table": multum.load_data("diabetes").test.x})


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda d: d, {"batch_size": 0}, "batch_size must be at least 1; got batch_size=0"),
        (lambda d: d, {"batch_size": -4}, "batch_size=-4"),
        (lambda d: d, {"shift": ["fog"], "shift_examples": 0}, "shift_examples must be at least 1, or None; got"),
        (
            lambda d: replace(d, test=Part(d.test.x, d.test.y[:29])),
            {},
            "as many test examples as targets; got 30 and 29",
        ),
        (lambda d: replace(d, test=Part(d.test.x[:29], d.test.y)), {}, "got 29 and 30"),
        (lambda d: replace(d, test=Part(d.test.x[:0], d.test.y[:0])), {}, "the test part of noise must have examples"),
        (lambda d: replace(d, test=Part(d.test.x[..., :5], d.test.y)), {}, r"\(1, 8, 8\); got \(1, 8, 5\)"),
        (lambda d: multum.load_data("diabetes"), {}, "the same task; got regression and classification"),
    ],
)
def test_arguments_are_refused_before_anything_runs(known, change, options, message):
    ens, source = known
    with pytest.raises(MultumError, match=message):
        evaluate(ens, change(source), **options)


def test_shift_is_the_same_whatever_the_batch_size(known):
    ens, source = known
    names = ("impulse_noise", "fog", "elastic_transform")
    few, many = (evaluate(ens, source, shift=names, batch_size=size)["shift"] for size in (7, 512))
    assert few == many
