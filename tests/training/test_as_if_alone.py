"""Members trained as if alone: what the optimizers get, against autograd on the members one by one, in float64.

A step of plain SGD at rate 1 moves every weight by its gradient. What a member owns has its own gradient, whatever the
others do; what k members share has the mean of their k gradients; an l1 penalty counts once; clipping comes last.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multum
from multum.training.batches import stream

RECIPE: dict[str, Any] = {"optimizer": "sgd", "lr": 1.0, "momentum": 0.0, "weight_decay": 0.0, "schedule": "constant"}
RECIPE |= {"epochs": 1, "batch_size": 12, "precision": "64-true", "seed": 3}

METHODS: dict[str, multum.methods.Method] = {
    "packed": multum.Packed(members=3, alpha=2),
    "batchensemble": multum.BatchEnsemble(members=3, init="normal"),
    "masksembles": multum.Masksembles(members=3),
    "masksembles, split": multum.Masksembles(members=3, feed="split"),
    "mixture": multum.Mixture(members=3),
    "mixture, disjoint": multum.Mixture(members=3, budget=3.0, templates=2, disjoint=True),
    "multihead": multum.Multihead(members=3),
    "treenet": multum.TreeNet(members=3),
    "mimo": multum.Mimo(members=3, rho=0.5),
}


def data(n: int = 24) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 6, generator=g, dtype=torch.float64)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def made(method: multum.methods.Method) -> multum.Ensemble:
    torch.manual_seed(0)
    sizes = [(6, 12), (12, 12), (12, 12), (12, 3)]
    layers = [layer for size in sizes for layer in (nn.Linear(*size), nn.Tanh())][:-1]
    return multum.ensemble(nn.Sequential(*layers).double(), method, example=data()[0][:2], seed=1)


def trained(ens: multum.Ensemble) -> dict[str, nn.Parameter]:
    return {name: p for name, p in ens.named_parameters() if p.requires_grad}


def moved(ens: multum.Ensemble, rows: int, **fields: Any) -> dict[str, Tensor]:
    """What one move takes away from every weight."""
    before = {name: p.detach().clone() for name, p in trained(ens).items()}
    multum.fit(ens, data(rows), multum.Recipe(**{**RECIPE, **fields}), warn=False)
    return {name: before[name] - p.detach() for name, p in trained(ens).items()}


def gradients_by_member(ens: multum.Ensemble, batches: int) -> list[dict[str, Tensor]]:
    """Of the loss of each member on its own rows, on average over batches: every member's in its own backward."""
    x, y = data(12 * batches)
    named = trained(ens)
    total = [{name: torch.zeros_like(p) for name, p in named.items()} for _ in range(ens.members)]
    order = torch.randperm(len(x), generator=stream(3, "order", 0)).split(12)
    for number, rows in enumerate(order):
        batch = ens.method.batch(x[rows], y[rows], stream(3, "batch", 0, number))
        for m, sums in enumerate(total):
            if batch.per_member:
                outputs, wanted = ens.train()(batch.x, per_member=True)[m], batch.y[m]
            else:
                outputs, wanted = ens.train()(batch.x, member=m), batch.y
            found = torch.autograd.grad(F.cross_entropy(outputs, wanted), list(named.values()), allow_unused=True)
            for name, gradient in zip(named, found, strict=True):
                if gradient is not None:
                    sums[name] += gradient / batches
    return total


def expected(ens: multum.Ensemble, batches: int = 1, l1: float = 0.0, clip: float = 0.0) -> dict[str, Tensor]:
    """The gradients that the rule asks for."""
    by_member, undecayed = gradients_by_member(ens, batches), ens.method.undecayed(ens)
    wanted = {}
    for name, p in trained(ens).items():
        every = torch.stack([gradients[name] for gradients in by_member])
        if name in ens.own:
            mine = torch.arange(ens.members)
            wanted[name] = every[mine, mine]
            assert torch.equal(every.sum(0), wanted[name]), "a member's loss moves what another one owns"
        else:
            wanted[name] = every.sum(0) / sharers(ens.method, name, every)
        if l1 and name not in undecayed:
            wanted[name] = wanted[name] + l1 * p.detach().sign()
    return clipped(wanted, set(ens.own), ens.members, clip) if clip else wanted


def sharers(method: multum.methods.Method, name: str, every: Tensor) -> int | Tensor:
    """Members that use a shared tensor: those whose loss moves a template, or a row of Mimo's head; else all."""
    by_row = (every.reshape(*every.shape[:2], -1) != 0).any(2).sum(0)
    if name.endswith("bank.templates"):
        return by_row.clamp(min=1).view(-1, *(1,) * (every.ndim - 2))
    if isinstance(method, multum.Mimo) and name.startswith("6."):
        assert by_row.tolist() == [1] * 9
        return 1
    return len(every)


def clipped(gradients: dict[str, Tensor], own: set[str], members: int, largest: float) -> dict[str, Tensor]:
    def scale(parts: list[Tensor]) -> Tensor:
        return (largest / (torch.cat([part.flatten() for part in parts]).norm() + 1e-6)).clamp(max=1)

    shared = scale([g for n, g in gradients.items() if n not in own] or [torch.zeros(1)])
    mine = [[g[m] for n, g in gradients.items() if n in own] for m in range(members)]
    each = torch.stack([scale(parts or [torch.zeros(1)]) for parts in mine])
    return {n: g * (each.view(-1, *(1,) * (g.ndim - 1)) if n in own else shared) for n, g in gradients.items()}


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


SETTINGS: list[dict[str, Any]] = [{}, {"accumulate": 2}, {"l1": 0.01}, {"clip": 0.1}]
SETTINGS += [{"accumulate": 2, "l1": 0.01, "clip": 0.1}]


@pytest.mark.parametrize("fields", SETTINGS, ids=lambda fields: " ".join(fields) or "plain")
@pytest.mark.parametrize("name", METHODS)
def test_what_the_optimizers_get(name: str, fields: dict[str, Any]) -> None:
    ens = made(METHODS[name])
    batches = fields.get("accumulate", 1)
    wanted = expected(copy.deepcopy(ens), batches, fields.get("l1", 0.0), fields.get("clip", 0.0))
    assert_same(moved(ens, 12 * batches, **fields), wanted)


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_executors_agree(executor: str) -> None:
    ens = made(METHODS["mixture, disjoint"])
    ens.executor = executor
    assert_same(moved(ens, 12), expected(made(METHODS["mixture, disjoint"])))


def test_templates_of_a_few_members_see_the_mean_of_these() -> None:
    ens = made(METHODS["mixture, disjoint"])
    (counts,) = [c for c in ens.method.sharers(ens).values() if isinstance(c, Tensor)]
    assert 1 <= int(counts.min()) < int(counts.max()) <= 3


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("name", ["batchensemble", "mimo", "mixture, disjoint"])
def test_a_reduction_forces_the_plain_loss(name: str, reduction: str) -> None:
    ens = made(METHODS[name])
    by_member = gradients_by_member(copy.deepcopy(ens), 1)
    whole = {n: sum(gradients[n] for gradients in by_member) for n in by_member[0]}
    wanted = {n: g if reduction == "sum" else g / 3 for n, g in whole.items()}
    assert_same(moved(ens, 12, reduction=reduction), wanted)


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("l1", [0.0, 0.01])
def test_specialists_in_turn(nested: bool, l1: float) -> None:
    """3 members on 3 batches: what is shared moves by the mean of a turn of all; or at once, by the one of the step."""
    ens = made(multum.Hypernet(members=3, ablation="scratch", nested=nested))
    twin = copy.deepcopy(ens).train()
    multum.fit(ens, data(36), multum.Recipe(**RECIPE | {"lr": 0.1, "l1": l1}), warn=False)
    x, y = data(36)
    named, undecayed = dict(twin.named_parameters()), twin.method.undecayed(twin)
    pending = {name: torch.zeros_like(p) for name, p in named.items() if name not in twin.own}
    for step, rows in enumerate(torch.randperm(36, generator=stream(3, "order", 0)).split(12)):
        member = step if nested else twin.method.turn(twin, step, stream(3, "turn", step))
        value = F.cross_entropy(twin(x[rows], member=member), y[rows])
        found = torch.autograd.grad(value, list(named.values()))
        with torch.no_grad():
            for (name, p), gradient in zip(named.items(), found, strict=True):
                gradient = gradient + l1 * p.sign() * (name not in undecayed)
                if name in twin.own:
                    p[member] -= 0.1 * gradient[member]
                else:
                    pending[name] += gradient
            if not nested or step == 2:
                for name, total in pending.items():
                    named[name] -= 0.1 * total / (3 if nested else 1)
                    total.zero_()
    assert_same(dict(ens.named_parameters()), named)


def test_the_printed_loss_is_that_of_one_member_with_its_penalty() -> None:
    ens = made(METHODS["batchensemble"])
    undecayed, members = ens.method.undecayed(ens), ens.members
    x, y = data(12)
    with torch.no_grad():
        wanted = sum(F.cross_entropy(z, y) for z in ens.train()(x)) / members
        for name, p in ens.named_parameters():
            if name not in undecayed:
                wanted = wanted + 0.01 * p.abs().sum() / (members if name in ens.own else 1)
    (row,) = multum.fit(ens, data(12), multum.Recipe(**RECIPE, l1=0.01), warn=False)
    assert row["loss"] == pytest.approx(float(wanted), abs=1e-12)
