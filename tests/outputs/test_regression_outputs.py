"""One output per target or two, one target or several; the constant noise is the likeliest one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from multum.errors import ConfigError
from multum.outputs.loss import loss
from multum.outputs.prediction import RegressionPrediction, predict
from multum.outputs.regression import MIN_VARIANCE, fit_noise

GENERATOR = torch.Generator().manual_seed(0)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


@pytest.mark.parametrize("further", [(), (2, 3)])
def test_several_targets_are_each_their_own_prediction(further: tuple[int, ...]):
    means, raws = random(3, 8, 4, *further), random(3, 8, 4, *further)
    together = RegressionPrediction.from_outputs(torch.cat([means, raws], 2))
    assert together.mean.shape == (8, 4, *further)
    for t in range(4):
        alone = RegressionPrediction.from_outputs(torch.stack([means[:, :, t], raws[:, :, t]], 2))
        for name in ("mean", "aleatoric", "epistemic", "variance"):
            torch.testing.assert_close(getattr(together, name)[:, t], getattr(alone, name))
        for both, own in zip(together.interval(0.9), alone.interval(0.9), strict=True):
            torch.testing.assert_close(both[:, t], own)


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("further", [(), (2,)])
def test_one_output_has_the_spread_of_members_and_the_noise(targets: int, further: tuple[int, ...]):
    outputs, noise = random(4, 8, targets, *further), torch.rand(targets) + 0.1
    prediction = RegressionPrediction.from_outputs(outputs, noise)
    expected = outputs if targets > 1 else outputs.squeeze(2)
    torch.testing.assert_close(prediction.mean, expected.mean(0))
    torch.testing.assert_close(prediction.epistemic, expected.var(0, correction=0))
    for t in range(targets):
        own = prediction.aleatoric[:, t] if targets > 1 else prediction.aleatoric
        torch.testing.assert_close(own, torch.full_like(own, float(noise[t])))


def test_without_noise_only_the_members_spread_is_left():
    outputs = random(4, 8, 1)
    prediction = RegressionPrediction.from_outputs(outputs, torch.zeros(1))
    torch.testing.assert_close(prediction.variance, outputs.squeeze(2).var(0, correction=0) + MIN_VARIANCE)


def test_predict_reads_the_noise_of_the_ensemble():
    class OneOutput(nn.Module):
        task = "regression"
        state = {"noise": torch.tensor([0.5])}

        def forward(self, x):
            return torch.stack([x, x + 1])

    prediction = predict(OneOutput(), torch.zeros(3, 1))
    assert prediction.mean.tolist() == [0.5] * 3 and prediction.variance.tolist() == [0.75] * 3


@pytest.mark.parametrize(
    ("shape", "noise", "message"),
    [((2, 4, 3), None, "2 outputs on axis 2 for each target"), ((2, 4, 2), torch.ones(3), "must have 3 on axis 2")],
)
def test_widths_that_are_refused(shape, noise, message):
    with pytest.raises(ConfigError, match=message):
        RegressionPrediction.from_outputs(torch.zeros(shape), noise)


@pytest.mark.parametrize("own", [False, True])
def test_losses_of_several_targets_are_means_over_targets(own: bool):
    means, raws = random(3, 8, 2), random(3, 8, 2)
    y = random(3, 8, 2) if own else random(8, 2)
    for criterion, outputs in (("gaussian_nll", torch.cat([means, raws], 2)), ("mse", means)):
        value = loss(outputs, y, criterion=criterion, reduction="sum")
        each = []
        for t in range(2):
            single = outputs[:, :, t::2] if criterion == "gaussian_nll" else outputs[:, :, t : t + 1]
            each.append(loss(single, y[..., t], criterion=criterion, reduction="sum"))
        torch.testing.assert_close(value, sum(each) / 2)


@pytest.mark.parametrize("own", [False, True])
def test_the_squared_error_of_one_output_takes_targets_with_and_without_its_axis(own: bool):
    outputs = random(3, 8, 1)
    y = random(3, 8) if own else random(8)
    bare = loss(outputs, y, criterion="mse")
    assert torch.equal(bare, loss(outputs, y.unsqueeze(-1), criterion="mse"))
    torch.testing.assert_close(bare, (outputs.squeeze(2) - y).square().mean())


def nll(means: torch.Tensor, y: torch.Tensor, noise: float) -> float:
    log = torch.distributions.Normal(means, math.sqrt(noise)).log_prob(y)
    return -float((log.logsumexp(0) - math.log(len(means))).mean())


@pytest.mark.parametrize("members", [1, 2, 5])
def test_no_noise_is_likelier_than_the_fitted_one(members: int):
    y = random(200)
    means = y + random(members, 200) * torch.linspace(0.3, 1.5, members, dtype=torch.float64).unsqueeze(1)
    (fitted,) = fit_noise(means.unsqueeze(2), y.unsqueeze(1)).tolist()
    best = nll(means, y, fitted)
    assert all(nll(means, y, noise) >= best - 1e-9 for noise in torch.logspace(-6, 2, 400).tolist())
    if members == 1:
        assert fitted == pytest.approx(float((means[0] - y).square().mean()))


def test_each_target_has_its_own_noise():
    y, means = random(50, 3), random(2, 50, 3)
    together = fit_noise(means, y)
    alone = [fit_noise(means[..., t : t + 1], y[:, t : t + 1]) for t in range(3)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-8, atol=0)


def test_members_without_residuals_leave_the_least_noise():
    y = random(20, 1)
    assert fit_noise(y.expand(2, 20, 1), y).item() == MIN_VARIANCE
