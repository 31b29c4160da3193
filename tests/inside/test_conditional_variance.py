"""Which input a unit hears: exact on networks whose variances are known, and bounded by the whole on all."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import multum
from multum.errors import ConfigError
from multum.inside.conditional_variance import conditional_variances
from networks import SmallViT


class Convolutions(nn.Module):
    """Shape: [B, 1, 6, 6] -> [B, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.body = nn.Conv2d(4, 6, 3)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.norm(self.stem(x)).relu()).relu().mean((2, 3)))


def table(rows: int = 200, columns: int = 3) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))


def linear(members: int = 2) -> multum.Ensemble:
    net = multum.models.build("mlp", in_features=3, classes=2, hidden=(4, 5))
    return multum.ensemble(net, multum.Mimo(members=members), example=torch.zeros(2, 3), seed=0)


@pytest.mark.parametrize("members", [2, 3])
def test_the_first_layer_adds_its_inputs_up(members):
    ens, x = linear(members), table()
    found = conditional_variances(ens, x, ["hidden.0"], examples=200, contexts=60)
    weight = ens.network.hidden[0].weight.detach().double()  # [units, members * columns]
    spread = torch.cov(x.double().T)
    for m, block in enumerate(weight.chunk(members, 1)):
        torch.testing.assert_close(found.inputs[m], (block @ spread * block).sum(1), rtol=1e-5, atol=1e-7)
    # Independent inputs: their variances sum to that of all of them together, up to the draw.
    torch.testing.assert_close(found.inputs.sum(0), found.total, rtol=0.08, atol=0.0)


def test_units_that_hear_one_input_alone_are_its_own():
    ens = linear()
    stem = ens.network.hidden[0]
    with torch.no_grad():
        stem.weight[:2, 3:] = 0  # units 0 and 1 hear the first input, 2 and 3 the second
        stem.weight[2:, :3] = 0
    found = conditional_variances(ens, table(), ["hidden.0"], contexts=4)
    assert found.owner.tolist() == [0, 0, 1, 1]
    torch.testing.assert_close(found.share, torch.ones(4, dtype=torch.float64))
    assert found.separation == pytest.approx(1.0)
    assert found.inputs[1, :2].amax() < 1e-12 and found.inputs[0, 2:].amax() < 1e-12


def test_the_definition_unit_by_unit_on_a_convolution():
    x = torch.randn(9, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    ens = multum.ensemble(Convolutions(), multum.Mimo(members=2), example=x, seed=0).eval()
    found = conditional_variances(ens, x, ["body"], examples=9, contexts=5, seed=3)
    draw = torch.Generator().manual_seed(3)
    x = x[torch.randperm(9, generator=draw)]
    captured: list[Tensor] = []
    ens.network.body.register_forward_hook(lambda module, args, out: captured.append(out))
    for varied in (0, 1):
        captured.clear()
        for held in torch.stack([torch.randint(9, (), generator=draw) for _ in range(5)]):
            inputs = [x, x[held].expand_as(x)]
            with torch.no_grad():
                ens(torch.stack(inputs if varied == 0 else inputs[::-1]), per_member=True)
        variances = torch.stack([out.double().var(0).mean((1, 2)) for out in captured])
        torch.testing.assert_close(found.inputs[varied], variances.mean(0), rtol=1e-6, atol=1e-9)
    assert found.layers == ("body",) * 6 and found.units == tuple(range(6))


def test_no_input_explains_more_than_the_whole():
    x = torch.randn(64, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    ens = multum.ensemble(Convolutions(), multum.Mimo(members=3), example=x, seed=0)
    found = conditional_variances(ens, x, examples=64, contexts=30)
    assert found.layers == ("stem",) * 4 + ("body",) * 6
    assert (found.inputs.amax(0) <= found.total * 1.2).all() and (found.inputs >= 0).all()
    assert ((found.share >= 1 / 3 - 1e-9) & (found.share <= 1)).all()
    frame = found.frame()
    assert list(frame) == ["layer", "unit", "input_0", "input_1", "input_2", "total", "owner", "share"]
    assert len(frame) == 10 and not frame.isna().any().any()


def test_nothing_is_changed_and_the_seed_decides():
    ens = linear().train()
    before = {n: t.clone() for n, t in ens.state_dict().items()}
    random, told = torch.get_rng_state(), []
    one, two, three = (
        conditional_variances(ens, table(), contexts=2, examples=50, seed=s, advance=told.append) for s in (0, 0, 1)
    )
    assert torch.equal(one.inputs, two.inputs) and not torch.equal(one.inputs, three.inputs)
    assert torch.equal(torch.get_rng_state(), random) and ens.training and sum(told) == 3 * 3 * 2
    assert all(torch.equal(t, before[n]) for n, t in ens.state_dict().items())
    assert not any(m._forward_hooks for m in ens.network.modules())


def test_tokens_are_positions_and_norms_can_be_looked_at():
    x = torch.randn(12, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    ens = multum.ensemble(SmallViT(), multum.Mimo(members=2), example=x, seed=0)
    found = conditional_variances(ens, x, ["blocks.0.norm1", "blocks.1.attn.qkv"], examples=12, contexts=2)
    assert found.layers.count("blocks.0.norm1") == 24 and found.layers.count("blocks.1.attn.qkv") == 72


def test_a_data_set_gives_its_test_part():
    data = multum.load_data("digits")
    net = multum.models.build("small-cnn", classes=10, in_channels=1)
    ens = multum.ensemble(net, multum.Mimo(members=2), example=data.example(), seed=0)
    given = conditional_variances(ens, data.prepare(data.test.x), examples=16, contexts=2)
    torch.testing.assert_close(conditional_variances(ens, data, examples=16, contexts=2).inputs, given.inputs)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (["hiden.0"], "paths of modules; got 'hiden.0'. Did you mean hidden.0"),
        (["fc"], "the head 'fc'"),
        (["hidden.0", "hidden"], None),
    ],
)
def test_layers_that_are_refused(layers, message):
    if message is None:
        assert len(conditional_variances(linear(), table(), layers, contexts=1).layers) == 9
        return
    with pytest.raises(ConfigError, match=message):
        conditional_variances(linear(), table(), layers)


def test_what_is_refused():
    deep = multum.ensemble(nn.Linear(3, 2), multum.Deep(members=2), example=table())
    with pytest.raises(ConfigError, match=r"as Mimo's do; got Deep with 2 members"):
        conditional_variances(deep, table())
    with pytest.raises(ConfigError, match=r"Mimo with 1 member$"):
        conditional_variances(linear(1), table())
    with pytest.raises(ConfigError, match="examples=1"):
        conditional_variances(linear(), table(), examples=1)
    with pytest.raises(ConfigError, match="at least two examples; got 1"):
        conditional_variances(linear(), table(1))
    early = nn.Sequential(nn.Identity(), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    ens = multum.ensemble(early, multum.Mimo(members=2), example=table())
    with pytest.raises(ConfigError, match=r"one row per example, 200; got \(400, 3\) from 0"):
        conditional_variances(ens, table(), ["0"])
