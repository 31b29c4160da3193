"""MC dropout, METHODS 1.11: samples of one network, its dropout on at prediction."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

import multum
from grids import grid
from multum import McDropout
from multum.errors import ConfigError, RewriteError
from multum.methods.mc_dropout import InputDropout
from multum.models import build
from multum.rewrite.dropout import Drawing
from networks import ZOO, AttentionNet, DropoutNet, TransformerNet

EXACT = {"rtol": 0, "atol": 1e-12}
NETS: dict[str, Any] = {
    "mlp": (lambda: build("mlp", in_features=4, classes=3, hidden=(8, 8)), lambda: torch.randn(3, 4)),
    "small-cnn": (lambda: build("small-cnn"), lambda: torch.randn(3, 3, 8, 8)),
    "wrn-10-1": (lambda: build("wrn-10-1"), lambda: torch.randn(3, 3, 8, 8)),
    **ZOO,
}


def made(name: str, seed: int = 0, **fields: Any) -> tuple[multum.Ensemble, Any]:
    builder, example = NETS[name]
    x = example()
    return multum.ensemble(builder(), McDropout(**fields), example=x, seed=seed), x


def weighted(out: Tensor) -> Tensor:
    return (out * torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).view_as(out)).sum()


def drawing(ens: multum.Ensemble) -> dict[str, Any]:
    return {path: m for path, m in ens.network.named_modules() if isinstance(m, Drawing)}


# -- samples -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["loop", "vmap"])
@pytest.mark.parametrize("training", [False, True])
def test_the_naive_twin_gives_the_same_outputs_and_gradients(executor, training):
    x = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    net = build("small-cnn").double()
    ens = multum.ensemble(net, McDropout(members=3, rate=0.25), example=x, seed=0).train(training)
    ens.executor = executor
    seeds = ens.randomness.seeds

    def drop(h: Tensor, generator: torch.Generator) -> Tensor:
        if training:
            return h * torch.empty_like(h).bernoulli_(0.75, generator=generator) / 0.75
        seed = torch.empty((), dtype=torch.int64).random_(generator=generator)
        stream = np.random.SFC64(int(seed)).random_raw(h.numel()).tobytes()
        half = h.numel() // 2  # whose numbers are each two bytes behind
        numbers = [np.frombuffer(stream, np.int32, half, offset=skip) for skip in (0, 2)]
        kept = torch.from_numpy(np.concatenate(numbers) >= 0.25 * 2**32 - 2**31)
        if h.ndim == 4:
            return h * kept.view_as(h.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) / 0.75
        return h * kept.view_as(h) / 0.75

    def sample(seed: int) -> Tensor:
        """f(x; z) with masks drawn in the order of the layers, before each but the first."""
        g = torch.Generator().manual_seed(seed)
        h = net.maxpool(F.relu(net.conv1(x)))
        h = net.maxpool(F.relu(net.conv2(drop(h, g))))
        h = net.avgpool(F.relu(net.conv3(drop(h, g)))).flatten(1)
        return net.fc(drop(h, g))

    out = ens(x)
    reference = torch.stack([sample(seeds[-1])] * 3 if training else [sample(s) for s in seeds[:3]])
    torch.testing.assert_close(out, reference, **EXACT)
    weighted(out).backward()
    weighted(reference).backward()
    for (name, p), twin in zip(ens.named_parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(p.grad, twin.grad, **EXACT, msg=lambda m, n=name: f"{n}: {m}")


def test_samples_differ_between_members_and_calls_and_follow_the_seed():
    ens, x = made("small-cnn", seed=3)
    ens.eval()
    first, second = ens(x), ens(x)
    assert first.shape == (5, 3, 10) and ens.own == ()
    rows = [*first, *second]
    assert all(not torch.equal(a, b) for i, a in enumerate(rows) for b in rows[:i])
    base = NETS["small-cnn"][0]()
    again, same, other = (multum.ensemble(base, McDropout(), example=x, seed=s).eval() for s in (3, 3, 4))
    sequence = [again(x), again(x)]
    assert torch.equal(sequence[0], same(x)) and torch.equal(sequence[1], same(x))
    assert not torch.equal(sequence[0], other(x))
    state = torch.get_rng_state()
    again(x)
    assert torch.equal(torch.get_rng_state(), state)


def test_copies_and_files_continue_the_sequence(tmp_path):
    ens, x = made("wrn-10-1", rate=0.3)
    ens(x)
    ens.eval()(x)
    multum.save(ens, tmp_path / "a.safetensors")
    loaded = multum.load(tmp_path / "a.safetensors")
    copied = copy.deepcopy(ens)
    for _ in range(3):
        out = ens(x)
        assert torch.equal(loaded.eval()(x), out) and torch.equal(copied(x), out)
    assert torch.equal(loaded.train()(x), ens.train()(x))
    assert loaded.method == ens.method and {type(m) for m in loaded.modules()} == {type(m) for m in ens.modules()}


def test_the_mean_of_many_samples_is_the_layer_without_dropout():
    net = nn.Sequential(nn.Linear(3, 4), nn.Identity(), nn.Linear(4, 2))
    x = torch.randn(2, 3)
    ens = multum.ensemble(net, McDropout(members=4000, rate=0.3), example=x, seed=0).eval()
    out = ens(x).detach()
    torch.testing.assert_close(out.mean(0), net(x), rtol=0, atol=0.03)
    h, w = net[0](x).detach(), net[2].weight.detach()
    variance = (h.square() @ w.square().T) * 0.3 / 0.7  # sum_i (w_i h_i)^2 p / (1 - p)
    torch.testing.assert_close(out.var(0), variance, rtol=0.15, atol=0)


@pytest.mark.parametrize("name", grid(NETS, always=["two-input", "lstm", "tied", "squeeze-excite"]))
def test_the_promises_hold(name):
    ens, x = made(name, members=3)
    promises = {f.promise for f in multum.check(ens, x, verbose=False)}
    assert {"the same generators give the same draws", "one member is the base network"} <= promises
    assert {"executors agree, eval", "executors agree, training"} <= promises
    weighted(ens.train()(x)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in ens.parameters())
    assert all(p.grad.any() for p in ens.parameters() if p.ndim > 1)


def test_the_promises_hold_in_regression():
    x = torch.randn(4, 6)
    ens = multum.ensemble(build("mlp", in_features=6, classes=2), McDropout(), example=x, task="regression")
    multum.check(ens, x, verbose=False)
    assert multum.predict(ens, x).epistemic.gt(0).all()


def test_the_checker_sees_draws_that_do_not_come_from_the_generators(monkeypatch):
    ens, x = made("mlp")
    monkeypatch.setattr(Drawing, "draw", lambda self, x, p, channelwise: torch.rand_like(x).round())
    with pytest.raises(multum.errors.CheckError, match="the same generators give the same draws"):
        multum.check(ens, x, verbose=False)


def test_members_may_have_their_own_inputs():
    ens, x = made("small-cnn", members=3)
    one, two = copy.deepcopy(ens).eval(), copy.deepcopy(ens).eval()
    rows = torch.stack([x, x, x])
    torch.testing.assert_close(one(rows, per_member=True), two(x))
    torch.testing.assert_close(copy.deepcopy(ens).eval()(x, member=2), copy.deepcopy(ens).eval()(x)[2])


# -- training ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_training_is_one_sample_of_one_network(executor):
    ens, x = made("wrn-10-1", rate=0.5)
    ens.executor = executor
    y = torch.tensor([0, 1, 2])
    one = copy.deepcopy(ens).network
    out = ens(x)
    assert out.shape == (5, 3, 10) and all(torch.equal(row, out[0]) for row in out)
    assert not torch.equal(copy.deepcopy(ens)(x), out)  # another sample at the next step
    multum.loss(out, y, reduction="sum").backward()
    ens.method.average_shared(ens)
    F.cross_entropy(one(x), y).backward()  # the network alone, its masks from the shared generator
    for (name, p), twin in zip(ens.named_parameters(), one.parameters(), strict=True):
        torch.testing.assert_close(p.grad, twin.grad, rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
    for (name, b), twin in zip(ens.named_buffers(), one.buffers(), strict=True):
        torch.testing.assert_close(b, twin, msg=lambda m, n=name: f"{n}: {m}")
    assert ens.network.bn.num_batches_tracked == 1


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_training_computes_one_sample(executor):
    ens, x = made("small-cnn", members=4)
    calls: list[bool] = []
    ens.network.fc.register_forward_hook(lambda module, args, out: calls.append(module.training))
    ens.executor = executor
    ens.train()(x)
    assert calls == [True]
    ens.eval()(x)
    assert calls[1:] == [False] * (4 if executor == "loop" else 1)
    ens.train().network.fc.eval()  # one dropout in eval mode: the samples differ again
    assert ens(x).std(0).max() > 0


def test_dropout_inside_attention_is_trained_but_not_sampled():
    """nn.MultiheadAttention has a number for it, no module: it is on in training alone, where one sample is all."""
    x = torch.randn(3, 7, 6)
    ens = multum.ensemble(TransformerNet(dropout=0.5), McDropout(members=3), example=x)
    out = ens.train()(x)
    assert not ens.refusals and torch.equal(out[0], out[1]) and torch.equal(out[1], out[2])


# -- places ------------------------------------------------------------------------------------------------------------

PLACES = {
    "mlp": ["hidden.2", "fc"],
    "small-cnn": ["conv2", "conv3", "fc"],
    "wrn-10-1": ["layer1.0.dropout", "layer2.0.dropout", "layer3.0.dropout"],
    "dropout": ["drop2d", "drop"],
    "token": ["head"],
    "lstm": ["head"],
    "attention": ["attention", "head"],
    "transformer": ["encoder.dropout", "encoder.dropout1", "encoder.dropout2"],
    "squeeze-excite": ["depthwise", "excite.reduce", "excite.expand", "grouped", "head"],
    "tied": ["first", "second", "head"],
    "two-input": ["hidden", "head"],
}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_dropout_is_where_it_should_be_and_every_place_takes_effect(name, executor):
    """All rates but one at 0: the samples must still differ, in eval mode and without gradients."""
    ens, x = made(name, members=3, rate=0.4)
    ens.eval()
    ens.executor = executor
    places = drawing(ens)
    assert list(places) == PLACES[name]
    for path in places:
        for other, module in places.items():
            rate = "rate" if isinstance(module, InputDropout) else "p"
            assert hasattr(module, rate)
            setattr(module, rate, 0.4 if other == path else 0.0)
        with torch.no_grad():
            assert ens(x).std(0).max() > 1e-4, path


def test_a_networks_own_dropout_keeps_its_kind_and_rate():
    x = torch.randn(3, 3, 8, 8)
    ens = multum.ensemble(DropoutNet(p=0.5), McDropout(), example=x)
    assert [m.p for m in drawing(ens).values()] == [0.5, 0.5] and ens.network.drop2d.channelwise
    ens = multum.ensemble(DropoutNet(p=0.5), McDropout(rate=0.2), example=x)
    assert [m.p for m in drawing(ens).values()] == [0.2, 0.2]
    assert [m.p for m in ens.member(0).modules() if isinstance(m, nn.modules.dropout._DropoutNd)] == [0.2, 0.2]
    ens = multum.ensemble(DropoutNet(p=0.0), McDropout(), example=x)  # places, left unused
    assert [m.p for m in drawing(ens).values()] == [0.1, 0.1]
    wide = multum.ensemble(build("wrn-10-1", variant="meliketoy"), McDropout(), example=x)
    assert [m.p for m in drawing(wide).values()] == [0.3, 0.3, 0.3]


def test_dropout_that_never_runs_does_not_count():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last, self.unused = nn.Linear(4, 6), nn.Linear(6, 3), nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(input=F.relu(self.first(x)))

    x = torch.randn(3, 4)
    ens = multum.ensemble(Net(), McDropout(), example=x).eval()
    assert [edit.path for edit in ens.edits] == ["last"]
    assert ens(x).std(0).max() > 0  # also where a layer is called by keyword


def test_wide_resnets_get_the_papers_dropout():
    x = torch.randn(3, 3, 8, 8)
    base = build("wrn-10-1").eval()
    ens = multum.ensemble(base, McDropout(), example=x)
    one = ens.member(0)
    for stage in (one.layer1, one.layer2, one.layer3):
        assert type(stage[0].dropout) is nn.Dropout and stage[0].dropout.p == 0.1
    assert torch.equal(one.eval()(x), base(x))
    assert [name for name, _ in one.named_buffers()] == [name for name, _ in base.named_buffers()]
    torch.testing.assert_close(
        multum.ensemble(one, McDropout(rate=0.0, members=1), example=x).eval()(x)[0], base(x), **EXACT
    )


@pytest.mark.parametrize("name", ["small-cnn", "attention", "tied", "dropout", "transformer"])
def test_a_member_is_the_plain_network(name):
    ens, x = made(name)
    base = NETS[name][0]().eval()
    one = ens.eval().member(1)
    assert {n: type(m) for n, m in one.named_modules()} == {n: type(m) for n, m in base.named_modules()}
    base.load_state_dict(ens.state_dict())
    assert torch.equal(one(x), base(x))
    assert not any({"always", "randomness", "rate"} & set(m.__dict__) or "member" in m._buffers for m in one.modules())


def test_attention_drops_a_tensor_in_all_three_roles_once():
    x = torch.randn(2, 5, 6)
    ens = multum.ensemble(AttentionNet(), McDropout(rate=0.5, members=2), example=x, seed=0).eval()
    attention, seen = ens.network.attention, []
    attention.drop = lambda t: seen.append(t) or t * 2
    h = torch.randn(2, 5, 16)
    other = torch.randn(2, 5, 16)
    plain = NETS["attention"][0]().attention.eval()
    torch.testing.assert_close(attention(h, h, h)[0], plain(2 * h, 2 * h, 2 * h)[0])
    torch.testing.assert_close(attention(h, other, value=other)[0], plain(2 * h, 2 * other, 2 * other)[0])
    assert len(seen) == 3


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_the_fast_path_of_transformers_does_not_skip_dropout(executor):
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.3, batch_first=True)
            self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            padding = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
            padding[:, -1] = True
            return self.head(self.encoder(x, src_key_padding_mask=padding)).mean(1)

    x = torch.randn(3, 5, 8)
    for net in (Masked(), nn.Sequential(nn.Linear(8, 6), TransformerNet(dropout=0.3))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces that nested tensors are a prototype
            ens = multum.ensemble(net.eval(), McDropout(members=3), example=x)
        ens.executor = executor
        with torch.no_grad():
            out = ens(x)
        assert len(drawing(ens)) in (6, 3) and out.std(0).max() > 1e-3


# -- cost --------------------------------------------------------------------------------------------------------------


def test_what_precedes_the_first_dropout_is_computed_once():
    with torch.device("meta"):
        net, x = build("small-cnn"), torch.zeros(1, 3, 32, 32)
    single = multum.cost(net, example=x)
    cost = multum.cost(multum.ensemble(net, McDropout(members=5), example=x), example=x)
    stem = next(part.macs for part in single.parts if part.path == "conv1")
    assert cost.params == single.params and cost.macs == stem + 5 * (single.macs - stem)
    assert {part.path: part.times for part in cost.parts} == {"conv1": 1, "conv2": 5, "conv3": 5, "fc": 5}


def test_the_count_does_not_depend_on_the_device():
    x = torch.zeros(1, 3, 8, 8)
    for device in ("cpu", "meta"):
        net = build("wrn-10-1").to(device)
        ens = multum.ensemble(net, McDropout(members=3), example=x.to(device))
        trunk = {part.path for part in multum.cost(ens, example=x.to(device)).parts if part.times == 1}
        assert trunk == {"conv1", "layer1.0.bn1", "layer1.0.conv1"}


@pytest.mark.slow  # torch.compile; one fast test of it is in tests/test_ensemble.py
@pytest.mark.parametrize("training", [False, True])
def test_it_compiles(training):
    ens, x = made("mlp", members=3, rate=0.5)
    ens.train(training)
    eager, compiled = copy.deepcopy(ens), torch.compile(copy.deepcopy(ens), backend="aot_eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(x), eager(x))


def test_frozen_layers_are_dropped_before_as_any_other():
    net = build("small-cnn")
    net.conv2.requires_grad_(False)
    x = torch.randn(3, 3, 8, 8)
    ens = multum.ensemble(net, McDropout(), example=x).eval()
    assert list(drawing(ens)) == ["conv2", "conv3", "fc"] and not ens.network.conv2.weight.requires_grad
    multum.check(ens, x, verbose=False)


# -- refusals ----------------------------------------------------------------------------------------------------------


class Raw(nn.Module):
    """A module with a weight of its own beside other layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.weight = nn.Linear(4, 4), nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.relu(self.first(x)), self.weight)


def test_networks_without_a_place_for_dropout():
    x = torch.zeros(2, 4)
    with pytest.raises(RewriteError, match=r"there must be a second one; got none(.|\n)*put nn.Dropout"):
        multum.ensemble(nn.Sequential(nn.Linear(4, 3)), McDropout(), example=x)
    with pytest.raises(RewriteError, match=r"0: .*holds weights and other layers(.|\n)*put nn.Dropout"):
        multum.ensemble(nn.Sequential(Raw()), McDropout(), example=x)
    ens = multum.ensemble(nn.Sequential(Raw(), nn.Dropout(0.5)), McDropout(), example=x)
    assert list(drawing(ens)) == ["1"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"members": 0}, "members must be a whole number >= 1; got members=0"),
        ({"rate": 1}, "0 <= rate < 1; got rate=1. Havasi et al. use rate=0.1"),
        ({"rate": -0.1}, "got rate=-0.1"),
        ({"rate": float("nan")}, "got rate=nan"),
        ({"rate": "0.1"}, "got rate='0.1'"),
        ({"rate": False}, "got rate=False"),
    ],
)
def test_bad_fields(fields, message):
    with pytest.raises(ConfigError, match=message):
        McDropout(**fields)


def test_prediction_has_mutual_information():
    ens, x = made("small-cnn", rate=0.5)
    assert multum.predict(ens, x).mutual_information.gt(0).all()
    still = multum.ensemble(build("small-cnn"), McDropout(rate=0.0), example=x)
    assert multum.predict(still, x).mutual_information.abs().max() < 1e-5
    assert tree_map_only(Tensor, lambda t: t.shape, still.eval()(x)).numel() == 5 * 3 * 10
