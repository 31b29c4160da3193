"""What the loop trains is what the methods promise: each fast or joint way against a plain one, in float64."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multum
from grids import grid
from multum.training import run as run_module
from multum.training.averaging import Average, refresh_norms
from multum.training.batches import stream

DOUBLE = multum.Recipe(
    epochs=4,
    batch_size=13,
    optimizer="sgd",
    lr=0.1,
    momentum=0.9,
    weight_decay=5e-4,
    order="same",
    precision="64-true",
    seed=3,
)  # 64 rows: 5 steps an epoch, 20 in all, the last of each epoch smaller


def images(n: int = 64, classes: int = 3) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    y = torch.randint(classes, (n,), generator=g)
    x = torch.randn(n, 2, 6, 6, generator=g, dtype=torch.float64)
    return x + y.view(-1, 1, 1, 1) * 0.5, y


def cnn(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(1)
    # A bias before a batch norm has no gradient but rounding, which Adam would blow up to its full rate.
    layers = [nn.Conv2d(2, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 3, bias=False)]
    layers += [nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *([nn.Dropout(dropout)] if dropout else []), nn.Linear(12, 3)).double()


def made(method: multum.methods.Method, net: nn.Module | None = None, **kwargs) -> multum.Ensemble:
    return multum.ensemble(net or cnn(**kwargs), method, example=images()[0][:4], seed=5)


def assert_same(a: nn.Module, b: nn.Module, atol: float = 1e-12) -> None:
    found, wanted = a.state_dict(), b.state_dict()
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.1), ("adamw", 0.01)])
def test_packed_is_thin_networks_trained_alone(optimizer: str, lr: float) -> None:
    """By multum, and by torch's own optimizer in a loop."""
    recipe = replace(DOUBLE, optimizer=optimizer, lr=lr, schedule="constant")
    ens, summed = made(multum.Packed(members=3, alpha=2)), made(multum.Packed(members=3, alpha=2))
    thin = [ens.member(i) for i in range(3)]
    multum.fit(ens, images(), recipe)
    multum.fit(summed, images(), replace(recipe, reduction="sum"))
    assert all(torch.equal(a, b) for a, b in zip(ens.parameters(), summed.parameters(), strict=True))
    for i, net in enumerate(thin):
        alone = made(multum.Single(), net)
        history = multum.fit(alone, images(), recipe)
        assert len(history) == 4
        assert_same(ens.member(i), alone.member(0))
        _train_by_hand(net, recipe)
        assert_same(ens.member(i), net)


def _train_by_hand(net: nn.Module, recipe: multum.Recipe) -> None:
    x, y = images()
    rule = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    if recipe.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(net.parameters(), momentum=0.9, nesterov=True, **rule)
    else:
        optimizer = torch.optim.AdamW(net.parameters(), **rule)
    net.train()
    for epoch in range(recipe.epochs):
        for rows in torch.randperm(64, generator=stream(3, "order", epoch)).split(recipe.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()


def test_the_mean_over_members_is_another_training() -> None:
    ens, other = made(multum.Packed(members=3, alpha=2)), made(multum.Packed(members=3, alpha=2))
    multum.fit(ens, images(), DOUBLE)
    multum.fit(other, images(), replace(DOUBLE, reduction="mean"))
    # The paper's mean over members is another training: a third of the gradient, all of the decay.
    assert (other.state_dict()["0.weight"] - ens.state_dict()["0.weight"]).abs().max() > 1e-3


ORDERED = [(order, optimizer) for order in ("same", "own") for optimizer in ("sgd", "adamw", "lamb")]


@pytest.mark.parametrize(
    ("order", "optimizer"), grid(ORDERED, always=[("same", "sgd"), ("own", "adamw"), ("own", "lamb")])
)
def test_deep_stacked_is_deep_sequential(order: str, optimizer: str) -> None:
    recipe = replace(DOUBLE, order=order, optimizer=optimizer, lr=0.05, epochs=3, clip=0.7 if order == "own" else 0.0)
    together, one_by_one = made(multum.Deep(members=3), dropout=0.3), made(multum.Deep(members=3), dropout=0.3)
    first = multum.fit(together, images(), recipe)
    rows = multum.fit(one_by_one, images(), replace(recipe, sequential=True))
    assert_same(together, one_by_one)
    assert [row["member"] for row in rows] == [m for m in range(3) for _ in range(3)]
    assert first[-1]["accuracy"] == pytest.approx(sum(rows[3 * m + 2]["accuracy"] for m in range(3)) / 3)
    weights = together.state_dict()["0.weight"]
    assert (weights[0] - weights[1]).abs().max() > 1e-2


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_members_one_after_another_are_members_together_under_either_reduction(reduction: str) -> None:
    recipe = replace(DOUBLE, order="own", reduction=reduction, l1=1e-3, accumulate=2)
    together, one_by_one = made(multum.Deep(members=3)), made(multum.Deep(members=3))
    first = multum.fit(together, images(), recipe)
    rows = multum.fit(one_by_one, images(), replace(recipe, sequential=True))
    assert_same(together, one_by_one)
    if reduction == "mean":  # and each member's own loss is in the log
        assert first[0]["loss"] < 2 * rows[0]["loss"]


def test_own_order_with_every_augmentation_is_the_same_stacked_and_sequential() -> None:
    recipe = replace(
        DOUBLE, order="own", epochs=2, crop=1, flip=True, cutout=2, mixup=0.4, cutmix=0.7, label_smoothing=0.1
    )
    together, one_by_one = made(multum.Deep(members=3)), made(multum.Deep(members=3))
    multum.fit(together, images(), recipe)
    multum.fit(one_by_one, images(), replace(recipe, sequential=True))
    assert_same(together, one_by_one)


@pytest.mark.parametrize("sequential", [False, True])
def test_averages_and_norms_are_the_same_stacked_and_sequential(sequential: bool) -> None:
    """Also: the average is the arithmetic mean of the weights after each epoch behind `average_from`."""
    recipe = replace(DOUBLE, average_from=0.5, sequential=sequential)
    seen: list[Tensor] = []
    ens = made(multum.Deep(members=2))
    add = Average.add

    def spy(self: Average, weights: dict[str, Tensor]) -> None:
        seen.append(weights["0.weight"].detach().clone())
        add(self, weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Average, "add", spy)
        multum.fit(ens, images(), recipe)
    found = ens.state_dict()["0.weight"]
    if sequential:
        wanted = torch.stack([torch.stack(seen[2 * m : 2 * m + 2]).mean(0) for m in range(2)])
    else:
        assert len(seen) == 2
        wanted = torch.stack(seen).mean(0)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-15)
    for i in range(2):  # the norms know the averaged weights, not those they trained with
        mean, var = statistics(ens.member(i)[0](images()[0]))
        torch.testing.assert_close(ens.member(i)[1].running_mean, mean, rtol=0, atol=1e-12)
        torch.testing.assert_close(ens.member(i)[1].running_var, var, rtol=0, atol=1e-12)
    other = made(multum.Deep(members=2))
    multum.fit(other, images(), replace(recipe, sequential=not sequential))
    assert_same(ens, other)


def test_an_average_is_the_arithmetic_mean() -> None:
    values = torch.randn(40, 5, dtype=torch.float64)
    average = Average()
    for v in values:
        average.add({"w": v})
    torch.testing.assert_close(average.means["w"], values.mean(0), rtol=0, atol=1e-15)
    assert average.count == 40


def test_averaging_constant_weights_changes_nothing() -> None:
    ens = made(multum.Deep(members=2))
    before = copy.deepcopy(ens.state_dict())
    multum.fit(ens, images(), replace(DOUBLE, lr=0.0, average_from=0.0))
    for name, p in ens.named_parameters():
        assert torch.equal(p, before[name])


def statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    flat = x.transpose(0, 1).flatten(1)
    return flat.mean(1), flat.var(1)


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_refreshed_norms_hold_the_statistics_of_the_data_set(executor: str) -> None:
    """METHODS 3.8: exact for one norm layer, per member, whatever the batches; 64 rows in 3 unequal ones."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)).double()
    ens = made(multum.Deep(members=3), net)
    ens.executor = executor
    x = images()[0]
    refresh_norms(ens, [x[:30], x[30:35], x[35:]])
    for i in range(3):
        member = ens.member(i)
        mean, var = statistics(member[0](x))
        torch.testing.assert_close(member[1].running_mean, mean, rtol=0, atol=1e-12)
        torch.testing.assert_close(member[1].running_var, var, rtol=0, atol=1e-12)
    assert ens.executor == executor and ens.training and all(m.training for m in ens.modules())
    assert ens.network[1].momentum == 0.1


def test_refreshed_norms_that_members_share_pool_all_members() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 3)).double()
    ens = made(multum.BatchEnsemble(members=3, init="normal"), net)
    x = images()[0]
    refresh_norms(ens, [x[:40], x[40:]])
    outputs = torch.cat([ens.member(i)[0](x) for i in range(3)])
    mean, var = statistics(outputs)
    torch.testing.assert_close(ens.network[1].running_mean, mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(ens.network[1].running_var, var, rtol=0, atol=1e-12)


def test_swag_recomputes_the_statistics_of_every_sample() -> None:
    ens = made(multum.Swag(members=3, start=0.5, scale=0.5))
    multum.fit(ens, images(), replace(DOUBLE, lr=0.05))
    assert ens.members == 3 and not ens.training
    x = images()[0]
    for i in range(3):
        member = ens.member(i)
        mean, var = statistics(member[0](x))
        torch.testing.assert_close(member[1].running_mean, mean, rtol=0, atol=1e-10)
        torch.testing.assert_close(member[1].running_var, var, rtol=0, atol=1e-10)
    means = ens.state_dict()["1.running_mean"]
    assert (means[0] - means[1]).abs().max() > 1e-6


def test_snapshots_of_the_running_average_with_statistics_of_their_own() -> None:
    """METHODS 1.12: without cycles, where the recipe averages, a snapshot is the average at its epoch."""
    ens = made(multum.Snapshot(members=2, cycles=False, start=0.5))
    seen: list[Tensor] = []
    add = Average.add

    def spy(self: Average, weights: dict[str, Tensor]) -> None:
        seen.append(weights["0.weight"].detach().clone())
        add(self, weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Average, "add", spy)
        multum.fit(ens, images(), replace(DOUBLE, average_from=0.25))  # after epochs 2, 3, 4; snapshots at 3 and 4
    wanted = torch.cat([torch.stack(seen[:2]).mean(0), torch.stack(seen).mean(0)])
    torch.testing.assert_close(ens.state_dict()["0.weight"], wanted, rtol=0, atol=1e-14)
    for i in range(2):
        mean, _ = statistics(ens.member(i)[0](images()[0]))
        torch.testing.assert_close(ens.member(i)[1].running_mean, mean, rtol=0, atol=1e-12)
    raw = made(multum.Snapshot(members=2, cycles=False, start=0.5))
    multum.fit(raw, images(), DOUBLE)
    torch.testing.assert_close(raw.state_dict()["0.weight"], torch.cat(seen[1:]), rtol=0, atol=0)


def test_members_that_train_alone_are_kept_at_their_own_best(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, seen = {0: iter([2.0, 1.0, 3.0]), 1: iter([0.5, 2.0, 3.0])}, []

    def scored(ensemble: multum.Ensemble, data: multum.Data, by: str, place: object, member: int) -> float:
        seen.append({n: t[member].clone() for n, t in ensemble.state_dict().items()})
        return next(scores[member])

    monkeypatch.setattr(run_module, "held_out_score", scored)
    ens = made(multum.Deep(members=2))
    multum.fit(ens, images(), replace(DOUBLE, epochs=3, sequential=True, keep="best", validation=0.3))
    for name, value in ens.state_dict().items():
        assert torch.equal(value[0], seen[1][name]) and torch.equal(value[1], seen[3][name])


def test_accumulated_batches_are_one_larger_batch() -> None:
    x, y = images(60)
    torch.manual_seed(1)
    net = nn.Sequential(nn.Flatten(), nn.Linear(72, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    small, large = made(multum.Deep(members=2), net), made(multum.Deep(members=2), net)
    # 60 rows: 5 small batches an epoch, moves of 2, 2 and 1; against 3 large ones, the last half as large.
    recipe = replace(DOUBLE, batch_size=12, accumulate=2, schedule="constant")
    multum.fit(small, (x, y), recipe)
    multum.fit(large, (x, y), replace(recipe, batch_size=24, accumulate=1))
    assert_same(small, large)


def test_l1_adds_the_sum_of_absolute_weights_of_what_decays() -> None:
    ens = made(multum.BatchEnsemble(members=2))
    twin = copy.deepcopy(ens)
    x, y = images(13)
    recipe = replace(DOUBLE, epochs=1, l1=0.01, momentum=0.0, weight_decay=0.0, schedule="constant")
    multum.fit(ens, (x, y), replace(recipe, reduction="mean"))
    rows = torch.randperm(13, generator=stream(3, "order", 0))
    kept = twin.method.undecayed(twin)
    assert kept
    penalty = sum(p.abs().sum() for n, p in twin.named_parameters() if n not in kept)
    (multum.loss(twin.train()(x[rows]), y[rows], reduction="mean") + 0.01 * penalty).backward()
    for name, p in twin.named_parameters():
        torch.testing.assert_close(ens.state_dict()[name], p.detach() - 0.1 * p.grad, rtol=0, atol=1e-12)


STEP = replace(DOUBLE, epochs=1, batch_size=32, momentum=0.0, weight_decay=0.0, schedule="constant")  # one plain step


def test_label_smoothing_is_torchs() -> None:
    ens, twin = made(multum.Deep(members=2)), made(multum.Deep(members=2))
    x, y = images(32)
    multum.fit(ens, (x, y), replace(STEP, label_smoothing=0.3))
    rows = torch.randperm(32, generator=stream(3, "order", 0))
    sum(F.cross_entropy(o, y[rows], label_smoothing=0.3) for o in twin.train()(x[rows])).backward()
    for name, p in twin.named_parameters():
        torch.testing.assert_close(ens.state_dict()[name], p.detach() - 0.1 * p.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", [multum.Deep(members=3), multum.BatchEnsemble(members=3, init="normal")])
def test_gradients_are_clipped_per_member_and_what_is_shared_by_itself(method: multum.methods.Method) -> None:
    """By torch's own clip_grad_norm_ on each member's slices; one member's gradient is too large."""
    ens = made(method)
    twin = copy.deepcopy(ens)
    x, y = images(32)
    rows = torch.randperm(32, generator=stream(3, "order", 0))
    multum.loss(twin.train()(x[rows]), y[rows], reduction="sum").backward()
    method.average_shared(twin)
    own = [p for name, p in twin.named_parameters() if name in twin.own]
    shared = [p for name, p in twin.named_parameters() if name not in twin.own]
    norms = [float(nn.utils.clip_grad_norm_(_slices(own, i), math.inf)) for i in range(3)]
    largest = sorted(norms)[1]  # one member is clipped, one is at the edge, one is not
    for i in range(3):
        nn.utils.clip_grad_norm_(_slices(own, i), largest)
    if shared:
        assert nn.utils.clip_grad_norm_(shared, largest) > largest
    multum.fit(ens, (x, y), replace(STEP, clip=largest))
    for name, p in twin.named_parameters():
        torch.testing.assert_close(ens.state_dict()[name], p.detach() - 0.1 * p.grad, rtol=0, atol=1e-12)


def _slices(parameters: list[nn.Parameter], i: int) -> list[nn.Parameter]:
    found = [nn.Parameter(p.data[i]) for p in parameters]
    for part, p in zip(found, parameters, strict=True):
        part.grad = p.grad[i]
    return found


def test_ghost_batch_norm_normalises_chunks() -> None:
    ens, twin = made(multum.Deep(members=2)), made(multum.Deep(members=2))
    x, y = images(26)
    recipe = replace(DOUBLE, batch_size=26, epochs=1, ghost=10, momentum=0.0, weight_decay=0.0, schedule="constant")
    multum.fit(ens, (x, y), recipe)
    rows = torch.randperm(26, generator=stream(3, "order", 0))
    twin.train()
    halves = [twin(x[r]) for r in (rows[:13], rows[13:])]  # two chunks of at least 10
    multum.loss(torch.cat(halves, 1), y[rows], reduction="sum").backward()
    for name, p in twin.named_parameters():
        torch.testing.assert_close(ens.state_dict()[name], p.detach() - 0.1 * p.grad, rtol=0, atol=1e-12)
    for name, buffer in twin.named_buffers():
        if name in ens.state_dict():
            torch.testing.assert_close(ens.state_dict()[name], buffer, rtol=0, atol=1e-12)


def test_four_lines_of_ones_own_loop_do_the_same() -> None:
    """method.batch, ens(x), multum.loss, method.average_shared: a user's own loop against fit."""
    x, y = images(26)
    ens, twin = made(multum.Mimo(members=2, rho=0.5)), made(multum.Mimo(members=2, rho=0.5))
    recipe = replace(DOUBLE, epochs=2, batch_size=26, schedule="constant", nesterov=False)
    multum.fit(ens, (x, y), recipe)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    twin.train()
    for epoch in range(2):
        rows = torch.randperm(26, generator=stream(3, "order", epoch))
        batch = twin.method.batch(x[rows], y[rows], stream(3, "batch", epoch, 0))
        outputs = twin(batch.x, per_member=batch.per_member)
        loss = multum.loss(outputs, batch.y, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        twin.method.average_shared(twin)
        optimizer.step()
    assert_same(ens, twin)


def test_members_that_begin_alike_and_see_the_same_batches_stay_equal_to_the_bit_by_loop() -> None:
    """By `grouped` they need not: sums over all members' columns are vectorised, and rounded otherwise at the end."""
    torch.manual_seed(0)
    x, y = torch.randn(96, 20), torch.randint(10, (96,))
    network = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10))
    ens = multum.ensemble(network, multum.Deep(members=4, init="pretrained"), example=x[:2])
    ens.executor = "loop"
    begun = network[0].weight.detach().clone()
    multum.fit(ens, (x, y), multum.Recipe(epochs=5, batch_size=16, lr=0.01, order="same"), warn=False)
    first, *others = [torch.cat([p.flatten() for p in ens.member(m).parameters()]) for m in range(4)]
    assert not torch.equal(ens.member(0)[0].weight, begun)
    assert all(torch.equal(first, other) for other in others)
