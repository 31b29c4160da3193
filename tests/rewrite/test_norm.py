"""multum's batch norm against torch's, run by hand: outputs, gradients, running statistics; float64 to 1e-12."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

import multum
from multum.rewrite.norm import NORMS, batch_norm, is_norm, normalised

EXACT = {"rtol": 1e-12, "atol": 1e-12}
SHAPES = {nn.BatchNorm1d: (5,), nn.BatchNorm2d: (4, 3), nn.BatchNorm3d: (3, 2, 2)}
OPTIONS = {
    "plain": {},
    "mean of all batches": {"momentum": None},
    "no affine": {"affine": False},
    "no statistics": {"track_running_stats": False},
    "neither": {"affine": False, "track_running_stats": False},
    "momentum 1, large eps": {"momentum": 1.0, "eps": 0.3},
}
MEMBERS, BATCH, CHANNELS = 3, 4, 5


def norms(kind: type, seed: int = 0, **options) -> list[nn.Module]:
    """One plain norm per member, all different."""
    torch.manual_seed(seed)
    made = []
    for _ in range(MEMBERS):
        norm = kind(CHANNELS, **options).double()
        with torch.no_grad():
            for t in (*norm.parameters(), *norm.buffers()):
                if t.is_floating_point():
                    t.copy_(torch.rand_like(t) + 0.5)
        made.append(norm)
    return made


def ours(norm: nn.Module) -> nn.Module:
    norm = copy.deepcopy(norm)
    norm.__class__ = NORMS[type(norm)]
    return norm


def inputs(kind: type, members: bool = True, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (BATCH, CHANNELS, *SHAPES[kind])
    return 2 * torch.randn((MEMBERS, *shape) if members else shape, generator=generator, dtype=torch.float64) + 1


def stacked(made: list[nn.Module]) -> dict[str, Tensor]:
    names = [n for n, _ in (*made[0].named_parameters(), *made[0].named_buffers())]
    return {
        n: torch.stack(
            [m.get_parameter(n).detach() if n in dict(m.named_parameters()) else m.get_buffer(n) for m in made]
        )
        for n in names
    }


def weighted(y: Tensor) -> Tensor:
    return (y * torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)).sum() + y.pow(3).sum()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("kind", SHAPES)
def test_one_member_is_torch_s_own(kind, options):
    plain = norms(kind, **options)[0]
    norm = ours(plain)
    for step in range(3):
        x, twin = (inputs(kind, False, step).requires_grad_() for _ in range(2))
        y, expected = norm(x), plain(twin)
        torch.testing.assert_close(y, expected, **EXACT)
        weighted(y).backward()
        weighted(expected).backward()
        torch.testing.assert_close(x.grad, twin.grad, **EXACT)
    for a, b in zip((*norm.parameters(), *norm.buffers()), (*plain.parameters(), *plain.buffers()), strict=True):
        torch.testing.assert_close(a, b, **EXACT)
        assert a.grad is None or torch.allclose(a.grad, b.grad, **EXACT)
    if norm.track_running_stats:
        assert norm.num_batches_tracked == 3
    norm.eval(), plain.eval()
    x = inputs(kind, False, 9)
    torch.testing.assert_close(norm(x), plain(x), **EXACT)


@pytest.mark.parametrize("common", [False, True], ids=["inputs of their own", "one input"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("kind", SHAPES)
def test_own_statistics(kind, options, common):
    plain = norms(kind, **options)
    tensors = stacked(plain)
    if common and not tensors:
        pytest.skip("the members do not differ")
    params = {n: t.requires_grad_() for n, t in tensors.items() if n in ("weight", "bias")}
    norm = ours(plain[0])
    x = inputs(kind, not common).requires_grad_()
    twin = x.detach().clone().requires_grad_()
    for _ in range(2):
        y = vmap(lambda own, x: functional_call(norm, own, x), in_dims=(0, None if common else 0))(tensors, x)
        expected = torch.stack([m(twin if common else twin[i]) for i, m in enumerate(plain)])
        torch.testing.assert_close(y, expected, **EXACT)
    weighted(y).backward()
    weighted(expected).backward()
    torch.testing.assert_close(x.grad, twin.grad, **EXACT)
    for name, t in params.items():
        torch.testing.assert_close(t.grad, torch.stack([m.get_parameter(name).grad for m in plain]), **EXACT)
    for name in dict(norm.named_buffers()):
        torch.testing.assert_close(tensors[name], torch.stack([m.get_buffer(name) for m in plain]), **EXACT)


@pytest.mark.parametrize("affine", ["shared affine", "own affine", "no affine", "own bias"])
@pytest.mark.parametrize("options", [{}, {"momentum": None}], ids=["plain", "mean of all batches"])
@pytest.mark.parametrize("kind", SHAPES)
def test_shared_statistics_are_pooled_over_members(kind, options, affine):
    plain = norms(kind, affine=affine != "no affine", **options)
    norm, reference = ours(plain[0]), copy.deepcopy(plain[0])
    own = {"own affine": ("weight", "bias"), "own bias": ("bias",)}.get(affine, ())
    tensors = {n: t.requires_grad_() for n, t in stacked(plain).items() if n in own}
    x = inputs(kind).requires_grad_()
    twin = x.detach().clone().requires_grad_()
    by_hand = {n: t.detach().clone().requires_grad_() for n, t in tensors.items()}
    for _ in range(2):
        y = vmap(lambda own, x: functional_call(norm, own, x))(tensors, x)
        if own:
            # Torch's norm on all rows without affine, then each member's own.
            bare = copy.deepcopy(reference)
            bare.weight, bare.bias = None, None
            pooled = bare(twin.flatten(0, 1)).unflatten(0, (MEMBERS, BATCH))
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                reference.get_buffer(name).copy_(bare.get_buffer(name))
            ones = (1, CHANNELS, *(1 for _ in SHAPES[kind]))
            scale = by_hand["weight"].view(MEMBERS, *ones) if "weight" in own else reference.weight.view(1, *ones)
            expected = pooled * scale + by_hand["bias"].view(MEMBERS, *ones)
        else:
            expected = reference(twin.flatten(0, 1)).unflatten(0, (MEMBERS, BATCH))
        torch.testing.assert_close(y, expected, **EXACT)
    weighted(y).backward()
    weighted(expected).backward()
    torch.testing.assert_close(x.grad, twin.grad, **EXACT)
    for name, t in tensors.items():
        torch.testing.assert_close(t.grad, by_hand[name].grad, **EXACT)
    for name, p in norm.named_parameters():
        if name not in own:
            torch.testing.assert_close(p.grad, reference.get_parameter(name).grad, **EXACT)
    for name, b in norm.named_buffers():
        torch.testing.assert_close(b, reference.get_buffer(name), **EXACT)
    assert norm.num_batches_tracked == 2


def test_a_shared_norm_in_a_shared_trunk_runs_once():
    plain = norms(nn.BatchNorm2d)[0]
    norm, x = ours(plain), inputs(nn.BatchNorm2d, False)
    scale = torch.arange(1.0, MEMBERS + 1, dtype=torch.float64)
    y = vmap(lambda s: norm(x) * s)(scale)
    expected = plain(x)
    torch.testing.assert_close(y, torch.stack([expected * s for s in scale]), **EXACT)
    torch.testing.assert_close(norm.running_var, plain.running_var, **EXACT)
    assert norm.num_batches_tracked == 1


@pytest.mark.parametrize("kind", SHAPES)
def test_in_eval_mode_members_use_their_own_running_statistics(kind):
    plain = [m.eval() for m in norms(kind)]
    norm, x = ours(plain[0]).eval(), inputs(kind)
    y = vmap(lambda own, x: functional_call(norm, own, x))(stacked(plain), x)
    torch.testing.assert_close(y, torch.stack([m(x[i]) for i, m in enumerate(plain)]), **EXACT)


def test_one_value_per_channel_cannot_be_normalised():
    norm = ours(nn.BatchNorm1d(5))
    with pytest.raises(ValueError, match="more than one value per channel"):
        norm(torch.zeros(1, 5))
    assert norm.num_batches_tracked == 0
    assert norm.eval()(torch.zeros(1, 5)).shape == (1, 5)


def test_the_wrong_number_of_dimensions_is_torch_s_own_error():
    with pytest.raises(ValueError, match="expected 4D input"):
        ours(nn.BatchNorm2d(5))(torch.zeros(2, 5))


def test_second_derivatives():
    plain = norms(nn.BatchNorm2d)[0]
    norm = ours(plain)

    def curvature(layer: nn.Module) -> Tensor:
        x = inputs(nn.BatchNorm2d, False).requires_grad_()
        (g,) = torch.autograd.grad(weighted(layer(x)), x, create_graph=True)
        return torch.autograd.grad(g.pow(2).sum(), x)[0]

    torch.testing.assert_close(curvature(norm), curvature(plain), rtol=1e-9, atol=1e-9)


# -- the operator itself -----------------------------------------------------------------------------------------------


def test_the_operator_returns_the_statistics_of_the_batch():
    x = inputs(nn.BatchNorm2d, False)
    weight, bias = torch.rand(2, CHANNELS, dtype=torch.float64)
    y, mean, var, invstd = batch_norm(x, weight, bias, None, 1e-5)
    torch.testing.assert_close(mean, x.mean((0, 2, 3)), **EXACT)
    torch.testing.assert_close(var, x.var((0, 2, 3)), **EXACT)
    torch.testing.assert_close(invstd, (x.var((0, 2, 3), unbiased=False) + 1e-5).rsqrt(), **EXACT)
    expected = (x - mean.view(-1, 1, 1)) * (invstd * weight).view(-1, 1, 1) + bias.view(-1, 1, 1)
    torch.testing.assert_close(y, expected, **EXACT)


@pytest.mark.parametrize(
    "in_dims", [(0, 0, 0, 0), (2, 1, 0, 0), (0, None, None, 0), (0, None, None, None), (1, 0, 0, None)]
)
def test_the_operator_under_vmap(in_dims):
    """Members along any dimension of any argument; statistics are own exactly where the fourth argument is."""
    x_dim, w_dim, b_dim, r_dim = in_dims
    torch.manual_seed(0)
    x = torch.randn(MEMBERS, BATCH, CHANNELS, 6, dtype=torch.float64)
    weight, bias = torch.rand(2, MEMBERS, CHANNELS, dtype=torch.float64)
    running = torch.zeros(MEMBERS, CHANNELS, dtype=torch.float64)

    def given(t: Tensor, dim: int | None) -> Tensor:
        return t[0] if dim is None else t.movedim(0, dim)

    found = vmap(lambda *a: batch_norm(*a, 1e-5), in_dims=in_dims)(
        given(x, x_dim), given(weight, w_dim), given(bias, b_dim), given(running, r_dim)
    )
    over = (1, 3) if r_dim is not None else (0, 1, 3)
    mean, var = x.mean(over, keepdim=True), x.var(over, keepdim=True, unbiased=False)
    scale, shift = (t.view(MEMBERS, 1, CHANNELS, 1) if d is not None else t[0].view(1, 1, CHANNELS, 1)
                    for t, d in ((weight, w_dim), (bias, b_dim)))  # fmt: skip
    torch.testing.assert_close(found[0], (x - mean) * (var + 1e-5).rsqrt() * scale + shift, **EXACT)
    for stat, expected in ((found[1], mean), (found[2], x.var(over, keepdim=True))):
        torch.testing.assert_close(stat, expected.expand(MEMBERS, 1, CHANNELS, 1)[:, 0, :, 0], **EXACT)


def test_torch_s_own_checks_of_an_operator():
    x = torch.randn(4, 5, 3, 3, requires_grad=True)
    weight, bias = torch.rand(5, requires_grad=True), torch.rand(5, requires_grad=True)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(batch_norm, (x, weight, bias, None, 1e-5), test_utils=tests)
    torch.library.opcheck(batch_norm, (x, None, None, None, 1e-5), test_utils=tests)


@pytest.mark.parametrize("own", [True, False], ids=["own statistics", "shared statistics"])
def test_compiled(own):
    torch._dynamo.reset()
    plain = norms(nn.BatchNorm2d)
    names = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked") if own else ("weight", "bias")
    results = []
    for compiled in (False, True):
        norm = ours(plain[0])
        tensors = {n: t.clone() for n, t in stacked(plain).items() if n in names}
        for n in ("weight", "bias"):
            tensors[n].requires_grad_()
        x = inputs(nn.BatchNorm2d).requires_grad_()

        def run(tensors, x, norm=norm):
            return vmap(lambda own, x: functional_call(norm, own, x))(tensors, x)

        y = (torch.compile(run, backend="aot_eager") if compiled else run)(tensors, x)
        weighted(y).backward()
        buffers = [t for n, t in tensors.items() if n not in ("weight", "bias")] or list(norm.buffers())
        results.append([y.detach(), x.grad, tensors["weight"].grad, tensors["bias"].grad, *buffers])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, **EXACT)


# -- mixed precision ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("affine", [True, False])
def test_half_inputs_with_full_weights(affine):
    plain = nn.BatchNorm2d(CHANNELS, affine=affine)
    norm = ours(plain)
    x, twin = (inputs(nn.BatchNorm2d, False).half().requires_grad_() for _ in range(2))
    y, expected = norm(x), plain(twin)
    assert y.dtype is torch.float16 and torch.equal(y, expected)
    weighted(y.float()).backward()
    weighted(expected.float()).backward()
    assert x.grad.dtype is torch.float16
    torch.testing.assert_close(x.grad, twin.grad, rtol=1e-3, atol=1e-3)
    assert norm.running_mean.dtype is torch.float32
    for a, b in zip(norm.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(norm.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("own", [("weight", "bias"), ("weight", "bias", "running_mean", "running_var"), ()])
def test_members_keep_the_dtype_of_their_input(own):
    plain = [m.float() for m in norms(nn.BatchNorm2d)]
    norm, x = ours(plain[0]), inputs(nn.BatchNorm2d).half()
    tensors = {n: t for n, t in stacked(plain).items() if n in own}
    y = vmap(lambda own, x: functional_call(norm, own, x))(tensors, x)
    assert y.dtype is torch.float16
    exact = vmap(lambda own, x: functional_call(ours(plain[0]), own, x))(tensors, x.float())
    torch.testing.assert_close(y.float(), exact, rtol=2e-3, atol=2e-3)


def test_all_half():
    plain = nn.BatchNorm2d(CHANNELS).half()
    norm = ours(plain)
    x, twin = (inputs(nn.BatchNorm2d, False).half().requires_grad_() for _ in range(2))
    y, expected = norm(x), plain(twin)
    assert y.dtype is torch.float16
    torch.testing.assert_close(y, expected, rtol=2e-3, atol=2e-3)
    weighted(y.float()).backward()
    weighted(expected.float()).backward()
    torch.testing.assert_close(x.grad, twin.grad, rtol=1e-2, atol=5e-2)
    torch.testing.assert_close(norm.running_mean, plain.running_mean, rtol=2e-3, atol=2e-3)


# -- what a norm is ----------------------------------------------------------------------------------------------------


class RMSNorm(nn.Module):
    """As a user writes it."""

    def __init__(self, width: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * x.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt() * self.scale


class NormAct(nn.BatchNorm2d):
    """As in timm: a norm with an activation in it, which has no tensors of its own."""


class NormalisedLinear(nn.Linear):
    """No norm, for all its name: it has a matrix."""


def test_one_definition_of_a_norm():
    norms = (nn.BatchNorm1d(4), nn.InstanceNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.RMSNorm(4))
    assert all(is_norm(m) for m in (*norms, RMSNorm(4), NormAct(4)))
    assert not any(is_norm(m) for m in (nn.Linear(4, 4), nn.PReLU(4), NormalisedLinear(4, 4)))


@pytest.mark.parametrize(
    "method",
    [
        multum.BatchEnsemble(members=2, norm="own"),
        multum.Mixture(members=2),
        multum.Hypernet(members=2, ablation="scratch"),
    ],
    ids=lambda method: method.name,
)
def test_a_norm_of_the_users_own_is_own_wherever_norms_are(method):
    net = nn.Sequential(nn.Linear(6, 8), RMSNorm(8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    ens = multum.ensemble(net, method, example=torch.randn(4, 6), seed=0)
    assert {"1.scale", "3.weight", "3.bias"} <= set(ens.own)
    multum.check(ens, torch.randn(4, 6), verbose=False)


# -- statistics in two passes, as large images get them ----------------------------------------------------------------


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", SHAPES)
def test_two_passes_give_what_torch_gives(kind, affine, monkeypatch):
    monkeypatch.setattr(multum.rewrite.norm, "LARGE", 0)
    x = inputs(kind, members=False).requires_grad_()
    weight, bias = (torch.rand(CHANNELS, dtype=torch.float64, requires_grad=True) if affine else None for _ in range(2))
    leaves = [t for t in (x, weight, bias) if t is not None]
    assert multum.rewrite.norm.in_two_passes(x)
    y, mean, var, _ = normalised(x, weight, bias, 1e-5)
    running = torch.zeros(CHANNELS, dtype=torch.float64), torch.ones(CHANNELS, dtype=torch.float64)
    expected = F.batch_norm(x, *running, weight, bias, True, 1.0, 1e-5)
    torch.testing.assert_close((y, mean, var), (expected, *running), **EXACT)
    factors = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    gradients = [torch.autograd.grad((t * factors).sum(), leaves) for t in (y, expected)]
    torch.testing.assert_close(*gradients, **EXACT)
    assert torch.autograd.gradgradcheck(lambda *t: normalised(t[0], *(t[1:] or (None, None)), 1e-5)[0], leaves)


def test_two_passes_keep_their_digits_far_from_zero():
    x = 1e3 + torch.randn(8, 4, 32, 32, generator=torch.Generator().manual_seed(0))
    assert multum.rewrite.norm.in_two_passes(x) and not multum.rewrite.norm.in_two_passes(x[..., :2])
    var = normalised(x, None, None, 0.0)[2]
    torch.testing.assert_close(var, x.double().var((0, 2, 3)).float(), rtol=1e-5, atol=0)
