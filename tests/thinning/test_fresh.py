"""Fresh weights in a thinner network: each layer's own initialisation at its new width."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import networks
from multum import Packed, ensemble, models, thin
from multum.errors import RewriteError
from multum.network.copies import tensors_of
from multum.rewrite.walker import reset, seeded
from slices import Net, plan

VIT = torch.zeros(2, 3, 16, 16)
LEFT = ["cls_token", "positions"]


def test_every_layer_is_initialised_for_its_new_fan_in():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 256, 3), nn.Flatten(), nn.Linear(256 * 4, 200))
    net = nn.Sequential(*net, nn.ReLU(), nn.Linear(200, 2))
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(7.0)
    thinner = thin(net, 0.5, torch.zeros(2, 3, 6, 6), seed=1)
    for layer, fan_in in ((thinner[2], 32 * 9), (thinner[4], 128 * 4)):
        # kaiming-uniform with a = sqrt(5): U(-1/sqrt(fan_in), 1/sqrt(fan_in))
        bound = fan_in**-0.5
        assert layer.weight.abs().max() <= bound
        assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
        assert layer.bias.abs().max() <= bound and layer.bias.std() > 0


def test_papers_networks_use_their_own_initialisation():
    thinner = thin(models.build("wrn-10-1"), 0.5, torch.zeros(2, 3, 8, 8), seed=1)
    for name, module in thinner.named_modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 2000:
            fan = module.weight[0].numel()  # He-normal on the fan in or out, which are equal in the body
            assert module.weight.std().item() == pytest.approx(math.sqrt(2 / fan), rel=0.1), name


def test_the_seed_decides():
    net = networks.ConvNeXtLike()
    x = torch.zeros(2, 3, 16, 16)
    first, again, other = (tensors_of(thin(net, 0.5, x, seed=seed)) for seed in (1, 1, 2))
    assert all(torch.equal(t, again[n]) for n, t in first.items())
    assert all(not torch.equal(first[n], other[n]) for n in ("stem.weight", "stage1.pwconv1.bias", "head.weight"))


def test_torch_s_generator_does_not_move():
    before = torch.get_rng_state()
    thin(networks.ConvNeXtLike(), 0.5, torch.zeros(2, 3, 16, 16))
    assert torch.equal(torch.get_rng_state(), before)


def test_norms_and_their_statistics_start_anew():
    net = networks.DenseNetLike()
    with torch.no_grad():
        for t in tensors_of(net).values():
            t.add_(3)
    norm = thin(net, 0.5, torch.zeros(2, 3, 8, 8)).norm
    assert torch.equal(norm.weight, torch.ones(10)) and torch.equal(norm.running_mean, torch.zeros(10))
    assert torch.equal(norm.running_var, torch.ones(10)) and norm.num_batches_tracked == 0


def test_reset_tells_what_no_layer_initialises():
    assert reset(networks.SmallViT()) == LEFT
    assert reset(networks.ConvNeXtLike()) == ["stage1.gamma", "stage2.gamma"]
    assert reset(networks.LstmNet()) == reset(networks.TransformerNet()) == reset(networks.AttentionNet()) == []


def test_reset_sees_initialisation_through_data():
    class Old(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4, 4))
            self.scale = nn.Parameter(torch.ones(4))

        def reset_parameters(self):
            self.weight.data.uniform_(-1, 1)
            nn.init.ones_(self.scale)

    assert reset(Old()) == []


def test_reset_keeps_frozen_tensors():
    net = networks.TokenNet()
    net.embed.weight.requires_grad_(False)
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    assert reset(net) == []
    changed = [n for n, p in net.named_parameters() if not torch.equal(p, before[n])]
    assert changed == ["hidden.weight", "hidden.bias", "head.weight", "head.bias"]


def test_tokens_and_positions_come_from_the_builder():
    class Marked(networks.SmallViT):
        made = 0

        def __init__(self):
            super().__init__()
            with torch.no_grad():
                self.cls_token.copy_(torch.randn_like(self.cls_token) + 100)
                self.positions.copy_(torch.randn_like(self.positions) - 100)
                self.head.weight.fill_(100)
            Marked.made += 1

    given = networks.SmallViT()
    thinning = plan(given, VIT)
    with seeded(9):
        reset(thinning.build(given, init="pretrained", seed=0))
        source = Marked()
    thinner = thinning.build(given, init="fresh", seed=9, builder=Marked)
    kept = thinning.choose()
    for name in LEFT:
        whole = tensors_of(source)[name]
        assert torch.equal(tensors_of(thinner)[name], whole[..., torch.as_tensor(kept[name][2])]), name
    assert Marked.made == 2
    assert thinner.head.weight.abs().max() < 1  # layers initialise themselves


def test_without_a_builder_tokens_are_slices_of_the_given_ones():
    given = networks.SmallViT()
    thinner = thin(given, 0.5, VIT, seed=4)
    assert torch.equal(thinner.cls_token, given.cls_token[..., :12])
    assert torch.equal(thinner.positions, given.positions[..., :12])


def test_members_of_a_built_ensemble_have_their_own_tokens():
    class Random(networks.SmallViT):
        def __init__(self):
            super().__init__(seed=int(torch.randint(2**31, ())))

    ens = ensemble(Random, Packed(members=3, alpha=2), example=VIT, seed=0)
    assert len({float(t[0, 0, 0]) for t in ens.network.cls_token.detach()}) == 3


def test_a_frozen_layer_cannot_start_anew_at_another_width():
    net = networks.DenseNetLike()
    frozen = ["stem.weight", "block1.0.norm.weight", "norm.bias", "head.weight"]
    for name, p in net.named_parameters():
        p.requires_grad_(name not in frozen)
    net.head.bias.requires_grad_(False)  # its width does not change
    with pytest.raises(RewriteError) as raised:
        thin(net, 0.5, torch.zeros(2, 3, 8, 8))
    assert [r.path for r in raised.value.refusals] == frozen
    assert all("frozen" in r.reason and 'init="pretrained"' in r.fix for r in raised.value.refusals)
    assert "refused at 4 places" in str(raised.value)
    assert thin(net, 1, torch.zeros(2, 3, 8, 8)).stem.weight.shape == (8, 3, 3, 3)


def test_a_frozen_tensor_whose_width_stays_keeps_its_values():
    net = Net(lambda n, x: n.head(n.stem(x)) + n.offset, stem=nn.Linear(3, 8), head=nn.Linear(8, 2))
    net.offset = nn.Parameter(torch.tensor([3.0, 4.0]), requires_grad=False)
    thinner = thin(net, 0.5, torch.zeros(2, 3))
    assert thinner.offset.tolist() == [3.0, 4.0] and not thinner.offset.requires_grad
