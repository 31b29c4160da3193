"""Masksembles: the law of its masks, the paper's forward pass, its published counts, and members that are smaller."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multum
from grids import grid
from multum import Masksembles
from multum.errors import ConfigError, RewriteError
from networks import ZOO, AttentionNet, ConvNeXtLike, DenseNetLike, SqueezeExciteNet, TransformerNet

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ensemble(network: nn.Module, x: Any, seed: int = 0, **fields: Any) -> multum.Ensemble:
    return multum.ensemble(network, Masksembles(**fields), example=x, seed=seed)


def differences(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return float((a - b).detach().abs().max())


def size(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


# -- the masks ---------------------------------------------------------------------------------------------------------


def test_the_number_of_ones_is_the_papers() -> None:
    method = Masksembles(members=4, scale=2)
    table = {64: 34, 128: 68, 256: 136, 512: 273, 1024: 546, 2048: 1092}
    assert {c: method.active(c) for c in table} == table
    assert all(0.531 <= m / c <= 0.534 for c, m in table.items())
    assert Masksembles(scale=1).active(64) == 64
    assert [Masksembles(members=1, scale=s).active(49) for s in (1, 1.1, 2, 3, 5, 6)] == [49] * 6
    assert Masksembles(members=3, scale=6).active(10) == 4  # 3 ones each could not cover 10 channels


@pytest.mark.parametrize("members", [2, 3, 4, 8, 32])
@pytest.mark.parametrize("scale", [1.05, 1.5, 2, 3.3, 6])
def test_masks_have_m_ones_and_cover_every_channel(members: int, scale: float) -> None:
    method = Masksembles(members=members, scale=scale)
    for channels in (10, 11, 16, 23, 64, 300):
        masks = method.masks(channels, seed=channels)
        assert masks.shape == (members, channels)
        assert set(np.unique(masks)) <= {0.0, 1.0}
        assert (masks.sum(1) == method.active(channels)).all()
        assert masks.any(0).all()


def test_masks_come_from_the_seed() -> None:
    method = Masksembles(members=4, scale=2)
    assert np.array_equal(method.masks(64, 7), method.masks(64, 7))
    assert not np.array_equal(method.masks(64, 7), method.masks(64, 8))
    assert method.masks(2048, 0).shape == (4, 2048)
    assert Masksembles(members=5, scale=1).masks(12, 0).all()
    assert Masksembles(members=1, scale=3).masks(12, 0).all()


def test_overlap_follows_the_scale() -> None:
    """Two masks share m/s' channels on average, so their IoU is about 1/(2 s' - 1): a third at scale 2."""
    for scale, members in ((2.0, 4), (3.0, 4), (2.0, 8)):
        method = Masksembles(members=members, scale=scale)
        shared, iou = [], []
        for seed in range(60):
            a, b, *_ = method.masks(256, seed).astype(bool)
            shared.append((a & b).sum())
            iou.append((a & b).sum() / (a | b).sum())
        assert abs(np.mean(shared) / (method.active(256) / scale) - 1) < 0.05
        assert abs(np.mean(iou) - 1 / (2 * scale - 1)) < 0.02


def test_members_of_an_ensemble_have_masks_drawn_together() -> None:
    net, x = multum.models.build("wrn-10-1"), torch.zeros(2, 3, 8, 8)
    before = torch.get_rng_state()
    a, b, c = (ensemble(net, x, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    masks = {name: p for name, p in a.named_parameters() if name.endswith(".mask")}
    assert set(masks) == set(a.own)
    for name, mask in masks.items():
        assert not mask.requires_grad
        assert (mask.sum(1) == a.method.active(mask.shape[1])).all()
        assert mask.any(0).all(), name
        assert torch.equal(mask, dict(b.named_parameters())[name])
        assert not torch.equal(mask, dict(c.named_parameters())[name])
    assert not torch.equal(masks["layer1.0.conv1.mask"], masks["layer1.0.conv2.mask"])
    assert size(a) - size(net) == sum(m.numel() for m in masks.values())
    assert sum(p.numel() for p in a.parameters() if p.requires_grad) == size(net)


# -- the forward pass --------------------------------------------------------------------------------------------------


class NormNet(nn.Module):
    """Convolutions with batch norm, and a head. Shape: [B, 4, 6, 6] -> [B, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 12, 3, padding=1, groups=2), nn.BatchNorm2d(12)
        self.conv2, self.bn2 = nn.Conv2d(12, 16, 3, stride=2, bias=False), nn.BatchNorm2d(16)
        self.fc = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


def paper_forward(ens: multum.Ensemble, p: dict[str, Tensor], stats: dict[str, Tensor], x: Tensor) -> Tensor:
    """The papers' forward pass: the batch tiled member-major, channels of member m's rows times mask m."""
    members = ens.members

    def masked(name: str, rows: Tensor, side: str) -> Tensor:
        if f"{name}.mask" not in p or side != ens.method.where:
            return rows
        mask = p[f"{name}.mask"].repeat_interleave(len(rows) // members, 0)
        return rows * mask.view(*mask.shape, *(1 for _ in rows.shape[2:]))

    def conv(name: str, rows: Tensor, **options: Any) -> Tensor:
        y = F.conv2d(masked(name, rows, "inputs"), p[f"{name}.weight"], p.get(f"{name}.bias"), **options)
        return masked(name, y, "outputs")

    def norm(name: str, rows: Tensor) -> Tensor:
        running = stats[f"{name}.running_mean"], stats[f"{name}.running_var"]
        return F.batch_norm(rows, *running, p[f"{name}.weight"], p[f"{name}.bias"], training=True)

    tiled = x.repeat(members, 1, 1, 1)
    # What comes before the first mask is the same for all members and runs once: its statistics count each row once.
    rows = F.relu(norm("bn1", conv("conv1", tiled if ens.method.where == "outputs" else x, padding=1, groups=2)))
    rows = rows if ens.method.where == "outputs" else rows.repeat(members, 1, 1, 1)
    rows = F.relu(norm("bn2", conv("conv2", rows, stride=2))).mean((2, 3))
    rows = F.linear(masked("fc", rows, "inputs"), p["fc.weight"], p["fc.bias"])
    return rows.unflatten(0, (members, -1))


@pytest.mark.parametrize("where", ["outputs", "inputs"])
def test_training_is_the_papers_outputs_gradients_and_statistics(where: str) -> None:
    torch.manual_seed(0)
    net, x, target = NormNet().double(), random(5, 4, 6, 6), random(4, 5, 3, seed=2)
    ens = ensemble(net, x, where=where).train()
    assert ens.executor == "vmap"
    given = {n: p.detach().clone().requires_grad_(p.requires_grad) for n, p in ens.named_parameters()}
    assert {n for n in given if "mask" in n} == (
        {"conv1.mask", "conv2.mask"} if where == "outputs" else {"conv2.mask", "fc.mask"}
    )
    stats = {n: b.clone() for n, b in ens.named_buffers() if b.is_floating_point()}
    naive, out = paper_forward(ens, given, stats, x), ens(x)
    assert differences(out, naive) <= 1e-12
    ((out - target) ** 2).mean().backward()
    ((naive - target) ** 2).mean().backward()
    for name, p in ens.named_parameters():
        if name.endswith("mask"):
            assert p.grad is None
        else:
            assert p.grad is not None and p.grad.abs().max() > 0, name
            assert differences(p.grad, given[name].grad) <= 1e-12, name
    for name, moved in stats.items():
        assert differences(dict(ens.named_buffers())[name], moved) <= 1e-12, name


def test_a_member_does_not_depend_on_its_masked_channels() -> None:
    net, x = multum.models.build("wrn-10-1", bias="all"), random(3, 3, 8, 8).float()
    ens = ensemble(net, x).eval()
    before = ens(x)
    with torch.no_grad():
        for path in (name.rpartition(".")[0] for name in ens.own):
            layer: Any = ens.network.get_submodule(path)
            masked = layer.mask[1] == 0
            assert masked.any()
            layer.weight[masked] += 1
            layer.bias[masked] += 1
    after = ens(x)
    assert torch.equal(before[1], after[1])
    assert not torch.equal(before[0], after[0])


def test_one_member_or_scale_one_is_the_base_network() -> None:
    net, x = multum.models.build("wrn-10-1"), random(3, 3, 8, 8).float()
    expected = net.eval()(x)
    for fields in ({"scale": 1, "members": 3}, {"scale": 3, "members": 1}, {"scale": 1, "where": "inputs"}):
        for row in ensemble(net, x, **fields).eval()(x):
            assert differences(row, expected) <= 1e-5
    assert Masksembles(scale=3, where="inputs").alone() == Masksembles(members=1, scale=3, where="inputs")


# -- which layers ------------------------------------------------------------------------------------------------------


def masked_layers(network: nn.Module, x: Any, **fields: Any) -> set[str]:
    return {name.rpartition(".")[0] for name in ensemble(network, x, **fields).own}


def test_every_convolution_or_every_layer_of_a_network_without() -> None:
    net, x = meta("resnet18")
    convolutions = {path for path, m in net.named_modules() if isinstance(m, nn.Conv2d)}
    assert masked_layers(net, x) == convolutions
    assert masked_layers(net, x, where="inputs") == convolutions - {"conv1"} | {"fc"}
    assert masked_layers(net, x, plain=("*downsample*",)) == {p for p in convolutions if "downsample" not in p}

    net, x = multum.models.build("mlp", in_features=12, classes=11, hidden=(20, 30)), torch.zeros(2, 12)
    assert masked_layers(net, x) == {"hidden.0", "hidden.2"}
    assert masked_layers(net, x, where="inputs") == {"hidden.2", "fc"}

    net, x = ZOO["small-vit"][0](), ZOO["small-vit"][1]()
    inner = {f"blocks.{i}.{name}" for i in (0, 1) for name in ("attn.qkv", "attn.proj", "mlp.0", "mlp.2")}
    assert masked_layers(net, x) == inner | {"patches"}
    assert masked_layers(net, x, where="inputs") == inner | {"head"}

    net, x = ConvNeXtLike(dim=12), ZOO["convnext-like"][1]()  # its linear layers are no convolutions
    assert masked_layers(net, x) == {"stem", "stage1.dwconv", "down", "stage2.dwconv"}


# -- counts ------------------------------------------------------------------------------------------------------------


def meta(name: str, **keywords: Any) -> tuple[nn.Module, Tensor]:
    side = 224 if keywords.get("stem") == "imagenet" else 32
    with torch.device("meta"):
        return multum.models.build(name, **keywords), torch.zeros(1, 3, side, side)


ROWS = [row for row in GOLDEN if row.startswith("masks-after-conv/")]


@pytest.mark.parametrize(
    "row", [pytest.param(r, marks=pytest.mark.slow) if r.endswith(("imagenet", "/c100")) else r for r in ROWS]
)
def test_golden_counts(row: str) -> None:
    _, backbone, dataset = row.split("/")
    name = {"R18": "resnet18", "R50": "resnet50", "R50x4": "resnet50x4", "WRN": "wrn-28-10"}[backbone]
    keywords: dict = {"classes": {"c10": 10, "c100": 100, "imagenet": 1000}[dataset]}
    keywords |= {"stem": "imagenet"} if dataset == "imagenet" else {}
    keywords |= {"variant": "meliketoy"} if backbone == "WRN" else {}
    net, x = meta(name, **keywords)
    cost = multum.cost(ensemble(net, x), example=x)
    assert cost.params == GOLDEN[row]["params"]
    assert cost.trainable == size(net)


def test_all_golden_rows_are_there() -> None:
    assert len(ROWS) == 7


def test_masks_on_inputs_count_as_published() -> None:
    """torch-uncertainty's placement: 23.80 million for ResNet-50 on CIFAR-100."""
    net, x = meta("resnet50", classes=100)
    assert multum.cost(ensemble(net, x, where="inputs"), example=x).params == 23_803_556


def test_members_pay_for_everything_behind_the_first_mask() -> None:
    net, x = meta("resnet18")
    single = multum.cost(net, example=x)
    cost = multum.cost(ensemble(net, x), example=x)
    stem = 3 * 64 * 9 * 32 * 32
    assert cost.macs == 4 * single.macs - 3 * stem  # the stem's mask comes behind the stem, which runs once
    assert next(p for p in cost.parts if p.path == "conv1").macs == stem


# -- members that are smaller ------------------------------------------------------------------------------------------


def members_equal(ens: multum.Ensemble, x: Any) -> None:
    ens.eval()
    rows = ens(x)
    for i in range(ens.members):
        assert differences(ens.member(i)(x), rows[i]) <= 1e-12


def test_a_member_of_the_small_cnn_is_smaller() -> None:
    net, x = multum.models.build("small-cnn", classes=7).double(), random(3, 3, 8, 8)
    ens = ensemble(net, x)
    member = ens.member(2)
    assert (member.conv1.out_channels, member.conv2.in_channels) == (8, 8)
    assert (member.conv2.out_channels, member.conv3.in_channels) == (17, 17)
    assert (member.conv3.out_channels, member.fc.in_features) == (17, 17)
    assert [type(m) for m in member.modules()] == [type(m) for m in net.modules()]
    kept = ens.network.conv2.mask[2].bool()
    assert torch.equal(member.conv2.bias, net.conv2.bias[kept])
    assert torch.equal(member.conv2.weight, net.conv2.weight[kept][:, ens.network.conv1.mask[2].bool()])
    assert size(member) < 0.4 * size(net)
    assert member.training == ens.training and all(p.requires_grad for p in member.parameters())
    members_equal(ens, x)
    exported = torch.export.export(member.eval(), (x,))
    assert differences(exported.module()(x), member(x)) <= 1e-12


def test_where_batch_norm_follows_the_rows_are_zero() -> None:
    net, x = multum.models.build("wrn-10-1", bias="all").double(), random(3, 3, 8, 8)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.bias.normal_()
                module.running_mean.normal_()
    ens = ensemble(net, x)
    member = ens.member(1)
    assert {n: t.shape for n, t in member.state_dict().items()} == {n: t.shape for n, t in net.state_dict().items()}
    for path in (e.path for e in ens.edits):
        layer, mask = member.get_submodule(path), ens.network.get_submodule(path).mask[1]
        assert not layer.weight[mask == 0].any() and not layer.bias[mask == 0].any()
        assert torch.equal(layer.weight[mask == 1], net.get_submodule(path).weight[mask == 1])
    members_equal(ens, x)


def test_inputs_that_nobody_reads_go_also_through_batch_norm() -> None:
    net, x = multum.models.build("wrn-10-1").double(), random(3, 3, 8, 8)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.bias.normal_()
    ens = ensemble(net, x, where="inputs")
    member = ens.member(0)
    assert member.layer1[0].conv1.out_channels == member.layer1[0].bn2.num_features == 8
    assert member.layer1[0].conv2.out_channels == 16  # the residual stream has other readers
    members_equal(ens, x)


class Chain(nn.Module):
    """Layers with something between them. Shape: [B, 4, 6, 6] -> [B, 3]."""

    def __init__(self, between: Callable[[Tensor], Tensor], second: nn.Module | None = None):
        super().__init__()
        self.first = nn.Conv2d(4, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 20, 3, padding=1) if second is None else second
        self.head = nn.Linear(20, 3)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.second(self.between(self.first(x)))).mean((2, 3)))


BETWEEN: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "relu": (F.relu, True),
    "gelu and pooling": (lambda x: F.max_pool2d(F.gelu(x), 2), True),
    "tanh, doubled": (lambda x: 2 * torch.tanh(x), True),
    "sigmoid": (torch.sigmoid, False),
    "softplus": (F.softplus, False),
    "plus one": (lambda x: x + 1, False),
    "mean over channels": (lambda x: x - x.mean(1, keepdim=True), False),
    "largest channel": (lambda x: x / (1 + x.amax(1, keepdim=True).abs()), False),
    "norm without tensors": (lambda x: F.group_norm(x, 1), False),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_channels_go_only_where_they_stay_zero(name: str) -> None:
    between, exact = BETWEEN[name]
    torch.manual_seed(0)
    net, x = Chain(between).double(), random(3, 4, 6, 6)
    ens = ensemble(net, x)
    member = ens.member(0)
    assert member.first.out_channels == (8 if exact else 16)
    assert member.second.out_channels == 10  # behind it, only relu and a mean over positions
    members_equal(ens, x)


SECOND: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "grouped": (lambda: nn.Conv2d(16, 20, 3, padding=1, groups=2), 16),
    "transposed": (lambda: nn.ConvTranspose2d(16, 20, 2, stride=2), 8),
    "transposed in groups": (lambda: nn.ConvTranspose2d(16, 20, 2, groups=2), 16),
    "without bias": (lambda: nn.Conv2d(16, 20, 1, bias=False), 8),
    "depthwise, then 1x1": (
        lambda: nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU(), nn.Conv2d(16, 20, 1)),
        16,
    ),
}


@pytest.mark.parametrize("where", grid(["outputs", "inputs"], always=["outputs"]))
@pytest.mark.parametrize("name", SECOND)
def test_every_kind_of_layer_takes_fewer_channels(name: str, where: str) -> None:
    build, at_most = SECOND[name]
    torch.manual_seed(0)
    net, x = Chain(F.relu, build()).double(), random(3, 4, 6, 6)
    ens = ensemble(net, x, where=where, seed=3)
    assert not ens.refusals
    members_equal(ens, x)
    members = [ens.member(i) for i in range(4)]
    assert all(member.first.out_channels <= at_most for member in members)
    assert any(size(member) < size(net) for member in members)


@pytest.mark.parametrize(("name", "where"), grid(itertools.product(SECOND, ["outputs", "inputs"]), always=[]))
def test_the_checker_finds_nothing_in_a_kind_of_layer(name: str, where: str) -> None:
    net, x = Chain(F.relu, SECOND[name][0]()), random(3, 4, 6, 6).float()
    multum.check(ensemble(net, x, where=where, seed=3), x, verbose=False)


def test_a_head_of_zeros_proves_nothing() -> None:
    torch.manual_seed(0)
    net, x = Chain(torch.sigmoid).double(), random(3, 4, 6, 6)
    nn.init.zeros_(net.head.weight)
    member = ensemble(net, x).member(0)
    assert (member.first.out_channels, member.second.out_channels) == (16, 10)


def test_a_network_that_insists_on_float32_keeps_its_channels() -> None:
    net, x = Chain(lambda x: F.relu(x.float())), random(3, 4, 6, 6).float()
    ens = ensemble(net, x).eval()
    assert ens.member(0).first.out_channels == 16
    assert differences(ens.member(0)(x), ens(x)[0]) <= 1e-5


def test_flattened_and_concatenated_channels_go_with_all_their_columns() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Conv2d(3, 10, 3), nn.Conv2d(3, 12, 3)
            self.middle = nn.Conv2d(22, 14, 1)
            self.head = nn.Linear(14 * 16, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.cat([F.relu(self.left(x)), F.relu(self.right(x))], 1)
            return self.head(F.relu(self.middle(x)).flatten(1))

    torch.manual_seed(0)
    net, x = Branches().double(), random(3, 3, 6, 6)
    ens = ensemble(net, x)
    member = ens.member(3)
    m = ens.method.active
    assert member.middle.in_channels == m(10) + m(12) and member.head.in_features == 16 * m(14)
    members_equal(ens, x)


def test_members_on_the_meta_device_and_with_other_inputs() -> None:
    net, x = meta("small-cnn")
    assert ensemble(net, x).member(0).conv1.out_channels == 16
    for name in ("token", "two-input"):
        net, x = ZOO[name][0](), ZOO[name][1]()
        ens = ensemble(net, x).eval()
        args = x if isinstance(x, tuple) else (x,)
        assert differences(ens.member(1)(*args), ens(x)[1]) <= 1e-5
        assert size(ens.member(1)) < size(net)


# -- training on parts of the batch ------------------------------------------------------------------------------------


def test_a_split_batch_gives_every_member_its_own_rows() -> None:
    net, x, y = NormNet().double(), random(8, 4, 6, 6), torch.arange(8) % 3
    ens = ensemble(net, x, feed="split").train()
    batch = ens.method.batch(x, y)
    assert batch.per_member and batch.x.shape == (4, 2, 4, 6, 6) and batch.y.shape == (4, 2)
    assert torch.equal(batch.x.flatten(0, 1), x) and torch.equal(batch.y[3], y[6:])
    loss = multum.loss(ens(batch.x, per_member=batch.per_member), batch.y, reduction="mean")
    loss.backward()
    assert all(p.grad is not None for p in ens.parameters() if p.requires_grad)
    repeated = Masksembles().batch(x, y)
    assert not repeated.per_member and repeated.x is x and repeated.y is y
    pair = ens.method.batch((x, y), y)
    assert pair.x[0].shape == (4, 2, 4, 6, 6) and pair.x[1].shape == (4, 2)
    for rows, expected in ((7, [0, 1, 2, 3, 4, 5, 6, 0]), (2, [0, 1, 0, 1])):  # the last batch of an epoch
        uneven = ens.method.batch(x[:rows], torch.arange(rows))
        assert uneven.y.flatten().tolist() == expected
        assert torch.equal(uneven.x.flatten(0, 1), x[expected])


# -- promises ----------------------------------------------------------------------------------------------------------

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: multum.models.build("mlp", in_features=4, classes=2, hidden=(12, 11)),
    "regression": lambda: multum.models.build("mlp", in_features=4, classes=2, hidden=(12, 11)),
    "small-cnn": lambda: multum.models.build("small-cnn"),
    "wrn-10-1": lambda: multum.models.build("wrn-10-1"),
    "small-vit": ZOO["small-vit"][0],
    "convnext-like": lambda: ConvNeXtLike(dim=12),
    "densenet-like": lambda: DenseNetLike(width=10, growth=10),
    "attention": AttentionNet,
    "transformer": TransformerNet,
    "token": ZOO["token"][0],
    "tied": ZOO["tied"][0],
    "dropout": ZOO["dropout"][0],
}


def example_for(name: str) -> Any:
    if name in ("mlp", "regression"):
        return random(3, 4).float()
    return ZOO[name][1]() if name in ZOO else random(3, 3, 8, 8).float()


# What the contract's networks do not have: wide dense blocks, a tied weight, dropout, inputs that are masked.
TELLING = [("densenet-like", "outputs"), ("convnext-like", "inputs"), ("tied", "outputs"), ("dropout", "inputs")]
TELLING += [("attention", "inputs"), ("transformer", "outputs")]


@pytest.mark.parametrize(("name", "where"), grid(itertools.product(NETWORKS, ["outputs", "inputs"]), always=TELLING))
def test_promises_hold(name: str, where: str) -> None:
    net, x = NETWORKS[name](), example_for(name)
    task = "regression" if name == "regression" else "classification"
    ens = multum.ensemble(net, Masksembles(members=3, where=where), example=x, task=task, seed=0)
    findings = multum.check(ens, x, verbose=False)
    assert {f.promise for f in findings} >= {"member(i) equals row i", "one member is the base network"}
    ens.train()(x).square().sum().backward()
    for p_name, p in ens.named_parameters():
        assert (p.grad is None) == p_name.endswith(".mask") == (not p.requires_grad), p_name
    member = ens.member(1)
    assert list(member.state_dict()) == list(net.state_dict())
    assert [type(m) for m in member.modules()] == [type(m) for m in net.modules()]


def test_both_executors_train_alike_without_shared_norms() -> None:
    net, x = multum.models.build("small-cnn").double(), random(4, 3, 8, 8)
    runs = []
    for executor in ("loop", "vmap"):
        ens = ensemble(net, x).train()
        ens.executor = executor
        (ens(x) ** 2).sum().backward()
        runs.append({n: p.grad for n, p in ens.named_parameters() if p.requires_grad})
    assert all(differences(runs[0][n], runs[1][n]) <= 1e-12 for n in runs[0])


@pytest.mark.parametrize("name", ["attention", "transformer"])
@pytest.mark.parametrize("where", ["outputs", "inputs"])
def test_every_mask_takes_effect_where_weights_are_read(name: str, where: str) -> None:
    """Also in eval mode without gradients, where torch's fast paths read weights and call no layer."""
    net, x = NETWORKS[name]().double(), example_for(name).double()
    ens = ensemble(net, x, members=2, where=where)
    assert ("attention" if name == "attention" else "encoder.self_attn") in {e.path for e in ens.edits}
    for training in (True, False):
        ens.train(training)
        for edit in ens.edits:
            with torch.no_grad():
                before = ens(x)
                mask = ens.network.get_submodule(edit.path).mask
                kept = mask[1].clone()
                mask[1] = 1 - mask[1]
                after = ens(x)
                mask[1] = kept
            assert torch.equal(before[0], after[0])
            assert differences(before[1], after[1]) > 1e-8, (edit.path, training)


def test_a_subclass_with_its_own_forward() -> None:
    class Standardised(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            var, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True)
            return F.conv2d(x, (self.weight - mean) / (var + 1e-3).sqrt(), self.bias, padding=1)

    torch.manual_seed(0)
    net, x = Chain(F.relu, Standardised(16, 20, 3)).double(), random(3, 4, 6, 6)
    for where in ("outputs", "inputs"):
        ens = ensemble(net, x, where=where)
        assert "MaskedRead" in type(ens.network.second).__name__
        multum.check(ens, x, verbose=False)
        members_equal(ens, x)


@pytest.mark.parametrize(("name", "where"), [("wrn-10-1", "outputs"), ("small-cnn", "inputs")])
def test_saved_and_loaded_is_bitwise_the_same(name: str, where: str, tmp_path: Path) -> None:
    net, x = NETWORKS[name](), example_for(name)
    ens = ensemble(net, x, where=where, scale=2.5).eval()
    multum.save(ens, tmp_path / "model.safetensors")
    again = multum.load(tmp_path / "model.safetensors")
    assert again.method == ens.method and again.own == ens.own
    for path in ens.own:
        assert torch.equal(again.state_dict()[path], ens.state_dict()[path])
    assert not any(p.requires_grad for n, p in again.named_parameters() if n in again.own)
    assert torch.equal(again(x), ens(x))
    assert torch.equal(again.member(2)(x), ens.member(2)(x))
    assert torch.equal(again.train()(x), ens.train()(x))


def test_a_users_network_is_saved_and_loaded(tmp_path: Path) -> None:
    net, x = TransformerNet(), example_for("transformer")
    ens = ensemble(net, x).eval()
    multum.save(ens, tmp_path / "model.safetensors")
    assert torch.equal(multum.load(tmp_path / "model.safetensors", network=TransformerNet)(x), ens(x))


@pytest.mark.slow  # torch.compile; one fast test of it is in tests/test_ensemble.py
def test_the_ensemble_compiles() -> None:
    net, x = multum.models.build("small-cnn"), random(4, 3, 8, 8).float()
    ens = ensemble(net, x).eval()
    expected = ens(x)
    torch._dynamo.reset()
    assert differences(torch.compile(ens, backend="aot_eager")(x), expected) <= 1e-5


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_narrow_layers_are_all_named_and_the_fix_works() -> None:
    net, x = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 2)), torch.zeros(2, 4)
    with pytest.raises(ConfigError) as caught:
        ensemble(net, x)
    assert "at least 10 channels; got 7 outputs at 0, 9 outputs at 2. Make them 10 wide" in str(caught.value)
    assert "plain=('0', '2')" in str(caught.value)
    assert ensemble(net, x, scale=1).own == ("0.mask", "2.mask")  # all ones: nothing is drawn
    net, x = SqueezeExciteNet(), ZOO["squeeze-excite"][1]()
    with pytest.raises(ConfigError, match=r"6 outputs at excite\.reduce.*plain=\('excite\.reduce',\)"):
        ensemble(net, x)
    multum.check(ensemble(net, x, plain="excite.reduce"), x, verbose=False)


def test_networks_without_a_layer_to_mask() -> None:
    with pytest.raises(RewriteError, match="a layer whose outputs can be masked; got none"):
        ensemble(nn.Linear(12, 12), torch.zeros(2, 12))
    with pytest.raises(RewriteError, match="a layer whose inputs can be masked; got none"):
        ensemble(nn.Linear(12, 12), torch.zeros(2, 12), where="inputs")
    net, x = ZOO["lstm"][0](), ZOO["lstm"][1]()
    with pytest.raises(RewriteError, match=r'LSTM has weights.*\n.*Masksembles\(plain=\("lstm",\)\)'):
        ensemble(net, x)
    assert ensemble(net, x, plain="lstm", where="inputs").own == ("head.mask",)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"members": 0}, "members must be a whole number >= 1; got members=0"),
        ({"scale": 0.5}, "scale must be a number with 1 <= scale <= 6; got scale=0.5. Use for example scale=1"),
        ({"scale": 6.5}, "got scale=6.5. Use for example scale=6"),
        ({"scale": float("nan")}, "scale must be a number with 1 <= scale <= 6"),
        ({"scale": "two"}, "scale must be a number with 1 <= scale <= 6"),
        ({"scale": True}, "scale must be a number with 1 <= scale <= 6"),
        ({"where": "output"}, "where must be one of 'outputs', 'inputs'; got where='output'. Did you mean outputs"),
        ({"feed": "splt"}, "feed must be one of 'repeat', 'split'; got feed='splt'. Did you mean split"),
        ({"plain": {"a": 1}}, "plain must be a tuple of texts"),
    ],
)
def test_bad_fields(fields: dict, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Masksembles(**fields)
    assert message in str(caught.value)
