"""What one prediction costs: counted by following the members, in three conventions, part by part."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multum
import networks
from multum import Deep, Ensemble, Packed, Single
from multum.building import assembled
from multum.errors import ConfigError
from multum.models import build
from multum.rewrite.walker import install

X = torch.zeros(3, 6)


def by_hand(network: nn.Module, own: list[str], example: Tensor, members: int = 3) -> Ensemble:
    tensors = dict(network.named_parameters())
    install(network, {name: tensors[name].detach().repeat(members, *(1 for _ in tensors[name].shape)) for name in own})
    return assembled(network, own, members, Deep(members=members), example=example, seeds=list(range(members + 1)))


def test_conventions_of_a_small_network():
    net = nn.Sequential(nn.Conv2d(2, 4, 3, bias=True), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 5))
    found = multum.cost(net, example=torch.zeros(7, 2, 6, 6))
    assert found.params == 72 + 4 + 8 + 320 + 5
    assert found.macs == 72 * 16 + 320  # one row, whatever the example's batch
    assert found.torchinfo == found.macs + 4 * 16 + 5 + 8
    assert found.flops == 2 * found.macs + 2 * found.params
    assert [found.mult_adds(c) for c in ("macs", "torchinfo", "flops")] == [found.macs, found.torchinfo, found.flops]
    with pytest.raises(ConfigError, match=r"macs, torchinfo, flops; got 'mac'. Did you mean macs"):
        found.mult_adds("mac")


def test_members_pay_for_what_depends_on_them_and_nothing_else():
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    single = multum.cost(net, example=X)
    heads = multum.cost(by_hand(net, ["4.weight", "4.bias"], X), example=X)
    assert heads.macs == 48 + 64 + 3 * 32 and heads.params == single.params + 2 * 36
    assert [part.times for part in heads.parts] == [1, 1, 3]
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    middle = multum.cost(by_hand(net, ["2.weight"], X), example=X)  # what follows sees three inputs
    assert middle.macs == 48 + 3 * (64 + 32)
    assert middle.params == single.params + 2 * 64


@pytest.mark.parametrize("members", [1, 2, 5])
def test_deep_costs_members_times_one(members):
    net, x = build("wrn-10-1"), torch.zeros(1, 3, 16, 16)
    one = multum.cost(net, example=x)
    all_ = multum.cost(multum.ensemble(net, Deep(members=members), example=x), example=x)
    for key in ("params", "trainable", "macs", "torchinfo", "flops"):
        assert getattr(all_, key) == members * getattr(one, key)
    assert all_.members == members


def test_single_costs_one():
    net = build("small-cnn")
    x = torch.zeros(1, 3, 8, 8)
    assert multum.cost(multum.ensemble(net, Single(), example=x), example=x) == multum.cost(net, example=x)


def test_cost_follows_the_image():
    ens = multum.ensemble(build("resnet18", width=0.125), Packed(members=2), example=torch.zeros(2, 3, 8, 8))
    small, large = (multum.cost(ens, example=torch.zeros(1, 3, side, side)) for side in (8, 16))
    head = 2 * (2 * 64 // 2) * 10
    assert large.macs - head == 4 * (small.macs - head) and large.params == small.params


def test_weights_used_by_hand_count():
    class ByHand(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 6))
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.weight) * self.scale @ torch.eye(4)

    found = multum.cost(ByHand(), example=X)
    assert found.params == 28 and found.macs >= 24


def test_products_of_activations_are_told_apart():
    net, x = networks.AttentionNet(), networks.ZOO["attention"][1]()
    found = multum.cost(net, example=x)
    tokens, dim = 7, 16
    assert found.attention == 2 * tokens * tokens * dim
    assert found.macs == tokens * (6 * dim + 4 * dim * dim) + dim * networks.CLASSES
    assert multum.cost(multum.ensemble(net, Deep(members=2), example=x), example=x).attention == 2 * found.attention


def test_a_recurrent_network_counts_every_step():
    net, x = networks.LstmNet(), networks.ZOO["lstm"][1]()
    found = multum.cost(net, example=x)
    steps, hidden = 7, 12
    weights = 4 * hidden * (6 + hidden) + 4 * hidden * 2 * hidden
    assert found.macs == steps * weights + hidden * networks.CLASSES


def test_a_layer_that_runs_twice_costs_twice_and_is_owned_once():
    net, x = networks.TiedNet(), X
    found = multum.cost(net, example=x)
    assert found.params == sum(p.numel() for p in net.parameters())
    assert found.macs == 72 + 2 * 144 + 60


def test_frozen_parameters_count_but_are_not_trainable():
    net = build("mlp", in_features=6, classes=3, hidden=8)
    net.fc.requires_grad_(False)
    found = multum.cost(net, example=X)
    assert found.params - found.trainable == 27


def test_the_table():
    ens = multum.ensemble(build("mlp", in_features=6, classes=3, hidden=8), Deep(members=2), example=X)
    found = multum.cost(ens, example=X)
    assert found.rows() == [("hidden.0", "Linear", 112, 96, 2), ("fc", "Linear", 54, 48, 2)]
    assert [line.split() for line in str(found).splitlines()] == [
        ["module", "layer", "params", "mult-adds", "times"],
        ["hidden.0", "Linear", "112", "96", "2"],
        ["fc", "Linear", "54", "48", "2"],
        ["total", "2", "members", "166", "144"],
    ]


def test_counting_leaves_the_ensemble_alone():
    net = build("wrn-10-1").train()
    ens = multum.ensemble(net, Deep(members=2), example=torch.zeros(2, 3, 8, 8))
    before = {n: t.clone() for n, t in ens.state_dict().items()}
    multum.cost(ens, example=torch.zeros(2, 3, 8, 8))
    assert ens.training and all(torch.equal(t, before[n]) for n, t in ens.state_dict().items())
