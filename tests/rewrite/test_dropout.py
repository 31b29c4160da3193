"""multum's dropout: one generator per member, the same masks under every executor."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

import multum
import networks
from multum import Deep, Ensemble
from multum.building import assembled
from multum.network.copies import tensors_of
from multum.rewrite.dropout import DROPOUTS, Randomness, draw_mask, drop
from multum.rewrite.walker import install

EXACT = {"rtol": 1e-12, "atol": 1e-12}
X = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
MEMBERS = 3


def deep(seed: int = 0, p: float = 0.5) -> Ensemble:
    network = networks.DropoutNet(p=p).double()
    return multum.ensemble(network, Deep(members=MEMBERS), example=X, seed=seed).train()


def twins(ens: Ensemble) -> tuple[Ensemble, Ensemble]:
    pair = copy.deepcopy(ens), copy.deepcopy(ens)
    for one, executor in zip(pair, ("loop", "vmap"), strict=True):
        one.executor = executor
    return pair


def trunk(seed: int = 0) -> Ensemble:
    """Only the head is own: the convolution, its dropout and the hidden layer are one trunk."""
    network = networks.DropoutNet().double()
    own = ["head.weight", "head.bias"]
    first = tensors_of(network)
    generator = torch.Generator().manual_seed(seed)
    install(
        network,
        {n: torch.randn(MEMBERS, *first[n].shape, generator=generator, dtype=torch.float64) for n in own},
    )
    return assembled(network, own, MEMBERS, Deep(members=MEMBERS), example=X, seeds=range(10, 11 + MEMBERS)).train()


def masks_of(ens: Ensemble, path: str) -> list[Tensor]:
    """What a dropout layer let through in one step, by the executor `loop`: 1 where kept, 0 where dropped."""
    found: list[Tensor] = []

    def look(module: nn.Module, args: tuple, output: Tensor) -> None:
        found.append((output != 0).to(torch.int64))

    handle = ens.network.get_submodule(path).register_forward_hook(look)
    ens.executor = "loop"
    ens(X)
    handle.remove()
    return found


def layer(kind: type[nn.Module], p: float, member: int | None = 0, seeds: tuple[int, ...] = (5, 6, 7)) -> nn.Module:
    """One of multum's dropout layers on its own, in training."""
    made = kind(p)
    made.__class__ = DROPOUTS[kind]
    made.__dict__["randomness"] = Randomness(list(seeds))
    made.register_buffer("member", None if member is None else torch.tensor(member), persistent=False)
    return made.train()


# -- executors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [deep, trunk])
def test_executors_agree_in_training(make):
    loop, vmap = twins(make())
    for _ in range(3):
        outputs = []
        for ens in (loop, vmap):
            ens.zero_grad()
            out = ens(X)
            out.tanh().pow(2).sum().backward()
            outputs.append(out.detach())
        torch.testing.assert_close(*outputs, **EXACT)
        for (name, a), b in zip(loop.named_parameters(), vmap.parameters(), strict=True):
            assert a.grad is not None and b.grad is not None, name
            torch.testing.assert_close(a.grad, b.grad, **EXACT)


@pytest.mark.parametrize("make", [deep, trunk])
@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_every_step_draws_anew(make, executor):
    ens = make()
    ens.executor = executor
    first, second = ens(X), ens(X)
    assert all(not torch.equal(a, b) for a, b in zip(first, second, strict=True))
    ens.eval()
    assert torch.equal(ens(X), ens(X))


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_a_copy_continues_the_stream(executor):
    ens = deep()
    ens.executor = executor
    ens(X)
    twin = copy.deepcopy(ens)
    assert torch.equal(twin(X), ens(X)) and torch.equal(twin(X), ens(X))
    assert twin.randomness is not ens.randomness
    assert twin.network.drop.randomness is twin.network.drop2d.randomness is twin.randomness
    twin(X)  # a step of the copy leaves the original where it was
    again = copy.deepcopy(ens)
    assert torch.equal(again(X), ens(X))


def test_switching_the_executor_continues_the_stream():
    first, second = twins(deep())
    first(X), second(X)
    first.executor, second.executor = "vmap", "loop"
    torch.testing.assert_close(first(X), second(X), **EXACT)


def test_torch_s_own_generator_does_not_matter():
    results = []
    for seed in (1, 2):
        ens = deep()
        torch.manual_seed(seed)
        results.append(ens(X).detach())
        assert torch.initial_seed() == seed
    assert torch.equal(*results)


def test_the_seed_of_the_ensemble_matters():
    one, other = deep(), deep()
    other.randomness = Randomness([s + 1 for s in one.randomness.seeds])
    for module in other.network.modules():
        if hasattr(module, "randomness"):
            module.__dict__["randomness"] = other.randomness
    assert not torch.equal(one(X), other(X))


# -- whose masks -------------------------------------------------------------------------------------------------------


def test_members_draw_their_own_masks():
    for path in ("drop2d", "drop"):
        masks = masks_of(deep(), path)
        assert len(masks) == MEMBERS
        assert not any(torch.equal(masks[i], masks[j]) for i in range(MEMBERS) for j in range(i))


def test_members_with_equal_weights_differ_by_their_masks_alone():
    ens = multum.ensemble(networks.DropoutNet().double(), Deep(members=2, init="pretrained"), example=X, seed=0)
    out = ens.train()(X)
    assert not torch.allclose(out[0], out[1])
    out = ens.eval()(X)
    assert torch.equal(out[0], out[1])


def test_a_shared_trunk_has_one_mask():
    ens = trunk()
    assert ens.numbers == frozenset()
    for path in ("drop2d", "drop"):
        masks = masks_of(copy.deepcopy(ens), path)
        assert len(masks) == MEMBERS and all(torch.equal(m, masks[0]) for m in masks)
    calls = []
    ens.network.conv.register_forward_hook(lambda *_: calls.append(1))
    ens.executor = "vmap"
    ens(X)
    assert len(calls) == 1


def test_masks_behind_the_trunk_are_own():
    """A dropout layer whose input depends on the member draws for the member, one in the trunk for all."""
    network = networks.DropoutNet().double()
    own = ["hidden.weight", "hidden.bias", "head.weight", "head.bias"]
    first = tensors_of(network)
    install(network, {n: torch.stack([first[n].detach()] * MEMBERS) for n in own})
    ens = assembled(network, own, MEMBERS, Deep(members=MEMBERS), example=X, seeds=[1, 2, 3, 4]).train()
    assert ens.numbers == {"drop.member"}
    common, others = masks_of(copy.deepcopy(ens), "drop2d"), masks_of(copy.deepcopy(ens), "drop")
    assert all(torch.equal(m, common[0]) for m in common)
    assert not torch.equal(others[0], others[1])
    loop, vmap = twins(ens)
    for _ in range(2):
        torch.testing.assert_close(loop(X), vmap(X), **EXACT)


def test_a_member_alone_draws_from_its_own_generator():
    ens = deep()
    together = copy.deepcopy(ens)(X)
    for i in (2, 0, 1):
        torch.testing.assert_close(ens(X, member=i), together[i], **EXACT)


def test_a_plain_member_has_torch_s_own_dropout():
    member = deep().member(1)
    assert type(member.drop) is nn.Dropout and type(member.drop2d) is nn.Dropout2d
    assert not any("member" in name for name, _ in member.named_buffers())
    assert "randomness" not in member.drop.__dict__


# -- the layers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_what_is_kept_and_how_it_is_scaled(p):
    y = layer(nn.Dropout, p)(torch.ones(200, 500, dtype=torch.float64))
    assert set(y.unique().tolist()) == {0.0, 1 / (1 - p)}
    kept = (y != 0).double().mean().item()
    assert kept == pytest.approx(1 - p, abs=5 * (p * (1 - p) / y.numel()) ** 0.5)  # five standard deviations
    assert y.mean().item() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("kind", DROPOUTS)
def test_nothing_is_dropped_at_p_0_or_in_eval_mode(kind):
    x = torch.randn(2, 3, 4, 5, 6)
    made = layer(kind, 0.0)
    assert made(x) is x
    made.p = 0.7
    assert made.eval()(x) is x
    assert made.randomness.generators == {}  # no generator moves


@pytest.mark.parametrize("kind", DROPOUTS)
def test_everything_is_dropped_at_p_1(kind):
    x = torch.randn(2, 3, 4, 5, 6, requires_grad=True)
    y = layer(kind, 1.0)(x)
    assert torch.equal(y, torch.zeros_like(x))
    y.sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize(
    ("kind", "shape"), [(nn.Dropout1d, (30, 20, 7)), (nn.Dropout2d, (30, 20, 4, 5)), (nn.Dropout3d, (30, 20, 3, 2, 2))]
)
def test_whole_channels_are_dropped(kind, shape):
    y = layer(kind, 0.4)(torch.ones(shape, dtype=torch.float64)).flatten(2)
    assert torch.equal(y, y[..., :1].expand_as(y))
    first = y[..., 0]
    assert set(first.unique().tolist()) == {0.0, 1 / 0.6}
    assert (first != 0).double().mean().item() == pytest.approx(0.6, abs=0.1)
    assert first.std(0).min() > 0 and first.std(1).min() > 0  # rows and channels differ


@pytest.mark.parametrize("p", [0.2, 0.6])
@pytest.mark.parametrize("kind", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_keeps_mean_and_variance(kind, p):
    x = torch.randn(1000, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = layer(kind, p)(x)
    assert y.mean().item() == pytest.approx(0, abs=0.02)
    assert y.var().item() == pytest.approx(1, abs=0.02)
    # What is dropped takes one value, as torch has it.
    alpha = 1.7580993408473766
    a = ((1 - p) * (1 + p * alpha**2)) ** -0.5
    dropped = torch.isclose(y, torch.tensor(-a * alpha * (1 - p), dtype=y.dtype), rtol=0, atol=1e-12)
    assert dropped.double().mean().item() == pytest.approx(p, abs=0.01)
    torch.testing.assert_close(y[~dropped], a * x[~dropped] + a * alpha * p, **EXACT)


def test_alpha_dropout_drops_whole_features():
    y = layer(nn.FeatureAlphaDropout, 0.5)(torch.zeros(20, 10, 6, dtype=torch.float64))
    assert torch.equal(y, y[..., :1].expand_as(y)) and len(y.unique()) == 2


def test_masks_are_no_function_of_the_values():
    x = torch.randn(4, 5, requires_grad=True)
    one, other = layer(nn.Dropout, 0.5), layer(nn.Dropout, 0.5)
    y = one(x)
    assert torch.equal(y != 0, other(torch.ones_like(x)) != 0)
    y.sum().backward()
    assert torch.equal(x.grad, (y != 0).float() * 2)


def test_dtypes():
    for dtype in (torch.float16, torch.float32, torch.float64):
        assert layer(nn.Dropout, 0.3)(torch.ones(3, 4, dtype=dtype)).dtype is dtype


def test_on_meta_nothing_is_drawn():
    y = layer(nn.Dropout2d, 0.3)(torch.ones(3, 4, 5, 5, device="meta"))
    assert y.is_meta and y.shape == (3, 4, 5, 5)


@pytest.mark.parametrize("member", [0, 1, None])
def test_each_number_has_its_stream(member):
    x = torch.ones(40, 40)
    made = layer(nn.Dropout, 0.5, member)
    generator = torch.Generator().manual_seed((5, 6, 7)[-1 if member is None else member])
    for _ in range(2):
        expected = torch.empty(40, 40).bernoulli_(0.5, generator=generator)
        assert torch.equal(made(x), expected * 2)


# -- the generators ----------------------------------------------------------------------------------------------------


def test_generators_come_back_from_their_state():
    x = torch.ones(50)
    made = layer(nn.Dropout, 0.5, 1)
    made(x)
    state = made.randomness.state()
    assert state["cpu"].shape[0] == 3
    expected = made(x)
    other = layer(nn.Dropout, 0.5, 1, seeds=(0, 0, 0))
    other.randomness.load_state(state)
    assert torch.equal(other(x), expected)


def test_generators_can_be_pickled():
    made = layer(nn.Dropout, 0.5, 0)
    made(torch.ones(50))
    twin = layer(nn.Dropout, 0.5, 0)
    twin.__dict__["randomness"] = pickle.loads(pickle.dumps(made.randomness))
    assert torch.equal(twin(torch.ones(50)), made(torch.ones(50)))
    assert twin.randomness.handle != made.randomness.handle


def test_the_shared_generator_can_be_rewound():
    made = layer(nn.Dropout, 0.5, None)
    before = made.randomness.shared_state()  # no generator exists yet
    first = made(torch.ones(50))
    made.randomness.restore_shared(before)
    assert torch.equal(made(torch.ones(50)), first)
    before = made.randomness.shared_state()
    second = made(torch.ones(50))
    made.randomness.restore_shared(before)
    assert torch.equal(made(torch.ones(50)), second) and not torch.equal(first, second)


@pytest.mark.parametrize("member", [0, None])
def test_compiled(member):
    torch._dynamo.reset()
    x = torch.ones(30, 10)
    plain, twin = layer(nn.Dropout, 0.5, member), layer(nn.Dropout, 0.5, member)
    compiled = torch.compile(twin, backend="aot_eager")
    for _ in range(2):
        assert torch.equal(compiled(x), plain(x))


@pytest.mark.parametrize("quick", [False, True])
def test_masks_have_their_rate_and_follow_their_generator(quick):
    def draw(shape: tuple[int, ...], p: float, dtype: torch.dtype = torch.float32) -> Tensor:
        generator = torch.Generator().manual_seed(7)
        return draw_mask(torch.full(shape, torch.nan, dtype=dtype), p, generator, quick)

    mask = draw((1000, 333), 0.1)
    assert set(mask.unique().tolist()) == {0, 1} and torch.equal(mask, draw((1000, 333), 0.1))
    deviation = (0.1 * 0.9 / mask.numel()) ** 0.5
    assert abs(float(mask.mean()) - 0.9) < 4 * deviation
    pairs = (1 - mask[:, 1:]) * (1 - mask[:, :-1])  # neighbours are dropped independently
    assert abs(float(pairs.mean()) - 0.01) < 5 * (0.01 / pairs.numel()) ** 0.5
    assert (
        draw((3, 1), 1.0).sum() == 0
        and draw((5,), 1e-12, torch.float64).sum() == 5
        and draw((0, 4), 0.5).shape == (0, 4)
    )


@pytest.mark.parametrize("p", [1e-4, 0.01, 0.1, 1 / 3, 0.497, 0.5, 0.75, 0.9, 0.997, 1 - 1e-4])
def test_quick_masks_drop_at_their_rate_and_independently(p):
    mask = draw_mask(torch.empty(16, 64, 32, 32), p, torch.Generator().manual_seed(5), quick=True)
    sd = (p * (1 - p)) ** 0.5
    dropped = 1 - mask.permute(0, 2, 3, 1).flatten().double()
    halves = dropped.view(2, -1)
    for part in (dropped, *halves):
        assert abs(float(part.mean()) - p) < 4.5 * sd / len(part) ** 0.5
    first, second = (halves - p) / sd
    for shift in (0, 1):  # the two whose numbers overlap
        correlation = float((first.roll(-shift) * second).mean())
        assert abs(correlation) < 5 / len(first) ** 0.5


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 1001, 200_000])
@pytest.mark.parametrize("p", [1e-12, 0.1, 0.497, 0.5, 0.997, 1.0])
def test_what_is_dropped_in_one_pass_is_x_times_the_mask(p, count, flush):
    x = torch.randn(count)
    x[::3] = 0
    x[1::3] *= 1e-40  # denormal
    mask = draw_mask(torch.empty(count), p, torch.Generator().manual_seed(9), quick=True)
    out, kept = torch.full((count,), torch.nan), mask.bool()
    torch.set_flush_denormal(flush)
    try:
        drop(x, p, torch.Generator().manual_seed(9), out)
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(out[kept].view(torch.int32), x[kept].view(torch.int32))
    assert not out[~kept].view(torch.int32).any()


def test_quick_masks_are_the_same_in_every_precision():
    masks = [
        draw_mask(torch.empty(3, 5, 4, 2, dtype=dtype), 0.3, torch.Generator().manual_seed(1), quick=True)
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    ]
    assert all(torch.equal(mask.float(), masks[0]) for mask in masks)


def test_the_short_way_to_a_mask_draws_what_the_operator_draws(monkeypatch):
    short, long = deep(), deep()
    short.executor = long.executor = "loop"
    for _ in range(2):
        wanted = short(X)
        with monkeypatch.context() as patch:
            patch.setattr("multum.rewrite.dropout._unwatched", lambda x: False)
            drawn = long(X)
        assert torch.equal(wanted, drawn)
        for output in (wanted, drawn):
            output.square().sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(short.parameters(), long.parameters(), strict=True))
