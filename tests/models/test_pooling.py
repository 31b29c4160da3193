"""MaxPool2x2 is nn.MaxPool2d(2): its outputs, members at once, training, and what a trace sees."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from multum.models import small
from multum.models.small import MaxPool2x2

THEIRS = nn.MaxPool2d(2)


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by each pooling in slices."""
    calls: list[int] = []
    by_slices = small._by_slices
    monkeypatch.setattr(small, "_by_slices", lambda x: calls.append(1) or by_slices(x))
    return calls


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 3, 4, 6), (3, 8, 8), (2, 3, 7, 7), (2, 3, 8, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_outputs_are_those_of_torch(shape, dtype, slices) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    ours = MaxPool2x2()(x)
    assert torch.equal(ours, THEIRS(x)) and ours.dtype == dtype
    assert len(slices) == (dtype != torch.bfloat16 and shape[-1] % 2 == shape[-2] % 2 == 0)


def test_training_pools_as_torch_does(slices) -> None:
    x = torch.randint(3, (4, 8, 8, 8)).float()
    gradient, grads = torch.randn(4, 8, 4, 4), []
    for pool in (MaxPool2x2(), THEIRS):
        leaf = x.clone().requires_grad_()
        pool(leaf).backward(gradient)
        grads.append(leaf.grad)
    assert torch.equal(*grads) and not slices


def test_not_a_number_stays_one(slices) -> None:
    x = torch.zeros(1, 1, 2, 4)
    x[0, 0, 0, 0] = float("nan")
    assert torch.equal(MaxPool2x2()(x).isnan(), THEIRS(x).isnan()) and slices


def test_members_at_once(slices) -> None:
    x = torch.randn(3, 2, 4, 8, 8)
    assert torch.equal(torch.func.vmap(MaxPool2x2())(x), torch.func.vmap(THEIRS)(x)) and slices


def test_layouts_and_slices_do_not_matter(slices) -> None:
    x = torch.randn(2, 6, 8, 8)
    for view in (x.contiguous(memory_format=torch.channels_last), x[:, ::2], x.transpose(2, 3)):
        assert torch.equal(MaxPool2x2()(view), THEIRS(view))
    assert len(slices) == 3


def test_a_trace_sees_the_pooling_of_torch(slices) -> None:
    program = torch.export.export(MaxPool2x2(), (torch.zeros(2, 3, 8, 8),))
    assert any("max_pool2d" in str(node.target) for node in program.graph.nodes) and not slices
