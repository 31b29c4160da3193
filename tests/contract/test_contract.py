"""What every method promises on every network. A new method gets all of it by one row in METHODS."""

from __future__ import annotations

import copy
import functools
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

import multum
import networks
from multum import Deep, Ensemble, Packed, Single
from multum import methods as registry
from multum.executors import EXECUTORS, REFERENCE
from multum.models import build
from multum.rewrite.generated import Bank
from multum.thinning.subgroups import GroupedLinear

CLASSES = networks.CLASSES


@dataclass(frozen=True)
class Row:
    """A method's config, and where the contract has to look away."""

    config: Any
    adds: tuple[str, ...] = ()  # last names of the tensors that the method adds to the base network
    makes: tuple[str, ...] = ()  # last names of the tensors that the method computes, where it does, instead of keeping
    refuses: tuple[str, ...] = ()  # networks for which `multum.ensemble` must raise RewriteError
    rounds: bool = False  # the folded layer multiplies in another order, so a member is its row to rounding
    random: bool = False  # eval mode is random by nature: no two runs are compared
    after: Callable[[Ensemble], None] | None = None  # what stands for the training that members come from
    only: tuple[str, ...] = ()  # networks that suffice for a variant of a method; all if empty


def gather(ens: Ensemble) -> None:
    """A training run of a few steps into any direction, for methods whose members are places along it."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(ens.method.members + 1):
        with torch.no_grad():
            for p in ens.parameters():
                p.add_(0.1 * torch.randn(p.shape, generator=generator))
        ens.method.collect(ens)
    ens.method.conclude(ens)


FEW = ("mlp", "wrn-10-1", "densenet-like", "small-vit")
GENERATED = ("weight", "in_proj_weight")
MIXED = ("templates", "weight_coefficients", "weight_templates")
NARROW = ("stem*", "stage1*", "down*", "block[12].?.conv")  # fewer than ten channels: too few for a mask
METHODS = {
    "single": Row(Single()),
    "single-fresh": Row(Single(init="fresh"), only=FEW),
    "deep": Row(Deep(members=3)),
    "deep-pretrained": Row(Deep(members=2, init="pretrained"), only=FEW),
    "packed": Row(Packed(members=3, alpha=2)),
    "packed-grouped": Row(Packed(members=2, alpha=1.5, gamma=2, min_channels=1), only=FEW),
    "packed-pretrained": Row(Packed(members=2, alpha=1, init="pretrained"), only=FEW),
    "batch-ensemble": Row(multum.BatchEnsemble(members=3), adds=("r", "s"), rounds=True, refuses=("lstm",)),
    "batch-ensemble-own": Row(
        multum.BatchEnsemble(members=2, init="normal", norm="own", plain=("lstm*",)),
        adds=("r", "s"),
        rounds=True,
        only=(*FEW, "lstm"),
    ),
    "masksembles": Row(multum.Masksembles(members=3, plain=NARROW), adds=("mask",), rounds=True, refuses=("lstm",)),
    "masksembles-inputs": Row(
        multum.Masksembles(members=2, where="inputs", plain=("lstm*", *NARROW)),
        adds=("mask",),
        rounds=True,
        only=(*FEW, "lstm"),
    ),
    "mimo": Row(multum.Mimo(members=3), refuses=("lstm",)),
    "multihead": Row(multum.Multihead(members=3)),
    "tabm": Row(multum.TabM(members=3), adds=("r", "s"), rounds=True, refuses=("lstm",)),
    "tabm-mini": Row(
        multum.TabM(members=2, form="mini", start="normal", plain=("lstm*",)),
        adds=("r",),
        rounds=True,
        only=(*FEW, "lstm"),
    ),
    "tree-net": Row(multum.TreeNet(members=3)),
    "mc-dropout": Row(multum.McDropout(members=3), random=True),
    "mixture": Row(multum.Mixture(members=3), adds=MIXED, makes=GENERATED),
    "mixture-blob": Row(
        multum.Mixture(members=2, mode="blob", budget=2.0, templates=3), adds=MIXED, makes=GENERATED, only=FEW
    ),
    "snapshot": Row(multum.Snapshot(members=3), after=gather, only=(*FEW, "lstm")),
    "fast-geometric": Row(multum.FastGeometric(members=3), after=gather, only=FEW),
    "swag": Row(multum.Swag(members=3), after=gather, only=FEW),
    "hypernet": Row(
        multum.Hypernet(members=3, ablation="scratch"),
        adds=("templates", "weight_embedding"),
        makes=GENERATED,
        refuses=("lstm",),
    ),
}

BUILT_IN = set(METHODS)

# A method under development joins by naming its module: {name: (config, fields of its row)} gets the whole suite.
for _module in filter(None, os.environ.get("MULTUM_CONTRACT", "").split(",")):
    METHODS |= {name: Row(config, **fields) for name, (config, fields) in importlib.import_module(_module).ROWS.items()}


@dataclass(frozen=True)
class Net:
    """A builder with fixed weights, an example batch, and the task."""

    build: Callable[[], nn.Module]
    example: Callable[[], Any]
    task: str = "classification"
    loop_only: bool = False


def known(name: str, *shape: int, task: str = "classification", **keywords: Any) -> Net:
    """A network of multum's own."""

    def make() -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return build(name, **keywords)

    return Net(make, lambda: torch.randn(4, *shape, generator=torch.Generator().manual_seed(1)), task)


NETWORKS = {
    "mlp": known("mlp", 6, in_features=6, classes=CLASSES, hidden=(12, 10), dropout=0.5),
    "small-cnn": known("small-cnn", 3, 8, 8, classes=CLASSES),
    "wrn-10-1": known("wrn-10-1", 3, 8, 8, classes=CLASSES, variant="meliketoy"),  # with dropout
    "tabular-mlp": known(
        "tabular-mlp", 6, in_features=6, classes=CLASSES, hidden=(12, 10), dropout=0.5, bins=3, numbers=(0, 4)
    ),
    "regression": known("mlp", 6, in_features=6, classes=2, hidden=16, task="regression"),
    **{
        name: Net(*networks.ZOO[name], loop_only=name == "lstm")
        for name in ("small-vit", "convnext-like", "densenet-like", "token", "lstm", "attention", "transformer")
    },
}
EXACT = {"rtol": 0, "atol": 1e-12}


def make(method: str, network: str, seed: int | None) -> Ensemble:
    net, row = NETWORKS[network], METHODS[method]
    ens = multum.ensemble(net.build(), row.config, example=net.example(), task=net.task, seed=seed)
    if row.after is not None:
        row.after(ens)
    return ens


made = functools.cache(make)


def double(x: Any) -> Any:
    return tree_map_only(Tensor, lambda t: t.double() if t.is_floating_point() else t, x)


def tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def weighted(out: Tensor) -> Tensor:
    """A scalar to which every output contributes differently."""
    return (out * torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).view_as(out)).sum()


def run(network: nn.Module, x: Any) -> Tensor:
    return network(**x) if isinstance(x, dict) else network(*x) if isinstance(x, tuple) else network(x)


# Every method meets convolutions, norms and dropout, and every full one layer norms and attention, too; every network
# meets a few methods that rewrite it in different ways. `make test-slow` has the whole grid.
TELLING = ("wrn-10-1", "small-vit")
MEETS = {
    "mlp": ("batch-ensemble", "mimo"),
    "small-cnn": ("packed",),
    "tabular-mlp": ("deep", "packed"),
    "regression": ("mixture", "mc-dropout"),
    "convnext-like": ("packed", "hypernet"),
    "densenet-like": ("packed", "masksembles"),
    "token": ("mixture", "batch-ensemble"),
    "lstm": ("deep", "packed", "mixture", "batch-ensemble-own"),
    "attention": ("packed", "batch-ensemble", "masksembles", "hypernet"),
    "transformer": ("packed", "mixture"),
    "small-vit": ("packed-grouped", "batch-ensemble-own"),
}


def always(method: str, network: str) -> bool:
    if method not in BUILT_IN or method in MEETS.get(network, ()):
        return True
    return network in (TELLING[:1] if METHODS[method].only else TELLING)


PAIRS = [(method, network) for method, row in METHODS.items() for network in row.only or NETWORKS]
REFUSED = [(method, network) for method, network in PAIRS if network in METHODS[method].refuses]
CASES = [
    pytest.param(pair, marks=() if always(*pair) else pytest.mark.slow, id="-".join(pair))
    for pair in PAIRS
    if pair not in REFUSED
]


@pytest.fixture(params=CASES, scope="module")  # what is made for a case serves all of its tests before the next is made
def case(request) -> tuple[str, str]:
    return request.param


@pytest.fixture
def method(case) -> str:
    return case[0]


@pytest.fixture
def network(case) -> str:
    return case[1]


@pytest.fixture
def row(method) -> Row:
    return METHODS[method]


@pytest.fixture
def x(network) -> Any:
    return NETWORKS[network].example()


@pytest.fixture
def ens(method, network) -> Ensemble:
    """A fresh copy, in training mode."""
    return copy.deepcopy(made(method, network, 5))


@pytest.mark.parametrize(("method", "network"), REFUSED)
def test_networks_that_a_method_cannot_rewrite_are_refused(method, network):
    with pytest.raises(multum.errors.RewriteError):
        make(method, network, seed=5)


def test_every_registered_method_has_a_row():
    assert {type(row.config) for row in METHODS.values()} == set(registry.METHODS.values())


# -- shapes and executors ----------------------------------------------------------------------------------------------


def test_outputs_are_members_batch_outputs(ens, x, network):
    batch, outputs = tree_flatten(x)[0][0].shape[0], 2 if NETWORKS[network].task == "regression" else CLASSES
    for training in (True, False):
        out = ens.train(training)(x)
        assert out.shape == (ens.members, batch, outputs) == (ens.method.members, batch, outputs)
        assert out.isfinite().all()


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_executors_agree(ens, x, row, network, training):
    assert bool(ens.refusals) == (NETWORKS[network].loop_only and any(n.startswith("lstm.") for n in ens.own))
    if row.random:
        return
    traces: dict[str, dict[str, Tensor]] = {}
    # The reference cannot pool statistics, and says so: those that can are held to the first of them.
    pooling = [name for name in ens.executors if EXECUTORS[name].pools]
    for executor in pooling if training and ens.pooled else ens.executors:
        trial = copy.deepcopy(ens).double().train(training)
        trial.executor = executor
        out = trial(double(x))
        weighted(out).backward()
        gradients = {name: p.grad for name, p in trial.named_parameters()}
        traces[executor] = {"out": out, **gradients, **dict(trial.named_buffers())}
    reference = traces.pop(REFERENCE if REFERENCE in traces else pooling[0])
    for executor, trace in traces.items():
        assert trace.keys() == reference.keys(), executor
        for name, tensor in reference.items():
            where = f"{executor}, {name}: "
            torch.testing.assert_close(trace[name], tensor, rtol=1e-10, atol=1e-10, msg=lambda m, w=where: w + m)


def test_one_member_may_run_alone(ens, x, row):
    out = ens.eval()(x)
    for i in range(-1, ens.members if not row.random else -1):
        torch.testing.assert_close(ens(x, member=i), out[i], rtol=1e-4, atol=1e-5)
    assert ens(x, member=0).shape == out.shape[1:]
    with pytest.raises(multum.errors.ConfigError, match=f"0 to {ens.members - 1}; got member={ens.members}"):
        ens(x, member=ens.members)


def test_members_may_have_their_own_inputs(ens, x, row):
    rows = double(tree_map_only(Tensor, lambda t: t.expand(ens.members, *t.shape), x))
    expected = ens.double().eval()(double(x))
    for executor in ens.executors:
        ens.executor = executor
        out = ens(rows, per_member=True)
        if not row.random:
            torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)


# -- members -----------------------------------------------------------------------------------------------------------


def test_a_member_is_a_plain_network_and_one_row(ens, x, row, network):
    ens = ens.double().eval()
    out = ens(double(x))
    kinds = {type(m) for m in NETWORKS[network].build().modules()}
    for i in range(ens.members):
        one = ens.member(i)
        assert {type(m) for m in one.modules()} <= kinds
        assert all(not m.training for m in one.modules())
        if not row.random:
            torch.testing.assert_close(run(one, double(x)), out[i], **EXACT)


def test_a_member_shares_nothing_with_the_ensemble(ens, row):
    before = copy.deepcopy(ens.state_dict())
    one = ens.member(0)
    with torch.no_grad():
        for tensor in tensors(one).values():
            tensor.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in ens.state_dict().items())
    kept = {n: p.requires_grad for n, p in ens.named_parameters()}
    for name, p in one.named_parameters():
        assert kept.get(name, name.rpartition(".")[2] in row.makes) == p.requires_grad, name


def test_one_member_is_the_base_network(row, network):
    net = NETWORKS[network]
    base, x = net.build().double().eval(), double(net.example())
    if row.config.alone() is None:
        return
    one = multum.ensemble(base, row.config.alone(), example=x, task=net.task)
    assert one.members == 1 and not one.training
    if not row.random:
        torch.testing.assert_close(one(x)[0], run(base, x), **EXACT)
        torch.testing.assert_close(run(one.member(0), x), run(base, x), **EXACT)


# It proves again what the tests above prove, and that members are independent: attention and recurrence for methods
# that rewrite them, one network for every other.
INDEPENDENT = [("packed", "small-vit"), ("packed", "lstm"), ("mixture", "small-vit"), ("mixture", "lstm")]
INDEPENDENT += [(method, "attention") for method in ("batch-ensemble", "masksembles", "hypernet")]
HARDER = {method for method, _ in INDEPENDENT}


def checked(method: str, network: str) -> bool:
    return (method, network) in INDEPENDENT or (method not in HARDER and network == TELLING[0])


CHECKED = [case for case in CASES if case.marks or checked(*case.values[0])]


@pytest.mark.parametrize("case", CHECKED, indirect=True)
def test_the_checker_finds_nothing(ens, x):
    findings = multum.check(ens, x, verbose=False)
    assert len(findings) >= (4 if ens.members == 1 else 5 if not ens.own else 6 if ens.refusals else 8)


# -- tensors -----------------------------------------------------------------------------------------------------------


def test_own_and_shared_are_all_tensors(ens):
    everything = {n: t for n, t in tensors(ens).items() if n not in ens.numbers}
    assert set(ens.own) | set(ens.shared) == set(everything)
    assert not set(ens.own) & set(ens.shared)
    assert len(set(ens.own)) == len(ens.own)
    one = tensors(ens.single())
    for name in ens.own:
        assert everything[name].shape == (ens.members, *one[name].shape)
    for name in ens.shared:
        assert everything[name].shape == one[name].shape


def test_gradients_reach_every_trainable_tensor(ens, x):
    for executor in ens.executors:
        ens.zero_grad()
        ens.executor = executor
        weighted(ens.train()(x)).backward()
        for name, p in ens.named_parameters():
            if p.requires_grad:
                assert p.grad is not None and p.grad.isfinite().all(), name
                # A bias may be without effect (of attention's keys, of a convolution before a norm); a matrix is not.
                if name in ens.own and p.ndim > 2:
                    assert all(g.any() for g in p.grad), name


def test_state_dict_has_the_keys_of_the_base_network(ens, row, network):
    keys = [k for k in ens.state_dict() if k.rpartition(".")[2] not in row.adds]
    base = list(NETWORKS[network].build().state_dict())
    assert keys == [k for k in base if k in keys or k.rpartition(".")[2] not in row.makes]


def test_load_state_dict_carries_everything_over(ens, x, method, network, row):
    other = copy.deepcopy(ens).eval()
    with torch.no_grad():
        for tensor in other.state_dict().values():
            tensor.zero_()
    result = other.load_state_dict(ens.state_dict())
    assert not result.missing_keys and not result.unexpected_keys
    if not row.random:
        assert torch.equal(other(x), ens.eval()(x))


def test_declared_cost_is_counted_cost(ens, x):
    cost = multum.cost(ens, example=x)
    assert cost.params == sum(p.numel() for p in ens.parameters()) == sum(part.params for part in cost.parts)
    assert cost.macs == sum(part.macs for part in cost.parts) > 0
    assert cost.members == ens.members


def test_dtype_moves_every_tensor(ens, x, row):
    out = ens.eval()(x)
    ens.double()
    assert all(t.dtype == torch.float64 for t in tensors(ens).values() if t.dtype.is_floating_point)
    assert ens(double(x)).dtype == torch.float64
    if not row.random:
        torch.testing.assert_close(ens(double(x)).float(), out, rtol=1e-3, atol=1e-4)
    assert ens.float()(x).dtype == torch.float32


# -- being a module ----------------------------------------------------------------------------------------------------


def test_train_and_eval_reach_every_module(ens):
    for training in (False, True):
        assert ens.train(training) is ens
        assert all(m.training is training for m in (*ens.modules(), *ens.network.modules()))
    ens.eval()
    assert not ens.training and not ens.network.training


def test_hooks_fire(ens, x):
    leaves = [(n, m) for n, m in ens.named_modules() if all(isinstance(child, Bank) for child in m.children())]
    path, leaf = next((n, m) for n, m in leaves if n and list(m.parameters()) and not isinstance(m, Bank))
    calls: list[str] = []
    handles = [
        leaf.register_forward_hook(lambda *_: calls.append(path)),
        ens.register_forward_hook(lambda _, args, out: calls.append(f"ensemble {tuple(out.shape)}")),
        ens.register_forward_pre_hook(lambda *_: calls.append("before")),
    ]
    out = ens(x)
    assert calls[0] == "before" and calls[-1] == f"ensemble {tuple(out.shape)}"
    assert set(calls[1:-1]) == {path}
    for handle in handles:
        handle.remove()
    ens(x)
    assert calls.count("before") == 1


def test_a_deep_copy_is_another_ensemble_of_the_same_values(ens, x, row):
    other = copy.deepcopy(ens)
    assert torch.equal(other.train()(x), ens.train()(x))  # the dropout masks, too
    assert torch.equal(other(x), ens(x))
    assert {id(t) for t in tensors(other).values()}.isdisjoint(id(t) for t in tensors(ens).values())
    before = ens.eval()(x)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(1)
    if not row.random:
        assert torch.equal(ens(x), before)
        member = other.double().eval().member(-1)
        one, last = run(member, double(x)), other(double(x), member=-1)
        grouped = {path: m for path, m in other.network.named_modules() if isinstance(m, GroupedLinear)}
        for path, module in grouped.items():
            blocks = torch.block_diag(*module.weight[-1].chunk(module.groups))
            assert torch.equal(member.get_submodule(path).weight, blocks), path
        if ens.folded or row.rounds or grouped:  # sums of the same numbers in another order
            assert (one - last).abs().max() <= 1e-13 * last.abs().max()
        else:
            assert torch.equal(one, last)
    assert (other.members, other.method, other.own, other.task) == (ens.members, ens.method, ens.own, ens.task)


def test_predict(ens, x, network):
    if isinstance(x, tuple):
        return
    prediction = multum.predict(ens.train(), x)
    assert ens.training and ens.network.training
    batch = x.shape[0]
    if NETWORKS[network].task == "regression":
        assert prediction.mean.shape == prediction.variance.shape == (batch,)
    else:
        assert prediction.members.shape == (ens.members, batch, CLASSES)
        torch.testing.assert_close(prediction.probs.sum(1), torch.ones(batch))


def test_seeds_reproduce(ens, method, network, x, row):
    state = torch.get_rng_state()
    one, same = ens, make(method, network, 5)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), same.state_dict().values(), strict=True))
    draws = row.after is None and not row.random and getattr(row.config, "init", "fresh") == "fresh"
    if draws and network in FEW:
        other = make(method, network, 6)
        assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert torch.equal(one.train()(x), same.train()(x))


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_saved_ensemble_comes_back_bit_for_bit(ens, x, network, row, tmp_path):
    builder = None if hasattr(ens.network, "recipe") else NETWORKS[network].build
    ens.train()(x)  # moves statistics and generators
    multum.save(ens, tmp_path / "model.safetensors")
    again = multum.load(tmp_path / "model.safetensors", network=builder)
    assert again.training
    assert (again.members, again.method, again.own, again.task) == (ens.members, ens.method, ens.own, ens.task)
    assert again.state_dict().keys() == ens.state_dict().keys()
    assert all(torch.equal(tensor, ens.state_dict()[name]) for name, tensor in again.state_dict().items())
    assert torch.equal(again(x), ens(x))  # in training: the dropout masks go on where they were
    assert torch.equal(again.eval()(x), ens.eval()(x))
    one, other = again.member(0), ens.member(0)
    assert repr(one) == repr(other)
    if not row.random:
        assert torch.equal(run(one, x), run(other, x))


# -- members without multum, and a new method with one file ------------------------------------------------------------

WITHOUT = """
import sys
sys.modules["multum"] = None  # importing it is impossible
import torch
for folder in sys.argv[1:]:
    program = torch.export.load(f"{folder}/member.pt2").module()
    torch.save(program(torch.load(f"{folder}/x.pt")), f"{folder}/out.pt")
"""


@pytest.mark.slow  # that members have plain layers alone is tested above, that exports run alone in tests/exporting
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_exported_members_of_every_method_run_where_multum_is_not_installed(tmp_path):
    x, wanted = NETWORKS["mlp"].example(), {}
    for method in {type(row.config): method for method, row in METHODS.items()}.values():
        member = copy.deepcopy(made(method, "mlp", 5)).eval().member(-1).eval()
        folder = tmp_path / method
        folder.mkdir()
        with torch.no_grad():
            wanted[folder] = member(x)
            torch.export.save(torch.export.export(member, (x,)), folder / "member.pt2")
        torch.save(x, folder / "x.pt")
    done = subprocess.run([sys.executable, "-c", WITHOUT, *map(str, wanted)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for folder, out in wanted.items():
        torch.testing.assert_close(torch.load(folder / "out.pt"), out, rtol=1e-5, atol=1e-6, msg=folder.name)


NEW_METHOD = '''
"""Toy: the shared linear layers of a network behind a scaling that each member owns."""

from dataclasses import dataclass, replace

import torch
from torch import nn

from multum.methods import METHODS
from multum.methods.base import Method, Rewritten
from multum.rewrite.walker import Edit, layer


@layer
class Scaled:
    def adopt(self, network):
        spread = 0.0 if self.ones else 0.5
        like = {"device": self.weight.device, "dtype": self.weight.dtype}
        self.register_parameter("scale", nn.Parameter(1 + spread * torch.randn(self.in_features, **like)))

    def forward(self, x):
        return super().forward(x * self.scale)

    def fold(self):
        weight = (self.weight * self.scale).detach()
        self.__class__ = self.plain
        del self._parameters["scale"], self.__dict__["ones"]
        self.weight = nn.Parameter(weight)


@dataclass(frozen=True, kw_only=True)
class Toy(Method):
    ones: bool = False  # start from the base network

    def birth(self, network, example, builder):
        linear = [path for path, module in network.named_modules() if type(module) is nn.Linear]
        edits = [Edit(path, {"ones": self.ones}, "Scaled") for path in linear]
        return Rewritten(network, edits, owns=lambda name, tensor: name.endswith(".scale"))

    def alone(self):
        return replace(self, members=1, ones=True)


METHODS["toy"] = Toy
ROWS = {"toy": (Toy(members=3), {"adds": ("scale",), "rounds": True, "only": ("mlp", "small-vit")})}
'''


@pytest.mark.slow  # that it is known everywhere by one file and one line: tests/methods/test_registry.py
def test_a_new_method_is_one_file_and_gets_the_whole_suite(tmp_path):
    (tmp_path / "toy_method.py").write_text(NEW_METHOD)
    places = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", __file__, "-k", "toy-"],
        env={**os.environ, "PYTHONPATH": places, "MULTUM_CONTRACT": "toy_method"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    ran = re.search(r"(\d+) passed", done.stdout)
    dots = sum(line.split("[")[0].count(".") for line in done.stdout.splitlines() if line.rstrip().endswith("%]"))
    assert max(int(ran.group(1)) if ran else 0, dots) >= 2 * 20
