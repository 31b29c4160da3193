"""Weights of classes and the focal loss, held to torch's weighted cross entropy and to the formula, with gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from multum.errors import ConfigError
from multum.outputs.loss import ClassLoss, loss

M, B, C = 3, 8, 5
WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 0.0, 3.0], dtype=torch.float64)


def drawn(kind: str, own: bool, pixels: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    outputs = 2 * torch.randn(M, B, C, *pixels, generator=generator, dtype=torch.float64)
    lead = (M, B) if own else (B,)
    if kind == "labels":
        return outputs.requires_grad_(), torch.randint(C, (*lead, *pixels), generator=generator)
    soft = torch.randn(*lead, C, *pixels, generator=generator, dtype=torch.float64).softmax(len(lead))
    return outputs.requires_grad_(), soft


def by_formula(outputs: Tensor, y: Tensor, weights: Tensor, gamma: float) -> Tensor:
    """One member: the mean over examples of sum_c y_c w_c (1 - p_c)^gamma (-log p_c), example by example."""
    total = outputs.new_zeros(())
    rows = outputs.movedim(1, -1).reshape(-1, C)
    wanted = F.one_hot(y, C).double().reshape(-1, C) if not y.is_floating_point() else y.movedim(1, -1).reshape(-1, C)
    for z, t in zip(rows, wanted, strict=True):
        p = z.softmax(0)
        total = total - sum(t[c] * weights[c] * (1 - p[c]) ** gamma * p[c].log() for c in range(C))
    return total / len(rows)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("kind", ["labels", "probabilities"])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("pixels", [(), (2, 3)])
def test_the_formula_and_its_gradient(kind, own, gamma, reduction, pixels):
    outputs, y = drawn(kind, own, pixels)
    value = loss(outputs, y, criterion=ClassLoss(WEIGHTS, gamma), reduction=reduction)
    (gradient,) = torch.autograd.grad(value, outputs)
    members = [by_formula(z, y[m] if own else y, WEIGHTS, gamma) for m, z in enumerate(outputs)]
    expected = sum(members) / (1 if reduction == "sum" else M)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, outputs)[0])


@pytest.mark.parametrize("kind", ["labels", "probabilities"])
def test_without_focus_it_is_torchs_weighted_cross_entropy(kind):
    outputs, y = drawn(kind, own=False)
    value = loss(outputs, y, criterion=ClassLoss(WEIGHTS), reduction="sum")
    twin = sum(F.cross_entropy(z, y, weight=WEIGHTS, reduction="none").mean() for z in outputs)
    torch.testing.assert_close(value, twin)
    torch.testing.assert_close(*(torch.autograd.grad(v, outputs, retain_graph=True)[0] for v in (value, twin)))
    plain = loss(outputs, y, criterion=ClassLoss(), reduction="sum")
    torch.testing.assert_close(plain, loss(outputs, y, reduction="sum"))


def test_halves_of_a_batch_add_up_to_the_whole():
    outputs, y = drawn("labels", own=False)
    halves = [loss(outputs[:, rows], y[rows], criterion=ClassLoss(WEIGHTS, 2.0)) for rows in (slice(4), slice(4, 8))]
    torch.testing.assert_close(sum(halves) / 2, loss(outputs, y, criterion=ClassLoss(WEIGHTS, 2.0)))


def test_the_name_focal_is_gamma_2():
    outputs, y = drawn("labels", own=False)
    assert torch.equal(loss(outputs, y, criterion="focal"), loss(outputs, y, criterion=ClassLoss(gamma=2.0)))


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_a_certain_example_has_a_finite_gradient(gamma):
    outputs = torch.tensor([[[800.0, 0.0], [0.0, 800.0]]], requires_grad=True)
    value = loss(outputs, torch.tensor([0, 0]), criterion=ClassLoss(gamma=gamma))
    value.backward()
    assert value.item() == pytest.approx(400.0) and bool(outputs.grad.isfinite().all())


def test_half_precision_is_computed_in_float32():
    outputs, y = drawn("labels", own=False)
    half = outputs.detach().half()
    assert loss(half, y, criterion=ClassLoss(WEIGHTS, 2.0)).dtype == torch.float32


@pytest.mark.parametrize(
    ("weights", "y", "message"),
    [
        (torch.ones(4), torch.zeros(B).long(), "one for each of 5 classes; got 4"),
        (None, torch.full((B,), 5), "5 classes must be 0 to 4; got 5"),
        (None, torch.zeros(B - 1).long(), r"got shape \[7\]"),
    ],
)
def test_refusals(weights, y, message):
    with pytest.raises(ConfigError, match=message):
        loss(torch.zeros(M, B, C), y, criterion=ClassLoss(weights))
