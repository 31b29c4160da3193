"""MIMO, METHODS 1.5 and 3.3: one network that takes M inputs and gives M outputs."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

import multum
from grids import grid
from multum import Mimo
from multum.errors import ConfigError, RewriteError
from multum.models import build
from networks import ZOO, TwoInputNet, seeded

EXACT = {"rtol": 0, "atol": 1e-12}
GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())
NETS = {
    "mlp": (lambda: build("mlp", in_features=4, classes=3), lambda: torch.randn(3, 4)),
    "small-cnn": (lambda: build("small-cnn"), lambda: torch.randn(3, 3, 8, 8)),
    "wrn-10-1": (lambda: build("wrn-10-1"), lambda: torch.randn(3, 3, 8, 8)),
    **{name: ZOO[name] for name in ("small-vit", "convnext-like", "token", "attention", "transformer", "dropout")},
}


def weighted(out: Tensor) -> Tensor:
    return (out * torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).view_as(out)).sum()


def cnn(**keywords: Any) -> nn.Module:
    return build("small-cnn", classes=5, **keywords).double()


def images(*lead: int) -> Tensor:
    return torch.randn(*lead, 3, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


# -- the network -------------------------------------------------------------------------------------------------------


def test_the_naive_twin_gives_the_same_outputs_and_gradients():
    ens = multum.ensemble(cnn(), Mimo(members=3), example=images(2), seed=0)
    p = {n: t.detach().clone().requires_grad_() for n, t in ens.named_parameters()}
    x = images(3, 4)

    def paper(x: Tensor) -> Tensor:
        """The M images side by side in the channels; the outputs reshaped to [B, M, classes]."""
        h = torch.cat([x[0], x[1], x[2]], dim=1)
        h = F.max_pool2d(F.relu(F.conv2d(h, p["conv1.weight"], p["conv1.bias"], padding=1)), 2)
        h = F.max_pool2d(F.relu(F.conv2d(h, p["conv2.weight"], p["conv2.bias"], padding=1)), 2)
        h = F.relu(F.conv2d(h, p["conv3.weight"], p["conv3.bias"], padding=1)).mean((2, 3))
        return (h @ p["fc.weight"].T + p["fc.bias"]).view(-1, 3, 5).transpose(0, 1)

    for out, reference in ((ens(x, per_member=True), paper(x)), (ens(x[0]), paper(x[:1].expand(3, -1, -1, -1, -1)))):
        torch.testing.assert_close(out, reference, **EXACT)
        ens.zero_grad()
        weighted(out).backward()
        grads = torch.autograd.grad(weighted(reference), list(p.values()))
        for (name, parameter), grad in zip(ens.named_parameters(), grads, strict=True):
            torch.testing.assert_close(parameter.grad, grad, **EXACT, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("name", grid(NETS, always=["token", "transformer", "dropout"]))
def test_the_promises_hold(name):
    builder, example = NETS[name]
    x = example()
    ens = multum.ensemble(builder(), Mimo(members=3), example=x, seed=0)
    assert ens.own == () and ens.folded and ens(x).shape[:2] == (3, 3)
    promises = {f.promise for f in multum.check(ens, x, verbose=False)}
    assert {"member(i) equals row i", "one member is the base network", "executors agree, training"} <= promises
    weighted(ens.train()(x)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in ens.parameters())
    assert all(p.grad.any() for p in ens.parameters() if p.ndim > 1)


def test_the_promises_hold_in_regression():
    x = torch.randn(4, 6)
    net = build("mlp", in_features=6, classes=2, hidden=16)
    ens = multum.ensemble(net, Mimo(members=4), example=x, task="regression").eval()
    multum.check(ens, x, verbose=False)
    assert multum.predict(ens, x).mean.shape == (4,)


@pytest.mark.parametrize("name", ["small-cnn", "wrn-10-1", "token"])
def test_one_member_is_the_base_network_bit_for_bit(name):
    builder, example = NETS[name]
    base, x = builder().eval(), example()
    one = multum.ensemble(base, Mimo(members=1), example=x)
    assert torch.equal(one(x)[0], base(x)) and torch.equal(one.member(0)(x), base(x))
    assert {n: id(type(m)) for n, m in one.member(0).named_modules()} == {
        n: id(type(m)) for n, m in base.named_modules()
    }
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), base.parameters(), strict=True))


def test_with_one_input_for_all_the_stem_is_the_plain_one_with_the_summed_kernel():
    ens = multum.ensemble(cnn(), Mimo(members=3), example=images(2), seed=0).eval()
    x = images(4)
    summed = ens.network.conv1.weight.unflatten(1, (3, 3)).sum(1)
    found: list[Tensor] = []
    handle = ens.network.conv1.register_forward_hook(lambda module, args, out: found.append(out))
    out = ens(x)
    handle.remove()
    torch.testing.assert_close(found[0], F.conv2d(x, summed, ens.network.conv1.bias, padding=1), **EXACT)
    for i in range(3):
        one = ens.member(i)
        torch.testing.assert_close(one.conv1.weight, summed, **EXACT)
        assert torch.equal(one.fc.weight, ens.network.fc.weight[5 * i : 5 * i + 5])
        assert (one.conv1.in_channels, one.fc.out_features) == (3, 5) and type(one.conv1) is nn.Conv2d
        torch.testing.assert_close(one(x), out[i], **EXACT)


def test_every_member_has_its_own_input_and_sees_the_others():
    ens = multum.ensemble(cnn(), Mimo(members=3), example=images(2), seed=0).eval()
    x = images(3, 2)
    out = ens(x, per_member=True)
    torch.testing.assert_close(ens(x[0].expand(3, *x[0].shape), per_member=True), ens(x[0]), **EXACT)
    other = x.clone()
    other[1, 0] += 1  # member 1's first row: all members' first rows may move, no second row
    moved = ens(other, per_member=True) != out
    assert moved[:, 0].any(1).all() and not moved[:, 1].any()
    for executor in ("loop", "vmap"):
        ens.executor = executor
        assert torch.equal(ens(x, per_member=True), out)


def test_normalisation_before_and_log_softmax_after_survive():
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1))
            self.body = build("small-cnn")

        def forward(self, x: Tensor) -> Tensor:
            return F.log_softmax(self.body(x - self.mean), dim=1)

    x = torch.randn(3, 3, 8, 8)
    ens = multum.ensemble(Wrapped(), Mimo(members=2), example=x).eval()
    torch.testing.assert_close(ens(x).exp().sum(2), torch.ones(2, 3))
    multum.check(ens, x, verbose=False)


class Sequence(nn.Module):
    """An answer for every token."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)))


STEMS = {
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(2, 6, 3), nn.Flatten(), nn.Linear(36, 4)), (2, 8)),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(2, 3, 2, bias=False), nn.Flatten(), nn.Linear(24, 4)), (2, 3, 3, 3)),
    "reflected": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(48, 4)),
        (2, 4, 4),
    ),
    "transposed": (
        lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 2), nn.ReLU(), nn.ConvTranspose2d(3, 4, 2), nn.Flatten(2)),
        (2, 3, 3),
    ),
    "fully-convolutional": (
        lambda: nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        (2, 5, 5),
    ),
    "tokens": (Sequence, (5, 6)),
}


@pytest.mark.parametrize("name", STEMS)
def test_stems_and_heads_of_every_kind(name):
    builder, shape = STEMS[name]
    x = torch.randn(3, *shape)
    ens = multum.ensemble(builder(), Mimo(members=3), example=x, seed=0)
    assert ens(x).shape == (3, *builder()(x).shape)
    multum.check(ens, x, verbose=False)
    assert {type(m) for m in ens.member(1).modules()} == {type(m) for m in builder().modules()}


def test_a_later_layer_may_be_the_stem():
    x = ZOO["two-input"][1]()
    with pytest.raises(RewriteError, match="no skip around it"):
        multum.ensemble(TwoInputNet(), Mimo(), example=x)
    ens = multum.ensemble(TwoInputNet(), Mimo(stem="hidden"), example=x)
    assert ens.network.hidden.in_features == 3 * 22 and ens.network.numeric.in_features == 4
    multum.check(ens, x, verbose=False)


def test_the_body_keeps_its_weights_and_the_edges_start_anew_by_the_networks_own_law():
    base = build("wrn-10-1", classes=100)
    ens = multum.ensemble(base, Mimo(members=3), example=torch.zeros(2, 3, 8, 8), seed=0)
    new, old = dict(ens.named_parameters()), dict(base.named_parameters())
    changed = {name for name in old if new[name].shape != old[name].shape or not torch.equal(new[name], old[name])}
    assert changed == {"conv1.weight", "fc.weight", "fc.bias"}
    assert new["conv1.weight"].shape == (16, 9, 3, 3) and new["fc.weight"].shape == (300, 64)
    # He-normal, fan-in of all M inputs; torch's own law would be a third of that.
    assert new["conv1.weight"].std().item() == pytest.approx((2 / 81) ** 0.5, rel=0.1)
    assert new["fc.weight"].std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.1) and not new["fc.bias"].any()
    blocks = new["fc.weight"].view(3, 100, 64)
    assert not torch.equal(blocks[0], blocks[1])


def test_training_moves_the_statistics_once_and_dropout_draws_from_the_seed():
    x = torch.randn(4, 3, 8, 8)
    make = lambda: multum.ensemble(build("wrn-10-1", dropout=0.5), Mimo(), example=x, seed=4)  # noqa: E731
    with torch.random.fork_rng():
        torch.manual_seed(0)
        one = make()
        torch.manual_seed(0)
        two = make()
    two.executor = "loop"
    assert torch.equal(one(x), two(x)) and torch.equal(one(x), two(x))
    assert all(torch.equal(a, b) for a, b in zip(one.buffers(), two.buffers(), strict=True))
    assert one.network.bn.num_batches_tracked == 2


def test_files_and_copies(tmp_path):
    x = torch.randn(4, 3, 8, 8)
    ens = multum.ensemble(build("wrn-10-1"), Mimo(rho=0.5, repeats=2), example=x)
    ens(x)
    multum.save(ens, tmp_path / "a.safetensors")
    again = multum.load(tmp_path / "a.safetensors")
    assert again.method == ens.method and again.folded and again.own == ()
    for other in (again, copy.deepcopy(ens)):
        assert torch.equal(other.eval()(x), ens.eval()(x))
        assert torch.equal(other.member(1)(x), ens.member(1)(x))


def test_it_compiles():
    x = torch.randn(4, 4)
    ens = multum.ensemble(build("mlp", in_features=4, classes=3), Mimo(), example=x)
    torch.testing.assert_close(torch.compile(ens, backend="aot_eager")(x), ens(x))


# -- the batches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "rows", "repeats", "rho", "mixed"),
    [
        (3, 128, 4, 0.6, 204),
        (2, 10, 4, 0.8, 8),
        (4, 7, 1, 0.0, 7),
        (3, 5, 2, 1.0, 0),
        (1, 6, 1, 0.0, 6),
        (2, 9, 3, 0.5, 13),
    ],
)
def test_every_member_sees_every_example_as_often_as_told(members, rows, repeats, rho, mixed):
    method = Mimo(members=members, rho=rho, repeats=repeats)
    x = torch.arange(rows * 2.0).view(rows, 2)
    batch = method.batch(x, torch.arange(rows), torch.Generator().manual_seed(0))
    assert batch.per_member and batch.x.shape == (members, rows * repeats, 2)
    assert torch.equal(batch.x[..., 0], 2.0 * batch.y)
    counts = torch.stack([y.bincount(minlength=rows) for y in batch.y])
    assert (counts == repeats).all()
    same = (batch.y == batch.y[0]).all(0)
    assert same[mixed:].all()
    draws = [method.batch(x, torch.arange(rows), torch.Generator().manual_seed(seed)).y for seed in range(60)]
    differ = torch.stack([(y != y[0]).any(0) for y in draws]).any(0)
    assert differ.tolist() == [members > 1 and row < mixed for row in range(rows * repeats)]
    for y in batch.y:  # the head of the batch is the same multiset for all members
        assert torch.equal(y[:mixed].sort().values, batch.y[0, :mixed].sort().values)


def test_rho_is_a_fixed_fraction():
    y = Mimo(members=2, rho=0.6, repeats=4).batch(torch.zeros(128, 1), torch.arange(128)).y
    assert 1 - 204 / 512 == 0.6015625 and (y[0, 204:] == y[1, 204:]).all()


def test_batches_come_from_the_generator_and_are_shuffled_well():
    x, y = torch.randn(50, 3), torch.arange(50)
    one, two = (Mimo(rho=0.3).batch(x, y, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(one.x, two.x) and torch.equal(one.y, two.y)
    state = torch.get_rng_state()
    Mimo().batch(x, y, torch.Generator().manual_seed(5))
    assert torch.equal(torch.get_rng_state(), state)
    first = torch.stack([Mimo(rho=0.5).batch(x[:4], y[:4]).y[:, 0] for _ in range(4000)])  # [draws, members]
    for m in range(3):  # each example is as likely in each place
        assert (first[:, m].bincount(minlength=4) / 4000 - 0.25).abs().max() < 0.04
    with torch.random.fork_rng():
        torch.manual_seed(1)
        pairs = torch.stack([Mimo(members=2).batch(x[:4], y[:4]).y[:, 0] for _ in range(4000)])
    table = (pairs[:, 0] * 4 + pairs[:, 1]).bincount(minlength=16) / 4000  # members are independent at rho = 0
    assert (table - 1 / 16).abs().max() < 0.02


def test_batches_of_several_inputs_and_soft_labels_train():
    x = ZOO["two-input"][1]()
    y = torch.softmax(torch.randn(3, 5), 1)
    method = Mimo(members=2, repeats=2, stem="hidden")
    ens = multum.ensemble(TwoInputNet(), method, example=x)
    batch = method.batch(x, y)
    assert [t.shape for t in batch.x] == [(2, 6, 4), (2, 6, 2)] and batch.y.shape == (2, 6, 5)
    multum.loss(ens(batch.x, per_member=True), batch.y, reduction="sum").backward()
    named = method.batch({"x_num": x[0], "x_cat": x[1]}, y)
    assert tree_map_only(Tensor, lambda t: tuple(t.shape), named.x) == {"x_num": (2, 6, 4), "x_cat": (2, 6, 2)}


def test_training_answers_each_input_by_its_own_output():
    torch.manual_seed(0)
    method = Mimo(members=2, repeats=2)
    x = torch.randn(64, 6)
    y = (x[:, :3].argmax(1) + 3 * (x[:, 3] > 0)) % 3
    ens = multum.ensemble(build("mlp", in_features=6, classes=3, hidden=(64,)), method, example=x, seed=0)
    optimizer = torch.optim.Adam(method.parameter_groups(ens, 0.0), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        batch = method.batch(x, y, generator)
        loss = multum.loss(ens(batch.x, per_member=True), batch.y, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    batch = method.batch(x, y, generator)
    answers = ens(batch.x, per_member=True).argmax(2)
    assert (answers == batch.y).float().mean() > 0.8 > 0.5 > (answers == batch.y.flip(0)).float().mean()
    assert (ens(x).softmax(2).mean(0).argmax(1) == y).float().mean() > 0.9


# -- counts ------------------------------------------------------------------------------------------------------------


def counted(name: str, members: int, side: int = 32, **keywords: Any) -> multum.Cost:
    with torch.device("meta"):
        net, x = build(name, **keywords), torch.zeros(1, 3, side, side)
    return multum.cost(multum.ensemble(net, Mimo(members=members), example=x), example=x)


# Its other rows are counted in tests/papers/test_items.py too.
ALWAYS = ("mimo4/R18/c10", "mimo3/WRN/zagoruyko/c10")


@pytest.mark.parametrize(
    "row",
    [pytest.param(r, marks=() if r in ALWAYS else pytest.mark.slow) for r in GOLDEN if r.startswith("mimo")],
)
def test_golden(row):
    kind, backbone, *rest = row.split("/")
    keywords: dict[str, Any] = {"classes": {"c10": 10, "c100": 100, "imagenet": 1000}[rest[-1]]}
    if rest[-1] == "imagenet":
        keywords["stem"] = "imagenet"
    if backbone == "WRN":
        keywords["variant"] = rest[0]
    name = {"R18": "resnet18", "R50": "resnet50", "R50x4": "resnet50x4", "WRN": "wrn-28-10"}[backbone]
    cost = counted(name, int(kind[4:]), 224 if rest[-1] == "imagenet" else 32, **keywords)
    expected = GOLDEN[row]
    assert (cost.params, cost.macs, cost.torchinfo) == (expected["params"], expected["macs"], expected["torchinfo"])
    if row == "mimo3/WRN/zagoruyko/c10":
        assert cost.flops == 10_561_438_364


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("wrn-10-1", 80_014),
        ("wrn-16-2", 695_118),
        pytest.param("wrn-16-1", 177_230, marks=pytest.mark.slow),
        pytest.param("wrn-28-1", 371_662, marks=pytest.mark.slow),
    ],
)
def test_small_networks(name, params):
    cost = counted(name, 3)
    assert cost.params == params
    assert name != "wrn-10-1" or cost.macs == 13_387_648
    with torch.device("meta"):
        base = build(name)
    extra = 2 * (3 * 16 * 9 + base.fc.in_features * 10 + 10)
    assert params == sum(p.numel() for p in base.parameters()) + extra


@pytest.mark.slow
def test_more_counts_of_the_paper():
    assert counted("wrn-28-10", 3, classes=100).params == 36_665_948
    assert counted("resnet50", 3, 224, classes=1000, stem="imagenet").params == 29_673_848


# -- refusals ----------------------------------------------------------------------------------------------------------


class Bent(nn.Module):
    """A small network with one thing that MIMO cannot do."""

    @seeded
    def __init__(self, bend: str):
        super().__init__()
        self.bend = bend
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.last = nn.Linear(6, 6)
        if bend == "tied":
            self.last.weight = self.first.weight
        if bend == "frozen":
            self.first.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        if self.bend == "time first":  # tokens [B, T, C] -> [T, B, C]
            x = x.transpose(0, 1)
        if self.bend == "time major":  # rows (t b) where Mimo expects (b t)
            x = x.transpose(0, 1).flatten(0, 1)
        h = torch.relu(self.first(x))
        if self.bend == "skip":
            h = h + x
        if self.bend == "batch size":
            h = h.view(x.shape[0], 6)
        if self.bend == "two stems":
            return self.last(h + self.second(x))
        if self.bend == "two heads":
            return self.last(h) + self.second(h)
        h = self.second(h)
        h = self.last(h)
        if self.bend == "time first":
            h = h.mean(0)
        if self.bend == "time major":
            h = h.unflatten(0, (6, -1)).mean(0)
        return h


@pytest.mark.parametrize(
    ("bend", "message"),
    [
        ("skip", "must not meet or mix"),
        ("batch size", "no batch size read from it"),
        ("time first", "keep the batch first"),
        ("time major", "a member's outputs depend on the rows of another"),
        ("two stems", r"first, second: .*one first weighted layer, the stem; got 2(.|\n)*stem='first'"),
        ("two heads", r"last, second: .*one last weighted layer, the head; got 2(.|\n)*head='last'"),
        ("tied", "first.weight, which is tied"),
        ("frozen", r"first: .*got it frozen(.|\n)*unfreeze it"),
    ],
)
def test_what_cannot_be_folded_is_refused(bend, message):
    x = torch.randn(2, 6, 6) if "time" in bend else torch.randn(2, 6)
    with pytest.raises(RewriteError, match=message):
        multum.ensemble(Bent(bend), Mimo(members=3), example=x)


def test_an_example_of_zeros_hides_nothing():
    with pytest.raises(RewriteError, match="depend on the rows of another"):
        multum.ensemble(Bent("time major"), Mimo(members=3), example=torch.zeros(2, 6, 6))


def test_layers_that_cannot_be_widened_are_refused_together():
    net = nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.ReLU(), nn.Conv2d(8, 4, 3, groups=4), nn.Flatten())
    with pytest.raises(RewriteError, match=r"groups=2(.|\n)*groups=4") as error:
        multum.ensemble(net, Mimo(), example=torch.zeros(2, 4, 5, 5))
    assert [r.path for r in error.value.refusals] == ["0", "2"]
    with pytest.raises(RewriteError, match="got LSTM"):
        multum.ensemble(ZOO["lstm"][0](), Mimo(), example=ZOO["lstm"][1]())
    with pytest.raises(RewriteError, match="got one layer for both"):
        multum.ensemble(nn.Sequential(nn.Linear(4, 3)), Mimo(), example=torch.zeros(2, 4))
    with pytest.raises(RewriteError, match="got Bottleneck"):
        net = build("resnet50", width=0.125)
        multum.ensemble(net, Mimo(head="layer4.2"), example=torch.zeros(2, 3, 8, 8))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"members": 0}, "members must be a whole number >= 1; got members=0"),
        ({"repeats": 0}, "repeats must be a whole number >= 1; got repeats=0"),
        ({"repeats": 1.5}, "repeats must be a whole number >= 1; got repeats=1.5"),
        ({"rho": 1.2}, "0 <= rho <= 1; got rho=1.2. Use for example rho=1"),
        ({"rho": -0.1}, "Use for example rho=0"),
        ({"rho": float("nan")}, "got rho=nan"),
        ({"rho": "half"}, "got rho='half'"),
        ({"stem": 3}, "stem must be the path of a module, or None; got stem=3"),
        ({"head": ""}, "head must be the path of a module"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ConfigError, match=message):
        Mimo(**fields)


def test_unknown_paths():
    with pytest.raises(ConfigError, match=r"stem='convl'. Did you mean conv"):
        multum.ensemble(build("small-cnn"), Mimo(stem="convl"), example=torch.zeros(2, 3, 8, 8))
    with pytest.raises(ConfigError, match="head='fcc'"):
        multum.ensemble(build("small-cnn"), Mimo(head="fcc"), example=torch.zeros(2, 3, 8, 8))
