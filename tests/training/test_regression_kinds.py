"""Regressions of one output per target and of several targets: trained, measured, saved and predicted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import multum
from multum.data import Data, Part
from multum.metrics.evaluate import evaluate, measure
from multum.metrics.regression import in_units
from multum.outputs.regression import MIN_VARIANCE, RegressionPrediction, fit_noise
from multum.training.averaging import held_out_score


def data(targets: int = 1, *, validation: bool = False, n: int = 120) -> Data:
    """Noise of .3, 3, 30, ... times the scale of a target; targets far from 0."""
    generator = torch.Generator().manual_seed(0)

    def part(rows: int) -> Part:
        x = torch.randn(rows, 3, generator=generator)
        scale = 10.0 ** torch.arange(targets)
        y = scale * (x[:, :1] + 0.5 * x[:, 1:2].square() + 7 + 0.3 * torch.randn(rows, targets, generator=generator))
        return Part(x, (y[:, 0] if targets == 1 else y).double())

    train, test = part(n), part(60)
    mean, std = train.y.mean(0), train.y.std(0)
    units = {"target_mean": float(mean), "target_std": float(std)} if targets == 1 else {}
    units = units or {"target_mean": mean, "target_std": std, "target_names": tuple("abcdef"[:targets])}
    held = part(50) if validation else None
    zero, one = torch.zeros(3), torch.ones(3)
    return Data("own", "regression", train, test, 2 * targets, zero, one, validation=held, **units)


def ensemble(of: Data, outputs: int, method=None, executor: str | None = None) -> multum.Ensemble:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, outputs))
    method = method or multum.Deep(members=3)
    kind = {"task": "regression", "targets": of.targets_count}
    ens = multum.ensemble(net, method, example=of.example(), seed=0, **kind)
    ens.executor = executor
    return ens


RECIPE = multum.Recipe(epochs=12, lr=0.02, batch_size=20)


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("validation", [False, True])
def test_the_noise_is_fitted_to_held_out_residuals_or_to_those_of_training(targets: int, validation: bool):
    of = data(targets, validation=validation)
    ens = ensemble(of, targets)
    assert ens.state["noise"].tolist() == [0.0] * targets
    multum.fit(ens, of, RECIPE)
    part = of.validation if validation else of.train
    with torch.no_grad():
        means = ens(of.prepare(part.x))
    expected = fit_noise(means, of.targets(part.y).reshape(len(part), -1))
    torch.testing.assert_close(ens.state["noise"], expected, rtol=1e-5, atol=0)
    prediction = multum.predict(ens, of.prepare(of.test.x))
    assert prediction.mean.shape == of.test.y.shape
    noise = expected.squeeze(0) if targets == 1 else expected
    torch.testing.assert_close(prediction.aleatoric, noise.float().expand_as(prediction.aleatoric), rtol=1e-4, atol=0)
    assert bool((prediction.epistemic > 0).any())


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_one_output_is_trained_by_squared_errors(executor: str):
    from multum.training.batches import stream

    of = data()
    sgd = {"optimizer": "sgd", "momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "schedule": "constant"}
    ens = ensemble(of, 1, executor=executor)
    multum.fit(ens, of, multum.Recipe(epochs=1, batch_size=20, lr=0.1, order="same", reduction="sum", **sgd))
    for m in range(3):
        twin = ensemble(of, 1).member(m)
        optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
        for rows in torch.randperm(120, generator=stream(0, "order", 0)).split(20):
            value = (twin(of.train.x[rows]).squeeze(1) - of.targets(of.train.y[rows])).square().mean()
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        for mine, expected in zip(ens.member(m).parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("outputs", [1, 2], ids=["mse", "gaussian"])
def test_both_kinds_learn_and_know_how_wrong_they_are(outputs: int):
    of = data(n=400, validation=True)
    ens = ensemble(of, outputs)
    history = multum.fit(ens, of, multum.Recipe(epochs=30, lr=0.02, batch_size=40))
    assert history[-1]["rmse"] < 0.5 * of.target_std
    numbers = evaluate(ens, of)
    assert numbers["rmse"] < 0.6 and 0.8 < numbers["coverage_95"] <= 1.0
    plain = math.log(of.target_std) + 0.5 * math.log(2 * math.pi * math.e)
    assert numbers["nll"] < plain  # better than the mean and spread of the targets alone


@pytest.mark.parametrize("outputs", [2, 4], ids=["mse", "gaussian"])
def test_several_targets_are_measured_each_and_on_average(outputs: int):
    of = data(2)
    ens = ensemble(of, outputs)
    multum.fit(ens, of, RECIPE)
    measured = measure(ens, of, batch_size=7)
    numbers, rows = measured.numbers, measured.numbers["by_target"]
    assert [row["target"] for row in rows] == ["a", "b"]
    prediction = in_units(multum.predict(ens, of.prepare(of.test.x)), mean=of.target_mean, std=of.target_std)
    for t, row in enumerate(rows):
        error = (prediction.mean[:, t] - of.test.y[:, t]).square().mean().sqrt()
        assert row["rmse"] == pytest.approx(float(error), rel=1e-5)
        alone = multum.metrics.regression_metrics(RegressionPrediction(prediction.members[..., t]), of.test.y[:, t])
        assert row["nll"] == pytest.approx(alone["nll"], rel=1e-5)
    for key in ("rmse", "nll", "coverage_95", "gain_nll"):
        assert numbers[key] == pytest.approx((rows[0][key] + rows[1][key]) / 2)
    assert rows[1]["rmse"] > 5 * rows[0]["rmse"]  # in its own unit, ten times as large
    assert measured.examples["nll"].shape == (60,)
    assert float(measured.examples["nll"].mean()) == pytest.approx(numbers["nll"])


def test_the_log_is_in_the_units_of_the_targets():
    one, two = data(1), data(2)
    history = [multum.fit(ensemble(of, 2 * t), of, RECIPE)[-1]["rmse"] for t, of in ((1, one), (2, two))]
    assert history[0] < 1.5 * float(one.target_std) and history[1] < 1.5 * float(two.target_std[1])
    assert history[1] > history[0]


def test_the_best_epoch_is_chosen_with_the_noise_that_suits_it():
    of = data(validation=True)
    ens = ensemble(of, 1)
    multum.fit(ens, of, multum.Recipe(epochs=4, keep="best"))
    score = held_out_score(ens, of, "nll", lambda x: x)
    with torch.no_grad():
        means = ens(of.prepare(of.validation.x)).squeeze(2).double()
    y, noise = of.targets(of.validation.y).double(), float(ens.state["noise"])
    log = torch.distributions.Normal(means, math.sqrt(noise)).log_prob(y)
    assert score == pytest.approx(-float((log.logsumexp(0) - math.log(3)).mean()), rel=1e-6)
    alone = held_out_score(ens, of, "nll", lambda x: x, member=1)
    expected = 0.5 * math.log(2 * math.pi * math.e * float((means[1] - y).square().mean()))
    assert alone == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("method", [multum.Packed(members=2, alpha=2), multum.Mimo(members=2), multum.Swag(members=2)])
def test_saved_and_loaded_the_noise_is_there(method, tmp_path):
    of = data(2)
    ens = ensemble(of, 2, method)
    multum.fit(ens, of, multum.Recipe(epochs=4))
    assert bool((ens.state["noise"] > MIN_VARIANCE).all())
    multum.save(ens, tmp_path / "model.safetensors")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))
    again = multum.load(tmp_path / "model.safetensors", network=net)
    first, second = (multum.predict(e, of.prepare(of.test.x)).members for e in (ens, again))
    assert torch.equal(first, second)


def test_plain_tensors_of_several_targets():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    ens = multum.ensemble(nn.Linear(3, 4), multum.Deep(members=2), example=x, task="regression", targets=2)
    history = multum.fit(ens, (x, x[:, :2]), multum.Recipe(epochs=2))
    assert math.isfinite(history[-1]["rmse"]) and multum.predict(ens, x).mean.shape == (40, 2)


def test_checks_hold_for_one_output_and_several_targets():
    of = data(2)
    for outputs in (2, 4):
        multum.check(ensemble(of, outputs), of.example())


CSV = "csv:{}#target=low+high"


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=80), rng.integers(0, 2, 80)
    rows = [f"{p:.4f},{'xy'[q]},{p + q:.4f},{100 * (p - q):.3f}" for p, q in zip(a, b, strict=True)]
    rows[3] = rows[3].rsplit(",", 1)[0] + ","  # no target
    (tmp_path / "two.csv").write_text("a,kind,low,high\n" + "\n".join(rows) + "\n")
    return tmp_path / "two.csv"


def test_a_table_with_two_targets(table):
    of = multum.load_data(CSV.format(table))
    assert of.task == "regression" and of.targets_count == 2 and of.outputs == 4
    assert of.named_targets == ("low", "high") and of.train.y.shape[1] == 2 and of.table.untargeted == 1
    standardised = of.targets(of.train.y)
    assert standardised.dtype == torch.float32
    torch.testing.assert_close(standardised.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(standardised.std(0), torch.ones(2), atol=1e-5, rtol=0)
    assert not {"low", "high"} & {column.name for column in of.table.columns}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("target=low+hihg", "Did you mean high"),
        ("target=low+low", "named once"),
        ("target=low+kind", "kind"),
        ("target=low+high,task=classification", "several targets must be numbers"),
        ("target=low+high,drop=high", "drop must leave the target"),
    ],
)
def test_tables_that_are_refused(table, fields, message):
    with pytest.raises(multum.errors.DataError, match=message):
        multum.load_data(f"csv:{table}#{fields}")


@pytest.mark.parametrize("overrides", [{}, {"loss": "mse"}], ids=["gaussian", "mse"])
def test_from_a_table_to_predictions(table, tmp_path, overrides):
    from multum.runs.evaluate import evaluate_run, tables
    from multum.runs.predict import predict_run
    from multum.runs.train import train

    run = tmp_path / "run"
    train(CSV.format(table), "mlp:hidden=8", "deep:members=2", run, {"epochs": 2, **overrides})
    numbers = evaluate_run(run, progress=False)
    assert [row["target"] for row in numbers["by_target"]] == ["low", "high"]
    assert "target by target" in [str(t.title) for t in tables(numbers)]
    (tmp_path / "new.csv").write_text("a,kind\n0.5,x\n-1,y\n")
    frame = predict_run(run, tmp_path / "new.csv", progress=False)
    assert {"mean_low", "std_low", "low_high", "mean_high"} <= set(frame.columns) and len(frame) == 2
    model = multum.load(run / "model.safetensors")
    assert ("noise" in model.state) == bool(overrides)


@pytest.mark.parametrize("name", list(multum.methods.METHODS))
def test_every_method_learns_the_mean_of_two_targets_and_its_noise(name: str):
    of = data(2, validation=True)
    method = multum.methods.parse(name if name == "single" else f"{name}:members=2")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
    ens = multum.ensemble(net, method, example=of.example(), task="regression", targets=2, seed=0)
    history = multum.fit(ens, of, multum.Recipe(epochs=8, lr=0.01, batch_size=20))
    assert history[-1]["rmse"] < history[0]["rmse"]
    with torch.no_grad():
        means, y = ens(of.prepare(of.validation.x)), of.targets(of.validation.y)
    if name != "mcdropout":  # whose members are drawn anew
        torch.testing.assert_close(ens.state["noise"], fit_noise(means, y), rtol=1e-4, atol=1e-9)
    assert evaluate(ens, of)["coverage_95"] > 0.7
