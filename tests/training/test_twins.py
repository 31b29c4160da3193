"""Members that start from the same weights: the defaults keep them apart, and whoever makes them equal is told."""

from __future__ import annotations

import pytest
import torch

import multum
from multum import Deep, Multihead, Packed, TreeNet

X, Y = torch.randn(32, 6, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 3
ALIKE = [Deep(members=3, init="pretrained"), Packed(members=3, alpha=3, init="pretrained")]  # at the start
NOISY = [Multihead(members=3, init="pretrained"), TreeNet(members=3, init="pretrained")]


def trained(method: multum.Method, **fields) -> multum.Ensemble:
    network = multum.models.build("mlp", in_features=6, classes=3, hidden=(8, 8))
    ens = multum.ensemble(network, method, example=X, seed=0)
    assert ens.twins() == ((1, 2) if method in ALIKE else ())
    multum.fit(ens, (X, Y), multum.Recipe(epochs=2, batch_size=8, **fields))
    return ens


@pytest.mark.parametrize("method", [*ALIKE, *NOISY], ids=lambda m: m.name)
def test_by_default_members_come_apart(method, caplog):
    assert trained(method).twins() == ()
    assert "equal an earlier one" not in caplog.text


@pytest.mark.parametrize("method", ALIKE, ids=lambda m: m.name)
def test_on_the_same_batches_they_stay_the_same_which_is_told(method, caplog):
    ens = trained(method, order="same")
    assert ens.twins() == (1, 2)
    assert "members 1, 2 equal an earlier one" in caplog.text and "order='own'" in caplog.text
    caplog.clear()
    multum.check(ens, X, verbose=False)
    assert "members 1, 2 equal an earlier one" in caplog.text


@pytest.mark.parametrize("method", NOISY, ids=lambda m: m.name)
def test_heads_and_branches_differ_on_the_same_batches(method):
    assert trained(method, order="same").twins() == ()


def test_two_of_three():
    ens = trained(Deep(members=3, init="pretrained"))
    with torch.no_grad():
        for p in ens.parameters():
            p[2] = p[0]
    assert ens.twins() == (2,)


@pytest.mark.parametrize("method", [multum.Single(), multum.Mimo(members=2), multum.McDropout(members=2)], ids=str)
def test_members_that_own_nothing_are_no_twins(method):
    network = multum.models.build("mlp", in_features=6, classes=3, hidden=(8, 8))
    assert multum.ensemble(network, method, example=X, seed=0).twins() == ()
