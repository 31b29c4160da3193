"""What temperature scaling promises: the true temperature, never a worse NLL, before or after pooling."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from multum.errors import ConfigError, MetricError
from multum.metrics.aggregate import classification_metrics
from multum.metrics.calibration import BOUNDS, Temperature, fit_temperature
from multum.metrics.classification import accuracy, nll
from multum.outputs.prediction import Prediction

properties = settings(max_examples=25, deadline=None, database=None, derandomize=True)


def sample(probs: Tensor, seed: int) -> Tensor:
    return torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(seed)).squeeze(1)


def random_logits(seed: int, members: int = 3, examples: int = 4000, classes: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(examples, classes, generator=generator, dtype=torch.float64)
    own = torch.randn(members, examples, classes, generator=generator, dtype=torch.float64)
    return 3 * common + own


@pytest.mark.parametrize("pooling", ["before", "after"])
@pytest.mark.parametrize("true", [0.4, 1.0, 2.5])
def test_the_true_temperature_is_found(pooling: str, true: float):
    logits = random_logits(0)
    labels = sample(Temperature(true, pooling)(logits).probs, seed=1)  # labels that the scaled ensemble would give
    assert fit_temperature(logits, labels, pooling=pooling).temperature == pytest.approx(true, rel=0.08)


@pytest.mark.parametrize("pooling", ["before", "after"])
def test_an_overconfident_ensemble_becomes_calibrated(pooling: str):
    logits = random_logits(2)
    labels = sample(Prediction.from_logits(logits / 3).probs, seed=3)
    fitted = fit_temperature(logits[:, :2000], labels[:2000], pooling=pooling)
    raw = classification_metrics(Prediction.from_logits(logits[:, 2000:]), labels[2000:])
    scaled = classification_metrics(fitted(logits[:, 2000:]), labels[2000:])
    assert fitted.temperature > 1.5
    assert scaled["nll"] < raw["nll"] - 0.1 and scaled["ece"] < raw["ece"] / 3


@properties
@given(
    st.integers(0, 2**31),
    st.integers(1, 4),
    st.integers(1, 30),
    st.integers(2, 5),
    st.sampled_from([0.0, 0.1, 3.0, 200.0]),
    st.sampled_from(["before", "after"]),
)
def test_never_worse_than_no_temperature(
    seed: int, members: int, examples: int, classes: int, scale: float, pooling: str
):
    logits = scale * random_logits(seed, members, examples, classes)
    labels = torch.randint(classes, (examples,), generator=torch.Generator().manual_seed(seed))
    fitted = fit_temperature(logits, labels, pooling=pooling)
    before, after = nll(Prediction.from_logits(logits).log_probs, labels), nll(fitted(logits).log_probs, labels)
    assert after <= before * (1 + 1e-12) + 1e-12
    assert (fitted.nll_unscaled, fitted.nll) == pytest.approx((before, after), rel=1e-9, abs=1e-9)
    assert BOUNDS[0] * (1 - 1e-9) <= fitted.temperature <= BOUNDS[1] * (1 + 1e-9)


@pytest.mark.parametrize("pooling", ["before", "after"])
def test_no_temperature_on_a_fine_grid_is_better(pooling: str):
    logits = random_logits(4, examples=300)
    labels = sample(Prediction.from_logits(logits / 2).probs, seed=5)
    fitted = fit_temperature(logits, labels, pooling=pooling)
    grid = [math.exp(x / 50) for x in range(-230, 231, 2)]
    least = min(nll(Temperature(t, pooling)(logits).log_probs, labels) for t in grid)
    assert fitted.nll <= least + 1e-12


def test_the_gradient_vanishes_at_the_optimum():
    logits = random_logits(6, examples=500)
    labels = sample(Prediction.from_logits(logits / 2).probs, seed=7)
    fitted = fit_temperature(logits, labels)
    log_t = torch.tensor(math.log(fitted.temperature), dtype=torch.float64, requires_grad=True)
    loss = -Prediction(logits / log_t.exp()).log_probs[torch.arange(500), labels].mean()
    (gradient,) = torch.autograd.grad(loss, log_t)
    assert abs(gradient.item()) < 1e-6


def test_examples_that_are_all_right_reach_the_bound():
    logits, labels = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([0, 1])
    assert fit_temperature(logits, labels).temperature == pytest.approx(BOUNDS[0], rel=1e-6)
    assert fit_temperature(logits, 1 - labels).temperature == pytest.approx(BOUNDS[1], rel=1e-6)


def test_before_pooling_keeps_members_and_after_keeps_labels():
    logits = random_logits(8, examples=500)
    labels = sample(Prediction.from_logits(logits / 2).probs, seed=9)
    before, after = (fit_temperature(logits, labels, pooling=pooling)(logits) for pooling in ("before", "after"))
    assert before.logits.shape == logits.shape and before.mutual_information.max() > 0.01
    assert len(after.logits) == 1 and torch.equal(after.labels, Prediction.from_logits(logits).labels)
    assert accuracy(after.probs, labels) == accuracy(Prediction.from_logits(logits).probs, labels)


def test_one_member_needs_no_pooling():
    logits = random_logits(10, members=1, examples=200)
    labels = sample(Prediction.from_logits(logits / 2).probs, seed=11)
    before, after = (fit_temperature(logits, labels, pooling=pooling) for pooling in ("before", "after"))
    assert before.temperature == pytest.approx(after.temperature, rel=1e-5)
    torch.testing.assert_close(before(logits).probs, after(logits).probs, rtol=0, atol=1e-5)


def test_float32_outputs_are_fitted_in_float64():
    logits = random_logits(12, examples=200)
    labels = sample(Prediction.from_logits(logits / 2).probs, seed=13)
    assert fit_temperature(logits.float(), labels).temperature == pytest.approx(
        fit_temperature(logits, labels).temperature, rel=1e-4
    )


def test_what_is_refused():
    logits, labels = torch.zeros(2, 3, 4), torch.tensor([0, 1, 2])
    with pytest.raises(MetricError, match="'during'"):
        fit_temperature(logits, labels, pooling="during")
    with pytest.raises(MetricError, match="'during'"):
        Temperature(1.0, "during")
    for temperature in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(MetricError, match="positive and finite"):
            Temperature(temperature)
    with pytest.raises(MetricError, match="got 4 for example 2"):
        fit_temperature(logits, torch.tensor([0, 1, 4]))
    with pytest.raises(MetricError, match=r"shape \[3\]; got \[2\]"):
        fit_temperature(logits, labels[:2])
    with pytest.raises(MetricError, match="NaN"):
        fit_temperature(logits * math.nan, labels)
    with pytest.raises(MetricError, match="probability above 0"):
        fit_temperature(torch.tensor([[[0.0, -math.inf]]]), torch.tensor([1]))
    with pytest.raises(ConfigError, match="at least 2 classes"):
        fit_temperature(torch.zeros(2, 3, 1), labels)
