"""What users do with any module, for every method and executor: pickles and copies, mixed precision, checkpointed
blocks, memory formats, other devices. One network for each method runs always, the whole grid on request."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint

import multum
from contract import test_contract as contract
from contract.test_contract import METHODS, NETWORKS, Row, double, weighted
from multum import Ensemble

DEVICES = [name for name in ("cuda", "mps") if getattr(torch, name).is_available()]
# One row of each method with layers of its own always runs, on a network with convolutions, norms and dropout; members
# that are whole networks, however they come to be, are Deep's.
ALWAYS = ("deep", "packed", "batch-ensemble", "masksembles", "mimo", "tree-net", "mc-dropout", "mixture", "hypernet")
FAST = {*((method, "wrn-10-1") for method in ALWAYS), ("packed-grouped", "small-vit"), ("swag", "wrn-10-1")}
PAIRS = [(method, name) for method, row in METHODS.items() for name in row.only or NETWORKS if name not in row.refuses]
CASES = [pytest.param(pair, marks=() if pair in FAST else pytest.mark.slow, id="-".join(pair)) for pair in PAIRS]


@pytest.fixture(params=CASES)
def case(request) -> tuple[str, str]:
    return request.param


@pytest.fixture
def row(case) -> Row:
    return METHODS[case[0]]


@pytest.fixture
def x(case) -> Any:
    return NETWORKS[case[1]].example()


@pytest.fixture
def ens(case) -> Ensemble:
    """A fresh copy, in training mode."""
    return copy.deepcopy(contract.made(*case, 5))


def executors(ens: Ensemble, pooled: bool = True) -> list[str]:
    """Those that may be compared with each other; where norms pool members the reference cannot."""
    return [name for name in ens.executors if pooled or not ens.pooled or multum.executors.EXECUTORS[name].pools]


# -- copies ------------------------------------------------------------------------------------------------------------


def saved(ens: Ensemble) -> Ensemble:
    file = io.BytesIO()
    torch.save(ens, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: dict[str, Callable[[Ensemble], Ensemble]] = {
    "pickle": lambda ens: pickle.loads(pickle.dumps(ens)),
    "deepcopy": copy.deepcopy,
    "torch.save": saved,
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_goes_on_as_the_original_does(ens, x, way):
    ens.train()(x)  # moves statistics and generators
    other = COPIES[way](ens)
    assert type(other) is Ensemble and other.training
    assert (other.members, other.method, other.own, other.task) == (ens.members, ens.method, ens.own, ens.task)
    assert {id(t) for t in other.parameters()}.isdisjoint(id(t) for t in ens.parameters())
    assert [type(m) for m in other.modules()] == [type(m) for m in ens.modules()]
    assert torch.equal(other(x), ens(x))  # the dropout masks, too
    assert torch.equal(other.eval()(x), ens.eval()(x))
    assert repr(other.member(-1)) == repr(ens.member(-1))


def test_a_shallow_copy_is_the_same_ensemble(ens, x, row):
    other = copy.copy(ens.eval())
    assert all(a is b for a, b in zip(other.parameters(), ens.parameters(), strict=True))
    if not row.random:
        assert torch.equal(other(x), ens(x))


# -- mixed precision ---------------------------------------------------------------------------------------------------

LOW = {"rtol": 0.1, "atol": 0.1}  # bfloat16 has 8 bits; a network of ten layers loses a few of them


def close(low: Tensor, full: Tensor) -> None:
    scale = full.detach().abs().max().clamp_min(1e-6)
    torch.testing.assert_close(low.float() / scale, full / scale, **LOW)


def test_a_training_step_in_mixed_precision(ens, x):
    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    for executor in executors(ens):
        full, low = copy.deepcopy(ens).train(), copy.deepcopy(ens).train()
        full.executor = low.executor = executor
        model, optimizer = fabric.setup(low, torch.optim.SGD([p for p in low.parameters() if p.requires_grad], lr=0.1))
        out, expected = model(x), full(x)
        close(out, expected)
        fabric.backward(weighted(out.float()))
        weighted(expected).backward()
        before = {name: p.detach().clone() for name, p in low.named_parameters()}
        assert all(p.dtype == torch.float32 for p in low.parameters())
        gradients = [torch.cat([p.grad.flatten() for p in e.parameters() if p.requires_grad]) for e in (low, full)]
        assert gradients[0].dtype == torch.float32 and gradients[0].isfinite().all()
        assert nn.functional.cosine_similarity(*gradients, dim=0) > 0.98
        optimizer.step()
        assert any(not torch.equal(p, before[name]) for name, p in low.named_parameters())


def test_prediction_under_autocast(ens, x, row):
    kinds = set()
    for executor in executors(ens):
        ens.eval().executor = executor
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            out = ens(x)
        kinds.update(product_types(ens, x))
        if not row.random:
            close(out, ens(x))
    assert kinds <= {torch.bfloat16}


def product_types(ens: Ensemble, x: Any) -> list[torch.dtype]:
    """The types in which plain weighted layers compute under autocast, in their order."""
    seen: list[torch.dtype] = []
    hooks = [
        module.register_forward_hook(lambda m, args, out: seen.append(out.dtype))
        for module in ens.modules()
        if type(module) in (nn.Conv2d, nn.Linear)
    ]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        ens(x)
    for hook in hooks:
        hook.remove()
    return seen


class Careful(nn.Module):
    """A network that computes one layer in full precision."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.full = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.low(x)
        with torch.autocast("cpu", enabled=False):
            return self.full(x.float()).mean((2, 3))


def test_autocast_may_be_off_for_a_part():
    x = torch.randn(2, 3, 5, 5)
    ens = multum.ensemble(Careful(), multum.Deep(members=2), example=x, seed=0)
    for executor in ens.executors:
        ens.executor = executor
        kinds = product_types(ens, x)
        assert set(kinds[::2]) == {torch.bfloat16} and set(kinds[1::2]) == {torch.float32}, executor


# -- checkpointed blocks -----------------------------------------------------------------------------------------------


def checkpointed(network: nn.Module, reentrant: bool) -> nn.Module:
    """The network with one block that runs again in backward: its second one, its only one, or all of it."""
    children = [m for m in network.children() if list(m.children()) and not isinstance(m, nn.MultiheadAttention)]
    block: Any = [network, *children[:2]][-1]
    kind = type(block)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(lambda *inner: kind.forward(self, *inner, **kwargs), *args, use_reentrant=reentrant)

    block.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    return network


@pytest.mark.parametrize("reentrant", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "reentrant"])
def test_a_checkpointed_block_changes_nothing(case, x, row, reentrant):
    check_that_checkpoints_change_nothing(case[1], row, x, reentrant)


@pytest.mark.parametrize("method", ["deep", "batch-ensemble", "mc-dropout", "mixture"])
def test_a_reentrant_checkpoint_changes_nothing(method):
    check_that_checkpoints_change_nothing("mlp", METHODS[method], NETWORKS["mlp"].example(), reentrant=True)


def check_that_checkpoints_change_nothing(network: str, row: Row, x: Any, reentrant: bool) -> None:
    net = NETWORKS[network]
    plain, again = (
        multum.ensemble(base, row.config, example=x, task=net.task, seed=5)
        for base in (net.build(), checkpointed(net.build(), reentrant))
    )
    for ens in (plain, again):
        if row.after is not None:
            row.after(ens)
    assert again.executors == plain.executors
    for executor in plain.executors:
        traces = []
        for ens in (plain, again):
            trial = copy.deepcopy(ens).double().train()
            trial.executor = executor
            for _ in range(2):
                out = trial(double(x))
                weighted(out).backward()
            gradients = {n: p.grad for n, p in trial.named_parameters() if p.requires_grad}
            traces.append({"out": out, **gradients, **dict(trial.named_buffers())})
        # A network with a block that runs again is run by vmap, where the plain one may have run side by side.
        bars = {"rtol": 1e-10, "atol": 1e-10} if executor == "grouped" else {"rtol": 0, "atol": 0}
        for n, tensor in traces[0].items():
            where = f"{executor}, {n}: "
            torch.testing.assert_close(traces[1][n], tensor, **bars, msg=lambda m, w=where: w + m)


# -- memory formats and devices ----------------------------------------------------------------------------------------


def test_channels_last(ens, x, row):
    if not isinstance(x, Tensor) or x.ndim != 4:
        pytest.skip("no images")
    for executor in executors(ens):
        for training in (True, False):
            plain, other = (copy.deepcopy(ens).double().train(training) for _ in range(2))
            plain.executor = other.executor = executor
            assert other.to(memory_format=torch.channels_last) is other
            for name, weight in other.named_parameters():
                every = weight.unbind(0) if name in other.own else [weight]
                assert all(w.is_contiguous(memory_format=torch.channels_last) for w in every if w.ndim == 4), name
            out = other(x.double().to(memory_format=torch.channels_last))
            torch.testing.assert_close(out, plain(x.double()), rtol=1e-9, atol=1e-9)
            if training:
                weighted(out).backward()


@pytest.mark.skipif(not DEVICES, reason="no device but the CPU")
@pytest.mark.parametrize("device", DEVICES or ["none"])
def test_another_device(ens, x, row, device):
    there = tree_map_only(Tensor, lambda t: t.to(device), x)
    expected = ens.eval()(x)
    ens.to(device)
    for executor in ens.executors:
        ens.executor = executor
        out = ens.eval()(there)
        assert out.device.type == device
        if not row.random:
            torch.testing.assert_close(out.cpu(), expected, rtol=1e-3, atol=1e-3)
        weighted(ens.train()(there).cpu()).backward()
        with torch.autocast(device, torch.float16 if device == "mps" else torch.bfloat16):
            assert ens(there).isfinite().all()
