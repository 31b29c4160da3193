"""What every network of multum.models promises: any image size, a recipe, and a second birth."""

from __future__ import annotations

import copy
import doctest
import importlib
import itertools
import json
import pkgutil
import statistics

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import multum.models
from grids import grid
from multum.errors import ConfigError
from multum.models import build, names

# every architecture at a size that a test can run
IMAGES = {
    "cnn": {"widths": (8, 12)},
    "lenet": {},
    "small-cnn": {},
    "small-resnet": {"widths": (4, 6)},
    "resnet18": {"width": 0.0625},
    "resnet50": {"width": 0.0625, "stem": "imagenet"},
    "wrn-10-1": {},
    "wrn-16-2": {"variant": "edward2", "bias": "edges"},
    "wrn-10-2": {"variant": "meliketoy"},
}
ALL = IMAGES | {
    "mlp": {"in_features": 192, "hidden": (20, 10), "classes": 10},
    "tabular-mlp": {"in_features": 192, "hidden": (20, 10), "classes": 10, "numbers": (0, 7)},
}
HEAVY = {"resnext50": {}, "resnet50x4": {"stem": "imagenet"}}


def example(batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, 8, 8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", IMAGES)
def test_any_image_size_grey_or_colour(name, channels):
    network = build(name, classes=7, in_channels=channels, **IMAGES[name])
    for size in [(8, 8), (9, 9), (13, 13), (28, 28), (32, 32), (40, 40), (8, 40)]:
        output = network(torch.randn(2, channels, *size))
        assert output.shape == (2, 7), size
        assert output.isfinite().all(), size


@pytest.mark.parametrize("name", HEAVY)
def test_large_networks_take_small_images_too(name):
    with torch.device("meta"):
        assert build(name, in_channels=1, **HEAVY[name])(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize("name", ALL)
def test_runs_in_float64_and_every_parameter_learns(name):
    network = build(name, **ALL[name]).double()
    x = example(batch=4).double()
    before = x.clone()
    output = network(x)
    output.square().sum().backward()
    assert output.shape == (4, 10)
    assert output.dtype == torch.float64
    assert torch.equal(x, before)
    assert [n for n, p in network.named_parameters() if p.grad is None] == []


def test_lenet_pads_small_images_with_zeros_and_pools_large_ones():
    network = build("lenet", in_channels=1).double()
    x = torch.randn(2, 1, 28, 28, dtype=torch.float64)
    assert torch.equal(network(x), network(F.pad(x, (2, 2, 2, 2))))
    wide = torch.randn(2, 1, 9, 40, dtype=torch.float64)
    assert torch.equal(network(wide), network(F.pad(wide, (0, 0, 11, 12))))
    assert not torch.equal(network(wide), network(wide[..., :32]))


def test_mlp_takes_one_width_several_or_none():
    def widths(**keywords) -> list[int]:
        network = build("mlp", in_features=5, classes=2, **keywords)
        return [m.out_features for m in network.modules() if isinstance(m, nn.Linear)]

    assert widths() == [200, 2]
    assert widths(hidden=7) == [7, 2]
    assert widths(hidden=[7, 8]) == [7, 8, 2]
    assert widths(hidden=()) == [2]


@pytest.mark.parametrize(
    ("activation", "function"), [("relu", F.relu), ("tanh", torch.tanh), ("gelu", F.gelu), ("silu", F.silu)]
)
def test_mlp_by_hand(activation, function):
    network = (
        build("mlp", in_features=5, classes=2, hidden=(40, 30), dropout=0.5, activation=activation).double().eval()
    )
    first, second, head = (m for m in network.modules() if isinstance(m, nn.Linear))
    x = torch.randn(6, 5, dtype=torch.float64)
    hidden = function(function(x @ first.weight.T + first.bias) @ second.weight.T + second.bias)
    torch.testing.assert_close(network(x), hidden @ head.weight.T + head.bias)
    assert not torch.equal(network.train()(x), network(x)), "dropout is off"


def test_tabular_mlp_by_hand():
    network = build("tabular-mlp", in_features=3, classes=2, hidden=7, bins=4, numbers=(2, 0)).double().eval()
    first, head = (m for m in network.modules() if isinstance(m, nn.Linear))
    x = torch.randn(6, 3, dtype=torch.float64) * 3
    middle = statistics.NormalDist().inv_cdf(0.75)
    edges = [-4.0, -middle, 0.0, middle, 4.0]
    columns = [x[:, 0], x[:, 1], x[:, 2]]
    for number in (2, 0):
        columns += [((x[:, number] - a) / (b - a)).clamp(0, 1) for a, b in itertools.pairwise(edges)]
    hidden = F.relu(torch.stack(columns, 1) @ first.weight.T + first.bias)
    torch.testing.assert_close(network(x), hidden @ head.weight.T + head.bias)
    plain = build("tabular-mlp", in_features=3, classes=2, hidden=7, bins=0)
    assert plain.hidden[0].in_features == 3


@pytest.mark.parametrize("numbers", [(3,), (-1,), (0, 0), ("a",), (1.0,)])
def test_numbers_are_columns(numbers):
    with pytest.raises(ConfigError, match="numbers must be different positions of the 3 columns, from 0; got numbers="):
        build("tabular-mlp", in_features=3, classes=2, numbers=numbers)


@pytest.mark.parametrize("name", ALL)
def test_recipe_rebuilds_the_network(name):
    network = build(name, **ALL[name])
    recipe = json.loads(json.dumps(network.recipe))
    assert recipe == network.recipe == copy.deepcopy(network).recipe
    again = build(recipe["name"], **recipe["keywords"])
    assert again.recipe == recipe
    again.load_state_dict(network.state_dict())
    x = example()
    assert torch.equal(again.eval()(x), network.eval()(x))


def test_recipe_holds_what_was_given_in_plain_values():
    network = build("mlp", in_features=np.int64(3), classes=2, hidden=(4, np.int32(5)), dropout=np.float32(0.5))
    assert network.recipe == {
        "name": "mlp",
        "keywords": {"in_features": 3, "classes": 2, "hidden": [4, 5], "dropout": 0.5},
    }
    assert json.loads(json.dumps(network.recipe)) == network.recipe
    assert build("resnet18", width=0.125).recipe == {"name": "resnet18", "keywords": {"width": 0.125}}


@pytest.mark.parametrize("name", ALL)
def test_seeds_reproduce(name):
    def born(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return build(name, **ALL[name]).state_dict()

    one, again, other = born(1), born(1), born(2)
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert not any(torch.equal(one[key], other[key]) for key in one if one[key].ndim > 1)


@pytest.mark.parametrize("name", ALL)
def test_reset_parameters_restores_everything(name):
    network = build(name, **ALL[name])
    torch.manual_seed(3)
    network.reset_parameters()
    fresh = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    for tensor in network.state_dict().values():
        tensor.fill_(7)
    places = {key: tensor.data_ptr() for key, tensor in network.state_dict().items()}
    torch.manual_seed(3)
    network.reset_parameters()
    reborn = network.state_dict()
    assert not [key for key in reborn if (reborn[key] == 7).any()]
    assert all(torch.equal(reborn[key], fresh[key]) for key in reborn)
    assert {key: tensor.data_ptr() for key, tensor in reborn.items()} == places, "not in place"

    network.reset_parameters()
    for path, layer in network.named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert (layer.weight == 1).all()
            assert (layer.bias == 0).all()
            assert (layer.running_mean == 0).all()
            assert (layer.running_var == 1).all()
            assert layer.num_batches_tracked == 0
        elif isinstance(layer, (nn.Conv2d, nn.Linear)):
            assert not torch.isclose(layer.weight, fresh[f"{path}.weight"], rtol=1e-6, atol=0).any()
            if layer.bias is not None and not name.startswith("wrn"):
                assert not torch.equal(layer.bias, fresh[f"{path}.bias"])


def test_wide_networks_are_born_he_normal_with_fan_in():
    torch.manual_seed(0)
    network = build("wrn-10-4", classes=100, variant="meliketoy")
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            weight, fan_in = layer.weight.detach(), layer.weight[0].numel()
            assert (layer.bias == 0).all()
            assert abs(weight.std() * (fan_in / 2) ** 0.5 - 1) < 6 / weight.numel() ** 0.5
            assert weight.abs().max() > 2 * (2 / fan_in) ** 0.5, "a uniform law has no tails"


def test_resnets_are_born_under_torchs_default():
    torch.manual_seed(0)
    for layer in build("resnet18", width=0.25).modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            bound = layer.weight[0].numel() ** -0.5
            assert 0.95 * bound < layer.weight.abs().max() <= bound


def keep(layer: nn.Module, outputs: int | None = None, inputs: int | None = None) -> None:
    """Narrow a layer in place, as a rewrite does."""
    if isinstance(layer, nn.BatchNorm2d):
        layer.num_features = outputs
        layer.running_mean, layer.running_var = layer.running_mean[:outputs], layer.running_var[:outputs]
        layer.weight, layer.bias = (nn.Parameter(p.detach()[:outputs]) for p in (layer.weight, layer.bias))
        return
    layer.weight = nn.Parameter(layer.weight.detach()[:outputs, :inputs].clone())
    if layer.bias is not None:
        layer.bias = nn.Parameter(layer.bias.detach()[:outputs].clone())
    noun = "features" if isinstance(layer, nn.Linear) else "channels"
    setattr(layer, f"out_{noun}", layer.weight.shape[0])
    setattr(layer, f"in_{noun}", layer.weight.shape[1])


def test_a_narrowed_network_runs_and_is_born_again():
    small = build("small-cnn")
    keep(small.conv1, outputs=5)
    keep(small.conv2, inputs=5)
    keep(small.conv3, outputs=9)
    keep(small.fc, inputs=9)
    wide = build("wrn-10-2", variant="meliketoy")
    block = wide.layer2[0]
    keep(block.conv1, outputs=11)
    keep(block.bn2, outputs=11)
    keep(block.conv2, inputs=11)
    keep(wide.layer3[0].conv2, outputs=50)
    keep(wide.layer3[0].shortcut, outputs=50)
    keep(wide.bn, outputs=50)
    keep(wide.fc, inputs=50)
    for network in (small, wide):
        shapes = [p.shape for p in network.parameters()]
        before = [p.clone() for p in network.parameters() if p.ndim > 1]
        network.reset_parameters()
        assert [p.shape for p in network.parameters()] == shapes
        after = [p for p in network.parameters() if p.ndim > 1]
        assert not any(torch.equal(a, b) for a, b in zip(after, before, strict=True))
        assert network(torch.randn(2, 3, 8, 8)).shape == (2, 10)
    assert abs(block.conv2.weight.std() * (9 * 11 / 2) ** 0.5 - 1) < 0.1, "fan_in is the narrow one"


@pytest.mark.parametrize("name", ALL)
def test_vmap_over_members_equals_a_loop(name):
    members = [build(name, **ALL[name]).double().eval() for _ in range(3)]
    params, buffers = torch.func.stack_module_state(members)

    def one(params, buffers, x):
        return torch.func.functional_call(members[0], (params, buffers), (x,))

    x = example().double()
    together = torch.func.vmap(one, in_dims=(0, 0, None))(params, buffers, x)
    torch.testing.assert_close(together, torch.stack([member(x) for member in members]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", grid(["lenet", "mlp", "resnet18", "tabular-mlp", "wrn-10-1"], always=["tabular-mlp"]))
def test_exports(name):
    network = build(name, **ALL[name]).eval()
    batch = {0: torch.export.Dim("batch")}
    program = torch.export.export(network, (example(),), dynamic_shapes=(batch,))
    x = example(batch=5)
    torch.testing.assert_close(program.module()(x), network(x))


def test_names_and_surface():
    assert names() == [
        *("cnn", "lenet", "mlp", "resnet18", "resnet50", "resnet50x4", "resnext50"),
        *("small-cnn", "small-resnet", "tabular-mlp", "timm:NAME", "wrn-D-K"),
    ]
    assert multum.models.__all__ == sorted(multum.models.__all__)
    # the rule on subgroups in Packed-Ensembles goes by these class names, and spares wide networks
    wide = {type(m).__name__ for m in build("wrn-10-1").modules()}
    assert "PreActivationBlock" in wide
    assert not wide & {"BasicBlock", "Bottleneck"}


@pytest.mark.parametrize(
    "module", [m.name for m in pkgutil.iter_modules(multum.models.__path__) if m.name != "timm_model"]
)
def test_docstring_examples(module):
    found = doctest.testmod(importlib.import_module(f"multum.models.{module}"))
    assert found.attempted > 0
    assert found.failed == 0
