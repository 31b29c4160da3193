"""What multum.loss promises: the values of a plain loop over members, in outputs and gradients, and clear refusals."""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multum.errors import ConfigError
from multum.outputs import loss as module
from multum.outputs.loss import loss

MEMBERS, BATCH, CLASSES = 3, 8, 5


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def random_outputs(generator: torch.Generator, *shape: int) -> Tensor:
    return (3 * torch.randn(MEMBERS, BATCH, *shape, generator=generator, dtype=torch.float64)).requires_grad_()


def random_targets(generator: torch.Generator, kind: str, per_member: bool, rest: tuple[int, ...] = ()) -> Tensor:
    lead = (MEMBERS, BATCH) if per_member else (BATCH,)
    if kind == "labels":
        return torch.randint(CLASSES, (*lead, *rest), generator=generator)
    if kind == "probabilities":
        return torch.rand(*lead, CLASSES, *rest, generator=generator, dtype=torch.float64).softmax(len(lead))
    return torch.randn(*lead, *rest, generator=generator, dtype=torch.float64)


def loop(criterion: Callable[[Tensor, Tensor], Tensor], outputs: Tensor, targets: Tensor, per_member: bool) -> Tensor:
    """The slow twin: member after member, [members]."""
    own = [targets[m] if per_member else targets for m in range(len(outputs))]
    return torch.stack([criterion(outputs[m], own[m]) for m in range(len(outputs))])


def gaussian_nll(outputs: Tensor, targets: Tensor) -> Tensor:
    mean, raw = outputs.unbind(1)
    variance = F.softplus(raw) + 1e-6
    return F.gaussian_nll_loss(mean, targets, variance, full=True, eps=0)


def assert_twins(fast: Tensor, slow: Tensor, outputs: Tensor) -> None:
    """Equal values, and equal gradients on the outputs."""
    (fast_gradient,), (slow_gradient,) = torch.autograd.grad(fast, outputs), torch.autograd.grad(slow, outputs)
    assert fast.shape == ()
    assert slow_gradient.abs().max() > 1e-3
    torch.testing.assert_close(fast, slow, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(fast_gradient, slow_gradient, rtol=0, atol=1e-14)


# The folded criteria against their loop


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("per_member", [False, True], ids=["common", "own"])
@pytest.mark.parametrize("rest", [(), (2, 3)], ids=["vector", "image"])
@pytest.mark.parametrize("kind", ["labels", "probabilities"])
def test_cross_entropy(generator, kind: str, rest: tuple[int, ...], per_member: bool, reduction: str):
    outputs = random_outputs(generator, CLASSES, *rest)
    targets = random_targets(generator, kind, per_member, rest)
    slow = getattr(loop(F.cross_entropy, outputs, targets, per_member), reduction)()
    assert_twins(loss(outputs, targets, reduction=reduction), slow, outputs)
    named = loss(outputs, targets, criterion="cross_entropy", reduction=reduction)
    assert torch.equal(named, loss(outputs, targets, reduction=reduction))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("per_member", [False, True], ids=["common", "own"])
@pytest.mark.parametrize("rest", [(), (2, 3)], ids=["vector", "image"])
def test_gaussian_nll(generator, rest: tuple[int, ...], per_member: bool, reduction: str):
    outputs = random_outputs(generator, 2, *rest)
    targets = random_targets(generator, "values", per_member, rest)
    slow = getattr(loop(gaussian_nll, outputs, targets, per_member), reduction)()
    assert_twins(loss(outputs, targets, criterion="gaussian_nll", reduction=reduction), slow, outputs)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("per_member", [False, True], ids=["common", "own"])
@pytest.mark.parametrize("rest", [(), (1,), (4,)])
def test_mse(generator, rest: tuple[int, ...], per_member: bool, reduction: str):
    outputs = random_outputs(generator, *rest)
    targets = random_targets(generator, "values", per_member, rest)
    slow = getattr(loop(F.mse_loss, outputs, targets, per_member), reduction)()
    assert_twins(loss(outputs, targets, criterion="mse", reduction=reduction), slow, outputs)


def test_hand_computed_values():
    members = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]], dtype=torch.float64)
    assert loss(members.log().unsqueeze(1), torch.tensor([0])).item() == pytest.approx(0.965808, abs=1e-6)
    raw = math.log(math.expm1(2 - 1e-6))  # variance 2
    nll = loss(torch.tensor([[[1.0, raw]]], dtype=torch.float64), torch.tensor([4.0]), criterion="gaussian_nll")
    assert nll.item() == pytest.approx(0.5 * (math.log(2 * math.pi * 2) + 9 / 2), abs=1e-12)
    assert nll.item() == pytest.approx(
        -torch.distributions.Normal(1.0, math.sqrt(2)).log_prob(torch.tensor(4.0)).item()
    )


def test_sum_trains_every_member_as_if_alone(generator):
    x = torch.randn(BATCH, 4, generator=generator, dtype=torch.float64)
    labels = random_targets(generator, "labels", per_member=False)
    together = torch.randn(MEMBERS, 4, CLASSES, generator=generator, dtype=torch.float64).requires_grad_()
    alone = [weight.detach().clone().requires_grad_() for weight in together]
    for _ in range(5):
        (gradient,) = torch.autograd.grad(loss(x @ together, labels, reduction="sum"), together)
        own = [torch.autograd.grad(F.cross_entropy(x @ weight, labels), weight)[0] for weight in alone]
        torch.testing.assert_close(gradient, torch.stack(own), rtol=0, atol=1e-15)
        with torch.no_grad():
            together -= gradient
            for weight, step in zip(alone, own, strict=True):
                weight -= step


def test_a_members_loss_never_reaches_another_member(generator):
    outputs, other = (random_outputs(generator, CLASSES).detach() for _ in range(2))
    labels = random_targets(generator, "labels", per_member=False)
    mixed = torch.cat([outputs[:1], other[1:]])
    gradients = []
    for z in (outputs.requires_grad_(), mixed.requires_grad_()):
        gradients.append(torch.autograd.grad(loss(z, labels, reduction="sum"), z)[0])
    assert torch.equal(gradients[0][0], gradients[1][0])
    assert not torch.equal(gradients[0][1], gradients[1][1])


# A user's criterion


def rmse(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(outputs, targets).sqrt()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("per_member", [False, True], ids=["common", "own"])
@pytest.mark.parametrize(
    "criterion",
    [
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.1, 4.0, 0.5], dtype=torch.float64)),
        nn.CrossEntropyLoss(ignore_index=2),
        nn.CrossEntropyLoss(reduction="sum"),
    ],
    ids=["smoothed", "weighted", "ignoring", "summed"],
)
def test_criteria_on_labels(generator, criterion: nn.Module, per_member: bool, reduction: str):
    outputs, labels = random_outputs(generator, CLASSES), random_targets(generator, "labels", per_member)
    slow = getattr(loop(criterion, outputs, labels, per_member), reduction)()
    assert_twins(loss(outputs, labels, criterion=criterion, reduction=reduction), slow, outputs)


def test_a_weighted_criterion_must_not_be_folded(generator):
    criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.1, 4.0, 0.5], dtype=torch.float64))
    outputs, labels = random_outputs(generator, CLASSES), random_targets(generator, "labels", per_member=True)
    folded = criterion(outputs.flatten(0, 1), labels.flatten())
    assert (loss(outputs, labels, criterion=criterion) - folded).abs() > 1e-3


@pytest.mark.parametrize("criterion", [F.mse_loss, rmse, nn.L1Loss(), nn.BCEWithLogitsLoss()])
@pytest.mark.parametrize("per_member", [False, True], ids=["common", "own"])
def test_criteria_on_values(generator, criterion: Callable[[Tensor, Tensor], Tensor], per_member: bool):
    outputs, targets = random_outputs(generator, CLASSES), random_targets(generator, "probabilities", per_member)
    slow = loop(criterion, outputs, targets, per_member).sum()
    assert_twins(loss(outputs, targets, criterion=criterion, reduction="sum"), slow, outputs)


@pytest.mark.parametrize("per_member", [False, True], ids=["common", "own"])
def test_criteria_may_drop_the_output_axis(generator, per_member: bool):
    outputs, targets = random_outputs(generator, 2), random_targets(generator, "values", per_member)
    slow = loop(gaussian_nll, outputs, targets, per_member).mean()
    assert_twins(loss(outputs, targets, criterion=gaussian_nll), slow, outputs)


def test_losses_per_example_are_averaged(generator):
    outputs, labels = random_outputs(generator, CLASSES), random_targets(generator, "labels", per_member=True)
    per_example = nn.CrossEntropyLoss(reduction="none")
    assert_twins(loss(outputs, labels, criterion=per_example), loss(outputs, labels), outputs)


def test_dtype_tells_labels_from_probabilities():
    """Where members = batch = classes, only the type tells labels [members, batch] from probabilities."""
    outputs = torch.randn(3, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([[0, 1, 1], [0, 0, 1], [1, 0, 0]])
    own = torch.stack([F.cross_entropy(z, y) for z, y in zip(outputs, labels, strict=True)]).mean()
    soft = torch.stack([F.cross_entropy(z, labels.double()) for z in outputs]).mean()
    assert (own - soft).abs() > 1e-3
    for criterion in (None, nn.CrossEntropyLoss()):
        torch.testing.assert_close(loss(outputs, labels, criterion=criterion), own)
        torch.testing.assert_close(loss(outputs, labels.double(), criterion=criterion), soft)


# Precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype):
    outputs = torch.randn(2, 300, 2, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    for criterion, targets in {
        "cross_entropy": torch.ones(300, dtype=torch.long),
        "gaussian_nll": torch.ones(300, dtype=torch.float64),
        "mse": torch.ones(300, 2, dtype=dtype),
    }.items():
        value = loss(outputs, targets, criterion=criterion)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, loss(outputs.float(), targets, criterion=criterion), rtol=0, atol=0)
        (gradient,) = torch.autograd.grad(value, outputs)
        assert gradient.dtype == dtype and gradient.isfinite().all()


def test_extreme_outputs_stay_finite():
    outputs = torch.tensor([[[1e4, -1e4]], [[-1e4, 1e4]]], requires_grad=True)
    for criterion, targets in {"cross_entropy": torch.tensor([0]), "gaussian_nll": torch.tensor([1.0])}.items():
        value = loss(outputs, targets, criterion=criterion)
        (gradient,) = torch.autograd.grad(value, outputs)
        assert value.isfinite() and gradient.isfinite().all()
    assert loss(outputs, torch.tensor([0])).item() == 1e4  # (0 + 2e4) / 2


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int64])
def test_every_integer_type_is_a_label(generator, dtype: torch.dtype):
    outputs, labels = random_outputs(generator, CLASSES), random_targets(generator, "labels", per_member=False)
    assert torch.equal(loss(outputs, labels.to(dtype)), loss(outputs, labels))


# Refusals


@pytest.mark.parametrize(
    ("outputs", "targets", "options", "message"),
    [
        ((8, 5), torch.zeros(8).long(), {}, r"\[members, batch, outputs, \.\.\.\].*\[8, 5\].*unsqueeze"),
        ((3, 0, 5), torch.zeros(0).long(), {}, r"none of them empty.*\[3, 0, 5\]"),
        ((3, 8, 5), torch.zeros(7).long(), {}, r"\[8\], or \[3, 8\].*got shape \[7\]"),
        ((3, 8, 5), torch.zeros(2, 8).long(), {}, r"\[8\], or \[3, 8\].*got shape \[2, 8\]"),
        ((3, 8, 5), torch.zeros(8), {}, r"float32.*\[8, 5\], or \[3, 8, 5\].*shape \[8\]\. .*targets\.long\(\)"),
        ((3, 8, 5), torch.zeros(8, 5).long(), {}, r"int64.*shape \[8, 5\]\. .*targets\.float\(\)"),
        ((3, 8, 5), torch.full((8,), 5), {}, r"5 classes must be 0 to 4; got 5"),
        ((3, 8, 5), torch.full((8,), -100), {}, r"got -100.*ignore_index"),
        ((3, 8, 2), torch.zeros(8, 1), {"criterion": "gaussian_nll"}, r"\[8\], or \[3, 8\].*\[8, 1\].*squeeze\(-1\)"),
        ((3, 8, 1), torch.zeros(8), {"criterion": "gaussian_nll"}, r"2 outputs.*\[3, 8, 1\]"),
        ((3, 8, 2), torch.zeros(8), {"criterion": "mse"}, r"\[8, 2\], or \[3, 8, 2\].*\[8\]\. .*unsqueeze\(-1\)"),
        ((3, 8, 1), torch.zeros(7), {"criterion": "mse"}, r"\[8, 1\], or \[3, 8, 1\].*\[7\]\. .*unsqueeze\(-1\)"),
        ((3, 8, 5), torch.zeros(7).long(), {"criterion": F.cross_entropy}, r"\[8, \.\.\.\].*\[3, 8, \.\.\.\].*\[7\]"),
        ((3, 8, 5), torch.tensor(1), {"criterion": F.cross_entropy}, r"\[8, \.\.\.\].*shape \[\]"),
        ((3, 8, 5), torch.zeros(8).long(), {"criterion": nn.CrossEntropyLoss}, r"a class\. Use CrossEntropyLoss\(\)"),
        (
            (3, 8, 5),
            torch.zeros(8).long(),
            {"criterion": "crossentropy"},
            r"'crossentropy'\. Did you mean cross_entropy",
        ),
        ((3, 8, 5), torch.zeros(8).long(), {"reduction": "avg"}, r"mean or sum; got 'avg'"),
        ((3, 8, 5), torch.zeros(8).long(), {"reduction": "none"}, r"mean or sum; got 'none'"),
    ],
)
def test_refusals_state_rule_value_and_fix(outputs: tuple[int, ...], targets: Tensor, options: dict, message: str):
    with pytest.raises(ConfigError, match=message):
        loss(torch.zeros(outputs), targets, **options)


def test_no_label_is_skipped_where_labels_are_not_checked(monkeypatch):
    """On a GPU torch's own assertion must speak: -100, its default ignore_index, would count as a loss of 0."""
    monkeypatch.setattr(module, "_check_labels", lambda labels, classes: None)
    with pytest.raises(IndexError, match="-100 is out of bounds"):
        loss(torch.zeros(3, 8, 5), torch.full((8,), -100))


def test_docstring_examples():
    results = doctest.testmod(module)
    assert results.attempted >= 3 and results.failed == 0
