"""Packed-Ensembles, METHODS 3.1: a packed ensemble is M thin networks, to the last digit."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multum
from multum import Deep, Ensemble, Packed
from multum.models import build

EXACT = {"rtol": 0, "atol": 1e-12}
EXECUTORS = ("loop", "vmap")
NETWORKS = {
    "mlp": ({"in_features": 6, "hidden": (12, 10)}, (6,)),
    "small-cnn": ({}, (3, 8, 8)),
    "wrn-10-1": ({}, (3, 8, 8)),
    "resnet18": ({"width": 0.125}, (3, 16, 16)),
}
PLAIN = Packed(members=4, alpha=2)
GROUPED = Packed(members=3, alpha=2, gamma=2, min_channels=1)


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    return build(name, classes=4, **NETWORKS[name][0]).double()


def batch(name: str, *lead: int) -> Tensor:
    return torch.randn(*lead, *NETWORKS[name][1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def labels(*shape: int) -> Tensor:
    return torch.randint(4, shape, generator=torch.Generator().manual_seed(2))


@functools.cache
def made(name: str, method: Packed) -> Ensemble:
    return multum.ensemble(network(name), method, example=batch(name, 2), seed=3)


def packed(name: str, method: Packed = PLAIN, executor: str | None = None) -> Ensemble:
    ens = copy.deepcopy(made(name, method))
    ens.executor = executor
    return ens


def alone(ens: Ensemble) -> list[nn.Module]:
    return [ens.member(i) for i in range(ens.members)]


def assert_tensors_are_the_members(ens: Ensemble, members: list[nn.Module]) -> None:
    """Every parameter, gradient and buffer of the ensemble, row by row."""
    tensors = {**dict(ens.named_parameters()), **{n: b for n, b in ens.named_buffers() if n not in ens.numbers}}
    for i, one in enumerate(members):
        theirs = {**dict(one.named_parameters()), **dict(one.named_buffers())}
        assert theirs.keys() == tensors.keys()
        for name, tensor in theirs.items():
            torch.testing.assert_close(tensors[name][i], tensor, **EXACT, msg=lambda m, n=name: f"{n}: {m}")
            if tensor.grad is not None:
                torch.testing.assert_close(tensors[name].grad[i], tensor.grad, **EXACT)


# -- a, b: M thin networks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("method", [PLAIN, GROUPED], ids=["gamma1", "gamma2"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_outputs_gradients_and_statistics_are_those_of_thin_networks(name, method, executor, training):
    ens = packed(name, method, executor).train(training)
    members = [one.train(training) for one in alone(ens)]
    x, y = batch(name, 5), labels(5)
    out = ens(x)
    multum.loss(out, y, reduction="sum").backward()
    for i, one in enumerate(members):
        thin = one(x)
        torch.testing.assert_close(out[i], thin, **EXACT)
        F.cross_entropy(thin, y).backward()
    assert all(p.grad is not None for p in ens.parameters())
    assert_tensors_are_the_members(ens, members)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", NETWORKS)
def test_b_no_gradient_reaches_another_member(name, executor):
    ens = packed(name, executor=executor).train()
    out, y = ens(batch(name, 5)), labels(5)
    for i in range(ens.members):
        grads = torch.autograd.grad(F.cross_entropy(out[i], y), list(ens.parameters()), retain_graph=True)
        others = [j for j in range(ens.members) if j != i]
        assert all((g[others] == 0.0).all() for g in grads)
        assert any((g[i] != 0.0).any() for g in grads)


# -- c: training -------------------------------------------------------------------------------------------------------


def train(model: nn.Module, x: Tensor, y: Tensor, **loss) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    for images, targets in zip(x, y, strict=True):
        optimizer.zero_grad()
        out = model(images)
        (multum.loss(out, targets, **loss) if loss else F.cross_entropy(out, targets)).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", [n if n != "resnet18" else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS])
def test_c_twenty_steps_under_the_summed_loss_are_twenty_steps_of_each_thin_network(name, executor):
    x, y = batch(name, 20, 6), labels(20, 6)
    ens = packed(name, executor=executor).train()
    members = [train(one.train(), x, y) for one in alone(ens)]
    start = copy.deepcopy(ens)
    train(ens, x, y, reduction="sum")
    for p in ens.parameters():
        p.grad = None
    for one in members:
        one.zero_grad()
    assert_tensors_are_the_members(ens, members)
    moved = max((a - b).abs().max() for a, b in zip(ens.parameters(), start.parameters(), strict=True))
    assert moved > 1e-2


def test_c_under_the_mean_loss_training_is_another_one():
    x, y = batch("wrn-10-1", 20, 6), labels(20, 6)
    summed, mean = (train(packed("wrn-10-1").train(), x, y, reduction=reduction) for reduction in ("sum", "mean"))
    apart = max((a - b).abs().max() for a, b in zip(summed.parameters(), mean.parameters(), strict=True))
    assert apart > 0.01


@pytest.mark.parametrize("executor", EXECUTORS)
def test_c_members_times_the_gradient_of_the_mean_loss_is_the_thin_gradient(executor):
    ens = packed("resnet18", executor=executor).train()
    members = [one.train() for one in alone(ens)]
    x, y = batch("resnet18", 5), labels(5)
    multum.loss(ens(x), y, reduction="mean").backward()
    for one in members:
        F.cross_entropy(one(x), y).backward()
    for p in ens.parameters():
        p.grad *= ens.members
    assert_tensors_are_the_members(ens, members)


# -- d, e: one grouped convolution, one or several inputs --------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1, 2])
def test_d_the_members_are_one_dense_convolution_under_a_mask(gamma):
    method = Packed(members=4, alpha=2, gamma=gamma, min_channels=1)
    ens = packed("small-cnn", method)
    weight, bias = ens.conv2.weight, ens.conv2.bias  # [M, out, in / gamma, 3, 3]
    inputs, outputs, groups = method.members * 8, method.members * 16, method.members * gamma
    assert weight.shape == (4, 16, 8 // gamma, 3, 3)
    rows, columns = torch.arange(outputs)[:, None], torch.arange(inputs)[None]
    mask = (groups * columns // inputs) == (groups * rows // outputs)
    assert mask.double().mean() == 1 / groups
    dense = torch.randn(outputs, inputs, 3, 3, dtype=torch.float64) * mask[:, :, None, None]
    with torch.no_grad():
        # Row k of the dense weight has its inputs in the columns of its group, in order.
        weight.copy_(dense[mask].view(weight.shape))
    x = batch("small-cnn", 5)[:, :1].repeat(1, inputs, 1, 1) * torch.rand(inputs, 1, 1, dtype=torch.float64)
    expected = F.conv2d(x, dense, bias.flatten(), padding=1)
    found = [ens.member(i).conv2(part) for i, part in enumerate(x.chunk(4, dim=1))]
    torch.testing.assert_close(torch.cat(found, dim=1), expected, **EXACT)


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", NETWORKS)
def test_e_members_may_see_different_batches(name, executor, training):
    ens = packed(name, executor=executor).train(training)
    members = [one.train(training) for one in alone(ens)]
    common, different = batch(name, 5), batch(name, ens.members, 5)
    same = copy.deepcopy(ens)
    torch.testing.assert_close(
        copy.deepcopy(ens)(common.expand(ens.members, *common.shape), per_member=True), same(common), **EXACT
    )
    out = ens(different, per_member=True)
    for i, one in enumerate(members):
        torch.testing.assert_close(out[i], one(different[i]), **EXACT)
    assert_tensors_are_the_members(ens, members)


# -- f, g, h, i: the ends of the scale ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_f_full_width_costs_as_many_networks_as_members(name):
    x = batch(name, 1)
    single = multum.cost(network(name), example=x)
    full = multum.cost(packed(name, Packed(members=3, alpha=3)), example=x)
    assert (full.params, full.macs) == (3 * single.params, 3 * single.macs)
    deep = multum.cost(multum.ensemble(network(name), Deep(members=3), example=x), example=x)
    assert (full.params, full.macs, full.torchinfo) == (deep.params, deep.macs, deep.torchinfo)


@pytest.mark.parametrize("name", NETWORKS)
def test_g_one_member_of_full_width_is_the_network_itself(name):
    base, x = network(name).eval(), batch(name, 5)
    ens = multum.ensemble(base, Packed(members=1, alpha=1, init="pretrained"), example=x).eval()
    shapes = {n: t.shape for n, t in base.state_dict().items()}
    assert {n: t.shape for n, t in ens.member(0).state_dict().items()} == shapes
    assert {n: t.shape for n, t in ens.state_dict().items()} == {n: (1, *s) for n, s in shapes.items()}
    torch.testing.assert_close(ens(x)[0], base(x), rtol=0, atol=0)
    torch.testing.assert_close(ens.member(0)(x), base(x), rtol=0, atol=0)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("method", [Deep(members=3, init="pretrained"), PLAIN], ids=["deep", "packed"])
def test_h_identical_members_stay_bitwise_identical(method, executor):
    ens = multum.ensemble(network("wrn-10-1").float(), method, example=batch("wrn-10-1", 2).float(), seed=0)
    with torch.no_grad():
        for name, tensor in (*ens.named_parameters(), *ens.named_buffers()):
            if name in ens.own:
                tensor.copy_(tensor[:1].expand_as(tensor).clone())
    ens.executor = executor
    train(ens.train(), batch("wrn-10-1", 4, 6).float(), labels(4, 6), reduction="sum")
    out = ens(batch("wrn-10-1", 6).float())
    assert all(torch.equal(row, out[0]) for row in out)
    assert multum.predict(ens, batch("wrn-10-1", 6).float()).mutual_information.max() < 1e-5


def test_h_fresh_members_differ():
    ens = packed("wrn-10-1").eval()
    prediction = multum.predict(ens, batch("wrn-10-1", 6))
    assert prediction.mutual_information.min() > 1e-5
    assert not any(torch.equal(ens.conv1.weight[0], ens.conv1.weight[i]) for i in (1, 2, 3))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", NETWORKS)
def test_i_permuting_members_permutes_outputs(name, executor):
    ens, x, order = packed(name, executor=executor).eval(), batch(name, 5), [2, 0, 3, 1]
    with torch.no_grad():
        for buffer in ens.buffers():
            if buffer.is_floating_point():
                buffer.add_(torch.rand_like(buffer))
    before = ens(x)
    with torch.no_grad():
        for name_, tensor in (*ens.named_parameters(), *ens.named_buffers()):
            if name_ in ens.own:
                tensor.copy_(tensor[order])
    torch.testing.assert_close(ens(x), before[order], **EXACT)
    assert (before[0] - before[1]).abs().max() > 1e-6


# -- k: where subgroups go ---------------------------------------------------------------------------------------------


def groups(model: str, method: Packed, **keywords) -> dict[str, nn.Conv2d]:
    """The convolutions of one member that have subgroups."""
    with torch.device("meta"):
        net = build(model, **keywords)
    ens = multum.ensemble(net, method, example=torch.zeros(1, 3, 32, 32))
    return {n: m for n, m in ens.network.named_modules() if isinstance(m, nn.Conv2d) and m.groups > 1}


def test_k_resnet18_has_subgroups_where_the_paper_has_them():
    found = groups("resnet18", Packed(members=4, alpha=2, gamma=2))
    expected = {f"layer{stage}.{block}.conv2" for stage in (3, 4) for block in (0, 1)} | {"layer4.0.downsample.0"}
    assert found.keys() == expected
    assert all(conv.groups == 2 and conv.in_channels // conv.groups >= 64 for conv in found.values())


def test_k_wide_resnets_have_subgroups_on_every_convolution_from_320_channels():
    found = groups("wrn-16-10", Packed(members=4, alpha=2, gamma=2))
    with torch.device("meta"):
        base = dict(build("wrn-16-10").named_modules())
    wide = {n for n, m in base.items() if isinstance(m, nn.Conv2d) and m.in_channels in (320, 640)}
    assert found.keys() == wide
    assert all(conv.groups == 2 for conv in found.values())


def test_k_gamma_is_lowered_to_what_leaves_64_channels():
    found = groups("resnet18", Packed(members=4, alpha=3, gamma=4))
    # 3/4 of 256 channels are 192 = 3 * 64, of 512 they are 384 = 4 * 96, of 128 only 96
    assert {conv.in_channels: conv.groups for conv in found.values()} == {192: 3, 384: 4}


def test_k_the_floor_and_the_dense_layers_are_settings():
    everywhere = groups("resnet18", Packed(members=4, alpha=2, gamma=2, min_channels=1, dense=()))
    assert "layer1.0.conv1" in everywhere and "layer1.0.conv2" in everywhere
    assert "conv1" not in everywhere  # the stem takes none
    without = groups("resnet18", Packed(members=4, alpha=2, gamma=2, min_channels=1, dense="layer4.*"))
    assert without.keys() == {name for name in everywhere if not name.startswith("layer4")}


def deconvolutions() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 12, 3, 2), nn.ReLU(), nn.ConvTranspose2d(12, 8, 2, bias=False)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


class Gated(nn.Module):
    """A fused projection, two layers in one, and a layer whose weight is tied: none may get subgroups."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.fused, self.out, self.head = (nn.Linear(*s) for s in ((6, 8), (8, 16), (8, 8), (8, 4)))
        self.twin = nn.Linear(8, 8)
        self.again = nn.Linear(8, 8)
        self.again.weight = self.twin.weight

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.fused(self.stem(x)).chunk(2, -1)
        return self.head(self.again(self.twin(self.out(left * right.sigmoid()))))


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(6, 8), layer, nn.Linear(8, 8), nn.Flatten(), nn.Linear(40, 4))


GAMMAS = {  # network, example, the layers with two subgroups
    "linear": (lambda: build("mlp", in_features=6, classes=4, hidden=(8, 8, 12)), (6,), {"hidden.2", "hidden.4"}),
    "transposed": (deconvolutions, (3, 5, 5), {"1", "3"}),
    "gated": (Gated, (6,), {"out"}),
    "transformer": (transformer, (5, 6), {"2"}),
}


@pytest.mark.parametrize("init", ["fresh", "pretrained"])
@pytest.mark.parametrize("name", GAMMAS)
def test_gamma_reaches_linear_layers_and_transposed_convolutions(name, init, tmp_path):
    builder, shape, grouped = GAMMAS[name]
    torch.manual_seed(0)
    base, x = builder(), torch.randn(3, *shape)
    counts = []
    for gamma in (1, 2):
        method = Packed(members=2, alpha=2, gamma=gamma, min_channels=1, init=init)
        ens = multum.ensemble(base, method, example=x, seed=0).eval()
        counts.append({n: p.numel() for n, p in ens.named_parameters()})
    halved = {n.rpartition(".")[0] for n, p in ens.named_parameters() if 2 * counts[1][n] == counts[0][n]}
    assert halved == grouped
    assert {n for n in counts[0] if counts[0][n] != counts[1][n]} == {f"{path}.weight" for path in grouped}
    multum.check(ens, x, verbose=False)
    multum.save(ens, tmp_path / "model.safetensors")
    again = multum.load(tmp_path / "model.safetensors", network=builder).eval()
    assert torch.equal(again(x), ens(x))


def test_a_linear_layer_in_groups_is_a_grouped_convolution_with_a_kernel_of_1():
    net = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 12), nn.Linear(12, 4)).double()
    ens = multum.ensemble(net, Packed(members=1, alpha=1, gamma=2, min_channels=1), example=batch("mlp", 2), seed=0)
    middle, x = ens.member(0)[1], torch.randn(5, 8, dtype=torch.float64)
    weight, bias = ens.network[1].weight[0].detach(), ens.network[1].bias[0].detach()
    assert type(middle) is nn.Linear and weight.shape == (12, 4)
    torch.testing.assert_close(middle(x), F.conv1d(x[..., None], weight[..., None], bias, groups=2)[..., 0], **EXACT)
    bound = 1 / 4**0.5  # of four inputs, as torch initialises a grouped convolution; a dense layer's is 1 / sqrt(8)
    assert 1 / 8**0.5 < float(weight.abs().max()) <= bound
    assert multum.cost(ens, example=batch("mlp", 2)).macs == 6 * 8 + 8 * 12 // 2 + 12 * 4


@pytest.mark.parametrize("conv", [nn.Conv1d, nn.Conv2d])
def test_circular_padding_is_thinned(conv):
    flat = conv is nn.Conv1d
    layers = [conv(3, 8, 3), conv(8, 8, 3, padding=1, padding_mode="circular")]
    if not flat:
        layers += [nn.CircularPad2d(2), conv(8, 8, 5)]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1) if flat else nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.append(nn.Linear(8, 4))
    x = torch.randn(2, 3, *([9] if flat else [9, 9]))
    ens = multum.ensemble(net, Packed(members=2, alpha=1), example=x, seed=0)
    assert (ens.network[1].in_channels, ens.network[1].padding_mode) == (4, "circular")
    multum.check(ens, x, verbose=False)
