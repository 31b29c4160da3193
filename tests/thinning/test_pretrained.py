"""Trained weights in a thinner network: exact slices, and the function of the given network with channels at zero.

Networks that normalise over channels (layer norm, group norm) are excluded from the second half: with fewer channels
the normaliser itself changes. They are held to the first half, and wherever attention divides by the width of a head
the same holds.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import networks
from grids import grid
from multum import models, thin
from multum.errors import RewriteError
from multum.network.copies import tensors_of
from multum.thinning.plan import Thinning
from slices import Net, assert_equals_zeroed, numbered, origins, plan, run, scrambled, shapes

NORMALISED = ("small-vit", "convnext-like", "attention", "squeeze-excite", "transformer", "token")


def images(side: int = 8):
    return lambda: torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(1))


MODELS = {
    "resnet18": (lambda: models.build("resnet18", width=0.125), images()),
    "resnet50": (lambda: models.build("resnet50", width=0.125), images()),
    "wrn-10-1": (lambda: models.build("wrn-10-1"), images()),
    "wrn-16-1 edward2": (lambda: models.build("wrn-16-1", variant="edward2"), images()),
    "wrn-10-1 biased": (lambda: models.build("wrn-10-1", variant="meliketoy"), images()),
    "small-cnn": (lambda: models.build("small-cnn"), images(16)),
    "lenet": (lambda: models.build("lenet"), images(32)),
    "mlp": (lambda: models.build("mlp", in_features=4, classes=3, hidden=(9, 7)), lambda: torch.randn(3, 4)),
}
ALL = {**networks.ZOO, **MODELS}
EXACT = [name for name in ALL if name not in NORMALISED]


@functools.cache
def halved(name: str) -> tuple[nn.Module, Any, Thinning]:
    build, example = ALL[name]
    network, x = build(), example()
    return network, x, plan(network, x)


@pytest.mark.parametrize("name", ALL)
def test_every_tensor_is_a_slice(name):
    network, _, thinning = halved(name)
    for seed in (0, 5):
        found, chosen = origins(network, thinning, seed), thinning.choose(seed)
        assert found.keys() == chosen.keys()
        assert all(np.array_equal(a, b) for n in found for a, b in zip(found[n], chosen[n], strict=True))


@pytest.mark.parametrize("rows_only", grid([True, False], always=[False]))
@pytest.mark.parametrize("name", EXACT)
def test_dropped_channels_might_as_well_be_zero(name, rows_only):
    network, x, thinning = halved(name)
    assert_equals_zeroed(network, x, thinning, int(rows_only), rows_only)


@pytest.mark.parametrize("name", ["resnet18", "densenet-like", "lstm", "two-input"])
def test_other_widths_than_half(name):
    build, example = ALL[name]
    network, x = build(), example()
    assert_equals_zeroed(network, x, plan(network, x, lambda c: -(-2 * c // 3)), 0)
    assert_equals_zeroed(network, x, plan(network, x, lambda c: -(-c // 5)), 0)


@pytest.mark.parametrize("name", ["resnet18", "small-vit", "densenet-like", "lstm"])
def test_seeds_choose_channels(name):
    network, _, thinning = halved(name)

    def cut(seed: int) -> dict[str, torch.Tensor]:
        return tensors_of(thinning.build(numbered(network), init="pretrained", seed=seed))

    first, again, other = cut(3), cut(3), cut(4)
    assert all(torch.equal(t, again[n]) for n, t in first.items())
    changed = {n for n, t in first.items() if t.shape != shapes(network)[n] and not torch.equal(t, other[n])}
    assert changed == {n for n, t in first.items() if t.shape != shapes(network)[n]}


def test_layers_choose_their_channels_independently():
    network = models.build("mlp", in_features=4, classes=3, hidden=(64, 64))
    kept = plan(network, torch.zeros(2, 4)).choose(0)
    weights = [dims for name, dims in kept.items() if name.endswith("weight")]
    assert np.array_equal(weights[0][0], weights[1][1]) and np.array_equal(weights[1][0], weights[2][1])
    assert not np.array_equal(weights[0][0], weights[1][0])


def test_every_channel_has_the_same_chance():
    network = nn.Sequential(nn.Linear(2, 8), nn.Linear(8, 2))
    thinning = plan(network, torch.zeros(2, 2))
    counts = np.zeros(8)
    for seed in range(400):
        counts[thinning.choose(seed)["0.weight"][0]] += 1
    assert counts.sum() == 1600
    assert counts.min() > 150 and counts.max() < 250  # 200 expected, standard deviation 10


def test_frozen_flags_stay():
    network = networks.DenseNetLike()
    network.stem.weight.requires_grad_(False)
    network.norm.bias.requires_grad_(False)
    thinner = thin(network, 0.5, torch.zeros(2, 3, 8, 8), init="pretrained")
    assert [n for n, p in thinner.named_parameters() if not p.requires_grad] == ["stem.weight", "norm.bias"]


def test_tied_weights_are_cut_once():
    network = networks.TiedNet()
    x = torch.randn(3, 6)
    assert_equals_zeroed(network, x, plan(network, x), 0)
    thinner = thin(network, 0.5, x, init="pretrained", seed=2)
    assert thinner.first.weight is thinner.second.weight
    # A weight from a width to itself must take the same channels on both sides.
    rows, columns = plan(network, x).choose(2)["first.weight"]
    assert np.array_equal(rows, columns)


def test_training_mode_and_buffers_come_along():
    network = scrambled(networks.DenseNetLike()).train()
    network.norm.num_batches_tracked += 7
    thinner = thin(network, 0.5, torch.zeros(2, 3, 8, 8, dtype=torch.float64), init="pretrained")
    assert thinner.training and thinner.norm.num_batches_tracked == 7
    thinner(torch.randn(4, 3, 8, 8, dtype=torch.float64))
    assert (thinner.norm.num_batches_tracked, network.norm.num_batches_tracked) == (8, 7)


def test_channels_that_are_picked_by_position_are_right_or_refused():
    """x[:, ::2] and x[:, 1::2] in different roles: only some choices of channels keep their order."""
    torch.manual_seed(0)
    net = Net(
        lambda n, x: n.even(n.stem(x)[:, ::2]) + n.odd(n.stem(x)[:, 1::2]),
        stem=nn.Linear(3, 8),
        even=nn.Linear(4, 2),
        odd=nn.Linear(4, 2),
    )
    x = torch.randn(3, 3)
    thinning = plan(net, x)
    right = refused = 0
    for seed in range(12):
        try:
            assert_equals_zeroed(net, x, thinning, seed)
            right += 1
        except RewriteError as error:
            assert "do not meet in the given one" in str(error)
            refused += 1
    assert right and refused


def test_networks_are_not_changed_by_what_is_cut_from_them():
    network = scrambled(models.build("wrn-10-1"))
    twin = copy.deepcopy(network)
    thinning = plan(network, images()().double())
    thinning.build(network, init="pretrained", seed=0)
    thinning.build(network, init="fresh", seed=0)
    assert all(torch.equal(t, tensors_of(twin)[n]) for n, t in tensors_of(network).items())
    x = images()().double()
    assert torch.equal(run(network, x), run(twin, x))


def test_a_zero_that_does_not_stay_zero_shows_in_the_rows_test():
    """sigmoid(0) = 1/2: the test above with `rows_only` can fail."""
    torch.manual_seed(0)
    net = Net(lambda n, x: n.head(F.sigmoid(n.stem(x))), stem=nn.Linear(3, 8), head=nn.Linear(8, 2))
    x = torch.randn(3, 3)
    assert_equals_zeroed(net, x, plan(net, x), 0)
    with pytest.raises(AssertionError, match="not close"):
        assert_equals_zeroed(net, x, plan(net, x), 0, rows_only=True)
