"""What is remembered of the meta device is what torch says itself."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

import multum
from multum.plans import counting
from multum.plans.counting import Base, Counts, KnownShapes


class Net(nn.Module):
    """Operations of one and of several outputs, views, writes in place, and lists of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.Linear(54, 4)

    def forward(self, x):
        x = self.norm(self.conv(x)).relu_()
        x = torch.var_mean(torch.cat([x, x.transpose(2, 3)], 1), 1, keepdim=True)[0] + x
        return self.head(x.flatten(1)).log_softmax(1)


@pytest.mark.parametrize("training", [False, True])
def test_outputs_are_those_of_torch(training: bool) -> None:
    network, known = Net().to("meta").train(training), KnownShapes()
    for rows in (2, 5, 2, 5):
        for stride in (1, 2):
            x = torch.empty(rows, 3, 8 * stride, 8, device="meta")[:, :, ::stride]
            expected = network(x)
            before = len(known.known)
            with known:
                given = network(x)
            assert (given.shape, given.stride(), given.dtype) == (expected.shape, expected.stride(), expected.dtype)
    assert len(known.known) == before, "the second time nothing is new"


def test_writes_and_views_are_not_remembered() -> None:
    x = torch.empty(3, 4, device="meta")
    with KnownShapes():
        for _ in range(2):
            assert x.t().untyped_storage()._cdata == x.add_(1).untyped_storage()._cdata == x.untyped_storage()._cdata
            assert (x + 1).untyped_storage()._cdata != x.untyped_storage()._cdata


def test_values_are_computed_where_there_are_any() -> None:
    with KnownShapes():
        assert [float(torch.tensor([a]) + 1) for a in (1.0, 2.0)] == [2.0, 3.0]


@pytest.mark.parametrize("method", [multum.Packed(members=2), multum.TreeNet(members=2), multum.McDropout(members=2)])
def test_counts_are_the_same_without_it(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def counted() -> list[Counts]:
        base = Base(Net(), torch.zeros(1, 3, 8, 8), "classification", None)
        return [base.counts(method, 1.0) for _ in range(2)]

    remembered = counted()
    assert remembered[0] == remembered[1]
    monkeypatch.setattr(counting, "KnownShapes", nullcontext)
    assert counted() == remembered
