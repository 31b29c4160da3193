"""MixtureEnsembles, METHODS 1.7, 2.5 and 3.4: budgets, templates and generated weights, to the last digit."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import logging
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrizations import spectral_norm

import multum
import networks
from grids import grid
from multum import Ensemble, Mixture
from multum.errors import ConfigError, NetworkError, RewriteError
from multum.models import build
from multum.network.copies import tensors_of

EXACT = {"rtol": 0, "atol": 1e-12}
GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())["mixture/WRN-28-10"]
META = torch.zeros(1, 3, 32, 32, device="meta")


@functools.cache
def wide(name: str, classes: int) -> nn.Module:
    with torch.device("meta"):
        return build(name, classes=classes)


def groups(method: Mixture, network: nn.Module) -> list[tuple[int, int, int]]:
    """(layers, n, K) of every group."""
    return [(len(g.slots), g.templates, g.mixed) for g in method._allocate(network).groups]


@functools.cache
def made(name: str, method: Mixture) -> Ensemble:
    torch.manual_seed(0)
    builder, x = NETS[name]
    return multum.ensemble(builder().double(), method, example=x(), seed=3)


def mixed(name: str, **fields: Any) -> tuple[Ensemble, Any]:
    return copy.deepcopy(made(name, Mixture(**{"members": 3, **fields}))), NETS[name][1]()


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
    "mlp": (lambda: build("mlp", in_features=6, classes=5, hidden=(12, 12, 12)), rows),
    **{n: (networks.ZOO[n][0], functools.partial(doubled, n)) for n in networks.ZOO if n != "two-input"},
}


# -- budgets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "budget", "templates", "coefficients"),
    [
        (10, 1.0, 7, 105),
        (100, 1.0, 7, 105),
        (10, GOLDEN["weights_c10"], 7, 105),
        (100, GOLDEN["weights_c100"], 7, 105),
        (100, 36_500_000, 6, 105),  # the paper's round number misses 7 by 18 832
        (100, 120_000_000, 24, 105),
        (100, 15_000_000, 2, 42),
    ],
)
def test_wrn_28_10_has_three_groups_of_seven(classes, budget, templates, coefficients):
    method = Mixture(members=4, budget=budget)
    assert groups(method, wide("wrn-28-10", classes)) == [(7, templates, min(5, templates))] * 3
    plan = method._allocate(wide("wrn-28-10", classes))
    assert plan.plain == {10: 2_592_432, 100: 2_650_032}[classes]
    assert plan.offered.weights == GOLDEN[f"weights_c{classes}"]
    assert plan.used <= plan.budget
    assert sum(len(g.slots) * g.mixed for g in plan.groups) == coefficients


@pytest.mark.parametrize(
    ("classes", "budget", "params"),
    [
        (100, 1.0, 36_591_160),
        (100, 120_000_000, 118_843_960),
        pytest.param(10, 1.0, 36_461_232 + 10 + 4 * (105 + 17_952), marks=pytest.mark.slow),
    ],
)
def test_totals_of_wrn_28_10(classes, budget, params):
    ens = multum.ensemble(wide("wrn-28-10", classes), Mixture(members=4, budget=budget), example=META)
    cost = multum.cost(ens, example=META)
    assert cost.params == params
    sizes = Counter()
    for name, p in ens.named_parameters():
        if name in ens.own:
            sizes["coefficients" if name.endswith("weight_coefficients") else "norms"] += p.numel() // 4
    assert sizes == {
        "coefficients": GOLDEN["coefficients_per_member"],
        "norms": GOLDEN["batchnorm_per_member"],
    }
    assert "fc.bias" in ens.shared and "fc.weight" in ens.shared and "conv1.weight" in ens.shared
    # The stem runs once, every other layer once per member; making weights is not part of a prediction.
    single = multum.cost(wide("wrn-28-10", classes), example=META).macs
    assert cost.macs == 4 * single - 3 * 16 * 27 * 32 * 32
    if budget == 120_000_000:
        assert budget + (params - 118_771_632) == 120_072_328


@pytest.mark.parametrize(("classes", "single", "group"), [(100, 3, 27), (10, 4, 28)])
def test_the_thin_variant_has_banks_for_single_layers(classes, single, group):
    found = groups(Mixture(budget=36_500_000, singles="banks"), wide("wrn-28-5", classes))
    assert Counter(found) == {(1, single, min(5, single)): 8, (7, group, 5): 3}


def test_seven_million_are_too_few_for_groups():
    net = wide("wrn-28-10", 100)
    with pytest.raises(ConfigError, match=r"budget=7000000, which is 7,000,000 weights.*budget=12326832.*mode='blob'"):
        Mixture(budget=7_000_000).describe(net)
    assert groups(Mixture(budget=12_326_832), net) == [(7, 2, 2)] * 3
    # One template per group is enough for one member only.
    assert groups(Mixture(members=1, budget=7_488_432), net) == [(7, 1, 1)] * 3
    with pytest.raises(ConfigError, match="budget=7488432"):
        Mixture(members=1, budget=7_488_431).describe(net)


def test_a_blob_of_seven_million():
    plan = Mixture(budget=7_000_000, mode="blob")._allocate(wide("wrn-28-10", 100))
    assert plan.used == plan.blob == 7_000_000 and plan.plain == 0
    largest = max(plan.groups, key=lambda g: g.numel)
    assert (largest.numel, largest.templates, largest.mixed) == (3_686_400, 1, 1)
    assert {g.mixed for g in plan.groups} == {1, 3, 5}


@pytest.mark.parametrize("fields", [{}, {"singles": "banks"}, {"mode": "blob"}], ids=["groups", "banks", "blob"])
def test_the_budget_is_never_exceeded_and_the_smallest_works(fields):
    net = wide("wrn-16-2", 10)
    base = Mixture()._allocate(net).offered.weights
    for budget in range(base // 50, 6 * base, base // 7):
        method = Mixture(budget=budget, **fields)
        try:
            plan = method._allocate(net)
        except ConfigError as error:
            least, multiple = re.search(r"is budget=(\d+) \(or ([0-9.]+) times", str(error)).groups()
            assert budget < int(least)
            assert Mixture(budget=int(least), **fields)._allocate(net).used <= int(least)
            assert Mixture(budget=float(multiple), **fields)._allocate(net)
            with pytest.raises(ConfigError, match=f"budget={least}"):
                Mixture(budget=int(least) - 1, **fields)._allocate(net)
            continue
        assert plan.used <= budget
        assert any(g.templates > 1 for g in plan.groups)
        assert all(1 <= g.mixed <= min(5, g.templates) for g in plan.groups)


def test_groups_are_layers_of_one_type_and_shape():
    net = nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Conv2d(4, 4, 3, padding=1, stride=2),  # the stride is no part of the shape
        nn.ConvTranspose2d(4, 4, 3),  # the same numbers, another type
        nn.Conv2d(8, 4, 3, groups=2),  # the same weight shape, other groups
        nn.Conv2d(4, 4, (1, 9)),
        nn.Conv1d(4, 4, 9),
    )
    assert [len(g.slots) for g in Mixture(singles="banks", budget=3.0)._allocate(net).groups] == [2, 1, 1, 1, 1]


# -- who mixes which templates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "budget"), [(7, 1.0), (24, 120_000_000)])
def test_cyclic_assignment_uses_templates_equally(n, budget):
    method = Mixture(budget=budget)
    for group in method._allocate(wide("wrn-28-10", 100)).groups:
        numbers = method._numbers(group, 0)
        assert all(len(set(layer)) == 5 for layer in numbers)
        uses = Counter(itertools.chain(*numbers))
        assert set(uses) == set(range(n))
        assert max(uses.values()) - min(uses.values()) <= 1
        assert n != 7 or set(uses.values()) == {5}
        assert numbers == method._numbers(group, 3)  # the same for all members


def test_blocks_leave_templates_unused():
    for budget, unused in ((1.0, {5, 6}), (120_000_000, {20, 21, 22, 23})):
        method = Mixture(budget=budget, assignment="blocks")
        group = method._allocate(wide("wrn-28-10", 100)).groups[0]
        numbers = method._numbers(group, 0)
        assert set(range(group.templates)) - set(itertools.chain(*numbers)) == unused
        assert all(layer == list(range(layer[0], layer[0] + 5)) for layer in numbers)


@pytest.mark.parametrize("assignment", ["cyclic", "blocks"])
def test_disjoint_templates_until_exhausted(assignment):
    method = Mixture(members=3, templates=2, budget=9.0, disjoint=True, assignment=assignment)
    (group,) = method._allocate(NETS["mlp"][0]()).groups  # 2 layers
    assert group.templates >= 12
    handed = [number for i in range(3) for layer in method._numbers(group, i) for number in layer]
    assert len(handed) == 12 == len(set(handed))
    few = Mixture(members=3, templates=2, budget=3.0, disjoint=True, assignment=assignment)
    (group,) = few._allocate(NETS["mlp"][0]()).groups
    handed = [number for i in range(3) for layer in few._numbers(group, i) for number in layer]
    whole = group.templates // 2 * 2
    assert group.templates < 12 and len(set(handed[:whole])) == whole


@pytest.mark.parametrize(("disjoint", "most"), [(False, 2 * 5), (True, 3 * 2 * 5)])
def test_templates_that_no_layer_combines_are_not_bought(disjoint, most, caplog):
    net, x = build("wrn-10-1", classes=4), torch.randn(4, 3, 8, 8)  # two layers of one shape
    method = Mixture(members=3, budget=9.0, disjoint=disjoint)
    with caplog.at_level(logging.WARNING, "multum"):
        ens = multum.ensemble(net, method, example=x, seed=0)
    assert groups(method, net) == [(2, most, 5)]
    plan = method._allocate(net)
    assert f"{plan.budget - plan.used:,} weights are left; use singles='banks'" in caplog.text
    ens(x).square().sum().backward()
    (templates,) = [p for n, p in ens.named_parameters() if n.endswith("templates")]
    assert all(gradient.any() for gradient in templates.grad)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "multum"):
        multum.ensemble(net, Mixture(members=3, budget=3.0, singles="banks"), example=x, seed=0)
    assert not caplog.text


def test_members_with_disjoint_templates(tmp_path):
    ens, x = mixed("wrn-16-1", disjoint=True, budget=4.0, templates=2)
    ens.eval()
    numbers = ens.get_submodule("layer1.0.conv1").weight_templates
    assert numbers.shape == (3, 2) and "layer1.0.conv1.weight_templates" in ens.own
    assert numbers.dtype == torch.int64 and len({tuple(row) for row in numbers.tolist()}) == 3
    multum.check(ens, x, verbose=False)
    shared, _ = mixed("wrn-16-1", budget=4.0, templates=2)
    assert "layer1.0.conv1.weight_templates" in shared.shared
    # The gradient of member 0 reaches its own templates only.
    ens.train()(x)[0].square().sum().backward()
    (group,) = [g for g in ens.method._allocate(NETS["wrn-16-1"][0]()).groups if g.slots[0].path == "layer1.0.conv1"]
    used = set(itertools.chain(*ens.method._numbers(group, 0)))
    grad = ens.get_submodule("layer1.0.conv1.bank").templates.grad
    assert {i for i in range(group.templates) if grad[i].any()} == used != set(range(group.templates))
    multum.save(ens, tmp_path / "m.safetensors")
    again = multum.load(tmp_path / "m.safetensors")
    assert torch.equal(again.eval()(x), ens.eval()(x))


# -- generated weights -------------------------------------------------------------------------------------------------


def generated(ens: Ensemble) -> list[str]:
    return [path for path, m in ens.named_modules() if type(m).__name__.startswith(("Mixed", "Carved"))]


def by_hand(ens: Ensemble, base: nn.Module, x: Any, i: int, leaves: dict[str, Tensor]) -> Tensor:
    """Member i by the paper's equation, one template after the other, from tensors that carry gradients."""
    tensors: dict[str, Tensor] = {}
    for path, module in ens.named_modules():
        prefix = f"{path}." if path else ""
        plain = dict(base.named_modules())[path] if not path.endswith("bank") else None
        for name in () if plain is None else [n for n, _ in (*module.named_parameters(), *module.named_buffers())]:
            if "." not in name and not name.startswith(("weight_", "member")):
                full = leaves[prefix + name]
                tensors[prefix + name] = full[i] if prefix + name in ens.own else full
        if path not in generated(ens):
            continue
        bank = leaves[f"{module.source}.templates"]
        name = "in_proj_weight" if isinstance(module, nn.MultiheadAttention) else "weight"
        shape = dict(base.named_parameters())[prefix + name].shape
        flat, size = bank.reshape(-1), shape.numel()
        if hasattr(module, "start"):
            starts = [module.start + k * size for k in range(module.count)]
        else:
            numbers = leaves.get(f"{path}.weight_templates", torch.zeros(1, dtype=torch.int64))
            numbers = numbers[i] if f"{path}.weight_templates" in ens.own else numbers
            starts = [int(number) * size for number in numbers]
        weight: Tensor = torch.zeros(shape, dtype=bank.dtype)
        for k, start in enumerate(starts):
            template = flat[torch.arange(start, start + size) % len(flat)].view(shape)
            alpha = leaves.get(f"{path}.weight_coefficients")
            weight = weight + (template if alpha is None else alpha[i, k] * template)
        tensors[prefix + name] = weight
    return functional_call(base, tensors, (x,))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("mlp", {}),
        ("mlp", {"disjoint": True, "budget": 2.5, "templates": 2}),
        ("mlp", {"mode": "blob", "templates": 3}),
        ("mlp", {"mode": "blob", "assignment": "blocks", "budget": 0.7}),
        ("small-cnn", {"members": 2}),
        ("attention", {"members": 2}),
        ("tied", {"mode": "blob", "members": 2}),
    ],
    ids=str,
)
def test_the_equation_by_hand(name, fields, training):
    ens, x = mixed(name, **fields)
    base = NETS[name][0]().double().train(training)
    ens.train(training)
    leaves = {n: t.detach().clone().requires_grad_(t.is_floating_point()) for n, t in tensors_of(ens.network).items()}
    out = torch.stack([by_hand(ens, base, x, i, leaves) for i in range(ens.members)])
    weights = torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).view_as(out)
    (out * weights).sum().backward()
    for executor in ens.executors:
        trial = copy.deepcopy(ens)
        trial.executor = executor
        got = trial(x)
        torch.testing.assert_close(got, out, **EXACT)
        (got * weights).sum().backward()
        for parameter, p in trial.named_parameters():
            torch.testing.assert_close(p.grad, leaves[parameter].grad, msg=parameter, **EXACT)


def test_gradients_of_coefficients_and_templates():
    ens, _ = mixed("wrn-16-1", members=2)
    one = ens.single().requires_grad_(True)
    layers = [one.get_submodule(path) for path in ("layer1.0.conv1", "layer1.0.conv2", "layer1.1.conv1")]
    bank = layers[0].bank.templates
    upstream = [torch.randn_like(layer.weight) for layer in layers]
    sum((g * layer.weight).sum() for g, layer in zip(upstream, layers, strict=True)).backward()
    expected = torch.zeros_like(bank)
    for g, layer in zip(upstream, layers, strict=True):
        for k, number in enumerate(layer.weight_templates.tolist()):
            torch.testing.assert_close(layer.weight_coefficients.grad[k], (g * bank[number]).sum(), **EXACT)
            expected[number] += layer.weight_coefficients[k].detach() * g
    torch.testing.assert_close(bank.grad, expected, **EXACT)


@pytest.mark.parametrize("templates", [1, 8], ids=["one template per layer", "all templates"])
def test_one_hot_coefficients_give_the_base_network(templates):
    """With as many templates as layers, a trained network is a point of the mixture."""
    base = NETS["wrn-16-1"][0]().double().eval()
    with torch.no_grad():
        for buffer in base.buffers():
            buffer.add_(torch.rand(buffer.shape).to(buffer.dtype) if buffer.is_floating_point() else 0)
    ens = multum.ensemble(base, Mixture(members=2, templates=templates), example=images(), seed=0)
    for group in ens.method._allocate(base).groups:
        assert group.templates == len(group.slots)
        with torch.no_grad():
            for j, slot in enumerate(group.slots):
                layer = ens.get_submodule(slot.path)
                layer.bank.templates[j] = base.get_submodule(slot.path).weight
                layer.weight_coefficients.copy_((layer.weight_templates == j).double())
    x = images()
    for out in ens(x):
        torch.testing.assert_close(out, base(x), **EXACT)
    one = ens.member(1)
    assert [n for n, _ in one.named_parameters()] == [n for n, _ in base.named_parameters()]
    for name, tensor in base.state_dict().items():
        torch.testing.assert_close(one.state_dict()[name], tensor, **EXACT)


def test_members_with_equal_coefficients_and_norms_are_equal():
    ens, x = mixed("wrn-16-1")
    ens.eval()
    assert not torch.equal(ens(x)[0], ens(x)[2])
    with torch.no_grad():
        for name in ens.own:
            tensor = tensors_of(ens.network)[name]
            tensor[2] = tensor[0]
    out = ens(x)
    assert torch.equal(out[0], out[2]) and not torch.equal(out[0], out[1])


def test_one_template_is_a_weight_that_members_share():
    net = nn.Sequential(*(nn.Linear(6, 6) for _ in range(4)), nn.Linear(6, 5), nn.Linear(5, 6), nn.Linear(6, 5))
    ens = multum.ensemble(net, Mixture(members=2, budget=0.65), example=torch.zeros(2, 6), seed=0)
    two = [(len(g.slots), g.templates, g.mixed) for g in ens.method._allocate(net).groups]
    assert two == [(4, 2, 2), (2, 1, 1)]
    first, last = ens.get_submodule("4"), ens.get_submodule("6")
    assert "weight_coefficients" not in dict(first.named_parameters())
    assert torch.equal(first.weight, last.weight) and first.bank is last.bank
    assert ens.get_submodule("0").weight_coefficients.shape == (2, 2)
    member = ens.member(0)
    assert member[4].weight.data_ptr() != member[6].weight.data_ptr()


# -- initialisation ----------------------------------------------------------------------------------------------------


def test_coefficients_start_orthogonal_and_templates_he_normal():
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Conv2d(20, 20, 3) for _ in range(7)), nn.Flatten(), nn.Linear(20 * 4, 2))
    ens = multum.ensemble(net, Mixture(members=2), example=torch.zeros(1, 20, 16, 16), seed=0)
    alphas = torch.stack([ens.get_submodule(str(j)).weight_coefficients for j in range(7)], 1)  # [M, layers, K]
    assert alphas.shape == (2, 7, 5)
    for alpha in alphas:
        torch.testing.assert_close(alpha.T @ alpha, torch.eye(5), rtol=0, atol=1e-6)
        assert math.isclose(alpha.square().sum(1).mean().item(), 5 / 7, rel_tol=1e-6)
    assert not torch.allclose(alphas[0], alphas[1])
    bank = ens.get_submodule("0.bank").templates
    assert bank.shape == (7, 20, 20, 3, 3)
    assert bank.std().item() == pytest.approx(math.sqrt(2 / 180), rel=0.02)
    assert abs(bank.mean().item()) < 0.002
    # What is not mixed is kept.
    assert torch.equal(ens.get_parameter("8.weight"), net[8].weight)
    again = multum.ensemble(net, Mixture(members=2), example=torch.zeros(1, 20, 16, 16), seed=0)
    assert all(torch.equal(a, b) for a, b in zip(ens.state_dict().values(), again.state_dict().values(), strict=True))


def test_fan_in_of_every_kind_of_layer():
    found = multum.rewrite.generated.weight_slots(
        nn.ModuleList(
            [
                nn.Linear(6, 4),
                nn.Conv1d(6, 4, 5, groups=2),
                nn.Conv2d(8, 8, 3, groups=8),
                nn.ConvTranspose2d(6, 4, 3, groups=2),
                nn.Conv3d(2, 4, (1, 2, 3)),
                nn.MultiheadAttention(8, 2),
            ]
        ),
        "test",
    )
    assert [s.fan_in for s in found.slots] == [6, 15, 9, 27, 12, 8, 8]
    assert [s.kind for s in found.slots][-2:] == ["MultiheadAttention", "Linear"]


def test_no_decay_on_coefficients():
    ens, _ = mixed("wrn-16-1")
    decayed, kept = ens.method.parameter_groups(ens, 5e-4)
    names = {id(p): n for n, p in ens.named_parameters()}
    assert decayed["weight_decay"] == 5e-4 and kept["weight_decay"] == 0
    assert {names[id(p)].rpartition(".")[2] for p in kept["params"]} == {"weight_coefficients"}
    decays = {names[id(p)] for p in decayed["params"]}
    assert {"layer1.0.conv1.bank.templates", "bn.weight", "fc.bias", "conv1.weight"} <= decays


# -- networks without equal layers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["small-cnn", "convnext-like", "token", "lstm", "tied"])
def test_nothing_to_share_costs_two_templates_and_says_so(name, caplog):
    builder, x = NETS[name]
    net = builder()
    with caplog.at_level(logging.WARNING, "multum"):
        ens = multum.ensemble(net.double(), Mixture(members=4), example=x(), seed=1)
    assert "cost 2 times the base network's" in caplog.text
    assert "2.000 times" in ens.method.describe(net)
    out = ens.eval()(x())
    for i, j in itertools.combinations(range(4), 2):
        assert (out[i] - out[j]).abs().max() > 1e-3
    with pytest.raises(ConfigError, match="templates must be >= 2"):
        Mixture(members=2, templates=1).describe(net)
    plan = ens.method._allocate(net)
    assert plan.used == 2 * plan.offered.weights
    with pytest.raises(ConfigError, match=rf"budget={plan.used} \(or 2.0 times"):
        multum.ensemble(net, Mixture(budget=plan.used - 1), example=x())
    assert Mixture(budget=plan.used)._allocate(net).used == plan.used
    assert Mixture(budget=3.0)._allocate(net).groups[0].templates == 3


def test_a_network_that_cannot_be_mixed_is_refused():
    frozen = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).requires_grad_(False)
    with pytest.raises(NetworkError, match="to mix; got none"):
        multum.ensemble(frozen, Mixture(), example=torch.zeros(2, 3))

    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, kdim=4, vdim=4, batch_first=True)
            self.head = nn.Linear(8, 2)

        def forward(self, x):
            return self.head(self.attention(x, x[..., :4], x[..., :4])[0].mean(1))

    with pytest.raises(RewriteError, match="attention: the queries, keys and values"):
        multum.ensemble(Cross(), Mixture(), example=torch.zeros(2, 3, 8))


# -- corner cases ------------------------------------------------------------------------------------------------------


class Corners(nn.Module):
    """Every kind of layer twice: grouped, depthwise, transposed, 1d, 3d, without bias, frozen, tied, parametrized."""

    def __init__(self):
        super().__init__()
        self.flat = nn.ModuleList(nn.Conv1d(4, 4, 3, padding=1, groups=2, padding_mode="circular") for _ in range(2))
        self.deep = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False) for _ in range(2))
        self.wide = nn.ModuleList(nn.ConvTranspose2d(4, 4, 2, stride=2, groups=2) for _ in range(2))
        self.solid = nn.ModuleList(nn.Conv3d(4, 4, (1, 3, 3), padding=(0, 1, 1)) for _ in range(2))
        self.tokens = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.tokens[1].weight = self.tokens[0].weight
        self.tokens[2].requires_grad_(False)
        self.normed = spectral_norm(nn.Linear(4, 4)).requires_grad_(False)
        self.embed = nn.Embedding(4, 4)
        self.unembed = nn.Linear(4, 4, bias=False)
        self.unembed.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:  # [B, 4, 8]
        for layer in self.flat:
            x = layer(x).tanh()
        x = x.unflatten(2, (4, 2))
        for layer in self.deep:
            x = layer(x).tanh()
        for layer in self.wide:
            x = layer(x).tanh()
        x = x.unsqueeze(2)
        for layer in self.solid:
            x = layer(x).tanh()
        x = x.flatten(2).transpose(1, 2)
        for layer in self.tokens:
            x = layer(x).tanh()
        x = self.normed(x) + self.embed(torch.arange(4, device=x.device)).mean(0)
        return self.unembed(x).mean(1)


@pytest.mark.parametrize("mode", ["groups", "blob"])
def test_every_kind_of_layer(mode):
    torch.manual_seed(0)
    net, x = Corners().double().eval(), torch.randn(3, 4, 8, dtype=torch.float64)
    ens = multum.ensemble(net, Mixture(members=2, mode=mode), example=x, seed=0)
    ten = {f"{k}.{i}" for k in ("flat", "deep", "wide", "solid") for i in range(2)} | {"tokens.0", "tokens.3"}
    assert set(generated(ens)) == ten
    assert {n for n in ens.own if n.endswith("bias")} == {f"{p}.bias" for p in ten | {"tokens.1"} if "deep" not in p}
    assert {"tokens.2.weight", "tokens.2.bias", "embed.weight"} <= set(ens.shared)
    assert torch.equal(ens.get_parameter("tokens.2.weight"), net.tokens[2].weight)
    multum.check(ens, x, verbose=False)
    for path in (*ten, "tokens.1"):  # every generated weight takes effect
        trial = copy.deepcopy(ens)
        with torch.no_grad():
            trial.get_submodule("tokens.0" if path == "tokens.1" else path).bank.templates.add_(0.1)
        assert not torch.equal(trial(x), ens(x)), path
    one = ens.member(0)
    assert one.tokens[1].weight is one.tokens[0].weight and one.unembed.weight is one.embed.weight
    assert list(one.state_dict()) == list(net.state_dict())
    assert {n for n, p in one.named_parameters() if not p.requires_grad} == {
        n for n, p in net.named_parameters() if not p.requires_grad
    }


def test_a_root_that_runs_its_children_and_a_root_that_is_a_layer():
    x = torch.randn(3, 6, dtype=torch.float64)
    for net in (nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)).double(), nn.Linear(6, 4).double()):
        ens = multum.ensemble(net, Mixture(members=2), example=x, seed=0)
        multum.check(ens, x, verbose=False)
        assert repr(ens.member(0)) == repr(net)


@pytest.mark.parametrize("name", ["attention", "transformer"])
def test_attention_sees_the_generated_weights(name):
    """Torch reads the weights of these projections without calling them, in eval through one opaque kernel."""
    ens, x = mixed(name, members=2)
    ens.eval()
    inside = {path for path in generated(ens) if "attention" in path or "self_attn" in path or "encoder" in path}
    assert {path.rpartition(".")[2] for path in inside} >= {"out_proj"} and len(inside) == (
        2 if name == "attention" else 4
    )
    with torch.no_grad():
        out = ens(x)
        for i in range(2):
            torch.testing.assert_close(ens.member(i)(x), out[i], **EXACT)
        for path in inside:
            trial = copy.deepcopy(ens)
            trial.get_submodule(path).weight_coefficients[1].mul_(1.5)
            moved = trial(x)
            assert torch.equal(moved[0], out[0]) and not torch.equal(moved[1], out[1]), path


def test_a_users_layer_keeps_its_forward():
    class Standardised(nn.Conv2d):
        def forward(self, x):
            weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
            return F.conv2d(x, weight, self.bias, padding=1)

    net = nn.Sequential(*(Standardised(3, 3, 3) for _ in range(2)), nn.Flatten(), nn.Linear(3 * 64, 2)).double()
    ens = multum.ensemble(net, Mixture(members=2), example=images(), seed=0)
    multum.check(ens, images(), verbose=False)
    assert type(ens.member(0)[0]) is Standardised


@pytest.mark.slow
def test_compiled():
    ens, x = mixed("densenet-like", members=2)
    expected = copy.deepcopy(ens).train()(x)
    torch.testing.assert_close(torch.compile(ens.train(), backend="aot_eager")(x), expected, rtol=1e-10, atol=1e-10)


# -- the promises of every ensemble ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", grid(NETS, always=["mlp", "lstm", "squeeze-excite", "tied", "densenet-like"]))
def test_promises(name, tmp_path):
    ens, x = mixed(name)
    multum.check(ens, x, verbose=False)
    ens.train()
    for executor in ens.executors:
        trial = copy.deepcopy(ens)
        trial.executor = executor
        out = trial(x)
        out.mul(torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
        for parameter, p in trial.named_parameters():
            assert p.grad is not None and p.grad.isfinite().all(), parameter
            if parameter.endswith(("templates", "coefficients")):
                assert p.grad.any(), parameter
    builder = None if hasattr(ens.network, "recipe") else lambda: NETS[name][0]().double()
    multum.save(ens, tmp_path / "m.safetensors")
    again = multum.load(tmp_path / "m.safetensors", network=builder)
    assert again.method == ens.method and again.own == ens.own
    assert torch.equal(again.eval()(x), ens.eval()(x))
    out = ens(x)
    for i, j in itertools.combinations(range(ens.members), 2):
        assert not torch.allclose(out[i], out[j])


def test_regression():
    torch.manual_seed(0)
    net = build("mlp", in_features=6, classes=2, hidden=16).double()
    ens = multum.ensemble(net, Mixture(members=3), example=rows(), task="regression", seed=0)
    multum.check(ens, rows(), verbose=False)
    assert multum.predict(ens, rows()).variance.shape == (4,)


# -- the table and bad input -------------------------------------------------------------------------------------------


def test_describe():
    lines = Mixture(budget=120_000_000).describe(wide("wrn-28-10", 100), META).splitlines()
    assert lines[0].split() == ["group", "layers", "shape", "n", "K", "parameters"]
    assert lines[1].split() == ["Conv2d", "7", "160x160x3x3", "24", "5", "5,529,600"]
    assert lines[4].split() == ["plain", "layers", "8", "2,650,032"]
    assert [line.split() for line in lines[5:8]] == [
        ["used", "118,771,632"],
        ["budget", "120,000,000"],
        ["left", "1,228,368"],
    ]
    assert len({len(line) for line in lines[:8]}) == 1  # aligned
    assert "105 coefficients" in lines[8]
    blob = Mixture(mode="blob", budget=7_000_000).describe(wide("wrn-28-10", 100)).splitlines()
    assert ["blob", "7,000,000"] in [line.split() for line in blob]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"members": 0}, "members must be a whole number >= 1; got members=0"),
        ({"templates": 0}, "templates must be a whole number >= 1; got templates=0"),
        ({"templates": 2.0}, "templates must be a whole number"),
        ({"budget": 0}, "budget must be a number with 0 < budget < inf; got budget=0"),
        ({"budget": -1.0}, "budget=-1.0"),
        ({"budget": True}, "budget=True"),
        ({"budget": math.inf}, "budget=inf"),
        ({"budget": math.nan}, "budget=nan"),
        ({"budget": "1x"}, "budget='1x'"),
        ({"assignment": "cycle"}, "Did you mean cyclic"),
        ({"mode": "group"}, "Did you mean groups"),
        ({"singles": "bank"}, "Did you mean banks"),
        ({"disjoint": 1}, "disjoint must be True or False; got disjoint=1"),
        ({"disjoint": True, "mode": "blob"}, "Use mode='groups'"),
    ],
    ids=str,
)
def test_bad_fields(fields, message):
    with pytest.raises(ConfigError, match=message):
        Mixture(**fields)


def test_a_multiple_written_as_a_whole_number_is_a_number_of_parameters():
    with pytest.raises(ConfigError, match="budget=2, which is 2 weights"):
        Mixture(budget=2).describe(NETS["mlp"][0]())
