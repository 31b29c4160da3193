"""Naive multihead, METHODS 1.9 and 3.7: one body, M heads."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multum
from grids import grid
from multum import Multihead
from multum.errors import ConfigError, RewriteError
from multum.models import build
from networks import ZOO, TiedNet, seeded

EXACT = {"rtol": 0, "atol": 1e-12}
GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())
NETS = {
    "mlp": (lambda: build("mlp", in_features=4, classes=3), lambda: torch.randn(3, 4)),
    "small-cnn": (lambda: build("small-cnn"), lambda: torch.randn(3, 3, 8, 8)),
    "wrn-10-1": (lambda: build("wrn-10-1", dropout=0.3), lambda: torch.randn(3, 3, 8, 8)),
    **{name: ZOO[name] for name in ("small-vit", "convnext-like", "token", "transformer", "two-input", "lstm")},
}


def images(rows: int) -> Tensor:
    return torch.randn(rows, 3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def labels(rows: int) -> Tensor:
    return torch.arange(rows) % 5


def made(members: int = 3, **keywords) -> multum.Ensemble:
    net = build("wrn-10-1", classes=5).double()
    return multum.ensemble(net, Multihead(members=members, **keywords), example=images(2), seed=0)


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_the_naive_twin_gives_the_same_outputs_and_gradients(executor):
    ens = made()
    ens.executor = executor
    body = ens.member(0)
    body.fc = nn.Identity()
    heads = {n: ens.network.get_parameter(f"fc.{n}").detach().clone().requires_grad_() for n in ("weight", "bias")}
    x, y = images(4), labels(4)
    out = ens(x)
    multum.loss(out, y, reduction="sum").backward()
    features = body(x)
    reference = torch.stack([features @ heads["weight"][m].T + heads["bias"][m] for m in range(3)])
    torch.testing.assert_close(out, reference, **EXACT)
    sum(F.cross_entropy(z, y) for z in reference).backward()
    for name, parameter in ens.named_parameters():
        twin = heads[name[3:]].grad if name.startswith("fc.") else body.get_parameter(name).grad
        torch.testing.assert_close(parameter.grad, twin, **EXACT, msg=lambda m, n=name: f"{n}: {m}")
    for name, buffer in body.named_buffers():  # the body's statistics move once
        torch.testing.assert_close(ens.network.get_buffer(name), buffer, **EXACT)


def test_the_body_sees_the_mean_of_the_heads_gradients():
    ens, x, y = made(), images(4), labels(4)
    body = [p for n, p in ens.named_parameters() if n not in ens.own]
    out = ens(x)
    each = [torch.autograd.grad(F.cross_entropy(out[m], y), body, retain_graph=True) for m in range(3)]
    multum.loss(out, y, reduction="sum").backward()
    ens.method.average_shared(ens)
    for p, *parts in zip(body, *each, strict=True):
        torch.testing.assert_close(p.grad, sum(parts) / 3, **EXACT)


@pytest.mark.parametrize("name", grid(NETS, always=["two-input", "lstm", "token"]))
def test_the_promises_hold(name):
    builder, example = NETS[name]
    x = example()
    ens = multum.ensemble(builder(), Multihead(), example=x, seed=0)
    head = "fc" if hasattr(ens.network, "fc") else "head"
    assert set(ens.own) == {f"{head}.weight", f"{head}.bias"}
    promises = {f.promise for f in multum.check(ens, x, verbose=False)}
    assert {"one member is the base network", "gradients stay with their member (vmap)"} <= promises
    multum.loss(ens.train()(x), torch.zeros(3).long(), reduction="sum").backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in ens.parameters())
    assert all(p.grad.any() for p in ens.parameters() if p.ndim > 1)


def test_the_promises_hold_in_regression():
    x = torch.randn(4, 6)
    ens = multum.ensemble(build("mlp", in_features=6, classes=2), Multihead(), example=x, task="regression")
    multum.check(ens, x, verbose=False)


def test_heads_start_anew_by_the_networks_own_law_and_the_body_keeps_its_weights():
    base = build("wrn-10-1", classes=100)
    ens = multum.ensemble(base, Multihead(), example=torch.zeros(2, 3, 8, 8), seed=0)
    heads = ens.network.fc.weight
    assert heads.shape == (3, 100, 64) and not torch.equal(heads[0], heads[1])
    assert not any(torch.equal(head, base.fc.weight) for head in heads)
    assert heads.std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.05)  # He-normal; torch's own would be 0.07
    assert not ens.network.fc.bias.any()
    for name, p in base.named_parameters():
        assert name in ens.own or torch.equal(ens.network.get_parameter(name), p)
    same = multum.ensemble(base, Multihead(init="pretrained"), example=torch.zeros(2, 3, 8, 8))
    first, *others = same.network.fc.weight.detach()
    assert torch.equal(first, base.fc.weight)
    for head in others:  # noise keeps them apart on the same batches
        assert float((head - first).norm() / first.norm()) == pytest.approx(0.2, rel=0.05)


def test_a_builder_initialises_its_own_heads():
    def builder() -> nn.Module:
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        nn.init.uniform_(net[2].weight, 5, 6)
        return net

    ens = multum.ensemble(builder, Multihead(), example=torch.zeros(2, 4), seed=0)
    assert (ens.network[2].weight > 5).all() and not torch.equal(*ens.network[2].weight[:2])


def test_one_member_is_the_base_network():
    base, x = build("wrn-10-1").eval(), torch.randn(3, 3, 8, 8)
    one = multum.ensemble(base, Multihead(members=1, init="pretrained"), example=x)
    one.executor = "loop"
    assert torch.equal(one(x)[0], base(x)) and Multihead().alone() == one.method


@pytest.mark.parametrize("training", [True, False])
def test_executors_agree(training):
    x, found = images(4), []
    first = made()
    first(x)  # so that the statistics are not those of the start
    for executor in ("loop", "vmap"):
        ens = copy.deepcopy(first).train(training)
        ens.executor = executor
        found.append([ens(x), *ens.buffers()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, **EXACT)


def test_the_body_is_computed_once():
    row = GOLDEN["multihead3/WRN/c10"]
    for classes, params in ((10, row["params"]), (100, 36_665_084)):
        with torch.device("meta"):
            net, x = build("wrn-28-10", classes=classes), torch.zeros(1, 3, 32, 32)
        cost = multum.cost(multum.ensemble(net, Multihead(), example=x), example=x)
        assert cost.params == params
        if classes == 10:
            assert (cost.macs, cost.torchinfo) == (5_243_341_568, row["torchinfo"]) and row["macs"] == cost.macs
    x = images(2)
    ens = made().eval()
    calls = []
    ens.network.conv1.register_forward_hook(lambda *_: calls.append(1))
    ens(x)
    assert ens.executor == "vmap" and len(calls) == 1


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("wrn-10-1", 79_150),
        ("wrn-16-1", 176_366),
        pytest.param("wrn-16-2", 694_254, marks=pytest.mark.slow),
        pytest.param("wrn-28-1", 370_798, marks=pytest.mark.slow),
    ],
)
def test_small_networks(name, params):
    with torch.device("meta"):
        net, x = build(name), torch.zeros(1, 3, 32, 32)
    assert multum.cost(multum.ensemble(net, Multihead(), example=x), example=x).params == params


def test_files_and_copies(tmp_path):
    ens, x = made(), images(3)
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
    ens = multum.ensemble(build("mlp", in_features=4, classes=3), Multihead(), example=x)
    torch.testing.assert_close(torch.compile(ens, backend="aot_eager")(x), ens(x))


# -- heads of every kind -----------------------------------------------------------------------------------------------


class TwoHeads(nn.Module):
    """Two last layers, as in a distilled transformer."""

    @seeded
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
        self.left, self.right = nn.Linear(6, 3), nn.Linear(6, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        return self.left(x) + self.right(x)


def test_several_heads_are_all_own():
    x = torch.randn(3, 4)
    ens = multum.ensemble(TwoHeads(), Multihead(), example=x)
    assert ens.own == ("left.weight", "left.bias", "right.weight")
    multum.check(ens, x, verbose=False)


def test_a_named_head_may_be_a_whole_module_and_needs_no_tracing():
    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.hidden, self.out = nn.BatchNorm1d(6), nn.Linear(6, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(F.relu(self.hidden(self.norm(x))))

    x = torch.randn(4, 4)
    net = nn.Sequential(nn.Linear(4, 6), Head())
    ens = multum.ensemble(net, Multihead(head="1"), example=x)
    assert len(ens.own) == 9 and not any(name.startswith("0.") for name in ens.own)
    assert not torch.equal(*ens.network[1].hidden.weight[:2])
    multum.check(ens, x, verbose=False)


def test_a_linear_model_is_all_head():
    x = torch.randn(3, 4)
    ens = multum.ensemble(nn.Sequential(nn.Linear(4, 3)), Multihead(), example=x)
    assert len(ens.own) == 2
    multum.check(ens, x, verbose=False)


class RawHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.weight = nn.Linear(4, 6), nn.Parameter(torch.randn(3, 6))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.relu(self.body(x)), self.weight)


def test_refusals():
    x = torch.randn(2, 4)
    with pytest.raises(RewriteError, match="computes the outputs itself"):
        multum.ensemble(RawHead(), Multihead(), example=x)
    frozen = build("mlp", in_features=4, classes=3)
    frozen.fc.requires_grad_(False)
    with pytest.raises(RewriteError, match=r"fc: .*got one that is frozen(.|\n)*unfreeze it"):
        multum.ensemble(frozen, Multihead(), example=x)
    tied = TiedNet()
    with pytest.raises(RewriteError, match=r"second: .*first.weight, tied to the body"):
        multum.ensemble(tied, Multihead(head="second"), example=torch.randn(2, 6))
    with pytest.raises(RewriteError, match="has no parameters"):
        multum.ensemble(build("small-cnn"), Multihead(head="relu"), example=torch.zeros(2, 3, 8, 8))


def test_a_frozen_body_stays_frozen():
    net = build("mlp", in_features=4, classes=3)
    net.hidden.requires_grad_(False)
    x = torch.randn(2, 4)
    ens = multum.ensemble(net, Multihead(), example=x)
    ens(x).sum().backward()
    assert [n for n, p in ens.named_parameters() if p.grad is not None] == ["fc.weight", "fc.bias"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"members": -1}, "members must be a whole number >= 1; got members=-1"),
        ({"init": "frsh"}, "init must be one of 'fresh', 'pretrained'; got init='frsh'. Did you mean fresh"),
        ({"head": 1}, "head must be the path of a module, or None; got head=1"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ConfigError, match=message):
        Multihead(**fields)


def test_unknown_paths():
    with pytest.raises(ConfigError, match=r"head='fcc'. Did you mean fc"):
        multum.ensemble(build("small-cnn"), Multihead(head="fcc"), example=torch.zeros(2, 3, 8, 8))
