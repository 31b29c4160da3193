"""Economical hypernetwork ensembles, METHODS 1.8, 2.5, 3.5 and 6.7: Table S1, late birth, generated weights."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import multum
import networks
from grids import grid
from multum import Ensemble, Hypernet
from multum.errors import ConfigError, RewriteError
from multum.models import build
from multum.network.copies import tensors_of
from nested import nested_cycle

EXACT = {"rtol": 0, "atol": 1e-12}
GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())["hypernet/WRN-28-10/c10"]
TABLE, FORMULA = GOLDEN["tableS1"], GOLDEN["paper_formula"]
META = torch.zeros(1, 3, 32, 32, device="meta")


@functools.cache
def wide(name: str) -> nn.Module:
    with torch.device("meta"):
        return build(name)


@functools.cache
def reference() -> Ensemble:
    return multum.ensemble(wide("wrn-28-10"), Hypernet(members=10), example=META)


@functools.cache
def made(name: str, method: Hypernet) -> Ensemble:
    torch.manual_seed(0)
    builder, x = NETS[name]
    return multum.ensemble(builder().double(), method, example=x(), seed=3)


def young(name: str, **fields: Any) -> tuple[Ensemble, Any]:
    """Before birth, with norms and biases that say something."""
    ens = copy.deepcopy(made(name, Hypernet(**{"members": 3, **fields})))
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(4)
        for module in ens.modules():
            for p in module.parameters(recurse=False) if "norm" in type(module).__name__.lower() else ():
                p.add_(0.3 * torch.randn_like(p))
    return ens, NETS[name][1]()


def grown(name: str, **fields: Any) -> tuple[Ensemble, Any]:
    ens, x = young(name, **fields)
    if ens.members == 1:
        ens.method.give_birth(ens)
    return ens, x


def doubled(name: str) -> Any:
    x = networks.ZOO[name][1]()
    return x.double() if isinstance(x, Tensor) and x.is_floating_point() else x


def images() -> Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def rows() -> Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


NETS: dict[str, tuple[Any, Any]] = {
    "wrn-16-1": (lambda: build("wrn-16-1", classes=5), images),
    "wrn-10-1": (lambda: build("wrn-10-1", classes=5, variant="meliketoy"), images),
    "small-cnn": (lambda: build("small-cnn", classes=5), images),
    "mlp": (lambda: build("mlp", in_features=6, classes=5, hidden=(12, 7, 12)), rows),
    **{n: (networks.ZOO[n][0], functools.partial(doubled, n)) for n in networks.ZOO if n not in ("two-input", "lstm")},
}


# -- Table S1 ----------------------------------------------------------------------------------------------------------


def sizes(ens: Ensemble) -> Counter:
    """Numbers per part: theta and all else that is shared, and what one member owns."""
    found: Counter = Counter()
    for name, p in ens.named_parameters():
        path, _, last = name.rpartition(".")
        part = {"templates": "theta", "weight_embedding": "embedding"}.get(
            last, "head" if path == "fc" else "batchnorm"
        )
        found[part if name in ens.own or part == "theta" else f"shared {part}"] += p.numel() // (
            ens.members if name in ens.own else 1
        )
    return found


def table(ens: Ensemble) -> dict[str, tuple]:
    """path -> (shape of theta with D last as in Table S1, shape of e)."""
    found = {}
    for path, module in ens.named_modules():
        if hasattr(module, "weight_embedding"):
            d, out, inputs, *kernel = module.bank.templates.shape
            found[path] = ((out, *kernel, inputs, d), tuple(module.weight_embedding.shape[1:]))
    return found


def test_wrn_28_10_is_table_s1():
    ens = copy.deepcopy(reference())
    assert ens.members == 1 and sum(p.numel() for p in ens.parameters()) == TABLE["total_N1"]
    ens.method.give_birth(ens)
    cost = multum.cost(ens, example=META)
    assert ens.members == 10 and cost.params == TABLE["total_N10"]
    found = sizes(ens)
    assert found == {part: TABLE[part] for part in ("theta", "embedding", "batchnorm", "head")}
    assert found["embedding"] + found["batchnorm"] + found["head"] == TABLE["own"] == 25_016
    assert cost.macs == 10 * multum.cost(wide("wrn-28-10"), example=META).macs

    rows = table(ens)
    assert rows["conv1"] == ((16, 3, 3, 3, 10), (10, 1))
    assert rows["layer1.0.conv1"] == ((160, 3, 3, 16, 7), (7, 1))
    assert rows["layer1.0.shortcut"] == ((160, 1, 1, 16, 7), (7, 1))
    squares = {1: 160, 2: 320, 3: 640}
    for stage, width in squares.items():
        theta = (width, 3, 3, width // 2, 14)
        for block, conv in itertools.product(range(4), ("conv1", "conv2")):
            first = block == 0 and conv == "conv1"
            if not (first and stage == 1):
                assert rows[f"layer{stage}.{block}.{conv}"] == (theta, (14, 1 if first else 2))
        if stage > 1:  # the first convolution shares the template of the squares
            first, second = (ens.get_submodule(f"layer{stage}.0.conv{i}") for i in (1, 2))
            assert first.bank is second.bank
            assert rows[f"layer{stage}.0.shortcut"] == ((width, 1, 1, width // 2, 7), (7, 1))
    assert len(rows) == 28
    banks = {id(m.bank): m.bank.templates.numel() for m in ens.modules() if hasattr(m, "weight_embedding")}
    assert sorted(banks.values()) == sorted([4320, 161280, 1612800, 6451200, 25804800, 17920, 358400, 1433600])


def test_the_papers_formula_follows_by_its_three_additions():
    """35 892 789 + 25 013 N: a stem with 7 templates, unused bias templates, one tied copy of what a member owns."""
    ens = reference()
    found, stem = sizes(ens), 3 * ens.get_submodule("conv1").bank.templates[0].numel()
    banks = {id(m.bank): m.bank.templates.shape for m in ens.modules() if hasattr(m, "weight_embedding")}
    biases = sum(d * out for d, out, *_ in banks.values()) - 3 * 16
    own = found["embedding"] - 3 + found["batchnorm"] + found["head"]
    assert (stem, biases) == (1_296, 24_752)
    assert own == FORMULA["own"] == 25_013
    assert found["theta"] - stem + biases + own == FORMULA["base"] == 35_892_789


@pytest.mark.parametrize(
    ("fields", "own"),
    [({"ablation": "LL"}, 6_410), ({"ablation": "LL+BN"}, 24_362), ({"norm": "shared"}, 7_064)],
    ids=str,
)
def test_what_members_own(fields, own):
    ens = multum.ensemble(wide("wrn-28-10"), Hypernet(**fields), example=META)
    total = sum(p.numel() for p in ens.parameters())
    ens.method.give_birth(ens)
    assert sum(p.numel() for p in ens.parameters()) - total == 3 * own


def test_compression_by_two():
    method = Hypernet(members=10, compression=2)
    ens = multum.ensemble(wide("wrn-28-10"), method, example=META)
    assert {shape[0][-1] for shape in table(ens).values()} == {3, 5, 6}
    method.give_birth(ens)
    params = sum(p.numel() for p in ens.parameters())
    assert round(params / 1e6, 3) == 15.609
    assert round((params + 10 * 641 * 90) / 1e6, 2) == 16.19  # with heads for 100 classes


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("n", [1, 2])
def test_wide_resnets_of_any_depth_and_width(n, k):
    rows = table(multum.ensemble(wide(f"wrn-{6 * n + 4}-{k}"), Hypernet(), example=META))
    half, width = 2 * n - 1, 16 * k
    assert rows["conv1"] == ((16, 3, 3, 3, 10), (10, 1))
    assert rows["layer1.0.conv2"] == ((width, 3, 3, width // 2, 2 * half), (2 * half, 2))
    if k == 1:  # square as all others
        assert rows["layer1.0.conv1"] == rows["layer1.0.conv2"]
        assert "layer1.0.shortcut" not in rows
    elif k == 2:  # the half template of the squares
        assert rows["layer1.0.conv1"] == ((32, 3, 3, 16, 2 * half), (2 * half, 1))
    else:
        assert rows["layer1.0.conv1"] == ((width, 3, 3, 16, half), (half, 1))
    assert rows["layer3.0.conv1"] == ((4 * width, 3, 3, 2 * width, 2 * half), (2 * half, 1))
    assert rows["layer3.0.shortcut"] == ((4 * width, 1, 1, 2 * width, half), (half, 1))


def test_other_networks_keep_the_size_of_their_weights():
    net = nn.Sequential(
        nn.Linear(7, 8),  # odd: one chunk, and D = 2 is the least
        *(nn.Linear(8, 8) for _ in range(3)),  # two chunks each, D = 6
        nn.Linear(4, 8),  # two chunks of 2
        nn.Linear(2, 8),  # two chunks of 1
        nn.Linear(1, 8),  # one chunk of 1: shares the template of the one before
        nn.Conv1d(4, 8, 1),  # another type
        nn.Linear(8, 3),
    )

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            y = self.net[0](x)
            for i in (1, 2, 3):
                y = self.net[i](y)
            for i, size in ((4, 4), (5, 2), (6, 1)):
                y = self.net[i](y[:, :size])
            return self.net[8](self.net[7](y[:, :4, None])[..., 0])

    ens = multum.ensemble(Wrapped(), Hypernet(), example=torch.zeros(2, 7), seed=0)
    shapes = [tuple(ens.get_submodule(f"net.{i}").weight_embedding.shape[1:]) for i in range(8)]
    assert shapes == [(2, 1), (6, 2), (6, 2), (6, 2), (2, 2), (3, 2), (3, 1), (2, 2)]
    assert ens.get_submodule("net.5").bank is ens.get_submodule("net.6").bank
    theta = [ens.get_submodule(f"net.{i}").bank.templates.numel() for i in (0, 1, 4, 5, 7)]
    assert theta == [2 * 56, 3 * 64, 32, 16 + 8, 32]
    assert "net.8.weight" in ens.own
    half = multum.ensemble(Wrapped(), Hypernet(compression=2), example=torch.zeros(2, 7), seed=0)
    assert [half.get_submodule(f"net.{i}").weight_embedding.shape[1] for i in range(8)] == [2, 3, 3, 3, 2, 2, 2, 2]


# -- generated weights -------------------------------------------------------------------------------------------------


def by_hand(ens: Ensemble, base: nn.Module, x: Any, i: int, leaves: dict[str, Tensor]) -> Tensor:
    """Member i by the paper's equation: chunk s of the input channels is theta times column s of the embedding."""
    tensors: dict[str, Tensor] = {}
    for name in tensors_of(base):
        if name in leaves:
            tensors[name] = leaves[name][i] if name in ens.own else leaves[name]
            continue
        path = name.rpartition(".")[0]
        module = ens.get_submodule(path)
        theta, e = leaves[f"{module.source}.templates"], leaves[f"{path}.weight_embedding"]
        e = e[i] if f"{path}.weight_embedding" in ens.own else e
        columns = []
        for s in range(e.shape[1]):
            chunk = torch.zeros(theta.shape[1:], dtype=theta.dtype)
            for d in range(e.shape[0]):
                chunk = chunk + e[d, s] * theta[d]
            columns.append(chunk)
        transposed = isinstance(module, nn.ConvTranspose2d)
        tensors[name] = torch.cat(columns, dim=0 if transposed else 1)
    return functional_call(base, tensors, (x,))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("mlp", {}),
        ("small-cnn", {}),
        ("wrn-16-1", {}),
        ("small-cnn", {"ablation": "LL"}),
        ("small-vit", {"norm": "shared"}),
        ("attention", {}),
        ("convnext-like", {"ablation": "LL+BN"}),
    ],
    ids=str,
)
def test_the_equation_by_hand(name, fields, training):
    ens, x = grown(name, **{"members": 2, **fields})
    base = NETS[name][0]().double().train(training)
    ens.train(training)
    leaves = {n: t.detach().clone().requires_grad_(t.is_floating_point()) for n, t in tensors_of(ens.network).items()}
    out = torch.stack([by_hand(ens, base, x, i, _kept(leaves)) for i in range(2)])
    weights = torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).view_as(out)
    (out * weights).sum().backward()
    for executor in ens.executors:
        trial = copy.deepcopy(ens)
        trial.executor = executor
        got = trial(x)
        torch.testing.assert_close(got, out, **EXACT)
        (got * weights).sum().backward()
        for parameter, p in trial.named_parameters():
            torch.testing.assert_close(p.grad, leaves[parameter].grad, msg=parameter, rtol=1e-12, atol=1e-12)


def _kept(leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same with copies of running statistics, which a network in training writes into."""
    return {n: t.detach().clone() if "running" in n or "tracked" in n else t for n, t in leaves.items()}


def test_chunks_lie_one_behind_the_other():
    ens, _ = young("small-cnn")
    layer = ens.single().get_submodule("conv2")  # 16 -> 32: chunks of 8 input channels
    theta, e = layer.bank.templates, layer.weight_embedding
    assert theta.shape == (2, 32, 8, 3, 3) and e.shape == (2, 2)
    torch.testing.assert_close(layer.weight[:, :8], e[0, 0] * theta[0] + e[1, 0] * theta[1], **EXACT)
    torch.testing.assert_close(layer.weight[:, 8:], e[0, 1] * theta[0] + e[1, 1] * theta[1], **EXACT)
    with torch.no_grad():
        before = layer.weight.clone()
        layer.weight_embedding[:, 1] += 1
        assert torch.equal(layer.weight[:, :8], before[:, :8]) and not torch.equal(layer.weight[:, 8:], before[:, 8:])


def test_members_of_every_kind_of_layer():
    class Corners(nn.Module):
        def __init__(self):
            super().__init__()
            self.flat = nn.Conv1d(4, 4, 3, padding=1, groups=2, padding_mode="circular")
            self.deep = nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False)
            self.wide = nn.ConvTranspose2d(4, 4, 2, stride=2, groups=2)
            self.solid = nn.Conv3d(4, 4, (1, 3, 3), padding=(0, 1, 1))
            self.tokens = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            self.tokens[1].weight = self.tokens[0].weight
            self.tokens[2].requires_grad_(False)
            self.embed = nn.Embedding(4, 4)
            self.head = nn.Linear(4, 4, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: Tensor) -> Tensor:  # [B, 4, 8]
            x = self.deep(self.flat(x).tanh().unflatten(2, (4, 2))).tanh()
            x = self.solid(self.wide(x).tanh().unsqueeze(2)).tanh().flatten(2).transpose(1, 2)
            for layer in self.tokens:
                x = layer(x).tanh()
            return self.head(x + self.embed(torch.arange(4, device=x.device)).mean(0)).mean(1)

    torch.manual_seed(0)
    net, x = Corners().double().eval(), torch.randn(3, 4, 8, dtype=torch.float64)
    ens = multum.ensemble(net, Hypernet(members=2), example=x, seed=0)
    ens.method.give_birth(ens)
    made = {path for path, m in ens.named_modules() if hasattr(m, "weight_embedding")}
    assert made == {"flat", "deep", "wide", "solid", "tokens.0"}
    assert ens.get_submodule("wide").bank.templates.shape == (2, 2, 2, 2, 2)  # inputs are its first dimension
    assert ens.get_submodule("deep").weight_embedding.shape == (2, 2, 1)
    assert "tokens.1.bias" in ens.own and "tokens.2.bias" in ens.shared
    assert all(not torch.equal(bias, net.tokens[1].bias) and bias.any() for bias in ens.get_parameter("tokens.1.bias"))
    assert torch.equal(ens.get_parameter("tokens.2.weight"), net.tokens[2].weight)
    multum.check(ens, x, verbose=False)
    one = ens.member(1)
    assert one.tokens[1].weight is one.tokens[0].weight and one.head.weight is one.embed.weight
    assert list(one.state_dict()) == list(net.state_dict())


# -- initialisation ----------------------------------------------------------------------------------------------------


def test_embeddings_start_pseudo_orthogonal():
    torch.manual_seed(0)
    ens = multum.ensemble(build("wrn-28-1").double(), Hypernet(), example=images(), seed=0)
    one = ens.single()
    for stage in (1, 2, 3):
        paths = [f"layer{stage}.{b}.conv{c}" for b in range(4) for c in (1, 2)][0 if stage == 1 else 1 :]
        e = torch.stack([one.get_submodule(path).weight_embedding for path in paths])  # [layers, D, S]
        assert e.shape == (8 if stage == 1 else 7, 14, 2)
        torch.testing.assert_close(e.norm(dim=1).mean(1), torch.ones(len(e), dtype=e.dtype), **EXACT)
        flat = e.flatten(1)
        gram = flat @ flat.T
        torch.testing.assert_close(gram, torch.diag(gram.diagonal()), **EXACT)
        first = one.get_submodule(f"layer{stage}.0.conv1").weight_embedding
        assert first.shape == ((14, 2) if stage == 1 else (14, 1))
        torch.testing.assert_close(first.norm(dim=0).mean(), torch.ones((), dtype=e.dtype), **EXACT)


def test_weights_start_with_the_variance_of_he():
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(200, 200) for _ in range(4)), nn.Linear(200, 2))
    ens = multum.ensemble(net, Hypernet(), example=torch.zeros(1, 200), seed=0)
    for i in range(4):
        assert ens.member(0)[i].weight.var().item() == pytest.approx(2 / 200, rel=0.05)
    assert torch.equal(ens.get_parameter("4.weight")[0], net[4].weight)  # the head is kept until birth
    # The first convolution of a stage uses the squares' template, whose fan-in is twice its own.
    wrn = multum.ensemble(build("wrn-10-4"), Hypernet(), example=torch.zeros(2, 3, 8, 8), seed=0)
    theta = wrn.get_submodule("layer3.0.conv1").bank.templates
    assert theta.std().item() == pytest.approx(math.sqrt(2 / (256 * 9)), rel=0.02)


# -- birth -------------------------------------------------------------------------------------------------------------


def test_one_member_before_birth():
    ens, x = young("small-cnn")
    assert ens.members == 1 and ens(x).shape == (1, 4, 5) and ens.method.members == 3
    multum.check(ens, x, verbose=False)
    shared = {n: p for n, p in ens.named_parameters() if n not in ens.own}
    values = {n: p.clone() for n, p in shared.items()}
    ens.method.give_birth(ens)
    assert ens.members == 3 and ens(x).shape == (3, 4, 5)
    for name, p in ens.named_parameters():
        if name in shared:  # the very same parameter: an optimizer keeps its momentum
            assert p is shared[name] and torch.equal(p, values[name])
    with pytest.raises(ConfigError, match="members must be born once, of one; got 3 of 3"):
        ens.method.give_birth(ens)


@pytest.mark.parametrize("name", ["wrn-10-1", "mlp", "small-vit"])
def test_without_noise_and_with_copied_heads_all_members_are_the_base(name):
    ens, x = young(name, sigma=0.0, heads="copy")
    ens.train()(x)  # moves statistics
    before = ens.eval()(x)
    ens.method.give_birth(ens)
    assert torch.equal(ens(x), before.expand(3, *before.shape[1:]))


def test_noise_is_relative_to_the_rms():
    ens, _ = young("wrn-16-1", members=40, sigma=0.25)
    before = {n: t.detach().clone() for n, t in ens.tensors(ens.own).items()}
    ens.method.give_birth(ens, seed=1)
    after = ens.tensors(ens.own)
    ratios = []
    for name, base in before.items():
        new = after[name].detach()
        if name.startswith("fc."):
            continue
        if "running" in name or "tracked" in name:
            assert torch.equal(new, base.expand_as(new))
        else:
            ratio = ((new - base).square().mean() / base.square().mean()).sqrt().item()
            assert ratio == pytest.approx(0.25, rel=0.25), name
            ratios.append(ratio)
    assert sum(ratios) / len(ratios) == pytest.approx(0.25, rel=0.02)
    noise = {n: after[n].detach() - before[n] for n in before if n.endswith("weight_embedding")}
    for name, difference in noise.items():
        for i, j in itertools.combinations(range(3), 2):
            assert not torch.equal(difference[i], difference[j]), name


def test_a_bias_of_zeros_gets_no_noise():
    ens = copy.deepcopy(made("wrn-16-1", Hypernet(members=3)))
    assert not ens.get_parameter("bn.bias").any()
    ens.method.give_birth(ens)
    assert not ens.get_parameter("bn.bias").any() and ens.get_parameter("bn.weight").std() > 0


def test_covariance_of_the_weights():
    """cov(delta W) = sigma^2 |e0|^2 / D theta theta^T, of rank D, for one chunk."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)).double()
    method = Hypernet(members=1000, sigma=0.5)
    ens = multum.ensemble(net, method, example=torch.zeros(1, 3, dtype=torch.float64), seed=0)
    layer = ens.single()[0]
    theta, e0, w0 = layer.bank.templates.flatten(1), layer.weight_embedding[:, 0].clone(), layer.weight.flatten()
    method.give_birth(ens)
    e = ens.get_parameter("0.weight_embedding").detach()[..., 0]
    delta = e @ theta - w0
    expected = 0.25 * e0.square().mean() * theta.T @ theta
    assert torch.linalg.matrix_rank(expected) == 2
    torch.testing.assert_close(delta.T @ delta / len(delta), expected, rtol=0, atol=0.15 * expected.abs().max().item())


def test_heads_at_birth():
    for fields, fresh, noisy in (
        ({"heads": "reset"}, True, False),
        ({}, False, False),
        ({"head_noise": True}, False, True),
        ({"heads": "reset", "head_noise": True}, True, True),
    ):
        ens, _ = young("wrn-16-1", members=2, **fields)
        with torch.no_grad():
            ens.get_parameter("fc.bias").fill_(0.5)
        before = {n: ens.get_parameter(n).detach().clone() for n in ("fc.weight", "fc.bias")}
        ens.method.give_birth(ens)
        weight, bias = ens.get_parameter("fc.weight").detach(), ens.get_parameter("fc.bias").detach()
        assert torch.equal(weight[0], weight[1]) == (not fresh and not noisy)
        if fresh:
            assert weight.std().item() == pytest.approx(math.sqrt(2 / 64), rel=0.2) and not bias.any()
            assert (weight[0] - before["fc.weight"][0]).abs().max() > 0.1
        elif not noisy:
            assert torch.equal(weight, before["fc.weight"].expand_as(weight))
            assert torch.equal(bias, before["fc.bias"].expand_as(bias))
        else:
            ratio = (weight - before["fc.weight"]).square().mean().sqrt() / before["fc.weight"].square().mean().sqrt()
            assert ratio.item() == pytest.approx(0.25, rel=0.2)


def test_birth_is_reproducible():
    outputs = []
    for seed in (None, None, 7, 7, 8):
        ens, x = young("mlp")
        state = torch.get_rng_state()
        ens.method.give_birth(ens, seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        outputs.append(ens.eval()(x))
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[2], outputs[3])
    assert not torch.equal(outputs[0], outputs[2]) and not torch.equal(outputs[2], outputs[4])


@pytest.mark.parametrize("fields", [{"ablation": "scratch"}, {"birth_epoch": 0}], ids=str)
def test_scratch_births_at_the_start_around_one_base(fields):
    ens, _ = young("small-cnn", members=8, **fields)
    assert ens.members == 8 and ens.method.birth_after(200) is None
    e = ens.get_parameter("conv2.weight_embedding").detach()
    assert len({tuple(row.flatten().tolist()) for row in e}) == 8
    e = young("small-cnn", members=200, **fields)[0].get_parameter("conv2.weight_embedding").detach()
    spread = (e - e.mean(0)).square().mean().sqrt() / e.mean(0).square().mean().sqrt()
    assert spread.item() == pytest.approx(0.25, rel=0.1)  # members lie around one embedding, sigma = 0.25
    with pytest.raises(ConfigError, match="born once"):
        ens.method.give_birth(ens)


ABLATIONS = [
    ({}, {"embedding", "norm", "bias", "head"}),
    ({"norm": "shared"}, {"embedding", "head"}),
    ({"ablation": "LL"}, {"head"}),
    ({"ablation": "LL+BN"}, {"norm", "bias", "head"}),
    ({"ablation": "scratch"}, {"embedding", "norm", "bias", "head"}),
    ({"ablation": "scratch", "norm": "shared"}, {"embedding", "head"}),
]


@pytest.mark.parametrize(
    ("fields", "own"),
    ABLATIONS,
    # A set prints in another order in every process, and parallel workers must agree on names.
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_ablations_own_what_they_say(fields, own):
    ens, x = grown("wrn-10-1", **fields)
    kinds = {
        "head": {"fc.weight", "fc.bias"},
        "embedding": {n for n, _ in ens.named_parameters() if n.endswith("weight_embedding")},
        "norm": {n for n in tensors_of(ens.network) if ".bn" in n or n.startswith("bn.")},
        "bias": {n for n, _ in ens.named_parameters() if n.endswith(("conv1.bias", "conv2.bias", "shortcut.bias"))},
    }
    assert all(kinds.values()) and set(ens.own) == set().union(*(kinds[kind] for kind in own))
    out = ens.eval()(x)
    assert not torch.allclose(out[0], out[1])


# The contract checks "scratch" and what is born of it.
@pytest.mark.parametrize("fields", grid([fields for fields, _ in ABLATIONS], always=[{"ablation": "LL+BN"}]), ids=str)
def test_the_checker_finds_nothing_in_an_ablation(fields):
    ens, x = grown("small-cnn", **fields)
    multum.check(ens, x, verbose=False)


# -- training ----------------------------------------------------------------------------------------------------------


def test_one_member_trains_and_the_others_stay():
    ens, x = grown("wrn-10-1")
    ens(x, member=1).square().sum().backward()
    for name, p in ens.named_parameters():
        if name in ens.own:
            assert not p.grad[0].any() and not p.grad[2].any(), name
            assert p.grad[1].any() or p.ndim == 2, name  # a bias before a norm has no effect
        else:
            assert p.grad.any(), name


def test_when_members_are_born_and_whose_turn_it_is():
    assert Hypernet().birth_after(200) == 120 and Hypernet(birth_epoch=160).birth_after(300) == 160
    assert [Hypernet().birth_after(epochs) for epochs in (1, 2, 3, 10)] == [1, 1, 2, 6]
    assert Hypernet(members=1).birth_after(200) is None
    with pytest.raises(ConfigError, match=r"birth_epoch=160 of 100\. Use 60 or 0\.6"):
        Hypernet(birth_epoch=160).birth_after(100)
    ens, _ = young("mlp")
    generator = torch.Generator().manual_seed(0)
    assert ens.method.turn(ens, 5, generator) is None
    ens.method.give_birth(ens)
    assert [ens.method.turn(ens, step, generator) for step in range(7, 13)] == [1, 2, 0, 1, 2, 0]
    plain = Hypernet(members=3, nested=False)
    turns = Counter(plain.turn(ens, step, generator) for step in range(600))
    assert set(turns) == {0, 1, 2} and min(turns.values()) > 150


def test_no_decay_on_embeddings():
    ens, _ = grown("wrn-10-1")
    decayed, kept = ens.method.parameter_groups(ens, 5e-4)
    names = {id(p): n for n, p in ens.named_parameters()}
    assert {names[id(p)].rpartition(".")[2] for p in kept["params"]} == {"weight_embedding"}
    assert {"conv1.bank.templates", "bn.weight", "fc.weight"} <= {names[id(p)] for p in decayed["params"]}


def test_nested_toy():
    """L = 1/2 (theta e - t)^2 with theta 1, e (1, 2, -1), t (.5, 1, 2), lr .1."""
    theta = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    own = [torch.tensor(e, dtype=torch.float64, requires_grad=True) for e in (1.0, 2.0, -1.0)]
    targets = (0.5, 1.0, 2.0)
    nested_cycle(lambda i: (theta * own[i] - targets[i]).square() / 2, [theta], [[e] for e in own], lr=0.1)
    torch.testing.assert_close(theta.item(), 0.45)
    torch.testing.assert_close([e.item() for e in own], [0.95, 1.9, -0.7])


@pytest.mark.parametrize("members", [1, 4])
def test_nested_moves_theta_once_per_turn(members):
    """One member is plain SGD; N equal members on one minibatch move theta N times as far."""

    def toy(n: int) -> tuple[Tensor, list[Tensor], Any]:
        theta = torch.linspace(0.5, 1.5, 6, dtype=torch.float64).view(3, 2).requires_grad_(True)
        own = [torch.tensor([0.3, -0.7], dtype=torch.float64, requires_grad=True) for _ in range(n)]
        return theta, own, lambda i: (theta @ own[i] - torch.arange(3)).square().sum()

    theta, own, loss = toy(1)
    plain = torch.optim.SGD([theta, *own], lr=0.1)
    loss(0).backward()
    start = theta.detach().clone()
    plain.step()
    nested, mine, loss = toy(members)
    nested_cycle(loss, [nested], [[e] for e in mine], lr=0.1)
    torch.testing.assert_close(nested - start, members * (theta - start), **EXACT)
    for e in mine:
        torch.testing.assert_close(e, own[0], **EXACT)


# -- the promises of every ensemble ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", grid(NETS, always=["small-cnn", "attention", "squeeze-excite", "tied"]))
def test_promises(name, tmp_path):
    ens, x = young(name)
    builder = None if hasattr(ens.network, "recipe") else lambda: NETS[name][0]().double()
    multum.save(ens, tmp_path / "young.safetensors")
    again = multum.load(tmp_path / "young.safetensors", network=builder)
    assert again.members == 1 and again.method == ens.method and torch.equal(again.eval()(x), ens.eval()(x))
    for one in (ens, again):
        one.method.give_birth(one)
    assert torch.equal(again.eval()(x), ens.eval()(x))
    multum.check(ens, x, verbose=False)
    for executor in ens.executors:
        trial = copy.deepcopy(ens).train()
        trial.executor = executor
        out = trial(x)
        out.mul(torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
        for parameter, p in trial.named_parameters():
            assert p.grad is not None and p.grad.isfinite().all(), parameter
            if parameter.endswith(("templates", "embedding")):
                assert p.grad.any(), parameter
    multum.save(ens, tmp_path / "grown.safetensors")
    again = multum.load(tmp_path / "grown.safetensors", network=builder)
    assert again.members == 3 and torch.equal(again.eval()(x), ens.eval()(x))
    for i, j in itertools.combinations(range(3), 2):
        assert not torch.allclose(ens(x)[i], ens(x)[j])


@pytest.mark.parametrize("name", ["attention", "transformer"])
def test_attention_sees_the_generated_weights(name):
    ens, x = grown(name, members=2)
    ens.eval()
    made = {path for path, m in ens.named_modules() if hasattr(m, "weight_embedding")}
    assert any(path.endswith("out_proj") for path in made)
    with torch.no_grad():
        out = ens(x)
        for i in range(2):
            torch.testing.assert_close(ens.member(i)(x), out[i], **EXACT)
        for path in made:
            trial = copy.deepcopy(ens)
            trial.get_submodule(path).weight_embedding[1].mul_(1.5)
            moved = trial(x)
            assert torch.equal(moved[0], out[0]) and not torch.equal(moved[1], out[1]), path


def regression() -> Ensemble:
    torch.manual_seed(0)
    net = build("mlp", in_features=6, classes=2, hidden=(16, 16)).double()
    ens = multum.ensemble(net, Hypernet(members=3), example=rows(), task="regression", seed=0)
    ens.method.give_birth(ens)
    return ens


def test_regression():
    ens = regression()
    multum.check(ens, rows(), verbose=False)
    assert multum.predict(ens, rows()).variance.shape == (4,)


@pytest.mark.slow  # torch.compile; one fast test of it is in tests/test_ensemble.py
def test_compiled():
    ens = regression()
    expected = copy.deepcopy(ens).train()(rows())
    torch.testing.assert_close(torch.compile(ens.train(), backend="aot_eager")(rows()), expected, **EXACT)


@pytest.mark.parametrize(
    "net", [nn.Linear(6, 2), nn.Sequential(nn.Linear(6, 6).requires_grad_(False), nn.Linear(6, 2))]
)
def test_nothing_to_generate_is_refused(net):
    with pytest.raises(RewriteError, match="got none to generate"):
        multum.ensemble(net, Hypernet(), example=torch.zeros(2, 6))


def test_recurrent_layers_are_no_hypernetwork():
    with pytest.raises(RewriteError, match="got none to generate"):
        multum.ensemble(networks.LstmNet(), Hypernet(), example=networks.ZOO["lstm"][1]())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"members": 0}, "members must be a whole number >= 1"),
        ({"birth_epoch": 1.0}, "birth_epoch must be a share.*birth_epoch=1.0. The paper's is 0.6"),
        ({"birth_epoch": -1}, "birth_epoch=-1"),
        ({"birth_epoch": True}, "birth_epoch=True"),
        ({"birth_epoch": math.nan}, "birth_epoch=nan"),
        ({"sigma": -0.1}, "0 <= sigma < inf; got sigma=-0.1. Use for example sigma=0"),
        ({"sigma": math.inf}, "sigma=inf"),
        ({"sigma": "x"}, "sigma='x'"),
        (
            {"compression": 0.5},
            "1 <= compression < inf; got compression=0.5. Use for example compression=1",
        ),
        ({"norm": "owned"}, "Did you mean own"),
        ({"heads": "rest"}, "Did you mean reset"),
        ({"head_noise": 1}, "head_noise must be True or False"),
        ({"nested": None}, "nested must be True or False"),
        ({"ablation": "LLBN"}, "Did you mean LL"),
        ({"ablation": "LL+BN", "norm": "shared"}, "Use ablation='LL'"),
    ],
    ids=str,
)
def test_bad_fields(fields, message):
    with pytest.raises(ConfigError, match=message):
        Hypernet(**fields)
