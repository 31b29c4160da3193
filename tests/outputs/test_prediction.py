"""What predictions promise: the values of METHODS 3.9, bounds, stability at the extremes, exact intervals."""

from __future__ import annotations

import dataclasses
import doctest
import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from multum.errors import ConfigError
from multum.metrics.aggregate import diversity_metrics
from multum.outputs import prediction as module
from multum.outputs import regression
from multum.outputs.prediction import Prediction, RegressionPrediction, predict
from multum.outputs.regression import mean_and_variance

SUMMARIES = ("confidence", "entropy", "mutual_information", "variation_ratio", "labels")
FOUR_MEMBERS = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]], dtype=torch.float64)


class Stack(nn.Module):
    """Two linear members behind a dropout and a norm, with a submodule frozen in eval mode."""

    def __init__(self, outputs: int = 3, task: str | None = None):
        super().__init__()
        self.members = nn.ModuleList([nn.Linear(4, outputs), nn.Linear(4, outputs)])
        self.norm, self.dropout = nn.BatchNorm1d(4), nn.Dropout(0.5)
        if task is not None:
            self.task = task

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(self.norm(x))
        return torch.stack([member(x) for member in self.members])


def flags(network: nn.Module) -> dict[str, bool]:
    return {name: part.training for name, part in network.named_modules()}


def mixture_cdf(prediction: RegressionPrediction, x: Tensor) -> Tensor:
    means, variances = prediction.members.double().unbind(2)
    return torch.special.ndtr((x - means) / variances.sqrt()).mean(0)


def raw_of(variance: Tensor) -> Tensor:
    """The network output that softplus(.) + 1e-6 turns into this variance."""
    return (variance - 1e-6).expm1().log()


@st.composite
def random_logits(draw: st.DrawFn) -> Tensor:
    members, batch, classes = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(2, 7))
    scale, seed = draw(st.sampled_from([0.0, 0.1, 1.0, 10.0, 1e4])), draw(st.integers(0, 2**31))
    noise = torch.randn(members, batch, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return scale * noise


properties = settings(max_examples=80, deadline=None, database=None, derandomize=True)


# Classification


def test_hand_computed_values():
    prediction = Prediction.from_logits(FOUR_MEMBERS.log().unsqueeze(1))
    assert prediction.labels.tolist() == [0]
    assert prediction.confidence.item() == pytest.approx(0.475, abs=1e-12)
    assert prediction.entropy.item() == pytest.approx(0.947526, abs=1e-6)
    assert prediction.mutual_information.item() == pytest.approx(0.126990, abs=1e-6)
    assert prediction.variation_ratio.item() == 0.25
    assert -prediction.log_probs[0, 0].item() == pytest.approx(0.744440, abs=1e-6)
    torch.testing.assert_close(prediction.members[:, 0], FOUR_MEMBERS, rtol=0, atol=1e-15)
    torch.testing.assert_close(prediction.probs[0], FOUR_MEMBERS.mean(0), rtol=0, atol=1e-15)


@properties
@given(random_logits())
def test_bounds(logits: Tensor):
    members, batch, classes = logits.shape
    prediction = Prediction.from_logits(logits)
    limit = min(members, classes)
    assert (prediction.mutual_information >= 0).all()
    assert (prediction.mutual_information <= math.log(limit) + 1e-12).all()
    assert (prediction.variation_ratio >= 0).all()
    assert (prediction.variation_ratio <= 1 - 1 / limit + 1e-12).all()
    assert (prediction.confidence >= 1 / classes - 1e-12).all() and (prediction.confidence <= 1 + 1e-12).all()
    assert (prediction.entropy <= math.log(classes) + 1e-12).all()
    torch.testing.assert_close(prediction.probs.sum(1), torch.ones(batch, dtype=torch.float64))
    member_nll = -logits.log_softmax(2).mean(0)
    assert (-prediction.log_probs <= member_nll + 1e-9).all()


@properties
@given(random_logits())
def test_votes_against_a_plain_count(logits: Tensor):
    members = logits.shape[0]
    votes = logits.argmax(2).T.tolist()
    expected = [1 - Counter(item).most_common(1)[0][1] / members for item in votes]
    assert Prediction.from_logits(logits).variation_ratio.tolist() == pytest.approx(expected, abs=1e-15)


@properties
@given(random_logits(), st.integers(0, 100))
def test_the_order_of_members_is_irrelevant(logits: Tensor, seed: int):
    order = torch.randperm(logits.shape[0], generator=torch.Generator().manual_seed(seed))
    before, after = Prediction.from_logits(logits), Prediction.from_logits(logits[order])
    for name in ("log_probs", "probs", "confidence", "entropy", "mutual_information", "variation_ratio"):
        torch.testing.assert_close(getattr(before, name), getattr(after, name), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(before.members[order], after.members)


@properties
@given(random_logits())
def test_one_member_is_its_own_softmax(logits: Tensor):
    one = Prediction.from_logits(logits[:1])
    torch.testing.assert_close(one.log_probs, logits[0].log_softmax(1), rtol=0, atol=1e-12)
    assert (one.mutual_information < 1e-12).all() and (one.variation_ratio == 0).all()


def test_probabilities_are_averaged_and_not_logits():
    prediction = Prediction.from_logits(torch.tensor([[[9.0, 0.0]], [[-2.0, 0.0]], [[-2.0, 0.0]]]))
    assert prediction.logits.mean(0).argmax().item() == 0
    assert prediction.labels.item() == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_extreme_logits(dtype: torch.dtype):
    sure, masked = [1e4, -1e4, 0.0], [0.0, 0.0, -math.inf]
    prediction = Prediction.from_logits(torch.tensor([[sure, masked], [sure[::-1], masked]]).to(dtype))
    assert prediction.probs.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    for name in ("probs", "members", *SUMMARIES):
        assert getattr(prediction, name).isfinite().all(), name
    # One member is sure of class 0, the other of class 2; both give class 1 a probability of exp(-2e4).
    torch.testing.assert_close(prediction.probs[0].double(), torch.tensor([0.5, 0.0, 0.5]).double(), rtol=0, atol=1e-6)
    assert prediction.mutual_information[0].item() == pytest.approx(math.log(2), abs=1e-6)
    assert prediction.log_probs[0, 1].item() == pytest.approx(-2e4, rel=2**-7)  # 1e4 in bfloat16
    assert prediction.log_probs[1].tolist() == pytest.approx([-math.log(2), -math.log(2), -math.inf], abs=1e-6)
    assert prediction.mutual_information[1].item() == pytest.approx(0, abs=1e-6)


def test_a_class_masked_in_one_member_only():
    prediction = Prediction.from_logits(torch.tensor([[[0.0, -math.inf]], [[0.0, 0.0]]]))
    assert prediction.probs.tolist() == [pytest.approx([0.75, 0.25])]


def test_half_precision_equals_float32_of_the_same_numbers():
    half = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(0)).half()
    low, full = Prediction.from_logits(half), Prediction.from_logits(half.float())
    for name in ("log_probs", *SUMMARIES):
        assert torch.equal(getattr(low, name), getattr(full, name)), name


def test_segmentation_equals_every_pixel_alone():
    logits = torch.randn(3, 2, 4, 5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    dense = Prediction.from_logits(logits)
    pixels = Prediction.from_logits(logits.movedim(2, -1).reshape(3, -1, 4))
    assert dense.probs.shape == (2, 4, 5, 6) and len(dense) == 2
    for name in SUMMARIES:
        assert getattr(dense, name).shape == (2, 5, 6)
        torch.testing.assert_close(getattr(dense, name).flatten(), getattr(pixels, name))


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (torch.zeros(4, 8, 1), r"at least 2 classes.*\[4, 8, 1\]"),
        (torch.zeros(8, 3), r"\[members, batch, classes, \.\.\.\].*\[8, 3\].*unsqueeze"),
        (torch.zeros(0, 8, 3), r"at least one member.*\[0, 8, 3\]"),
        (torch.zeros(4, 8, 3, dtype=torch.long), r"floating point.*int64"),
    ],
)
def test_logits_that_are_refused(logits: Tensor, message: str):
    with pytest.raises(ConfigError, match=message):
        Prediction.from_logits(logits)


# Regression


def test_mixture_of_two_gaussians():
    raw = raw_of(torch.tensor([0.5, 1.5], dtype=torch.float64))
    outputs = torch.stack([torch.tensor([1.0, 3.0], dtype=torch.float64), raw], dim=1).unsqueeze(1)  # [2, 1, 2]
    prediction = RegressionPrediction.from_outputs(outputs)
    assert prediction.members[:, 0].flatten().tolist() == pytest.approx([1.0, 0.5, 3.0, 1.5], abs=1e-12)
    assert prediction.mean.item() == pytest.approx(2.0, abs=1e-12)
    assert prediction.aleatoric.item() == pytest.approx(1.0, abs=1e-12)
    assert prediction.epistemic.item() == pytest.approx(1.0, abs=1e-12)
    assert prediction.variance.item() == pytest.approx(2.0, abs=1e-12)


def test_variance_does_not_cancel():
    means = 1e6 + torch.tensor([0.0, 1.0, 2.0])
    prediction = RegressionPrediction(torch.stack([means, torch.full((3,), 0.25)], dim=1).unsqueeze(1))
    assert prediction.epistemic.item() == pytest.approx(2 / 3, rel=1e-6)
    assert prediction.variance.item() == pytest.approx(2 / 3 + 0.25, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_variances_of_extreme_outputs(dtype: torch.dtype):
    mean, variance = mean_and_variance(torch.tensor([[[1.0, -1e4], [2.0, 0.0], [3.0, 1e4]]], dtype=dtype))
    assert variance[0].tolist() == pytest.approx([1e-6, math.log(2) + 1e-6, 1e4 + 1e-6], rel=1e-6)
    assert mean[0].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("level", [0.01, 0.5, 0.9, 0.95, 1 - 1e-9])
@pytest.mark.parametrize("members", [1, 2, 5])
def test_interval_holds_its_level(members: int, level: float):
    outputs = torch.randn(members, 200, 2, generator=torch.Generator().manual_seed(members))
    outputs[..., 0] *= torch.logspace(-2, 3, 200)  # from members that agree to members far apart
    outputs[..., 1] *= 4
    prediction = RegressionPrediction.from_outputs(outputs)
    low, high = prediction.interval(level)
    assert low.dtype == torch.float64 and low.shape == high.shape == (200,)
    tail = torch.full((200,), (1 - level) / 2, dtype=torch.float64)
    torch.testing.assert_close(mixture_cdf(prediction, low), tail, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(mixture_cdf(prediction, high), 1 - tail, rtol=0, atol=1e-9)
    covered = mixture_cdf(prediction, high) - mixture_cdf(prediction, low)
    assert (covered - level).abs().max() <= 1e-9


def test_interval_of_one_member_is_the_gaussian_one():
    prediction = RegressionPrediction(torch.tensor([[[3.0, 4.0], [-1.0, 0.25]]], dtype=torch.float64))
    low, high = prediction.interval(0.95)
    z = 1.959963984540054
    assert low.tolist() == pytest.approx([3 - 2 * z, -1 - 0.5 * z], abs=1e-12)
    assert high.tolist() == pytest.approx([3 + 2 * z, -1 + 0.5 * z], abs=1e-12)


def test_interval_is_the_mixtures_and_not_the_moments():
    apart = RegressionPrediction(torch.tensor([[[-9.0, 1.0]], [[9.0, 1.0]]], dtype=torch.float64))
    _, high = apart.interval(0.95)
    assert high.item() == pytest.approx(9 + 1.6448536269514722, abs=1e-9)  # 2.5 % of the mixture is 5 % of one member
    assert abs(high.item() - 1.96 * apart.variance.sqrt().item()) > 5


def test_both_tails_of_an_interval_are_as_precise():
    mirrored = RegressionPrediction(torch.tensor([[[-2.0, 1.0]], [[0.0, 3.0]], [[2.0, 1.0]]], dtype=torch.float64))
    low, high = mirrored.interval(1 - 1e-14)
    assert torch.equal(low, -high)


def test_dense_regression_keeps_its_axes():
    outputs = torch.randn(3, 2, 2, 4, 5, generator=torch.Generator().manual_seed(0))
    dense = RegressionPrediction.from_outputs(outputs)
    pixels = RegressionPrediction.from_outputs(outputs.movedim(2, -1).reshape(3, -1, 2))
    assert dense.variance.shape == (2, 4, 5)
    torch.testing.assert_close(dense.variance.flatten(), pixels.variance)
    torch.testing.assert_close(dense.interval(0.9)[0].flatten(), pixels.interval(0.9)[0])


@pytest.mark.parametrize("level", [0.0, 1.0, 95, float("nan")])
def test_levels_that_are_refused(level: float):
    with pytest.raises(ConfigError, match=r"0 < level < 1; got level="):
        RegressionPrediction(torch.ones(1, 1, 2)).interval(level)


@pytest.mark.parametrize("shape", [(4, 8, 1), (4, 8, 3), (4, 8)])
def test_regression_outputs_that_are_refused(shape: tuple[int, ...]):
    with pytest.raises(ConfigError, match=rf"shape \{list(shape)}"):
        RegressionPrediction.from_outputs(torch.zeros(shape))


# Both kinds, and the function


@pytest.mark.parametrize(
    ("prediction", "text"),
    [
        (Prediction.from_logits(torch.zeros(4, 8, 3)), "Prediction(members=4, batch=8, classes=3)"),
        (RegressionPrediction.from_outputs(torch.zeros(4, 8, 2)), "RegressionPrediction(members=4, batch=8)"),
    ],
)
def test_length_repr_device_and_freezing(prediction: Prediction | RegressionPrediction, text: str):
    assert len(prediction) == 8 and repr(prediction) == text
    moved = prediction.to("meta")
    assert type(moved) is type(prediction) and moved.members.device.type == "meta" and len(moved) == 8
    assert prediction.members.device.type == "cpu"
    assert prediction.members is prediction.members
    with pytest.raises(dataclasses.FrozenInstanceError):
        prediction.members = torch.zeros(1)


def test_predict_is_the_network_in_eval_mode():
    ensemble, x = Stack().train(), torch.randn(7, 4)
    with torch.no_grad():
        ensemble.norm(x)  # statistics that differ from the batch's
    expected = Stack()
    expected.load_state_dict(ensemble.state_dict())
    prediction = predict(ensemble, x)
    torch.testing.assert_close(prediction.logits, expected.eval()(x), rtol=0, atol=0)
    assert not prediction.logits.requires_grad
    assert torch.equal(ensemble.norm.running_mean, expected.norm.running_mean)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 100])
def test_slices_equal_one_pass(batch_size: int):
    ensemble, x = Stack().double(), torch.randn(7, 4, dtype=torch.float64)
    sizes = []
    ensemble.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    sliced = predict(ensemble, x, batch_size=batch_size).logits
    assert max(sizes) == min(batch_size, 7) and sum(sizes) == 7
    torch.testing.assert_close(sliced, predict(ensemble, x).logits, rtol=0, atol=1e-14)


def test_an_empty_batch_is_an_empty_prediction():
    prediction = predict(Stack(), torch.zeros(0, 4), batch_size=2)
    assert len(prediction) == 0
    assert all(getattr(prediction, name).shape == (0,) for name in SUMMARIES)


def test_training_flags_are_restored_one_by_one():
    ensemble = Stack().train()
    ensemble.norm.eval()
    before = flags(ensemble)
    assert len(set(before.values())) == 2
    predict(ensemble, torch.randn(3, 4))
    assert flags(ensemble) == before
    with pytest.raises(RuntimeError):
        predict(ensemble, torch.randn(3, 5))
    assert flags(ensemble) == before
    assert torch.is_grad_enabled()


def test_the_task_decides_the_kind():
    x = torch.randn(3, 4)
    assert isinstance(predict(Stack(outputs=2), x), Prediction)
    assert isinstance(predict(Stack(outputs=2, task="classification"), x), Prediction)
    assert isinstance(predict(Stack(outputs=2, task="regression"), x, batch_size=2), RegressionPrediction)
    with pytest.raises(ConfigError, match=r"'regresion'\. Did you mean regression"):
        predict(Stack(outputs=2, task="regresion"), x)


@pytest.mark.parametrize("batch_size", [0, -1])
def test_batch_sizes_that_are_refused(batch_size: int):
    with pytest.raises(ConfigError, match=f"at least 1.*batch_size={batch_size}"):
        predict(Stack(), torch.randn(3, 4), batch_size=batch_size)


def test_docstring_examples():
    results = [doctest.testmod(m) for m in (module, regression)]
    assert sum(r.attempted for r in results) > 10 and not any(r.failed for r in results)


def test_one_member_has_no_mutual_information_not_even_by_rounding():
    logits = 3 * torch.randn(1, 1000, 10, generator=torch.Generator().manual_seed(0))
    prediction = Prediction.from_logits(logits)
    assert not prediction.mutual_information.any() and diversity_metrics(prediction)["mutual_information"] == 0.0
