"""An optimized ensemble gives what the ensemble gives, for every method, network, way to run and backend."""

from __future__ import annotations

import copy
import sys
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_map_only

import multum
from contract import test_contract as contract
from multum.errors import ConfigError, ExampleError, ExecutorError
from multum.optimizing import layouts, optimize, winograd
from multum.optimizing.optimize import RUNS, Optimized
from multum.optimizing.spread import Draws
from multum.rewrite.dropout import Randomness

FAST = {("packed", "wrn-10-1"), ("batch-ensemble", "densenet-like"), ("masksembles", "mlp"), ("mimo", "mlp")}
FAST |= {("mixture", "mlp"), ("tree-net", "mlp"), ("mc-dropout", "mlp"), ("deep", "attention")}
CASES = [
    pytest.param(method, network, marks=() if (method, network) in FAST else pytest.mark.slow, id=f"{method}-{network}")
    for method, row in contract.METHODS.items()
    for network in row.only or contract.NETWORKS
    if network not in row.refuses
]


def more_rows(x: Any) -> Any:
    return tree_map_only(Tensor, lambda t: torch.cat([t, t[:2]]), x)


def moved(ens: multum.Ensemble) -> multum.Ensemble:
    """The same in eval mode, with norms that do something."""
    generator = torch.Generator().manual_seed(0)
    for module in ens.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.normal_(generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
    return ens.eval()


@pytest.mark.parametrize(("method", "network"), CASES)
def test_it_gives_the_ensembles_outputs(method, network):
    x = contract.NETWORKS[network].example()
    ens = moved(copy.deepcopy(contract.made(method, network, 5)))
    before = {name: t.clone() for name, t in ens.state_dict().items()}
    torch.testing.assert_close(multum.optimize(ens, x)(more_rows(x)), ens(more_rows(x)).detach(), rtol=1e-4, atol=1e-4)
    assert all(torch.equal(t, before[name]) for name, t in ens.state_dict().items())
    ens, x = ens.double(), contract.double(x)
    for run in RUNS:
        optimized, twin = multum.optimize(ens, x, run=run), copy.deepcopy(ens)
        for batch in (x, more_rows(x)):
            torch.testing.assert_close(optimized(batch), twin(batch).detach(), rtol=0, atol=1e-11)


# -- norms -------------------------------------------------------------------------------------------------------------


class Norms(nn.Module):
    """Shape: [B, 3, 6, 6] -> [B, 4]; with `twice` the convolution's output has two readers."""

    def __init__(self, twice: bool = False, statistics: bool = True):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3)
        self.norm = nn.BatchNorm2d(5, track_running_stats=statistics)
        self.head, self.twice = nn.Linear(5, 4), twice

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        y = F.relu(self.norm(x))
        return self.head((y + x if self.twice else y).mean((2, 3)))


class Residual(nn.Module):
    """Shape: [B, 3, 6, 6] -> [B, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(3, 3, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.other = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.first(x)))
        return self.head(F.relu(self.other(self.second(y)) + x).mean((2, 3)))


X = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(2))


def deep(network: nn.Module, x: Any = X) -> multum.Ensemble:
    return moved(multum.ensemble(network, multum.Deep(members=2), example=x))


def operators(optimized: Optimized) -> list[str]:
    return [node.target._schema.name for node in optimized.module.graph.nodes if hasattr(node.target, "_schema")]


def test_a_norm_goes_into_the_layer_before_it():
    ens = deep(Norms())
    assert "aten::batch_norm" not in operators(multum.optimize(ens))


def test_a_weight_that_is_computed_is_computed_once():
    network = Norms()
    nn.utils.parametrizations.weight_norm(network.conv)
    ens = deep(network)
    optimized = multum.optimize(ens)
    assert set(operators(optimized)) & {"aten::_weight_norm", "aten::batch_norm"} == set()
    torch.testing.assert_close(optimized(X), ens(X).detach())


@pytest.mark.parametrize("network", [Norms(twice=True), Norms(statistics=False)], ids=["read twice", "no statistics"])
def test_a_norm_stays_where_it_must(network):
    ens = deep(network)
    for run in RUNS:
        optimized = multum.optimize(ens, X, run=run)
        assert "aten::batch_norm" in operators(optimized)
        torch.testing.assert_close(optimized(X), ens(X).detach())


def test_a_network_with_hooks_runs_as_it_is(caplog):
    network, seen = Norms(), []
    network.conv.register_forward_hook(lambda module, args, out: seen.append(out.mean()))
    ens = deep(network)
    optimized = multum.optimize(ens)
    seen.clear()
    torch.testing.assert_close(optimized(X), ens(X).detach())
    assert len(seen) == 4 and torch.equal(seen[0], seen[2])
    with pytest.raises(ExecutorError, match="the network has hooks"):
        multum.optimize(ens, run="grouped")


@pytest.mark.parametrize(
    "layers",
    [
        (nn.BatchNorm1d(6), nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)),
        (nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8, affine=False), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3)),
        (nn.Unflatten(1, (2, 3)), nn.ConvTranspose1d(2, 4, 2, groups=2), nn.BatchNorm1d(4), nn.Flatten()),
        (nn.Unflatten(1, (2, 3)), nn.BatchNorm1d(2), nn.Conv1d(2, 4, 2), nn.BatchNorm1d(4), nn.Flatten()),
    ],
)
def test_norms_go_into_layers_of_every_kind(layers):
    x = torch.randn(5, 6, dtype=torch.float64)
    ens = deep(nn.Sequential(*layers).double(), x)
    for run in RUNS:
        optimized = multum.optimize(ens, x, run=run)
        assert "aten::batch_norm" not in operators(optimized)
        torch.testing.assert_close(optimized(x), ens(x).detach(), rtol=0, atol=1e-12)


def test_a_norm_before_a_padded_convolution_stays():
    x = torch.randn(5, 2, 4)
    ens = deep(nn.Sequential(nn.BatchNorm1d(2), nn.Conv1d(2, 4, 3, padding=1), nn.Flatten()), x)
    optimized = multum.optimize(ens, x)
    assert "aten::batch_norm" in operators(optimized)
    torch.testing.assert_close(optimized(x), ens(x).detach())


# -- side by side ------------------------------------------------------------------------------------------------------


def test_members_side_by_side_are_one_operator():
    ens = deep(Residual())
    convolutions = [operators(multum.optimize(ens, X, run=run)).count("aten::conv2d") for run in RUNS]
    assert convolutions == [2 * ens.members, 2]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("method", [multum.Multihead(members=3), multum.TreeNet(members=3)])
def test_the_trunk_is_computed_once(method, run):
    x = torch.randn(5, 3, 8, 8)
    ens = moved(multum.ensemble(multum.models.build("small-cnn", classes=4), method, example=x))
    convolutions = operators(multum.optimize(ens, x, run=run)).count("aten::conv2d")
    plain = sum(isinstance(m, nn.Conv2d) for m in ens.modules())
    assert (
        convolutions == plain if isinstance(method, multum.Multihead) or run == "grouped" else convolutions < 3 * plain
    )


# -- samples -----------------------------------------------------------------------------------------------------------


def test_samples_are_those_of_the_ensemble_call_after_call():
    x = contract.NETWORKS["wrn-10-1"].example()
    ens = moved(contract.make("mc-dropout", "wrn-10-1", 5))
    ens(x)
    optimized = multum.optimize(ens, x)
    first = optimized(x)
    torch.testing.assert_close(first, ens(x).detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(optimized(x[:2]), ens(x[:2]).detach(), rtol=1e-4, atol=1e-4)
    assert not torch.equal(optimized(x), first)


def test_what_precedes_the_first_dropout_has_one_row_per_example():
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3))
    ens = multum.ensemble(net, multum.McDropout(members=5), example=torch.zeros(2, 4)).eval()
    graph = multum.optimize(ens).module
    linear = [node for node in graph.graph.nodes if node.target is torch.ops.aten.linear.default]
    seen = layouts._Shapes(graph)
    seen.run(torch.randn(7, 4))
    assert [seen.of[node.name][0] for node in linear] == [7, 35]


@pytest.mark.parametrize("shape", [(5, 3, 4, 2), (6, 7), (2, 3, 4), (4,), (0, 3, 2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("channelwise", [False, True])
def test_what_samples_drop_is_what_their_masks_drop(shape, dtype, own, channelwise):
    def draws() -> Draws:
        return Draws(Randomness([3, 1, 4, 1]), members=3)

    x = torch.randn([3 * shape[0] if own else shape[0], *shape[1:]]).to(dtype)
    masks = draws()(x, 0.4, channelwise, own, False)
    expected = (x if own else torch.cat([x] * 3)) * masks
    formats = [torch.contiguous_format, torch.channels_last] if x.ndim == 4 else [torch.contiguous_format]
    for layout in formats:
        assert torch.equal(draws()(x.contiguous(memory_format=layout), 0.4, channelwise, own, True), expected)


class Dropping(nn.Module):
    """One dropout before a convolution, one before a linear layer, and one that is read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.a, self.b = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.Linear(4, 5), nn.Linear(5, 2)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.a(self.drop(self.conv(self.drop(x)).mean((2, 3)))))
        return self.b(x) + x.sum(1, keepdim=True)


def test_what_dropout_divides_by_goes_into_the_one_layer_that_reads_it():
    x = torch.randn(4, 3, 6, 6)
    ens = multum.ensemble(Dropping(), multum.McDropout(members=3), example=x).eval()
    optimized = multum.optimize(ens, x, run="loop")
    module = getattr(optimized.module, "module", optimized.module)
    divisions = [node for node in module.graph.nodes if node.target is torch.ops.aten.div.Tensor]
    assert len(divisions) == 1
    torch.testing.assert_close(optimized(x), ens(x).detach(), rtol=1e-5, atol=1e-5)


# -- in use ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_predictions_and_scores_are_the_same(task):
    x = torch.randn(30, 6)
    net = multum.models.build("mlp", in_features=6, classes=2, hidden=8)
    ens = multum.ensemble(net, multum.Packed(members=2, alpha=1), example=x, task=task).eval()
    if task == "regression":
        ens.state["noise"] = torch.full((2,), 0.3)
    optimized = multum.optimize(ens)
    theirs, ours = multum.predict(ens, x), multum.predict(optimized, x.numpy(), batch_size=7)
    names = (
        ("probs", "entropy", "mutual_information") if task == "classification" else ("mean", "variance", "epistemic")
    )
    for name in names:
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=1e-4, atol=1e-5)


def test_evaluate_takes_it():
    x, y = torch.randn(40, 6), torch.randint(3, (40,))
    ens = multum.ensemble(
        multum.models.build("mlp", in_features=6, classes=3, hidden=8), multum.Deep(members=2), example=x
    )
    ens.eval()
    theirs, ours = multum.evaluate(ens, (x, y)), multum.evaluate(multum.optimize(ens), (x, y))
    assert ours["accuracy"] == theirs["accuracy"] and abs(ours["nll"] - theirs["nll"]) < 1e-5


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, wide: Tensor, narrow: Tensor) -> Tensor:
        return self.a(wide) - self.b(narrow)


@pytest.mark.parametrize("run", RUNS)
def test_inputs_may_be_tuples_and_dicts(run):
    x = {"wide": torch.randn(3, 4), "narrow": torch.randn(3, 2)}
    ens = deep(Named(), x)
    optimized = multum.optimize(ens, x, run=run)
    torch.testing.assert_close(optimized(x), ens(x).detach())
    torch.testing.assert_close(optimized(dict(reversed(x.items()))), ens(x).detach())
    ens = deep(Named(), tuple(x.values()))
    torch.testing.assert_close(multum.optimize(ens, run=run)(tuple(x.values())), ens(tuple(x.values())).detach())


class Branches(nn.Module):
    """Reads values in Python, which no graph can. Shape: [B, 4] -> [B, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.a(x))
        return self.b(x) if x.sum() > 0 else x


@pytest.mark.parametrize("method", [multum.Deep(members=2), multum.McDropout(members=2)])
def test_a_network_that_cannot_be_traced_runs_as_plain_members(method):
    x = torch.randn(3, 4)
    ens = multum.ensemble(Branches(), method, example=x).eval()
    optimized = multum.optimize(ens)
    for sign in (1, -1):
        torch.testing.assert_close(optimized(sign * x), ens(sign * x).detach())
    with pytest.raises(ExecutorError, match=r"run must have a network that torch\.export can trace"):
        multum.optimize(ens, run="loop")


class Masked(nn.Module):
    """Rules a class out. Shape: [B, 4] -> [B, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).masked_fill(torch.tensor([False, True, False]), -torch.inf)


def test_outputs_may_be_infinite():
    x = torch.randn(3, 4)
    ens = deep(Masked(), x)
    assert "plain networks" not in repr(multum.optimize(ens, x)) and multum.optimize(ens, x)(x)[..., 1].isinf().all()


# -- measured ----------------------------------------------------------------------------------------------------------


def fewer_products(ways, step):
    """Fewer products always win."""
    for way in ways:
        step(way)
    return {"False": 2.0, "True": 1.0}


def test_the_fastest_way_that_agrees_is_taken(monkeypatch):
    monkeypatch.delenv("MULTUM_AUTOTUNE")
    ens = deep(Residual())
    names: list[str] = []
    seconds = (2, 3, 4, 2, 2, 1, 5, 3)
    monkeypatch.setattr(layouts, "race", fewer_products)
    monkeypatch.setattr(optimize, "race", lambda ways, _: names.extend(ways) or dict(zip(ways, seconds, strict=True)))
    optimized = multum.optimize(ens, X)
    assert "grouped, channels_last" in repr(optimized)
    assert names == [f"{run}, {layout}" for run in RUNS for layout in layouts.LAYOUTS]
    torch.testing.assert_close(optimized(X), ens(X).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_every_layout_gives_the_same(layout, run, monkeypatch):
    ens = deep(Residual())
    monkeypatch.setattr(optimize, "LAYOUTS", (layout,))
    monkeypatch.setattr(layouts, "race", fewer_products)
    monkeypatch.delenv("MULTUM_AUTOTUNE")
    optimized = multum.optimize(ens, X, run=run)
    assert layout in repr(optimized)
    for batch in (X, X[:1], more_rows(X)):
        torch.testing.assert_close(optimized(batch), ens(batch).detach(), rtol=1e-4, atol=1e-5)


def test_the_sum_and_the_relu_behind_a_convolution_become_part_of_it(monkeypatch):
    monkeypatch.setattr(optimize, "LAYOUTS", (layouts.PACKED,))
    monkeypatch.delenv("MULTUM_AUTOTUNE")
    names = operators(multum.optimize(deep(Residual()), X, run="loop"))
    assert names.count("mkldnn::_convolution_pointwise") == 4
    assert not {"aten::conv2d", "aten::relu", "aten::add", "aten::batch_norm"} & set(names)


@pytest.mark.parametrize("wins", (True, False))
def test_convolutions_have_fewer_products_where_that_is_faster(wins, monkeypatch):
    monkeypatch.setattr(optimize, "LAYOUTS", (layouts.PLAIN, layouts.WINOGRAD))
    monkeypatch.setattr(layouts, "race", lambda ways, step: {"False": 2.0, "True": 1.0 if wins else 1.99})
    monkeypatch.setattr(optimize, "race", lambda ways, step: {way: -i for i, way in enumerate(ways)})
    monkeypatch.delenv("MULTUM_AUTOTUNE")
    optimized = multum.optimize(deep(Residual()), X, run="loop")
    assert ("winograd" in repr(optimized)) == wins
    calls = [m.target for g in optimized.modules() if isinstance(g, fx.GraphModule) for m in g.graph.nodes]
    assert (winograd.convolve in calls) == wins


@pytest.mark.parametrize("relu", (True, False))
@pytest.mark.parametrize(
    "shape, outputs, padding",
    [((2, 5, 7, 9), 3, [1, 1]), ((1, 4, 8, 4), 6, [0, 2]), ((5, 2, 40, 40), 3, [1, 1]), ((0, 2, 4, 4), 3, [1, 1])],
)
def test_fewer_products_give_the_convolution(shape, outputs, padding, relu):
    draw = partial(torch.randn, dtype=torch.float64)
    x, weight, bias = draw(shape), draw(outputs, shape[1], 3, 3), draw(outputs)
    plain = F.conv2d(x, weight, bias, padding=padding)
    other = draw(plain.shape)
    for b, o in ((bias, other), (None, None)):
        expected = F.conv2d(x, weight, b, padding=padding) + (0 if o is None else o)
        kept = None if o is None else o.clone()
        got = winograd.convolve(x, winograd.transformed(weight), b, padding, o, relu)
        torch.testing.assert_close(got, expected.relu() if relu else expected, rtol=1e-10, atol=1e-11)
        assert o is None or torch.equal(o, kept)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_what_differs_is_refused(monkeypatch, caplog):
    ens = deep(Norms())
    fold = optimize.fold_norms

    def wrong(program):
        fold(program)
        program.constants = {name: tuple(1.01 * t for t in values) for name, values in program.constants.items()}

    monkeypatch.setattr(optimize, "fold_norms", wrong)
    with pytest.raises(ExecutorError, match=r"run loop, plain, the largest difference is [0-9.e-]+, more than"):
        multum.optimize(ens, run="loop")
    optimized = multum.optimize(ens)
    assert "largest difference" in caplog.text and "as plain networks" in repr(optimized)
    torch.testing.assert_close(optimized(X), ens(X).detach())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"run": "vmpa"}, "run must be 'loop', 'grouped' or None; got 'vmpa'"),
        ({"backend": "onnx"}, "Did you mean onnxruntime"),
    ],
)
def test_what_is_unknown_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        multum.optimize(deep(Norms()), **arguments)
    with pytest.raises(ConfigError, match="ens must be an ensemble; got Norms"):
        multum.optimize(Norms())


def test_samples_are_not_compiled():
    ens = multum.ensemble(Branches(), multum.McDropout(members=2), example=torch.randn(3, 4))
    with pytest.raises(ConfigError, match="backend must be None where members are samples"):
        multum.optimize(ens, backend="openvino")


def test_it_can_be_neither_trained_nor_moved_and_takes_what_it_was_made_for():
    optimized = multum.optimize(deep(Norms()))
    for change in (optimized.train, optimized.double):
        with pytest.raises(ConfigError):
            change()
    with pytest.raises(ExampleError, match=r"\[batch, 3, 6, 6\] of float32; got \[batch, 3, 7, 7\]"):
        optimized(torch.zeros(2, 3, 7, 7))


# -- backends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino", pytest.param("inductor", marks=pytest.mark.slow)])
def test_backends_give_the_same(backend):
    ens = deep(Norms())
    optimized = multum.optimize(ens, X, backend=backend)
    for batch in (X, X[:1], more_rows(X)):
        torch.testing.assert_close(optimized(batch), ens(batch).detach(), rtol=1e-4, atol=1e-5)
    assert multum.predict(optimized, X.numpy()).probs.shape == (4, 4)


@pytest.mark.parametrize(("backend", "extra"), [("onnxruntime", "onnx"), ("openvino", "openvino")])
def test_a_backend_that_is_not_installed_says_what_to_install(backend, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, backend, None)
    with pytest.raises(ConfigError, match=rf"pip install 'multum\[{extra}\]'"):
        multum.optimize(deep(Norms()), backend=backend)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_missing_compiler_is_named(monkeypatch):
    from torch._inductor import cpp_builder, exc

    def missing() -> None:
        raise exc.InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", missing)
    with pytest.raises(ConfigError, match=r"must find a C\+\+ compiler; got .* Install g\+\+"):
        multum.optimize(deep(Norms()), backend="inductor")
