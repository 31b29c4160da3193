"""Blocks and networks against their definitions, computed by hand from the same weights; and torchvision's names."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from multum.models import build
from multum.models.resnet import BasicBlock, Bottleneck
from multum.models.wide_resnet import VARIANTS, PreActivationBlock, WideResNet

# (in, out, stride) of every kind of block a network has
SHAPES = [(6, 6, 1), (6, 10, 1), (6, 10, 2)]


def stirred(block: nn.Module) -> nn.Module:
    """The block in float64 and eval mode, no parameter or statistic at its neutral value."""
    block = block.double().eval()
    for tensor in block.state_dict().values():
        if tensor.is_floating_point():
            tensor.uniform_(0.5, 1.5).mul_(torch.empty_like(tensor).bernoulli_(0.5) * 2 - 1 if tensor.ndim > 1 else 1)
    return block


def norm(bn: nn.BatchNorm2d, x: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, bn.running_mean, bn.running_var, bn.weight, bn.bias, eps=1e-5)


def conv(layer: nn.Conv2d, x: torch.Tensor, stride: int, groups: int = 1) -> torch.Tensor:
    return F.conv2d(x, layer.weight, layer.bias, stride, layer.weight.shape[-1] // 2, groups=groups)


@pytest.mark.parametrize(("cin", "cout", "stride"), SHAPES)
@pytest.mark.parametrize("bias", ["none", "edges", "all"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_wide_block(variant, bias, cin, cout, stride):
    block = stirred(PreActivationBlock(cin, cout, stride, replace(VARIANTS[variant], bias=bias)))
    x = torch.randn(3, cin, 7, 7, dtype=torch.float64)
    first, second = (1, stride) if variant == "meliketoy" else (stride, 1)
    o1 = F.relu(norm(block.bn1, x))
    y = conv(block.conv1, o1, first)
    expected = conv(block.conv2, F.relu(norm(block.bn2, y)), second)
    if cin != cout:
        expected = expected + conv(block.shortcut, o1 if variant == "zagoruyko" else x, stride)
    else:
        expected = expected + x
    torch.testing.assert_close(block(x), expected, rtol=0, atol=1e-12)


def test_the_shortcut_is_where_zagoruyko_and_edward2_differ():
    one, other = (stirred(PreActivationBlock(6, 10, 2, VARIANTS[variant])) for variant in ("zagoruyko", "edward2"))
    other.load_state_dict(one.state_dict())
    x = torch.randn(3, 6, 8, 8, dtype=torch.float64)
    assert (one(x) - other(x)).abs().max() > 0.1


@pytest.mark.parametrize(("cin", "cout", "stride"), SHAPES)
def test_basic_block(cin, cout, stride):
    block = stirred(BasicBlock(cin, cout, cout, stride))
    x = torch.randn(3, cin, 7, 7, dtype=torch.float64)
    y = F.relu(norm(block.bn1, conv(block.conv1, x, stride)))
    y = norm(block.bn2, conv(block.conv2, y, 1))
    shortcut = x if cin == cout else norm(block.downsample[1], conv(block.downsample[0], x, stride))
    torch.testing.assert_close(block(x), F.relu(y + shortcut), rtol=0, atol=1e-12)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("cin", "cout", "stride"), SHAPES)
def test_bottleneck(cin, cout, stride, groups):
    block = stirred(Bottleneck(cin, 4, cout, stride, groups))
    x = torch.randn(3, cin, 7, 7, dtype=torch.float64)
    y = F.relu(norm(block.bn1, conv(block.conv1, x, 1)))
    y = F.relu(norm(block.bn2, conv(block.conv2, y, stride, groups)))
    y = norm(block.bn3, conv(block.conv3, y, 1))
    shortcut = x if cin == cout else norm(block.downsample[1], conv(block.downsample[0], x, stride))
    torch.testing.assert_close(block(x), F.relu(y + shortcut), rtol=0, atol=1e-12)


def sides(network: nn.Module, image: int) -> list[int]:
    """The side of the feature maps after the stem and after each stage."""
    seen = []
    layers = [getattr(network, "maxpool", network.conv1), *(getattr(network, f"layer{i}", None) for i in range(1, 5))]
    for layer in filter(None, layers):
        layer.register_forward_hook(lambda _, __, output: seen.append(output.shape[-1]))
    network.eval()(torch.zeros(1, 3, image, image, device="meta"))
    return seen


@pytest.mark.parametrize(
    ("name", "keywords", "image", "expected"),
    [
        ("resnet18", {}, 32, [32, 32, 16, 8, 4]),
        ("resnet50", {"stem": "imagenet"}, 224, [56, 56, 28, 14, 7]),
        ("resnext50", {"stem": "imagenet"}, 224, [56, 56, 28, 14, 7]),
        ("wrn-16-2", {}, 32, [32, 32, 16, 8]),
        ("wrn-16-2", {"variant": "meliketoy"}, 32, [32, 32, 16, 8]),
    ],
)
def test_where_images_shrink(name, keywords, image, expected):
    with torch.device("meta"):
        assert sides(build(name, **keywords), image) == expected


def test_wide_stages_have_shortcuts_only_where_they_change_shape():
    def shortcuts(name: str) -> list[str]:
        blocks = {k: m for k, m in build(name).named_modules() if isinstance(m, PreActivationBlock)}
        return [name for name, block in blocks.items() if block.shortcut is not None]

    with torch.device("meta"):
        assert shortcuts("wrn-16-1") == ["layer2.0", "layer3.0"]
        assert shortcuts("wrn-16-2") == ["layer1.0", "layer2.0", "layer3.0"]


@pytest.mark.parametrize(
    ("variant", "bias", "expected"),
    [
        ("zagoruyko", None, set()),
        ("edward2", None, set()),
        ("meliketoy", None, {"stem", "3x3", "shortcut"}),
        ("zagoruyko", "edges", {"stem", "shortcut"}),
        ("edward2", "all", {"stem", "3x3", "shortcut"}),
        ("meliketoy", "none", set()),
    ],
)
def test_which_convolutions_have_a_bias(variant, bias, expected):
    network = WideResNet(16, 2, variant=variant, bias=bias)
    kinds: dict[str, set[bool]] = {"stem": set(), "3x3": set(), "shortcut": set()}
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Conv2d):
            kind = "stem" if name == "conv1" else "shortcut" if name.endswith("shortcut") else "3x3"
            kinds[kind].add(layer.bias is not None)
    assert kinds == {kind: {kind in expected} for kind in kinds}


@pytest.mark.parametrize(
    ("keywords", "p"),
    [
        ({"variant": "meliketoy"}, 0.3),
        ({}, 0.0),
        ({"dropout": 0.2}, 0.2),
        ({"variant": "meliketoy", "dropout": 0}, 0.0),
    ],
)
def test_dropout_follows_the_first_convolution(keywords, p):
    block = build("wrn-10-2", **keywords).train().layer2[0]
    seen = {}
    block.conv1.register_forward_hook(lambda _, __, output: seen.update(before=output))
    block.bn2.register_forward_pre_hook(lambda _, inputs: seen.update(after=inputs[0]))
    block(torch.randn(8, 32, 8, 8))
    kept = seen["after"] != 0
    torch.testing.assert_close(seen["after"], seen["before"] * kept / (1 - p))
    assert abs((~kept).float().mean() - p) < 0.03


def test_batch_norms_follow_the_papers():
    def momenta(network: nn.Module) -> list[float]:
        return [m.momentum for m in network.modules() if isinstance(m, nn.BatchNorm2d) and m.eps == 1e-5]

    assert momenta(build("wrn-10-1")) == [0.1] * 7
    assert momenta(build("wrn-10-1", variant="meliketoy")) == [0.1] * 6 + [0.9]
    assert momenta(build("resnet18", width=0.125)) == [0.1] * 20


def torchvision_keys(convs: int, depths: tuple[int, ...], projected: tuple[int, ...]) -> set[str]:
    """The keys of a torchvision ResNet: convolutions per block, blocks per stage, stages that begin with a 1x1."""

    def norm_keys(path: str) -> set[str]:
        return {f"{path}.{t}" for t in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")}

    keys = {"conv1.weight", "fc.weight", "fc.bias"} | norm_keys("bn1")
    for stage, depth in enumerate(depths, 1):
        for block in range(depth):
            path = f"layer{stage}.{block}"
            for i in range(1, convs + 1):
                keys |= {f"{path}.conv{i}.weight"} | norm_keys(f"{path}.bn{i}")
            if block == 0 and stage in projected:
                keys |= {f"{path}.downsample.0.weight"} | norm_keys(f"{path}.downsample.1")
    return keys


@pytest.mark.parametrize(
    ("name", "keys", "params", "shapes"),
    [
        (
            "resnet18",
            torchvision_keys(2, (2, 2, 2, 2), (2, 3, 4)),
            11_689_512,
            {"conv1.weight": (64, 3, 7, 7), "layer2.0.conv1.weight": (128, 64, 3, 3), "fc.weight": (1000, 512)},
        ),
        (
            "resnet50",
            torchvision_keys(3, (3, 4, 6, 3), (1, 2, 3, 4)),
            25_557_032,
            {"layer1.0.downsample.0.weight": (256, 64, 1, 1), "layer4.2.conv3.weight": (2048, 512, 1, 1)},
        ),
        (
            "resnext50",
            torchvision_keys(3, (3, 4, 6, 3), (1, 2, 3, 4)),
            25_028_904,
            {"layer1.0.conv2.weight": (128, 4, 3, 3), "layer4.0.conv2.weight": (1024, 32, 3, 3)},
        ),
    ],
)
def test_torchvision_state_dicts_fit_the_imagenet_networks(name, keys, params, shapes):
    with torch.device("meta"):
        network = build(name, classes=1000, stem="imagenet")
    state = network.state_dict()
    assert set(state) == keys
    assert {key: tuple(state[key].shape) for key in shapes} == shapes
    assert sum(p.numel() for p in network.parameters()) == params


def linear(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return x @ layer.weight.T + layer.bias


def small_cnn_by_hand(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = F.max_pool2d(F.relu(conv(network.conv1, x, 1)), 2)
    x = F.max_pool2d(F.relu(conv(network.conv2, x, 1)), 2)
    return linear(network.fc, F.relu(conv(network.conv3, x, 1)).mean((2, 3)))


def lenet_by_hand(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    for layer in (network.conv1, network.conv2):
        x = F.max_pool2d(F.relu(F.conv2d(x, layer.weight, layer.bias)), 2)
    # at 32x32 the third convolution sees one 5x5 window: a matrix product
    x = F.relu(x.flatten(1) @ network.conv3.weight.flatten(1).T + network.conv3.bias)
    return linear(network.fc, F.relu(linear(network.hidden, x)))


def resnet_by_hand(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = F.relu(norm(network.bn1, conv(network.conv1, x, network.conv1.kernel_size[0] // 3)))
    if network.conv1.kernel_size == (7, 7):
        x = F.max_pool2d(x, 3, 2, 1)
    for stage in (network.layer1, network.layer2, network.layer3, network.layer4):
        x = stage(x)
    return linear(network.fc, x.mean((2, 3)))


def wide_by_hand(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = conv(network.conv1, x, 1)
    for stage in (network.layer1, network.layer2, network.layer3):
        x = stage(x)
    return linear(network.fc, F.relu(norm(network.bn, x)).mean((2, 3)))


@pytest.mark.parametrize(
    ("name", "keywords", "by_hand"),
    [
        ("small-cnn", {}, small_cnn_by_hand),
        ("lenet", {}, lenet_by_hand),
        ("resnet18", {"width": 0.0625}, resnet_by_hand),
        ("resnet50", {"width": 0.0625, "stem": "imagenet"}, resnet_by_hand),
        ("wrn-10-1", {}, wide_by_hand),
        ("wrn-16-1", {"variant": "meliketoy"}, wide_by_hand),
    ],
)
def test_around_the_blocks(name, keywords, by_hand):
    network = build(name, **keywords).double().train()
    x = torch.randn(4, 3, 32, 32, dtype=torch.float64)
    network(x)  # moves the running statistics off their neutral values
    network.eval()
    torch.testing.assert_close(network(x), by_hand(network, x), rtol=1e-10, atol=1e-12)
    assert not any(getattr(layer, "inplace", False) for layer in network.modules()), "in-place layers break vmap"
