"""Members that step apart: nested SGD, one specialist at a time, and what must not move."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import multum
from multum.building import assembled
from multum.training.batches import stream
from multum.training.devices import Place, open_fabric
from multum.training.optimizers import Optimizers
from multum.training.run import Run
from nested import nested_cycle

SGD = multum.Recipe(optimizer="sgd", lr=0.1, momentum=0.0, weight_decay=0.0, schedule="constant", precision="64-true")
SUM = replace(SGD, reduction="sum")  # as the hypernetwork paper moves what members share


class Product(nn.Module):
    """theta * e * x: the toy of METHODS 3.5."""

    def __init__(self) -> None:
        super().__init__()
        self.theta, self.e = nn.Parameter(torch.ones(1).double()), nn.Parameter(torch.ones(1).double())

    def forward(self, x: Tensor) -> Tensor:
        return self.theta * self.e * x


def toy(embeddings: tuple[float, ...] = (1.0, 2.0, -1.0)) -> multum.Ensemble:
    net = Product()
    net.e = nn.Parameter(torch.tensor(embeddings, dtype=torch.float64).view(-1, 1))
    method = multum.Deep(members=len(embeddings))
    example = torch.ones(2, 1, dtype=torch.float64)
    return assembled(net, ["e"], len(embeddings), method, example=example, seeds=range(len(embeddings) + 1))


def optimizers(ens: multum.Ensemble, recipe: multum.Recipe = SUM, apart: bool = True) -> Optimizers:
    return Optimizers(ens, recipe, open_fabric(Place(), recipe.precision), apart=apart)


def backward(ens: multum.Ensemble, member: int | None, target: float) -> None:
    x = torch.ones(1, 1, dtype=torch.float64)
    (0.5 * (ens(x, member=member) - target) ** 2).sum().backward()


def test_the_toy_of_the_methods_page() -> None:
    ens = toy()
    moving = optimizers(ens)
    for i, target in enumerate((0.5, 1.0, 2.0)):
        backward(ens, i, target)
        moving.step(i, shared=i == 2)
    assert ens.network.theta.item() == pytest.approx(0.45, abs=1e-15)
    assert ens.network.e.flatten().tolist() == pytest.approx([0.95, 1.9, -0.7], abs=1e-15)
    reference = [torch.ones(1).double().requires_grad_()]
    own = [[torch.tensor([e]).double().requires_grad_()] for e in (1.0, 2.0, -1.0)]
    targets = (0.5, 1.0, 2.0)
    nested_cycle(lambda i: 0.5 * (reference[0] * own[i][0] - targets[i]).pow(2).sum(), reference, own, lr=0.1)
    assert torch.equal(reference[0], ens.network.theta)
    assert torch.equal(torch.stack([o[0] for o in own]), ens.network.e)


def test_one_member_nested_is_plain_sgd() -> None:
    nested, plain = toy((1.5,)), toy((1.5,))
    a, b = optimizers(nested), optimizers(plain, apart=False)
    for target in (0.5, 1.0, 2.0, -1.0):
        backward(nested, 0, target)
        a.step(0, shared=True)
        backward(plain, None, target)
        b.step(None)
    assert torch.equal(nested.network.theta, plain.network.theta) and torch.equal(nested.network.e, plain.network.e)


def test_identical_members_and_one_minibatch_move_what_they_share_by_their_number() -> None:
    ens, one = toy((1.5, 1.5, 1.5, 1.5)), toy((1.5,))
    moving = optimizers(ens)
    for i in range(4):
        backward(ens, i, 0.5)
        moving.step(i, shared=i == 3)
    backward(one, None, 0.5)
    optimizers(one, apart=False).step(None)
    moved = (ens.network.theta - 1).item()
    assert moved == pytest.approx(4 * (one.network.theta - 1).item(), rel=1e-12)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_members_that_do_not_step_stay_as_they_are(optimizer: str) -> None:
    """To the bit, with decay and momentum under way; and the one that steps does so as if it were alone."""
    recipe = replace(SGD, optimizer=optimizer, momentum=0.9, weight_decay=0.1)
    ens = toy()
    moving = optimizers(ens, recipe)
    for target in (0.5, 1.0):
        backward(ens, None, target)
        moving.step(None)
    for i in (1, 1, 0, 2, 1):
        before = ens.network.e.detach().clone()
        states = [copy.deepcopy(o.state_dict()["state"]) for o in moving.own]
        backward(ens, i, 3.0)
        moving.step(i)
        for other in {0, 1, 2} - {i}:
            assert torch.equal(ens.network.e[other], before[other])
            for key, value in states[other][0].items():
                if isinstance(value, Tensor):
                    assert torch.equal(moving.own[other].state_dict()["state"][0][key], value)
        assert not torch.equal(ens.network.e[i], before[i])


def test_together_and_apart_give_the_same_numbers() -> None:
    recipe = replace(SGD, momentum=0.9, weight_decay=0.1)
    a, b = toy(), toy()
    moving, separate = optimizers(a, recipe, apart=False), optimizers(b, recipe)
    for target in (0.5, 1.0, 2.0, -1.0):
        for ens, o in ((a, moving), (b, separate)):
            backward(ens, None, target)
            o.step(None)
    assert torch.equal(a.network.e, b.network.e) and torch.equal(a.network.theta, b.network.theta)


@pytest.mark.parametrize("apart", [False, True])
def test_clipping_sees_gradients_without_the_scale_of_half_precision(apart: bool) -> None:
    from lightning_fabric import Fabric
    from lightning_fabric.plugins import MixedPrecision

    found = []
    for plugins in ([], [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))]):
        ens = toy()
        fabric = Fabric(accelerator="cpu", plugins=plugins)
        moving = Optimizers(ens, replace(SGD, clip=0.5), fabric, apart=apart)
        for target in (0.5, 3.0):
            x = torch.ones(1, 1, dtype=torch.float64)
            fabric.backward((0.5 * (ens(x) - target) ** 2).sum())
            scaled = ens.network.theta.grad.item()
            moving.step(None)
        found.append((scaled, ens.network.theta.item(), *ens.network.e.flatten().tolist()))
    plain, halves = found
    assert halves[0] == pytest.approx(65536 * plain[0]) and halves[1:] == pytest.approx(plain[1:], abs=1e-12)
    assert plain[1] != 1.0


# -- Hypernet through the loop -----------------------------------------------------------------------------------------


def data(n: int = 40) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 6, generator=g, dtype=torch.float64)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def hyper(seed: int = 1, **fields) -> multum.Ensemble:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    return multum.ensemble(net.double(), multum.Hypernet(**fields), example=data()[0][:2], seed=seed)


LATE = replace(SGD, epochs=4, batch_size=8, seed=2)  # 5 steps an epoch


@pytest.mark.parametrize("reduction", ["sum", None])
def test_nested_hypernet_is_algorithm_1_and_carries_cycles_over_epochs(reduction: str | None) -> None:
    """3 members, born after 2 of 4 epochs: 10 steps make 3 cycles, over the end of an epoch, and a rest of one.

    The paper sums the gradients of what is shared; members trained as if alone average them, also those of the rest.
    """
    ens = hyper(members=3, birth_epoch=2)
    multum.fit(ens, data(), replace(LATE, reduction=reduction))
    twin = hyper(members=3, birth_epoch=2)
    x, y = data()
    batches = [
        torch.randperm(40, generator=stream(2, "order", epoch))[8 * i : 8 * i + 8]
        for epoch in range(4)
        for i in range(5)
    ]
    twin.train()
    for rows in batches[:10]:
        twin.zero_grad()
        multum.loss(twin(x[rows]), y[rows], reduction="sum").backward()
        with torch.no_grad():
            for p in twin.parameters():
                p -= 0.1 * p.grad
    twin.method.give_birth(twin)
    names = dict(twin.named_parameters())
    shared = [p for n, p in names.items() if n not in set(twin.own)]
    stacked = {n: names[n] for n in twin.own if n in names}
    for start in range(10, 20, 3):
        own = [[p.detach()[i].clone().requires_grad_() for p in stacked.values()] for i in range(min(3, 20 - start))]

        def loss(i: int, start: int = start, own: list = own) -> Tensor:
            slices = dict(zip(stacked, own[i], strict=True))
            rows = batches[start + i]
            return nn.functional.cross_entropy(torch.func.functional_call(twin.network, slices, x[rows]), y[rows])

        nested_cycle(loss, shared, own, lr=0.1, averages=reduction is None)
        with torch.no_grad():
            for i, parts in enumerate(own):
                for p, part in zip(stacked.values(), parts, strict=True):
                    p[i] = part
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(ens.state_dict()[name], value, rtol=0, atol=1e-12, msg=name)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_one_specialist_steps_at_a_time(accumulate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All batches of a move train the same member; members take turns by the seed; others keep to the bit."""
    ens = hyper(members=3, birth_epoch=2, nested=False)
    moved: list[int | None] = []
    seen: list[int | None] = []
    step, turn = Optimizers.step, Run.turn

    def spy(self: Optimizers, member: int | None, *, shared: bool = True, turns: int = 1) -> None:
        before = {n: t.detach().clone() for n, t in ens.tensors(ens.own).items()}
        step(self, member, shared=shared, turns=turns)
        moved.append(member)
        assert shared and turns == 1
        for name, tensor in ens.tensors(ens.own).items():
            for other in range(ens.members):
                if member is not None and other != member:
                    assert torch.equal(tensor[other], before[name][other])

    def spied(self: Run) -> int | None:
        seen.append(turn(self))
        return seen[-1]

    monkeypatch.setattr(Optimizers, "step", spy)
    monkeypatch.setattr(Run, "turn", spied)
    recipe = replace(LATE, momentum=0.9, weight_decay=0.1, accumulate=accumulate)
    multum.fit(ens, data(), recipe)
    per_epoch = 5 if accumulate == 1 else 3
    assert len(moved) == 4 * per_epoch and len(seen) == 20
    assert moved[: 2 * per_epoch] == [None] * (2 * per_epoch)
    assert {0, 1, 2} >= set(moved[2 * per_epoch :]) and len(set(moved[2 * per_epoch :])) > 1
    if accumulate == 2:
        assert seen[10::5] == seen[11::5] and seen[12::5] == seen[13::5]
    first, moved[:] = list(moved), []
    ens = hyper(members=3, birth_epoch=2, nested=False)
    multum.fit(ens, data(), recipe)
    assert moved == first


def test_birth_starts_own_optimizers_empty_and_keeps_the_shared_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ens = hyper(members=3, birth_epoch=2)
    found = {}
    adopt = Run.adopt_members

    def spy(self: Run) -> None:
        before = copy.deepcopy(self.optimizers.shared.state_dict()["state"])
        adopt(self)
        found["own"] = [len(o.state_dict()["state"]) for o in self.optimizers.own]
        after = self.optimizers.shared.state_dict()["state"]
        found["kept"] = all(torch.equal(after[k]["momentum_buffer"], before[k]["momentum_buffer"]) for k in before)
        found["some"] = len(before)

    monkeypatch.setattr(Run, "adopt_members", spy)
    multum.fit(ens, data(), replace(LATE, momentum=0.9))
    assert found == {"own": [0, 0, 0], "kept": True, "some": found["some"]} and found["some"] > 0


def test_members_born_at_the_start_take_turns_too() -> None:
    ens = hyper(members=3, ablation="scratch")
    assert ens.members == 3
    history = multum.fit(ens, data(), LATE)
    assert history[-1]["loss"] < history[0]["loss"]


def test_weights_are_averaged_from_the_birth_on() -> None:
    """An average over the birth would mix one base with its members: it starts anew there."""
    ens = hyper(members=3, birth_epoch=2)
    multum.fit(ens, data(), replace(LATE, average_from=0.0))
    late = hyper(members=3, birth_epoch=2)
    multum.fit(late, data(), replace(LATE, average_from=0.5))
    for name, value in late.state_dict().items():
        assert torch.equal(ens.state_dict()[name], value)
