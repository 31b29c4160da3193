"""`grouped`: every rule against one member after another, the layout from stem to head, and what has no rule."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import multum
from contract import test_contract as contract
from multum.executors import EXECUTORS, REFERENCE, default
from multum.executors.rules import RULES, Rule
from multum.rewrite.norm import batch_norm

MEMBERS = 3
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def pools(function: Callable, ndim: int, *args: Any, **kwargs: Any) -> tuple[Callable, list[tuple[int, ...]]]:
    return lambda x: function(x, *args, **kwargs), [(2, 4, 6, 6, 6)[:ndim]]


def statistics(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.batch_norm(x, 0.1 * bias.detach(), 1 + weight.detach() ** 2, weight, bias)


def normed(x: Tensor, weight: Tensor, bias: Tensor, running: Tensor) -> Tensor:
    y, mean, var, _ = batch_norm(x, weight, bias, running, 1e-5)
    return y + (mean + var).detach().view(-1, 1)


def recurrent(x: Tensor, w_in: Tensor, w_hidden: Tensor) -> Tensor:
    start = x.new_zeros(1, x.shape[0], 4)
    return torch.gru(x, start, [w_in, w_hidden], False, 1, 0.0, False, False, True)[0]


conv = functools.partial(functools.partial, F.conv2d)
back = functools.partial(functools.partial, F.conv_transpose2d)
# A function of one member, and the shapes of its arguments.
CASES: dict[str, tuple[Callable, list[tuple[int, ...]]]] = {
    "conv1d": (F.conv1d, [(2, 4, 6), (5, 4, 3), (5,)]),
    "conv2d": (conv(stride=2, padding=1), [(2, 4, 6, 6), (5, 4, 3, 3), (5,)]),
    "conv2d without bias": (conv(dilation=2), [(2, 4, 6, 6), (5, 4, 3, 3)]),
    "conv2d in groups": (conv(padding="same", groups=2), [(2, 4, 6, 6), (6, 2, 3, 3), (6,)]),
    "conv2d depthwise": (conv(groups=4), [(2, 4, 6, 6), (4, 1, 3, 3), (4,)]),
    "conv3d": (F.conv3d, [(2, 2, 4, 4, 4), (3, 2, 3, 3, 3), (3,)]),
    "transposed": (back(stride=2, output_padding=1), [(2, 4, 3, 3), (4, 5, 3, 3), (5,)]),
    "transposed in groups": (back(groups=2, padding=1), [(2, 4, 3, 3), (4, 3, 3, 3), (6,)]),
    "norm, eval": (statistics, [(2, 4, 5), (4,), (4,)]),
    "norm of rows, eval": (statistics, [(6, 4), (4,), (4,)]),
    "norm, training": (normed, [(3, 4, 5), (4,), (4,), (4,)]),
    "group norm": (lambda x, w, b: F.group_norm(x, 2, w, b, 1e-3), [(2, 4, 5), (4,), (4,)]),
    "linear": (F.linear, [(2, 4), (5, 4), (5,)]),
    "linear of tokens": (F.linear, [(2, 3, 4), (5, 4), (5,)]),
    "linear without bias": (F.linear, [(2, 4), (5, 4)]),
    "mv": (torch.mv, [(5, 4), (4,)]),
    "attention": (F.scaled_dot_product_attention, [(2, 2, 5, 4), (2, 2, 6, 4), (2, 2, 6, 4)]),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        [(2, 2, 5, 4)] * 3,
    ),
    "masked attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(5, 5).tril(1).bool()),
        [(2, 2, 5, 4)] * 3,
    ),
    "concatenation": (lambda a, b: torch.cat([a, b], 1), [(2, 3, 4), (2, 5, 4)]),
    "concatenation from behind": (lambda a, b: torch.cat((a, b), dim=-1), [(2, 3), (2, 4)]),
    "concatenation of rows": (lambda a, b: torch.cat([a, b]), [(2, 3), (4, 3)]),
    "max_pool1d": pools(F.max_pool1d, 3, 2),
    "max_pool2d": pools(F.max_pool2d, 4, 3, stride=2, padding=1),
    "max_pool2d with indices": (lambda x: F.max_pool2d(x, 2, return_indices=True)[0], [(2, 4, 6, 6)]),
    "avg_pool2d": pools(F.avg_pool2d, 4, 2),
    "avg_pool3d": pools(F.avg_pool3d, 5, 2),
    "adaptive_avg_pool2d": pools(F.adaptive_avg_pool2d, 4, 1),
    "adaptive_max_pool2d": pools(F.adaptive_max_pool2d, 4, 2),
    "pixel_shuffle": pools(F.pixel_shuffle, 4, 2),
    "interpolate": pools(F.interpolate, 4, scale_factor=2, mode="bilinear"),
    "gru": (recurrent, [(2, 5, 3), (12, 3), (12, 4)]),
    "rrelu": (F.rrelu, [(2, 3)]),
}
# What a rule leaves to vmap, and is right all the same.
UNUSUAL: dict[str, tuple[Callable, list[tuple[int, ...]]]] = {
    "without a batch": (F.conv2d, [(4, 6, 6), (5, 4, 3, 3), (5,)]),
    "one vector": (F.linear, [(4,), (5, 4), (5,)]),
    "by name": (lambda x, w: F.conv2d(input=x, weight=w), [(2, 4, 6, 6), (5, 4, 3, 3)]),
    "numpy's names": (lambda a, b: torch.cat([a, b], axis=1), [(2, 3), (2, 4)]),
    "one matrix each": (torch.mv, [(5, 4), (4,)]),
    "a mask for every row": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.eye(5).double().expand(2, 2, 5, 5)),
        [(2, 2, 5, 4)] * 3,
    ),
}


def dims_of(shapes: list[tuple[int, ...]]) -> list[tuple[int | None, ...]]:
    """Where each argument may have the members: nowhere, in front, behind the batch, at the end; not all nowhere."""
    places = [[None, 0, 1] if len(shape) < 3 else [None, 0, 1, len(shape)] for shape in shapes]
    return [dims for dims in itertools.product(*places) if any(d is not None for d in dims)]


def draw(shapes: list[tuple[int, ...]], dims: tuple[int | None, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    full = [s if d is None else (*s[:d], MEMBERS, *s[d:]) for s, d in zip(shapes, dims, strict=True)]
    return [torch.randn(*s, dtype=torch.float64, generator=generator).requires_grad_() for s in full]


def by_rules(function: Callable, tensors: list[Tensor], dims: tuple[int | None, ...]) -> Tensor:
    def one(*args: Tensor) -> Tensor:
        with EXECUTORS["grouped"].rules():  # type: ignore[attr-defined]
            return function(*args)

    return torch.func.vmap(one, in_dims=dims, randomness="different")(*tensors)


def by_members(function: Callable, tensors: list[Tensor], dims: tuple[int | None, ...]) -> Tensor:
    def member(i: int) -> list[Tensor]:
        # torch 2.13 computes wrong gradients of batch norm in eval mode from a vector that is not contiguous.
        return [t if d is None else t.select(d, i).contiguous() for t, d in zip(tensors, dims, strict=True)]

    return torch.stack([function(*member(i)) for i in range(MEMBERS)])


@pytest.fixture
def taken(monkeypatch) -> list[bool]:
    """For every call of an operation that has a rule: whether the rule took it."""
    seen: list[bool] = []
    for func, rule in RULES.items():

        def spy(level: Any, func: Any, *args: Any, rule: Rule = rule, **kwargs: Any) -> Any:
            out = rule.apply(level, func, *args, **kwargs)
            seen.append(out is not NotImplemented)
            return out

        monkeypatch.setitem(RULES, func, Rule(spy, rule.takes))
    return seen


def check_that_it_agrees(function: Callable, shapes: list[tuple[int, ...]], dims: tuple[int | None, ...]) -> None:
    results = []
    for run in (by_members, by_rules):
        torch.manual_seed(0)
        tensors = draw(shapes, dims)
        out = run(function, tensors, dims)
        contract.weighted(out).backward()
        results.append([out, *(t.grad for t in tensors)])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, **EXACT, msg=lambda m: f"members at {dims}: {m}")


@pytest.mark.parametrize("name", CASES)
def test_a_rule_gives_what_the_members_give(name, taken):
    function, shapes = CASES[name]
    for dims in dims_of(shapes):
        if function is not normed or dims[3] is not None:  # shared statistics are pooled: see below
            check_that_it_agrees(function, shapes, dims)
    assert any(taken) or name == "max_pool2d with indices"


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_call_is_left_to_vmap(name, taken):
    function, shapes = UNUSUAL[name]
    dims = (0,) * len(shapes)
    check_that_it_agrees(function, shapes, dims)
    assert not any(taken)


def test_statistics_of_a_norm_that_members_share_are_those_of_all_rows(taken):
    x, weight, bias = draw([(3, 4, 5), (4,), (4,)], (1, None, None))
    out = by_rules(lambda x: batch_norm(x, weight, bias, weight, 1e-5)[0], [x], (1,))
    pooled = F.batch_norm(x.transpose(0, 1).flatten(0, 1), None, None, weight, bias, True)
    torch.testing.assert_close(out, pooled.unflatten(0, (MEMBERS, 3)), **EXACT)
    assert taken == [True]


# -- layout ------------------------------------------------------------------------------------------------------------


class Copies(TorchDispatchMode):
    """Counts the copies of activations."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        copies = (torch.ops.aten.clone, torch.ops.aten.copy_, torch.ops.aten._to_copy)
        self.count += func.overloadpacket in copies and args[0].ndim >= 4
        return func(*args, **(kwargs or {}))


def copies(ens: multum.Ensemble, x: Tensor, executor: str) -> int:
    ens.executor = executor
    with torch.no_grad():
        ens(x)  # the first call proves how it may run
        with Copies() as seen:
            ens(x)
    return seen.count


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("network", ["small-cnn", "wrn-10-1", "densenet-like"])
@pytest.mark.parametrize("method", ["deep", "packed", "batch-ensemble", "mixture"])
def test_nothing_is_copied_from_stem_to_head(method, network, training):
    ens, x = contract.made(method, network, 5), contract.NETWORKS[network].example()
    ens = copy.deepcopy(ens).train(training)
    spread = method == "mixture" and network == "wrn-10-1"  # own norms behind a stem that is shared
    assert copies(ens, x, "grouped") == spread
    if network != "wrn-10-1" and method == "packed":
        assert copies(ens, x, "vmap") > 0


def test_a_first_layer_on_a_common_input_is_one_wide_convolution(monkeypatch):
    seen: list[tuple[int, int]] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            if func is torch.ops.aten.convolution.default:
                seen.append((args[0].shape[1], args[8]))
            return func(*args, **(kwargs or {}))

    ens = contract.make("deep", "small-cnn", 5).eval()
    ens.executor = "grouped"
    with torch.no_grad():
        ens(contract.NETWORKS["small-cnn"].example())  # the first call proves that it may run so
        with Watch():
            ens(contract.NETWORKS["small-cnn"].example())
    assert seen[0] == (3, 1) and {groups for _, groups in seen[1:]} == {ens.members}


# -- as an executor ----------------------------------------------------------------------------------------------------


def test_it_is_no_default_yet():
    settings = itertools.product(("cpu", "cuda"), (True, False), (True, False))
    assert "grouped" not in {default(*s, refused=r) for s in settings for r in ((), ("vmap",))}


FAST = [(method, "wrn-10-1") for method in ("deep", "packed", "batch-ensemble-own", "masksembles", "mixture")]
FAST += [("tree-net", "wrn-10-1"), ("multihead", "mlp"), ("deep", "lstm"), ("packed", "small-vit")]
PAIRS = [
    (method, network)
    for method, row in contract.METHODS.items()
    for network in row.only or contract.NETWORKS
    if network not in row.refuses and not row.random
]


@pytest.mark.parametrize(
    "pair", [pytest.param(p, marks=() if p in FAST else pytest.mark.slow, id="-".join(p)) for p in PAIRS]
)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_inputs_of_each_member(pair, training):
    ens, x = contract.made(*pair, 5), contract.double(contract.NETWORKS[pair[1]].example())
    scales = torch.linspace(0.5, 1.5, ens.members, dtype=torch.float64)

    def rows(t: Tensor) -> Tensor:
        return torch.stack([t * s if t.is_floating_point() else t.roll(i, 0) for i, s in enumerate(scales)])

    traces = {}
    # A norm of the trunk, too, pools the members where each of them has an input.
    norms = [name for name in ens.shared if name.endswith("running_mean")]
    for executor in set(ens.executors) - set(ens.layout.refusals_per_member):
        if training and norms and not EXECUTORS[executor].pools:
            continue
        trial = copy.deepcopy(ens).double().train(training)
        trial.executor = executor
        out = trial(tree_map_only(Tensor, rows, x), per_member=True)
        contract.weighted(out).backward()
        gradients = {name: p.grad for name, p in trial.named_parameters()}
        traces[executor] = {"out": out, **gradients, **dict(trial.named_buffers())}
    for name, tensor in traces[REFERENCE if REFERENCE in traces else "vmap"].items():
        torch.testing.assert_close(traces["grouped"][name], tensor, **EXACT, msg=lambda m, n=name: f"{n}: {m}")


class Windows(nn.Module):
    """A network with a vmap of its own, over windows of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        kernels = torch.stack([self.conv.weight, 2 * self.conv.weight])
        windows = torch.stack([x[..., :5], x[..., 3:]])
        each = torch.func.vmap(lambda w, k: F.conv2d(w, k, self.conv.bias).mean((2, 3)))(windows, kernels)
        slope = torch.func.grad(lambda w: F.conv2d(x, w).square().mean())(self.conv.weight)
        return self.head(each.sum(0)) + slope.mean()


def test_a_network_may_run_a_vmap_and_a_gradient_of_its_own():
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    ens = multum.ensemble(Windows().double(), multum.Deep(members=3), example=x, seed=0).eval()
    assert "grouped" in ens.executors
    outputs = []
    for executor in (REFERENCE, "grouped"):
        ens.executor = executor
        outputs.append(ens(x))
    torch.testing.assert_close(*outputs, **EXACT)


def test_an_example_without_a_batch_norm_is_right_in_float32():
    """The bars of single precision, on the three kinds of weights: own, shared, mixed."""
    x = torch.randn(4, 1, 8, 8)
    for method in (multum.Packed(members=4, alpha=2), multum.BatchEnsemble(members=3), multum.Mixture(members=3)):
        ens = multum.ensemble(multum.models.build("small-cnn", classes=10, in_channels=1), method, example=x).eval()
        outputs = []
        for executor in ("grouped", REFERENCE):
            ens.executor = executor
            outputs.append(ens(x))
        torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-5)


def test_the_whole_ensemble_may_be_mapped():
    layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.Flatten(), nn.Linear(16, 5))
    xs = torch.randn(2, 3, 3, 4, 4, dtype=torch.float64)
    ens = multum.ensemble(nn.Sequential(*layers).double(), multum.Deep(members=2), example=xs[0], seed=0).train()
    outputs = []
    for executor in (REFERENCE, "grouped"):
        ens.executor = executor
        with torch.no_grad():
            outputs.append(torch.func.vmap(ens)(xs))
    torch.testing.assert_close(*outputs, **EXACT)
