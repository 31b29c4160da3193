"""MaxPool2x2 is nn.MaxPool2d(2): outputs and gradients, ties, vmap, and what a trace sees."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from multum.models import pooling
from multum.models.pooling import MaxPool2x2

THEIRS = nn.MaxPool2d(2)


def both(x: torch.Tensor, gradient: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    pairs = []
    for pool in (MaxPool2x2(), THEIRS):
        leaf = x.clone().requires_grad_()
        out = pool(leaf)
        out.backward(gradient)
        pairs.append((out.detach(), leaf.grad))
    return pairs


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 3, 4, 6), (3, 8, 8), (2, 3, 7, 7), (2, 3, 8, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_outputs_and_gradients_are_those_of_torch(shape, dtype) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    gradient = torch.randn_like(THEIRS(x))
    (ours, grad), (theirs, expected) = both(x, gradient)
    assert torch.equal(ours, theirs) and torch.equal(grad, expected) and ours.dtype == dtype


def test_the_first_of_equal_numbers_has_the_gradient() -> None:
    x = torch.randint(3, (16, 8, 8, 8), generator=torch.Generator().manual_seed(0)).float()
    gradient = torch.randn(16, 8, 4, 4)
    (ours, grad), (theirs, expected) = both(x, gradient)
    assert torch.equal(ours, theirs) and torch.equal(grad, expected)


def test_not_a_number_stays_one() -> None:
    x = torch.zeros(1, 1, 2, 4)
    x[0, 0, 0, 0] = float("nan")
    assert torch.equal(MaxPool2x2()(x).isnan(), THEIRS(x).isnan())


def test_members_at_once() -> None:
    x = torch.randn(3, 2, 4, 8, 8, requires_grad=True)
    gradient = torch.randn(3, 2, 4, 4, 4)
    grads = []
    for pool in (MaxPool2x2(), THEIRS):
        out = torch.func.vmap(pool)(x)
        grads.append((out.detach(), *torch.autograd.grad(out, x, gradient)))
    assert torch.equal(grads[0][0], grads[1][0]) and torch.equal(grads[0][1], grads[1][1])


def test_layouts_and_slices_do_not_matter() -> None:
    x = torch.randn(2, 6, 8, 8)
    for view in (x.contiguous(memory_format=torch.channels_last), x[:, ::2], x.transpose(2, 3)):
        assert torch.equal(MaxPool2x2()(view), THEIRS(view))


def test_a_trace_sees_the_pooling_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_) -> None:
        raise AssertionError("the fast path is not for traces")

    monkeypatch.setattr(pooling._Halved, "apply", refuse)
    program = torch.export.export(MaxPool2x2(), (torch.zeros(2, 3, 8, 8),))
    assert any("max_pool2d" in str(node.target) for node in program.graph.nodes)
    with pytest.raises(AssertionError, match="not for traces"):
        MaxPool2x2()(torch.zeros(2, 3, 8, 8))
