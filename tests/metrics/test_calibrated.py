"""Metrics after calibration: by a validation part or by cross-validation, streamed as on all examples at once."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import multum
from multum.data import Data, Part
from multum.errors import MetricError
from multum.metrics import calibrated, temperatures
from multum.metrics.aggregate import classification_metrics
from multum.metrics.calibration import fit_temperature
from multum.metrics.evaluate import measure
from multum.metrics.regression import example_nll
from multum.metrics.temperatures import FOLDS, Temperatures, fold_ids, held_out_nll, nll_of_sizes, scaled, subsets
from multum.outputs.prediction import Prediction, RegressionPrediction

VALIDATION, TEST = "validation part", "cross-validation on the test part"


class Given(torch.nn.Module):
    """A network whose output is its input: the tests choose what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Linear(1, 1, bias=False)
        self.scale.weight.data.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale.weight[0]


def logits(examples: int, seed: int, classes: int = 4, sharpness: float = 3.0) -> tuple[Tensor, Tensor]:
    """Overconfident logits: labels as probable as they are at a third of these."""
    draw = torch.Generator().manual_seed(seed)
    z = sharpness * torch.randn(examples, classes, generator=draw)
    return z, torch.multinomial((z / 3).softmax(1), 1, generator=draw).squeeze(1)


def source(examples: int = 80, validation: int = 0) -> Data:
    x, y = logits(examples, seed=0)
    data = Data("given", "classification", Part(x[:4], y[:4]), Part(x, y), 4, mean=None, std=None)
    return replace(data, validation=Part(*logits(validation, seed=1))) if validation else data


def ensemble(data: Data, members: int = 3) -> multum.Ensemble:
    ens = multum.ensemble(Given(), multum.Deep(members=members), example=data.test.x[:2], seed=0)
    with torch.no_grad():
        ens.get_parameter("scale.weight").copy_(torch.linspace(0.5, 1.5, members).reshape(-1, 1, 1))
    return ens


def outputs(data: Data, x: Tensor, members: int = 3) -> Tensor:
    return torch.linspace(0.5, 1.5, members).reshape(-1, 1, 1) * x


@pytest.mark.parametrize("batch_size", [7, 512])
def test_a_validation_part_gives_the_temperature(batch_size: int) -> None:
    data = source(validation=300)
    measured = measure(ensemble(data), data, batch_size=batch_size)
    fitted = Temperatures.on_held_out(outputs(data, data.validation.x), data.validation.y, "classification", [3])
    assert measured.numbers["calibrated_by"] == VALIDATION
    assert measured.numbers["temperature"] == pytest.approx(fitted.temperature, rel=1e-3)
    prediction = Prediction(outputs(data, data.test.x) / measured.numbers["temperature"])
    whole = classification_metrics(prediction, data.test.y)
    for name in ("nll", "brier", "ece"):
        assert measured.numbers[f"calibrated_{name}"] == pytest.approx(whole[name], rel=1e-5), name
    assert measured.numbers["calibrated_nll"] < measured.numbers["nll"] - 0.1  # it was three times too sure
    values = measured.examples["calibrated_nll"]
    assert values.shape == (80,) and float(values.mean()) == pytest.approx(measured.numbers["calibrated_nll"], rel=1e-5)


def test_stored_outputs_are_the_validation_part() -> None:
    data = source(validation=300)
    stored = {"outputs": outputs(data, data.validation.x), "targets": data.validation.y}
    alone = replace(data, validation=None)
    assert measure(ensemble(data), alone, held_out=stored).numbers == measure(ensemble(data), data).numbers
    with pytest.raises(MetricError, match="must be of the ensemble's 3 members; got 2"):
        measure(ensemble(data), alone, held_out={**stored, "outputs": stored["outputs"][:2]})


def test_the_fit_is_that_of_fit_temperature_but_for_the_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = logits(400, seed=3)
    z = torch.stack([x, 1.5 * x])
    weak = Temperatures.on_held_out(z, y, "classification", [2]).temperature
    monkeypatch.setattr(temperatures, "PRIOR", math.inf)
    free, exact = Temperatures.on_held_out(z, y, "classification", [2]).temperature, fit_temperature(z, y).temperature
    assert free == pytest.approx(exact, rel=1e-4)
    assert 1 < weak < free and weak == pytest.approx(free, rel=0.1)  # 400 examples say more than the prior


def test_few_examples_without_an_error_ask_for_no_extreme_temperature() -> None:
    x = 6 * torch.eye(4).repeat(15, 1)
    y = torch.arange(4).repeat(15)
    assert fit_temperature(x.unsqueeze(0), y).temperature == pytest.approx(0.01)
    assert 0.4 < Temperatures.on_held_out(x.unsqueeze(0), y, "classification", [1]).temperature < 1


def test_cross_validation_never_shows_an_example_its_own_label() -> None:
    x, y = logits(60, seed=4)
    folds = fold_ids(60, seed=5)
    assert torch.bincount(folds).tolist() == [12] * FOLDS
    fitted = Temperatures.cross_validated(x.unsqueeze(0), y, "classification", [1], folds)
    for fold in range(FOLDS):
        others = folds != fold
        alone = Temperatures.on_held_out(x[others].unsqueeze(0), y[others], "classification", [1])
        assert float(fitted.factors[0, fold]) == pytest.approx(float(alone.factors[0, 0]), rel=1e-3)
        changed = torch.where(others, y, (y + 1) % 4)
        again = Temperatures.cross_validated(x.unsqueeze(0), changed, "classification", [1], folds)
        assert float(again.factors[0, fold]) == pytest.approx(float(fitted.factors[0, fold]), rel=1e-3)


@pytest.mark.parametrize("batch_size", [7, 512])
def test_without_held_out_examples_the_test_part_is_cross_validated(batch_size: int) -> None:
    data = source()
    measured = measure(ensemble(data), data, batch_size=batch_size, seed=2)
    assert measured.numbers["calibrated_by"] == TEST
    z = outputs(data, data.test.x)
    fitted = Temperatures.cross_validated(z, data.test.y, "classification", [3], fold_ids(80, seed=2))
    expected = nll_of_sizes(scaled(z, data.test.y, fitted.of()[0], "classification"), [3])[0]
    torch.testing.assert_close(measured.examples["calibrated_nll"].double(), expected, rtol=1e-3, atol=1e-4)


def test_a_large_test_part_streams_twice_and_keeps_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    data = source(400)
    whole = measure(ensemble(data), data, batch_size=64).numbers
    monkeypatch.setattr(calibrated, "KEPT", 12 * 300)  # of 3 members and 4 classes, 300 examples
    seen: list[int] = []
    twice = measure(ensemble(data), data, batch_size=64, advance=seen.append).numbers
    assert sum(seen) == 400
    assert twice["calibrated_nll"] == pytest.approx(whole["calibrated_nll"], rel=0.02)
    assert twice["calibrated_nll"] != whole["calibrated_nll"]


def test_fewer_members_have_a_nll_of_their_own() -> None:
    data = source(validation=300)
    curve = measure(ensemble(data), data).curves["by_members"]
    assert curve["members"] == [1, 2, 3] and "by_members" not in measure(ensemble(data, 1), data).curves
    z = outputs(data, data.test.x)
    held = outputs(data, data.validation.x)
    for size, nll in zip(curve["members"], curve["nll"], strict=True):
        factor = Temperatures.on_held_out(held, data.validation.y, "classification", [size]).temperature
        pairs = [list(chosen) for chosen in subsets(3, size).tolist()]
        alone = [classification_metrics(Prediction(z[chosen] / factor), data.test.y)["nll"] for chosen in pairs]
        assert nll == pytest.approx(sum(alone) / len(alone), rel=1e-3), size
    assert curve["nll"][-1] == pytest.approx(measure(ensemble(data), data).numbers["calibrated_nll"], rel=1e-6)


def gaussians(examples: int, seed: int, spread: float, members: int = 2) -> tuple[Tensor, Tensor]:
    """Means and variances of members that see a `spread`-th of the true standard deviation, and the targets."""
    draw = torch.Generator().manual_seed(seed)
    mean = torch.randn(examples, generator=draw)
    y = mean + spread * torch.randn(examples, generator=draw)
    pairs = torch.stack([mean, torch.ones(examples)], 1)
    return pairs.expand(members, -1, -1), y


def test_the_factor_of_a_regression_is_the_true_one() -> None:
    pairs, y = gaussians(4000, seed=0, spread=3.0)
    assert Temperatures.on_held_out(pairs, y, "regression", [2]).temperature == pytest.approx(3.0, rel=0.05)
    residual = float((y - pairs[0, :, 0]).square().mean().sqrt())  # the closed form of members that agree
    assert Temperatures.on_held_out(pairs, y, "regression", [2]).temperature == pytest.approx(residual, rel=0.01)
    assert held_out_nll(pairs, y, "regression") == pytest.approx(0.5 * math.log(2 * math.pi * 9) + 0.5, rel=0.02)


@pytest.mark.parametrize("kind", ["with variances", "mean alone"])
def test_regressions_are_calibrated_in_the_targets_units(kind: str) -> None:
    data = multum.load_data("diabetes")
    width = 2 if kind == "with variances" else 1
    net = multum.models.build("mlp", in_features=10, classes=width, hidden=(8,))
    ens = multum.ensemble(net, multum.Deep(members=2), example=data.example(), task="regression", seed=0)
    if kind == "mean alone":
        ens.state["noise"].fill_(0.01)  # far too sure
    data = data.with_validation(0.3, 0)
    measured = measure(ens, data, batch_size=50)
    numbers = measured.numbers
    assert numbers["calibrated_by"] == VALIDATION and numbers["temperature"] > 1
    assert numbers["calibrated_nll"] < numbers["nll"]
    assert float(measured.examples["calibrated_nll"].mean()) == pytest.approx(numbers["calibrated_nll"])
    assert measured.curves["by_members"]["nll"][-1] == pytest.approx(numbers["calibrated_nll"], rel=1e-6)
    own = measure(ens, replace(data, validation=None)).numbers
    assert own["calibrated_by"] == TEST and own["calibrated_nll"] == pytest.approx(numbers["calibrated_nll"], abs=0.05)
    prediction = multum.predict(ens, data.prepare(data.test.x))
    std = numbers["temperature"] * data.target_std
    pairs = torch.stack([p * s + m for p, s, m in zip(
        prediction.members.double().unbind(2), (data.target_std, std**2), (data.target_mean, 0.0), strict=True
    )], 2)  # fmt: skip
    expected = float(example_nll(RegressionPrediction(pairs), data.test.y).mean())
    assert numbers["calibrated_nll"] == pytest.approx(expected, rel=1e-6)


def test_of_several_targets_each_has_its_factor() -> None:
    one, y_one = gaussians(300, seed=1, spread=3.0)
    two, y_two = gaussians(300, seed=2, spread=0.5)
    both, y = torch.stack([one, two], 3), torch.stack([y_one, y_two], 1)
    mean = (held_out_nll(one, y_one, "regression") + held_out_nll(two, y_two, "regression")) / 2
    assert held_out_nll(both, y, "regression") == pytest.approx(mean)


def test_a_diverged_run_has_an_infinite_held_out_nll() -> None:
    x, y = logits(20, seed=0)
    x[3, 1] = math.nan
    assert held_out_nll(x.unsqueeze(0), y, "classification") == math.inf


def test_one_example_is_measured_without_calibration() -> None:
    data = source(1)
    numbers = measure(ensemble(data), data).numbers
    assert numbers["temperature"] == pytest.approx(1.0, abs=1e-6)
    assert numbers["calibrated_nll"] == pytest.approx(numbers["nll"], rel=1e-5)
