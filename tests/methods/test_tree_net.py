"""TreeNet, METHODS 1.10 and 3.7: one trunk, M branches."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multum
from grids import grid
from multum import TreeNet
from multum.errors import ConfigError, RewriteError
from multum.models import build
from networks import ZOO, AttentionNet, ConvNeXtLike, TiedNet

EXACT = {"rtol": 0, "atol": 1e-12}
NETS = {
    "mlp": (lambda: build("mlp", in_features=4, classes=3), lambda: torch.randn(3, 4)),
    "small-cnn": (lambda: build("small-cnn"), lambda: torch.randn(3, 3, 8, 8)),
    "wrn-10-1": (lambda: build("wrn-10-1", dropout=0.3), lambda: torch.randn(3, 3, 8, 8)),
    **{name: ZOO[name] for name in ("small-vit", "convnext-like", "token", "transformer", "two-input", "tied")},
}


def images(rows: int) -> Tensor:
    return torch.randn(rows, 3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def labels(rows: int) -> Tensor:
    return torch.arange(rows) % 5


def made(members: int = 3, **keywords) -> multum.Ensemble:
    net = build("wrn-10-1", classes=5).double()
    return multum.ensemble(net, TreeNet(members=members, **keywords), example=images(2), seed=0)


def modules(ens: multum.Ensemble) -> list[str]:
    """The own tensors' modules, in order, each once."""
    return list(dict.fromkeys(name.rpartition(".")[0] for name in ens.own))


def small(at: str | float | None = None) -> multum.Ensemble:
    return multum.ensemble(build("small-cnn"), TreeNet(at=at), example=torch.zeros(2, 3, 8, 8))


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_the_naive_twin_gives_the_same_outputs_and_gradients(executor):
    ens = made()
    ens.executor = executor
    trunk = ens.member(0)
    branches = nn.ModuleList(nn.Sequential(one.layer3, one.bn) for one in map(ens.member, range(3)))
    heads = nn.ModuleList(ens.member(m).fc for m in range(3))
    x, y = images(4), labels(4)
    out = ens(x)
    multum.loss(out, y, reduction="sum").backward()
    h = trunk.layer2(trunk.layer1(trunk.conv1(x)))
    reference = torch.stack([head(F.relu(b(h)).mean((2, 3))) for b, head in zip(branches, heads, strict=True)])
    torch.testing.assert_close(out, reference, **EXACT)
    sum(F.cross_entropy(z, y) for z in reference).backward()
    for name, parameter in ens.named_parameters():
        if name in ens.own:
            found = _twins(branches, heads, name)
            torch.testing.assert_close(parameter.grad, torch.stack([p.grad for p in found]), **EXACT)
        else:
            torch.testing.assert_close(parameter.grad, trunk.get_parameter(name).grad, **EXACT)
    torch.testing.assert_close(ens.network.layer1[0].bn1.running_mean, trunk.layer1[0].bn1.running_mean, **EXACT)
    torch.testing.assert_close(ens.network.bn.running_var, torch.stack([b[1].running_var for b in branches]), **EXACT)


def _twins(branches: nn.ModuleList, heads: nn.ModuleList, name: str) -> list[nn.Parameter]:
    first, _, rest = name.partition(".")
    if first == "fc":
        return [head.get_parameter(rest) for head in heads]
    return [branch[("layer3", "bn").index(first)].get_parameter(rest) for branch in branches]


def test_a_members_loss_reaches_its_branch_and_the_trunk_and_no_other_branch():
    ens, x, y = made(), images(4), labels(4)
    out = ens(x)
    own = {n: p for n, p in ens.named_parameters() if n in ens.own}
    trunk = {n: p for n, p in ens.named_parameters() if n not in ens.own}
    for m in range(3):
        grads = torch.autograd.grad(F.cross_entropy(out[m], y), [*own.values(), *trunk.values()], retain_graph=True)
        for name, grad in zip(own, grads, strict=False):
            others = [i for i in range(3) if i != m]
            assert not grad[others].any(), name
        assert all(g[m].any() for g in grads[: len(own)]) and all(g.any() for g in grads[len(own) :])


@pytest.mark.parametrize("name", grid(NETS, always=["two-input", "tied", "convnext-like"]))
def test_the_promises_hold(name):
    builder, example = NETS[name]
    x = example()
    ens = multum.ensemble(builder(), TreeNet(), example=x, seed=0)
    assert ens.own and ens.shared and ens.has_trunk
    promises = {f.promise for f in multum.check(ens, x, verbose=False)}
    assert {"one member is the base network", "gradients stay with their member (vmap)"} <= promises
    multum.loss(ens.train()(x), torch.zeros(3).long(), reduction="sum").backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in ens.parameters())
    assert all(p.grad.any() for p in ens.parameters() if p.ndim > 1)


def test_the_promises_hold_in_regression():
    x = torch.randn(4, 6)
    net = build("mlp", in_features=6, classes=2, hidden=(8, 8))
    multum.check(multum.ensemble(net, TreeNet(), example=x, task="regression"), x, verbose=False)


# -- the branch point --------------------------------------------------------------------------------------------------


def test_the_papers_branch_points():
    assert {path.partition(".")[0] for path in modules(made())} == {"layer3", "bn", "fc"}
    with torch.device("meta"):
        net, x = build("wrn-28-10"), torch.zeros(1, 3, 32, 32)
    cost = multum.cost(multum.ensemble(net, TreeNet(members=3), example=x), example=x)
    single = multum.cost(net, example=x)
    assert cost.params == 92_219_374
    assert round(cost.macs / 1e9, 4) == 8.8085 and round(cost.macs / single.macs, 3) == 1.680
    with torch.device("meta"):
        net, x = build("resnet50", classes=1000, stem="imagenet"), torch.zeros(1, 3, 224, 224)
    single = multum.cost(net, example=x)
    for at, params, times in ((None, 49_669_136, 1.556), ("layer4", None, 1.198)):
        cost = multum.cost(multum.ensemble(net, TreeNet(members=2, at=at), example=x), example=x)
        assert round(cost.macs / single.macs, 3) == times and params in (None, cost.params)


@pytest.mark.parametrize(
    ("at", "own"),
    [
        (None, ["conv3", "fc"]),
        (0.5, ["conv3", "fc"]),
        (0.01, ["conv2", "conv3", "fc"]),
        (0.49, ["conv2", "conv3", "fc"]),
        (0.75, ["fc"]),
        (0.99, ["fc"]),
        ("conv2", ["conv2", "conv3", "fc"]),
        ("fc", ["fc"]),
        ("avgpool", ["fc"]),
        ("conv1", ["conv1", "conv2", "conv3", "fc"]),
    ],
)
def test_a_path_or_a_share_of_the_layers(at, own):
    assert modules(small(at)) == own


def test_what_runs_decides_not_what_was_registered():
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.norm, self.first = nn.Linear(6, 3), nn.BatchNorm1d(6), nn.Linear(4, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.norm(self.first(x)))

    x = torch.randn(3, 4)
    ens = multum.ensemble(Backwards(), TreeNet(), example=x)
    assert modules(ens) == ["last"]
    assert modules(multum.ensemble(Backwards(), TreeNet(at="norm"), example=x)) == ["last", "norm"]
    multum.check(ens, x, verbose=False)


def test_parameters_of_containers_and_of_attention_go_with_the_module_that_runs():
    x = torch.randn(3, 3, 16, 16)
    ens = multum.ensemble(ConvNeXtLike(), TreeNet(at="stage2"), example=x)
    assert "stage2.gamma" in ens.own and "stage1.gamma" in ens.shared and "down.weight" in ens.shared
    x = torch.randn(3, 7, 6)
    ens = multum.ensemble(AttentionNet(), TreeNet(at="attention"), example=x)
    assert {"attention.in_proj_weight", "attention.out_proj.weight"} <= set(ens.own) and "embed.weight" in ens.shared
    assert not torch.equal(*ens.network.attention.out_proj.weight[:2])
    multum.check(ens, x, verbose=False)


def test_a_list_of_modules_runs_when_its_first_one_does():
    builder, example = ZOO["small-vit"]
    ens = multum.ensemble(builder(), TreeNet(at="blocks"), example=example())
    assert {name.partition(".")[0] for name in ens.own} == {"blocks", "norm", "head"}
    assert {"cls_token", "positions", "patches.weight"} <= set(ens.shared)


def test_a_weight_tied_to_the_trunk_stays_shared():
    x = torch.randn(3, 6)
    ens = multum.ensemble(TiedNet(), TreeNet(at="second"), example=x)
    assert set(ens.own) == {"second.bias", "head.weight", "head.bias"} and "first.weight" in ens.shared
    multum.check(ens, x, verbose=False)


# -- birth -------------------------------------------------------------------------------------------------------------


def test_branches_start_anew_and_the_trunk_keeps_its_weights():
    base = build("wrn-10-1", classes=5).double()
    with torch.no_grad():
        base.bn.running_mean.fill_(3)
    ens = multum.ensemble(base, TreeNet(), example=images(2), seed=0)
    conv = ens.network.layer3[0].conv1.weight
    assert not torch.equal(conv[0], conv[1]) and not any(torch.equal(c, base.layer3[0].conv1.weight) for c in conv)
    assert conv.std().item() == pytest.approx((2 / (9 * 32)) ** 0.5, rel=0.05)  # He-normal, as the network has it
    assert not ens.network.bn.running_mean.any()
    for name, p in base.named_parameters():
        assert name in ens.own or torch.equal(ens.network.get_parameter(name), p)
    same = multum.ensemble(base, TreeNet(init="pretrained"), example=images(2))
    first, *others = same.network.layer3[0].conv1.weight.detach()
    assert torch.equal(first, base.layer3[0].conv1.weight)
    for conv in others:  # noise keeps them apart on the same batches
        assert float((conv - first).norm() / first.norm()) == pytest.approx(0.2, rel=0.05)
    assert (same.network.bn.running_mean == 3).all()


def test_a_builder_initialises_what_layers_cannot():
    def builder() -> nn.Module:
        net = ConvNeXtLike(seed=int(torch.randint(1000, ())))
        nn.init.uniform_(net.stage2.gamma, 5, 6)
        return net

    ens = multum.ensemble(builder, TreeNet(at="stage2"), example=torch.randn(2, 3, 16, 16), seed=0)
    gamma = ens.network.stage2.gamma
    assert (gamma > 5).all() and not torch.equal(gamma[0], gamma[1])


def test_one_member_is_the_base_network():
    base, x = build("wrn-10-1").eval(), torch.randn(3, 3, 8, 8)
    one = multum.ensemble(base, TreeNet(members=1, init="pretrained"), example=x)
    one.executor = "loop"
    assert torch.equal(one(x)[0], base(x)) and TreeNet().alone() == one.method


def test_files_and_copies(tmp_path):
    ens, x = made(at=0.7), images(3)
    ens(x)
    multum.save(ens, tmp_path / "a.safetensors")
    again = multum.load(tmp_path / "a.safetensors")
    assert again.method == ens.method and again.own == ens.own
    for other in (again, copy.deepcopy(ens)):
        assert torch.equal(other.eval()(x), ens.eval()(x))
        assert torch.equal(other.member(2)(x), ens.member(2)(x))


@pytest.mark.slow  # torch.compile; one fast test of it is in tests/test_ensemble.py
def test_it_compiles():
    x = torch.randn(4, 4)
    ens = multum.ensemble(build("mlp", in_features=4, classes=3), TreeNet(), example=x)
    torch.testing.assert_close(torch.compile(ens, backend="aot_eager")(x), ens(x))


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"members": 0}, "members must be a whole number >= 1; got members=0"),
        ({"init": "new"}, "init must be one of 'fresh', 'pretrained'; got init='new'"),
        ({"at": 0}, "0 < at < 1; got at=0. at=0.5 shares half"),
        ({"at": 1.0}, "0 < at < 1; got at=1.0"),
        ({"at": -0.5}, "0 < at < 1; got at=-0.5"),
        ({"at": float("nan")}, "got at=nan"),
        ({"at": True}, "got at=True"),
        ({"at": ""}, "got at=''"),
        ({"at": ("layer3",)}, "got at="),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ConfigError, match=message):
        TreeNet(**fields)


def test_unknown_branch_points():
    with pytest.raises(ConfigError, match=r"at='layer9'.*Did you mean layer.*own modules are conv1, layer1, .*, fc"):
        made(at="layer9")
    net = build("small-cnn")
    net.unused = nn.Linear(3, 3)
    with pytest.raises(ConfigError, match="at='unused', which never runs"):
        multum.ensemble(net, TreeNet(at="unused"), example=torch.zeros(2, 3, 8, 8))
    with pytest.raises(ConfigError, match=r"got none at or after at='1'\. The last weighted layer is '0'"):
        multum.ensemble(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), TreeNet(at="1"), example=torch.zeros(2, 3))


def test_networks_that_cannot_branch():
    with pytest.raises(RewriteError, match=r"have a weighted layer each; got 1 in all(.|\n)*use Deep"):
        multum.ensemble(nn.Sequential(nn.Linear(3, 3)), TreeNet(), example=torch.zeros(2, 3))
    net = build("small-cnn")
    net.fc.requires_grad_(False)
    with pytest.raises(RewriteError, match=r"fc: .*got all of it frozen"):
        multum.ensemble(net, TreeNet(at="fc"), example=torch.zeros(2, 3, 8, 8))
