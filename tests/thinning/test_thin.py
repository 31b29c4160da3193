"""Which widths and groups a thinner network gets (METHODS 1.3)."""

from __future__ import annotations

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import networks
from multum import Packed, models, thin
from multum.errors import ConfigError
from multum.network.copies import skeleton, tensors_of
from multum.thinning import thin as rules
from multum.thinning.thin import DENSE, plan_thinning
from slices import Net, double, half, plan, run, shapes


def mlp(hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))


def packed(network: nn.Module, x, **fields) -> nn.Module:
    method = Packed(**fields)
    thinning = plan_thinning(
        network, x, method.width, gamma=method.gamma, min_channels=method.min_channels, dense=method.dense
    )
    return thinning.build(network, init="pretrained", seed=0)


@functools.cache
def meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return models.build(name)


def convolutions(network: nn.Module) -> dict[str, nn.Conv2d]:
    return {name: m for name, m in network.named_modules() if isinstance(m, nn.Conv2d)}


# -- widths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hidden", "alpha", "members", "width"),
    [
        (7, 2, 4, 4),  # int(14) / 4 = 3.5
        (7, 1, 4, 2),  # 7 / 4 = 1.75
        (200, 2, 3, 134),  # UCI
        (400, 2, 3, 267),  # UCI, Protein
        (10, 1.15, 4, 3),  # int(11.5) = 11, 11 / 4 = 2.75
        (10, 1.25, 4, 3),  # int(12.5) = 12, 12 / 4 = 3 exactly: ceil(12.5 / 4) would be 4
        (3, 0.1, 4, 1),  # never to nothing
        (12, 4, 4, 12),  # alpha = members: full width
    ],
)
def test_the_width_rule_of_packed_ensembles(hidden, alpha, members, width):
    thinner = packed(mlp(hidden), torch.zeros(2, 3), members=members, alpha=alpha)
    assert [tuple(layer.weight.shape) for layer in thinner[::2]] == [(width, 3), (width, width), (2, width)]
    assert [(layer.in_features, layer.out_features) for layer in thinner[::2]] == [
        (3, width),
        (width, width),
        (width, 2),
    ]
    assert width == max(1, math.ceil(int(alpha * hidden) / members))


@pytest.mark.parametrize(
    ("factor", "width"), [(0.5, 4), (0.3, 3), (1 / 3, 3), (1 / 7, 1), (0.01, 1), (1, 7), (3 / 7, 3)]
)
def test_a_share_of_seven_channels_rounds_up(factor, width):
    assert thin(mlp(7), factor, torch.zeros(1, 3))[0].out_features == width


@pytest.mark.parametrize("factor", [0, -0.5, 1.01])
def test_a_factor_is_a_share(factor):
    with pytest.raises(ConfigError, match="0 < factor <= 1"):
        thin(mlp(7), factor, torch.zeros(1, 3))


@pytest.mark.parametrize("gamma", [0, 1.5, "2"])
def test_gamma_is_a_whole_number(gamma):
    with pytest.raises(ConfigError, match="gamma must be a whole number"):
        thin(mlp(7), 0.5, torch.zeros(1, 3), gamma=gamma)


def test_init_is_one_of_two_words():
    with pytest.raises(ConfigError, match="init='random'"):
        thin(mlp(7), 0.5, torch.zeros(1, 3), init="random")


@pytest.mark.parametrize("init", ["fresh", "pretrained"])
@pytest.mark.parametrize("name", networks.ZOO)
def test_at_full_width_nothing_changes(name, init):
    build, example = networks.ZOO[name]
    network, x = build().eval(), example()
    same = thin(network, 1, x, init=init)
    assert shapes(same) == shapes(network)
    assert not same.training
    if init == "pretrained":
        assert torch.equal(run(same, x), run(network, x))
    assert not {t.data_ptr() for t in tensors_of(same).values()} & {t.data_ptr() for t in tensors_of(network).values()}


@pytest.mark.parametrize("name", networks.ZOO)
def test_the_given_network_is_left_alone(name):
    build, example = networks.ZOO[name]
    network, x = build(), example()
    before = {n: t.clone() for n, t in tensors_of(network).items()}
    thinner = thin(network, 0.5, x, init="pretrained").train()
    with torch.no_grad():
        for t in tensors_of(thinner).values():
            t.add_(1)
    assert network.training
    assert {n: tuple(t.shape) for n, t in before.items()} == shapes(network)
    assert all(torch.equal(t, before[n]) for n, t in tensors_of(network).items())
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in (*network.modules(), *thinner.modules()))


def test_the_example_is_left_alone():
    net = Net(lambda n, x: n.head(F.relu(n.stem(x.sub_(1)))), stem=nn.Linear(3, 8), head=nn.Linear(8, 2))
    x = torch.ones(4, 3)
    thin(net, 0.5, x)
    assert torch.equal(x, torch.ones(4, 3))


def test_buffers_that_move_in_eval_mode_stay():
    def forward(net, x):
        net.seen += 1
        return net.head(net.stem(x))

    net = Net(forward, stem=nn.Linear(3, 8), head=nn.Linear(8, 2))
    net.register_buffer("seen", torch.zeros(()))
    thin(net, 0.5, torch.ones(4, 3))
    assert net.seen == 0


EXPECTED = {  # at half the width
    "small-vit": {
        "patches.weight": (12, 3, 4, 4),
        "cls_token": (1, 1, 12),
        "positions": (1, 17, 12),
        "blocks.1.attn.qkv.weight": (36, 12),
        "blocks.1.mlp.0.weight": (24, 12),
        "head.weight": (5, 12),
    },
    "convnext-like": {"stage2.dwconv.weight": (8, 1, 3, 3), "stage2.pwconv1.weight": (32, 8), "stage2.gamma": (8,)},
    "densenet-like": {  # parts of 8, 6, 6 become 4, 3, 3; 10, 6, 6 become 5, 3, 3
        "block1.1.norm.running_mean": (7,),
        "transition.weight": (5, 10, 1, 1),
        "head.weight": (5, 11),
    },
    "lstm": {
        "lstm.weight_ih_l0": (24, 6),
        "lstm.weight_hh_l1": (24, 6),
        "lstm.bias_hh_l1": (24,),
        "head.weight": (5, 6),
    },
    "attention": {"attention.in_proj_weight": (24, 8), "attention.out_proj.weight": (8, 8), "norm.weight": (8,)},
    "squeeze-excite": {
        "depthwise.weight": (8, 1, 3, 3),
        "excite.reduce.weight": (3, 8, 1, 1),
        "grouped.weight": (16, 4, 3, 3),
        "norm2.weight": (16,),
    },
    "transformer": {"encoder.self_attn.in_proj_weight": (24, 8), "encoder.linear1.weight": (12, 8)},
    "token": {"embed.weight": (20, 6), "norm.bias": (6,), "hidden.weight": (9, 6), "head.weight": (5, 9)},
    "tied": {"first.weight": (6, 6), "head.weight": (5, 6)},
    "two-input": {"numeric.weight": (5, 4), "categorical.weight": (3, 3), "hidden.weight": (8, 11)},
    "dropout": {"conv.weight": (6, 3, 3, 3), "hidden.weight": (8, 6), "head.weight": (5, 8)},
}


@pytest.mark.parametrize("name", networks.ZOO)
def test_the_zoo_at_half_its_width(name):
    build, example = networks.ZOO[name]
    network, x = build(), example()
    thinner = thin(network, 0.5, x)
    found = shapes(thinner)
    assert {n: found[n] for n in EXPECTED[name]} == EXPECTED[name]
    assert found.keys() == shapes(network).keys()
    out = run(thinner, x)
    assert out.shape == (3, networks.CLASSES) and bool(torch.isfinite(out).all())
    args = x if isinstance(x, tuple) else (x,)
    thinner.train()(*args).sum().backward()
    assert all(p.grad is not None for p in thinner.parameters())


def test_tied_weights_stay_one_parameter():
    for init in ("fresh", "pretrained"):
        thinner = thin(networks.TiedNet(), 0.5, torch.zeros(2, 6), init=init)
        assert thinner.first.weight is thinner.second.weight
        assert thinner.second.in_features == thinner.second.out_features == 6


# -- attention ---------------------------------------------------------------------------------------------------------


def test_heads_stay_and_what_repeats_their_width_follows():
    block = thin(networks.SmallViT(), 0.5, torch.zeros(2, 3, 16, 16)).blocks[0].attn
    assert (block.num_heads, block.head_dim, block.scale) == (3, 4, 4**-0.5)


def test_an_attention_module_with_a_parameter_of_its_own_is_patched_too():
    class Biased(networks.Attention):
        def __init__(self, dim: int, heads: int):
            super().__init__(dim, heads)
            self.offset = nn.Parameter(torch.randn(3 * dim))

        def forward(self, x):
            return super().forward(x + self.offset[: x.shape[-1]])

    torch.manual_seed(0)
    attention = networks.Attention(8, 2)
    attention.gain = nn.Parameter(torch.ones(8))
    net = Net(
        lambda n, x: n.head(n.attn(n.stem(x)) * n.attn.gain).mean(1),
        stem=nn.Linear(3, 8),
        attn=attention,
        head=nn.Linear(8, 2),
    )
    thinner = thin(net, 0.5, torch.zeros(2, 5, 3))
    assert (thinner.attn.head_dim, tuple(thinner.attn.gain.shape)) == (2, (4,))


@pytest.mark.parametrize("name", ["small-vit", "attention", "transformer"])
@pytest.mark.parametrize(("alpha", "members"), [(2, 3), (1, 5), (3, 4), (2.5, 6)])
def test_embeddings_that_do_not_divide_are_rounded_up_to_whole_heads(name, alpha, members):
    build, example = networks.ZOO[name]
    network = build()
    thinner = packed(network, example(), members=members, alpha=alpha)
    heads = 3 if name == "small-vit" else 2
    dim = network.head.in_features
    least = math.ceil(int(alpha * dim) / members)
    assert thinner.head.in_features == math.ceil(least / heads) * heads
    assert run(thinner, example()).shape == (3, 5)


def test_multihead_attention_knows_its_new_size():
    thinner = thin(networks.AttentionNet(), 0.5, torch.zeros(2, 7, 6)).attention
    assert (thinner.embed_dim, thinner.kdim, thinner.vdim, thinner.num_heads, thinner.head_dim) == (8, 8, 8, 2, 4)


def test_multihead_attention_with_other_keys_and_values():
    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.kv = nn.Linear(3, 8), nn.Linear(4, 6)
            self.attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)
            self.head = nn.Linear(8, 2)

        def forward(self, a, b):
            q, kv = self.q(a), self.kv(b)
            return self.head(self.attention(q, kv, kv, need_weights=False)[0].mean(1))

    x = torch.randn(2, 5, 3), torch.randn(2, 6, 4)
    thinner = thin(Cross(), 0.5, x)
    assert (thinner.attention.embed_dim, thinner.attention.kdim, thinner.attention.head_dim) == (4, 3, 2)
    assert run(thinner, x).shape == (2, 2)


# -- subgroups ---------------------------------------------------------------------------------------------------------

STAGES = {
    "resnet18": {*(f"layer{s}.{b}.conv2" for s in (3, 4) for b in (0, 1)), "layer4.0.downsample.0"},
    "resnet50": {
        *(f"layer3.{b}.conv{c}" for b in range(6) for c in (2, 3)),
        *(f"layer4.{b}.conv{c}" for b in range(3) for c in (2, 3)),
        *(f"layer{s}.0.downsample.0" for s in (2, 3, 4)),
    },
}


TRACES: dict[nn.Module, object] = {}


@pytest.fixture
def one_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large networks are traced once for all the tests that thin them on the same examples."""
    trace = rules.trace_channels

    def traced(network: nn.Module, x: torch.Tensor) -> object:
        if network not in TRACES:
            TRACES[network] = trace(network, x)
        return TRACES[network]

    monkeypatch.setattr(rules, "trace_channels", traced)


@functools.cache
def at_gamma(name: str, alpha: float, gamma: int) -> dict[str, nn.Conv2d]:
    return convolutions(packed(meta(name), torch.zeros(2, 3, 32, 32), members=4, alpha=alpha, gamma=gamma))


@pytest.mark.usefixtures("one_trace")
@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_the_subgroups_of_resnets(name):
    found = at_gamma(name, 2, 2)
    assert {path for path, conv in found.items() if conv.groups > 1} == STAGES[name]
    assert {conv.groups for conv in found.values()} == {1, 2}


@pytest.mark.usefixtures("one_trace")
def test_the_subgroups_of_a_wide_resnet():
    found, base = at_gamma("wrn-28-10", 2, 2), convolutions(meta("wrn-28-10"))
    expected = {path: 2 if conv.in_channels in (320, 640) else 1 for path, conv in base.items()}
    assert {path: conv.groups for path, conv in found.items()} == expected


@pytest.mark.usefixtures("one_trace")
def test_gamma_4_with_alpha_3_really_uses_3():
    found, base = at_gamma("resnet50", 3, 4), convolutions(meta("resnet50"))
    used = {path: conv.groups for path, conv in found.items()}
    assert used["layer3.0.conv2"] == 3 and base["layer3.0.conv2"].in_channels == 256  # 256 * 3 / 4 = 192 = 3 * 64
    assert set(used.values()) == {1, 3, 4}


@pytest.mark.usefixtures("one_trace")
@pytest.mark.parametrize(("name", "alpha", "gamma"), [("resnet18", 2, 2), ("resnet50", 3, 4), ("wrn-28-10", 2, 2)])
def test_every_subgroup_keeps_64_inputs(name, alpha, gamma):
    found, base = at_gamma(name, alpha, gamma), convolutions(meta(name))
    for path, conv in found.items():
        assert conv.groups == 1 or conv.in_channels // conv.groups >= 64
        assert conv.weight.shape[1] == conv.in_channels // conv.groups
        assert conv.weight.shape[0] == conv.out_channels == math.ceil(alpha * base[path].out_channels / 4)


def test_the_groups_of_a_resnext_stay():
    found, base = at_gamma("resnext50", 2, 1), convolutions(meta("resnext50"))
    assert {path: conv.groups for path, conv in found.items()} == {path: c.groups for path, c in base.items()}
    grouped = [path for path, conv in base.items() if conv.groups == 32]
    assert len(grouped) == 16
    assert all(2 * found[path].out_channels == base[path].out_channels for path in grouped)


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_the_width_rule_counts_all_groups(kind):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 6, 1), kind(6, 6, 1, groups=2), nn.Conv2d(6, 2, 1))
    thinner = packed(net, torch.zeros(2, 3, 2, 2), members=2, alpha=1.5)
    # int(1.5 * 6) / 2 = 4.5 -> 5 -> 6 in two groups; three channels for each group alone would be int(4.5) / 2 -> 2
    assert [layer.out_channels for layer in thinner] == [6, 6, 2]
    thinner = packed(net, torch.zeros(2, 3, 2, 2), members=3, alpha=1.5)
    assert [layer.out_channels for layer in thinner] == [4, 4, 2]  # 9 / 3 = 3 -> 4


def test_a_network_s_own_groups_are_multiplied():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 1, groups=2), nn.Conv2d(16, 16, 1), nn.Flatten(), nn.LazyLinear(2)
    )
    net(torch.zeros(1, 3, 2, 2))
    thinner = plan(net, torch.zeros(2, 3, 2, 2), gamma=2, min_channels=1).build(net, init="pretrained", seed=0)
    assert [layer.groups for layer in thinner[:3]] == [1, 4, 2]


@pytest.mark.usefixtures("one_trace")
def test_dense_patterns_are_classes_with_children_or_paths():
    net, x = meta("resnet18"), torch.zeros(2, 3, 32, 32)

    def grouped(dense: tuple[str, ...]) -> set[str]:
        thinner = packed(net, x, gamma=2, min_channels=1, dense=dense)
        return {path for path, conv in convolutions(thinner).items() if conv.groups > 1}

    everything = set(convolutions(net)) - {"conv1"}
    assert grouped(()) == everything
    assert grouped(DENSE) == {path for path in everything if not path.endswith("conv1")}
    assert grouped(("layer[12].*", "BasicBlock.conv2")) == {
        path for path in everything if path[:6] in ("layer3", "layer4") and not path.endswith("conv2")
    }


@pytest.mark.parametrize("gamma", [2, 4])
def test_a_grouped_convolution_is_a_dense_one_under_a_mask(gamma):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 32, 3), nn.Flatten(), nn.Linear(32 * 4, 2)).double()
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    grouped = plan(net, x, gamma=gamma, min_channels=1).build(net, init="pretrained", seed=3)
    plain = plan(net, x).build(net, init="pretrained", seed=3)
    weight, outputs, inputs = plain[1].weight, torch.arange(16), torch.arange(8)
    # ones where floor(G * l / C_in) == floor(G * k / C_out), with this member's G = gamma
    mask = (gamma * outputs // 16)[:, None] == (gamma * inputs // 8)[None, :]
    assert mask.double().mean() == 1 / gamma
    between = F.conv2d(x, plain[0].weight, plain[0].bias)
    assert torch.equal(grouped[0](x), plain[0](x))
    expected = F.conv2d(between, weight * mask[:, :, None, None], plain[1].bias)
    torch.testing.assert_close(grouped[1](between), expected, rtol=1e-12, atol=1e-12)


# -- where a network runs ----------------------------------------------------------------------------------------------


def test_a_network_on_meta_needs_no_example_there():
    with torch.device("meta"):
        net = models.build("small-cnn")
    thinner = thin(net, 0.5, torch.zeros(2, 3, 8, 8))
    assert thinner.conv2.weight.shape == (16, 8, 3, 3)
    assert all(t.is_meta for t in tensors_of(thinner).values())


def test_a_network_that_reads_values_is_traced_where_it_is():
    def forward(net, x):
        x = net.stem(x)
        if x.sum() > 0:
            x = x + net.yes(x)
        return net.head(F.relu(x) if float(x.mean()) < 1e9 else x.fft())

    torch.manual_seed(0)
    net = Net(forward, stem=nn.Linear(3, 8), yes=nn.Linear(8, 8), head=nn.Linear(8, 2))
    nn.init.constant_(net.stem.bias, 10.0)
    thinner = thin(net, 0.5, torch.ones(2, 3))
    assert tuple(thinner.yes.weight.shape) == (4, 4)


def test_a_recurrent_network_that_reads_values():
    def forward(net, x):
        steps = net.lstm(x)[0]
        return net.head(steps[:, -1] * float(steps.sum() < 1e9))

    net = Net(forward, lstm=nn.LSTM(6, 12, batch_first=True), head=nn.Linear(12, 2))
    assert thin(net, 0.5, torch.ones(2, 4, 6)).lstm.hidden_size == 6


def test_inputs_may_be_tuples_dicts_and_tokens():
    two = networks.TwoInputNet()
    x_num, x_cat = networks.ZOO["two-input"][1]()
    by_name = {"x_num": x_num, "x_cat": x_cat}
    assert shapes(thin(two, 0.5, by_name)) == shapes(thin(two, 0.5, (x_num, x_cat)))


def test_skeletons_keep_ties():
    copy = skeleton(networks.TiedNet(), lambda t: t.detach().clone())
    assert copy.first.weight is copy.second.weight


def test_what_stays_wide_is_told(caplog):
    net = nn.Sequential(nn.Linear(3, 8), nn.Softmax(-1), nn.Linear(8, 2))
    with caplog.at_level("INFO", logger="multum"):
        thin(net, 0.5, torch.zeros(2, 3))
    assert [(r.levelname, "0.weight" in r.getMessage()) for r in caplog.records] == [("WARNING", True)]
    caplog.clear()
    with caplog.at_level("INFO", logger="multum"):
        thin(networks.SmallViT(), 0.5, torch.zeros(2, 3, 16, 16))
    assert not caplog.records


def test_a_wider_choice_of_dtype():
    net, x = networks.ConvNeXtLike().double(), double(networks.ZOO["convnext-like"][1]())
    assert all(p.dtype is torch.float64 for p in thin(net, 0.5, x).parameters())
    assert half(7) == 4
