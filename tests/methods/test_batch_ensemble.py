"""BatchEnsemble against the paper's equation, its published counts, and every kind of layer."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multum
from grids import grid
from multum import BatchEnsemble
from multum.errors import ConfigError, RewriteError
from multum.methods.batch_ensemble import SHORTCUTS
from networks import ZOO, AttentionNet, SmallViT, TiedNet, TransformerNet

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ensemble(network: nn.Module, x: Any, seed: int = 0, **fields: Any) -> multum.Ensemble:
    return multum.ensemble(network, BatchEnsemble(**{"init": "normal", **fields}), example=x, seed=seed)


def scatter_biases(ens: multum.Ensemble) -> None:
    """Members start with equal biases: give each its own, so that a mix-up cannot hide."""
    with torch.no_grad():
        for name, p in ens.named_parameters():
            if name in ens.own and name.endswith("bias"):
                p += 0.3 * torch.randn_like(p)


def differences(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return float((a - b).detach().abs().max())


# -- the equation ------------------------------------------------------------------------------------------------------


class Alone(nn.Module):
    """One layer, its output flattened."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).flatten(1)


LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(5, 4), (3, 5)),
    "linear on tokens": (lambda: nn.Linear(5, 4, bias=False), (3, 6, 5)),
    "linear on a grid": (lambda: nn.Linear(5, 4), (3, 2, 6, 5)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, groups=2), (3, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), (3, 3, 6, 5)),
    "conv2d without bias": (lambda: nn.Conv2d(3, 4, (3, 1), dilation=2, bias=False), (3, 3, 7, 5)),
    "conv2d, reflected": (lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), (3, 4, 6, 5)),
    "conv2d, same": (lambda: nn.Conv2d(4, 4, 3, padding="same", dilation=2), (3, 4, 6, 5)),
    "depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4), (3, 4, 6, 5)),
    "conv3d": (lambda: nn.Conv3d(4, 6, 2, groups=2), (2, 4, 3, 4, 3)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(4, 6, 3, groups=2), (3, 4, 5)),
    "transposed 2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2), (3, 4, 5, 4)),
    "transposed 3d": (lambda: nn.ConvTranspose3d(2, 3, 2, bias=False), (2, 2, 3, 2, 3)),
}


def rank_one(layer: Any, r: Tensor, s: Tensor) -> Tensor:
    """W o (s r^T), entry by entry: which input and which output channel every entry of the weight connects."""
    weight = layer.weight.detach().clone()
    groups = getattr(layer, "groups", 1)
    for a in range(weight.shape[0]):
        for b in range(weight.shape[1]):
            group = a // (weight.shape[0] // groups)
            other = group * weight.shape[1] + b
            i, o = (a, other) if getattr(layer, "transposed", False) else (other, a)
            weight[a, b] *= r[i] * s[o]
    return weight


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_is_the_plain_one_with_a_rank_one_weight(name: str) -> None:
    build, shape = LAYERS[name]
    torch.manual_seed(0)
    net, x = Alone(build()).double(), random(*shape)
    ens = ensemble(net, x, members=3)
    scatter_biases(ens)
    layer: Any = ens.network.layer
    assert not ens.refusals
    for executor in ("loop", "vmap"):
        ens.executor = executor
        out = ens(x)
        for m in range(3):
            twin = copy.deepcopy(net)
            with torch.no_grad():
                twin.layer.weight.copy_(rank_one(net.layer, layer.r[m], layer.s[m]))
                if twin.layer.bias is not None:
                    twin.layer.bias.copy_(layer.bias[m])
            assert differences(out[m], twin(x)) <= 1e-13
            member = ens.member(m)
            assert type(member.layer) is type(net.layer)
            assert differences(member.layer.weight, twin.layer.weight) <= 1e-15
            assert list(member.state_dict()) == list(net.state_dict())


def test_a_transposed_convolution_takes_an_output_size() -> None:
    class Sized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return self.up(x, output_size=[8, 8]).flatten(1)

    net, x = Sized().double(), random(2, 2, 4, 4)
    assert net(x).shape == (2, 3 * 8 * 8)
    multum.check(ensemble(net, x), x, verbose=False)


class NormNet(nn.Module):
    """Two grouped convolutions with batch norm, and a head. Shape: [B, 4, 6, 6] -> [B, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(4, 6, 3, padding=1, groups=2, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 8, 3, stride=2), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


def paper_forward(ens: multum.Ensemble, p: dict[str, Tensor], stats: dict[str, Tensor], x: Tensor) -> Tensor:
    """The paper's forward pass: the batch tiled member-major, every layer y = layer(x o r_m) o s_m + b_m."""
    members, own = ens.members, ens.method.norm == "own"
    rows = x.repeat(members, 1, 1, 1)

    def per_member(rows: Tensor, f: Callable[[int, Tensor], Tensor]) -> Tensor:
        return torch.cat([f(m, part) for m, part in enumerate(rows.chunk(members))])

    def conv(name: str, rows: Tensor, **options: Any) -> Tensor:
        def one(m: int, part: Tensor) -> Tensor:
            r, s = p[f"{name}.r"][m], p[f"{name}.s"][m]
            y = F.conv2d(part * r[None, :, None, None], p[f"{name}.weight"], **options) * s[None, :, None, None]
            return y + p[f"{name}.bias"][m][None, :, None, None] if f"{name}.bias" in p else y

        return per_member(rows, one)

    def norm(name: str, rows: Tensor) -> Tensor:
        def normal(part: Tensor, m: Any) -> Tensor:
            running = stats[f"{name}.running_mean"][m], stats[f"{name}.running_var"][m]
            return F.batch_norm(part, *running, p[f"{name}.weight"][m], p[f"{name}.bias"][m], training=True)

        return per_member(rows, lambda m, part: normal(part, m)) if own else normal(rows, ...)

    rows = F.relu(norm("bn1", conv("conv1", rows, padding=1, groups=2)))
    rows = F.relu(norm("bn2", conv("conv2", rows, stride=2))).mean((2, 3))
    fc = per_member(rows, lambda m, h: (h * p["fc.r"][m]) @ p["fc.weight"].T * p["fc.s"][m] + p["fc.bias"][m])
    return fc.unflatten(0, (members, -1))


@pytest.mark.parametrize("norm", ["shared", "own"])
@pytest.mark.parametrize("init", ["sign", "normal"])
def test_training_is_the_papers_outputs_gradients_and_statistics(norm: str, init: str) -> None:
    torch.manual_seed(0)
    net, x, target = NormNet().double(), random(5, 4, 6, 6), random(4, 5, 3, seed=2)
    ens = ensemble(net, x, norm=norm, init=init).train()
    scatter_biases(ens)
    assert ens.executor == "vmap"
    given = {n: p.detach().clone().requires_grad_() for n, p in ens.named_parameters()}
    stats = {n: b.clone() for n, b in ens.named_buffers() if b.is_floating_point()}
    naive = paper_forward(ens, given, stats, x)
    out = ens(x)
    assert differences(out, naive) <= 1e-12
    ((out - target) ** 2).mean().backward()
    ((naive - target) ** 2).mean().backward()
    for name, p in ens.named_parameters():
        assert p.grad is not None and p.grad.abs().max() > 0, name
        assert differences(p.grad, given[name].grad) <= 1e-12, name
    buffers = dict(ens.named_buffers())
    for name, moved in stats.items():
        assert differences(buffers[name], moved) <= 1e-12, name
        assert buffers[name].shape[:-1] == ((4,) if norm == "own" else ())


def test_both_executors_train_alike_where_norms_are_own() -> None:
    net, x = NormNet().double(), random(5, 4, 6, 6)
    runs = []
    for executor in ("loop", "vmap"):
        ens = ensemble(net, x, norm="own").train()
        ens.executor = executor
        (ens(x) ** 2).sum().backward()
        runs.append({**{n: p.grad for n, p in ens.named_parameters()}, **dict(ens.named_buffers())})
    for name in runs[0]:
        assert differences(runs[0][name].double(), runs[1][name].double()) <= 1e-12, name


# -- how members start -------------------------------------------------------------------------------------------------


def test_ones_and_equal_biases_are_the_base_network() -> None:
    net, x = multum.models.build("wrn-10-1", classes=4), random(3, 3, 8, 8).float()
    expected = net.eval()(x)
    ens = ensemble(net, x, init="ones", members=3).eval()
    for row in ens(x):
        assert differences(row, expected) <= 1e-5
    method = BatchEnsemble(init="sign", norm="own", plain=("fc",)).alone()
    assert method == BatchEnsemble(members=1, init="ones", norm="own", plain=("fc",))
    assert differences(multum.ensemble(net, method, example=x).eval()(x)[0], expected) <= 1e-5


def test_signs_and_normals_follow_their_law() -> None:
    net, x = nn.Linear(4000, 3000), torch.zeros(1, 4000)
    sign = ensemble(net, x, init="sign", members=2)
    for factor in (sign.network.r, sign.network.s):
        assert set(factor.unique().tolist()) == {-1.0, 1.0}
        assert factor.mean(1).abs().max() < 0.08
        assert (factor[0] * factor[1]).mean().abs() < 0.08
    normal = ensemble(net, x, init="normal", members=2)
    for factor in (normal.network.r, normal.network.s):
        assert (factor.mean(1) - 1).abs().max() < 0.05
        assert (factor.std(1) - 0.5).abs().max() < 0.03
    assert ensemble(net, x, init="ones").network.r.eq(1).all()


def test_the_seed_decides_and_the_given_weights_stay() -> None:
    net, x = multum.models.build("small-cnn"), torch.zeros(2, 3, 8, 8)
    given = {n: t.clone() for n, t in net.state_dict().items()}
    before = torch.get_rng_state()
    a, b, c = (ensemble(net, x, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(a.network.conv2.r, b.network.conv2.r)
    assert not torch.equal(a.network.conv2.r, c.network.conv2.r)
    assert not torch.equal(a.network.conv2.r[0], a.network.conv2.r[1])
    assert set(a.own) == {f"{n}.{t}" for n in ("conv1", "conv2", "conv3", "fc") for t in ("r", "s", "bias")}
    for name, t in given.items():
        assert torch.equal(net.state_dict()[name], t)
        assert torch.equal(a.state_dict()[name], t.expand(4, -1) if name in a.own else t)


def test_tensors_follow_the_layer() -> None:
    net, x = nn.Linear(3, 2).double(), random(2, 3)
    assert ensemble(net, x).network.r.dtype == torch.float64
    net.weight.requires_grad_(False)
    ens = ensemble(net, x)
    assert not ens.network.weight.requires_grad and ens.network.r.requires_grad
    assert not ens.member(0).weight.requires_grad
    ens = ensemble(nn.Linear(3, 2, device="meta"), torch.zeros(1, 3, device="meta"))
    assert ens.network.r.is_meta and ens.network.r.shape == (4, 3)


def test_decay_leaves_out_factors_and_own_norms() -> None:
    net, x = multum.models.build("wrn-10-1"), torch.zeros(2, 3, 8, 8)
    for norm in ("shared", "own"):
        ens = ensemble(net, x, norm=norm)
        decayed, kept = ens.method.parameter_groups(ens, 5e-4)
        assert (decayed["weight_decay"], kept["weight_decay"]) == (5e-4, 0.0)
        names = {id(p): n for n, p in ens.named_parameters()}
        left_out = {names[id(p)] for p in kept["params"]}
        factors = {n for n in ens.own if n.endswith((".r", ".s"))}
        affine = {n for n, _ in ens.named_parameters() if ".bn" in f".{n}"}
        assert len(factors) == 2 * 10 and len(affine) == 2 * 7
        assert left_out == (factors | affine if norm == "own" else factors)
        assert left_out | {names[id(p)] for p in decayed["params"]} == set(names.values())


# -- counts ------------------------------------------------------------------------------------------------------------

CIFAR, IMAGENET = (1, 3, 32, 32), (1, 3, 224, 224)
PUBLISHED: dict[str, tuple[str, dict, dict, tuple]] = {
    "batchensemble4/R18/c10/plain-shortcut": ("resnet18", {"classes": 10}, {"plain": SHORTCUTS}, CIFAR),
    "batchensemble4/R18/c10/all": ("resnet18", {"classes": 10}, {}, CIFAR),
    "batchensemble4/R18/c100/plain-shortcut": ("resnet18", {"classes": 100}, {"plain": SHORTCUTS}, CIFAR),
    "batchensemble4/R50/c10/all": ("resnet50", {"classes": 10}, {}, CIFAR),
    "batchensemble4/WRN/c10/bias/plain-shortcut": (
        *("wrn-28-10", {"variant": "meliketoy"}, {"plain": SHORTCUTS}, CIFAR),
    ),
    "batchensemble4/WRN/c10/edward2": ("wrn-28-10", {"variant": "edward2"}, {}, CIFAR),
    "batchensemble4+ensembleBN/WRN/c10/edward2": ("wrn-28-10", {"variant": "edward2"}, {"norm": "own"}, CIFAR),
    "batchensemble4/R50/imagenet/all": ("resnet50", {"classes": 1000, "stem": "imagenet"}, {}, IMAGENET),
    "batchensemble4/R50/imagenet/plain-shortcut": (
        *("resnet50", {"classes": 1000, "stem": "imagenet"}, {"plain": SHORTCUTS}, IMAGENET),
    ),
    "batchensemble4/R50x4/imagenet/all": ("resnet50x4", {"classes": 1000, "stem": "imagenet"}, {}, IMAGENET),
}


def counted(name: str, keywords: dict, fields: dict, shape: tuple) -> multum.Cost:
    with torch.device("meta"):
        net, x = multum.models.build(name, **keywords), torch.zeros(*shape)
    return multum.cost(ensemble(net, x, **fields), example=x)


def test_every_golden_row_is_here() -> None:
    assert set(PUBLISHED) == {row for row in GOLDEN if row.startswith("batchensemble")}


# ResNet-50 is counted in tests/papers/test_items.py too.
@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=pytest.mark.slow) if "/R50" in row else row for row in PUBLISHED]
)
def test_golden_counts(row: str) -> None:
    cost = counted(*PUBLISHED[row])
    assert cost.params == cost.trainable == GOLDEN[row]["params"]
    assert cost.macs == 4 * GOLDEN[row]["macs"]  # golden.json counts one pass


@pytest.mark.parametrize(
    ("name", "shared", "own"),
    [
        ("wrn-10-1", 80_428, 81_868),
        ("wrn-16-1", 179_436, 182_220),
        pytest.param("wrn-16-2", 700_396, 705_868, marks=pytest.mark.slow),
        pytest.param("wrn-28-1", 377_452, 382_924, marks=pytest.mark.slow),
    ],
)
def test_counts_of_small_networks(name: str, shared: int, own: int) -> None:
    assert counted(name, {}, {}, CIFAR).params == shared
    assert counted(name, {}, {"norm": "own"}, CIFAR).params == own


# -- promises ----------------------------------------------------------------------------------------------------------


def models(name: str) -> tuple[nn.Module, Any]:
    if name in ZOO:
        build, example = ZOO[name]
        return build(), example()
    shape = {"mlp": (3, 4), "regression": (3, 4), "small-cnn": (3, 3, 8, 8), "wrn-10-1": (3, 3, 8, 8)}[name]
    if name in ("mlp", "regression"):
        return multum.models.build("mlp", in_features=4, classes=2, hidden=(12, 11)), random(*shape).float()
    return multum.models.build(name), random(*shape).float()


PROMISED = ["mlp", "regression", "small-cnn", "wrn-10-1", *(n for n in ZOO if n not in ("lstm", "two-input"))]
# What the contract's networks do not have: group norms, a tied weight, dropout, a regression.
TELLING = [("squeeze-excite", "shared"), ("squeeze-excite", "own"), ("tied", "shared"), ("dropout", "own")]
TELLING += [("regression", "shared"), ("transformer", "own"), ("densenet-like", "shared")]


@pytest.mark.parametrize(("name", "norm"), grid(itertools.product(PROMISED, ["shared", "own"]), always=TELLING))
def test_promises_hold(name: str, norm: str) -> None:
    net, x = models(name)
    task = "regression" if name == "regression" else "classification"
    ens = multum.ensemble(net, BatchEnsemble(members=3, norm=norm), example=x, task=task, seed=0)
    findings = multum.check(ens, x, verbose=False)
    assert {f.promise for f in findings} >= {"member(i) equals row i", "one member is the base network"}
    ens.train()(x).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in ens.parameters())
    member = ens.member(1)
    assert list(member.state_dict()) == list(net.state_dict())
    assert [type(m) for m in member.modules()] == [type(m) for m in net.modules()]
    total = sum(p.numel() for p in ens.parameters())
    parameters = dict(ens.named_parameters())
    own, shared = ([n for n in parameters if n in set(names)] for names in (ens.own, ens.shared))
    assert total == sum(parameters[n].numel() for n in own) + sum(parameters[n].numel() for n in shared)


def test_a_dictionary_or_a_tuple_of_inputs() -> None:
    net, x = models("two-input")
    multum.check(ensemble(net, x), x, verbose=False)


@pytest.mark.parametrize(("name", "fields"), [("wrn-10-1", {"norm": "own"}), ("small-cnn", {"plain": "conv?"})])
def test_saved_and_loaded_is_bitwise_the_same(name: str, fields: dict, tmp_path: Path) -> None:
    net, x = models(name)
    ens = ensemble(net, x, **fields).eval()
    scatter_biases(ens)
    multum.save(ens, tmp_path / "model.safetensors")
    before = torch.get_rng_state()
    again = multum.load(tmp_path / "model.safetensors")
    assert torch.equal(torch.get_rng_state(), before)
    assert again.method == ens.method and again.own == ens.own
    assert torch.equal(again(x), ens(x))
    assert torch.equal(again.member(2)(x), ens.member(2)(x))
    assert torch.equal(again.train()(x), ens.train()(x))


def test_a_users_network_is_saved_and_loaded(tmp_path: Path) -> None:
    net, x = TransformerNet(), ZOO["transformer"][1]()
    ens = ensemble(net, x).eval()
    multum.save(ens, tmp_path / "model.safetensors")
    assert torch.equal(multum.load(tmp_path / "model.safetensors", network=TransformerNet)(x), ens(x))


@pytest.mark.slow
def test_the_ensemble_compiles() -> None:
    net, x = NormNet(), random(4, 4, 6, 6).float()
    ens = ensemble(net, x, norm="own").eval()
    ens.executor = "vmap"
    expected = ens(x)
    torch._dynamo.reset()
    assert differences(torch.compile(ens, backend="aot_eager")(x), expected) <= 1e-5


def test_tied_weights_stay_tied_and_shared() -> None:
    x = ZOO["tied"][1]()
    ens = ensemble(TiedNet(), x)
    assert ens.network.first.weight is ens.network.second.weight
    assert "second.weight" not in dict(ens.named_parameters())
    assert not torch.equal(ens.network.first.r, ens.network.second.r)
    member = ens.member(0)  # two different rank-one factors of the one weight
    assert not torch.equal(member.first.weight, member.second.weight)


def test_a_tied_bias_is_own_whatever_its_first_name_is() -> None:
    net, x = TiedNet().double(), random(3, 6)
    net.second.bias = net.first.bias
    ens = ensemble(net, x, plain="first")
    assert "first.bias" in ens.own and "first.r" not in ens.own
    multum.check(ens, x, verbose=False)


# -- layers whose weight is read ---------------------------------------------------------------------------------------


class CrossAttention(nn.Module):
    """Keys and values of other widths than the queries."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x[..., :8], x[..., :6], x[..., :5], need_weights=False)[0].mean(1)


class Same(nn.Conv2d):
    """A subclass with a forward of its own, as timm has them."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (1, 1, 1, 1)), self.weight, self.bias, self.stride)


class ReadByHand(nn.Module):
    """A convolution's subclass, and a linear layer whose weight another module uses."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = Same(3, 4, 3)
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.conv(x).mean((2, 3)), self.fc.weight, self.fc.bias)


class PositionBias(nn.Module):
    """A table of its own, and a weight that it reads from a layer below: only the layer is rewritten."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(7, 7))
        self.qkv = nn.Linear(8, 24)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = F.linear(x, self.qkv.weight, self.qkv.bias).chunk(3, -1)
        return self.head((torch.softmax(q @ k.mT + self.table, -1) @ v).mean(1))


READ: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "attention": (AttentionNet, random(3, 7, 6)),
    "transformer": (TransformerNet, random(3, 7, 6)),
    "cross attention": (CrossAttention, random(3, 7, 8)),
    "by hand": (ReadByHand, random(3, 3, 5, 5)),
    "beside a table": (PositionBias, random(3, 7, 8)),
}


@pytest.mark.parametrize("name", READ)
def test_every_factor_takes_effect(name: str) -> None:
    """Also in eval mode without gradients, where torch's fast paths read weights and call no layer."""
    build, x = READ[name]
    net = build().double()
    ens = ensemble(net, x, members=2)
    scatter_biases(ens)
    multum.check(ens, x, verbose=False)
    layers = [e.path for e in ens.edits]
    assert layers == [p for p, m in net.named_modules() if isinstance(m, (nn.Linear, nn.Conv2d, nn.MultiheadAttention))]
    for training in (True, False):
        ens.train(training)
        for path in layers:
            for factor in ("r", "s"):
                with torch.no_grad():
                    before = ens(x)
                    tensor = getattr(ens.network.get_submodule(path), factor)
                    tensor[1] += 0.5 * torch.rand_like(tensor[1]) + 0.1
                    after = ens(x)
                assert torch.equal(before[0], after[0])
                assert differences(before[1], after[1]) > 1e-8, (path, factor, training)


def test_attention_is_three_projections_between_their_factors() -> None:
    net, x = CrossAttention().double(), random(3, 7, 8)
    ens = ensemble(net, x, members=2)
    scatter_biases(ens)
    a: Any = ens.network.attention
    assert a.r.shape == (2, 8 + 6 + 5) and a.s.shape == (2, 3 * 8)
    for m in range(2):
        r, s, bias = a.r[m].split([8, 6, 5]), a.s[m].split([8, 8, 8]), a.in_proj_bias[m].split([8, 8, 8])
        weights = [a._parameters[f"{n}_proj_weight"] for n in "qkv"]
        q, k, v = (
            F.linear(x[..., : len(ri)] * ri, w) * si + bi for w, ri, si, bi in zip(weights, r, s, bias, strict=True)
        )
        heads = F.scaled_dot_product_attention(*(t.unflatten(-1, (2, 4)).transpose(1, 2) for t in (q, k, v)))
        out = a.out_proj
        joined = heads.transpose(1, 2).flatten(2) * out.r[m]
        expected = F.linear(joined, out._parameters["weight"]) * out.s[m] + out.bias[m]
        assert differences(ens(x)[m], expected.mean(1)) <= 1e-12


# -- refusals ----------------------------------------------------------------------------------------------------------


class Mixed(nn.Module):
    """Four things that cannot be rewritten, and one that can."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 6, batch_first=True)
        self.hand = nn.Module()
        self.matrix = nn.Parameter(torch.randn(6, 6))
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))
        self.taken = nn.Linear(6, 6)
        self.taken.s = "mine"
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.taken(self.normed(self.lstm(x)[0][:, -1] @ self.matrix)))


def test_all_refusals_come_at_once_and_their_fix_works() -> None:
    torch.manual_seed(0)
    net, x = Mixed(), random(3, 4, 5).float()
    with pytest.raises(RewriteError) as caught:
        ensemble(net, x)
    assert {r.path for r in caught.value.refusals} == {"", "lstm", "normed", "taken"}
    assert 'BatchEnsemble(plain=("lstm",))' in str(caught.value)
    assert "hold the weight in an nn.Linear" in str(caught.value)
    assert "LSTM" in str(caught.value) and "attribute s already" in str(caught.value)
    net, x = ZOO["lstm"][0](), ZOO["lstm"][1]()
    with pytest.raises(RewriteError, match=r'fix: .*plain=\("lstm",\)'):
        ensemble(net, x)
    ens = ensemble(net, x, plain=("lstm",))
    assert set(ens.own) == {"head.r", "head.s", "head.bias"}
    multum.check(ens, x, verbose=False)


def test_a_network_with_nothing_to_scale() -> None:
    with pytest.raises(RewriteError, match="a layer to scale; got none"):
        ensemble(nn.Flatten(), torch.zeros(2, 3))
    with pytest.raises(RewriteError, match="a layer to scale; got none"):
        ensemble(nn.Sequential(nn.Linear(3, 2)), torch.zeros(2, 3), plain="*")


def test_plain_layers_are_left_alone_with_all_below() -> None:
    net, x = SmallViT(), ZOO["small-vit"][1]()
    ens = ensemble(net, x, plain=("blocks.0", "*qkv"))
    scaled = {name.rpartition(".")[0] for name in ens.own if name.endswith(".r")}
    assert scaled == {"patches", "blocks.1.attn.proj", "blocks.1.mlp.0", "blocks.1.mlp.2", "head"}
    assert type(ens.network.blocks[0].mlp[0]) is nn.Linear
    multum.check(ens, x, verbose=False)
    with pytest.raises(ConfigError, match=r"'blocks\.7'\. Did you mean .*blocks"):
        ensemble(net, x, plain="blocks.7")
    assert BatchEnsemble(plain="*fc").plain == BatchEnsemble(plain=["*fc"]).plain == ("*fc",)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"members": 0}, "members must be a whole number >= 1; got members=0"),
        ({"members": 2.0}, "members must be a whole number >= 1"),
        ({"init": "signs"}, "init must be one of 'sign', 'normal', 'ones'; got init='signs'. Did you mean sign"),
        ({"norm": "ows"}, "norm must be one of 'shared', 'own'; got norm='ows'. Did you mean own"),
        ({"plain": 3}, "plain must be a tuple of texts"),
        ({"plain": ("fc", 3)}, "plain must be a tuple of texts"),
    ],
)
def test_bad_fields(fields: dict, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BatchEnsemble(**fields)
    assert message in str(caught.value)
