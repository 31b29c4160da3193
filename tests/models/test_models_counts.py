"""Parameters and mult-adds, to the last digit, against METHODS.md and golden.json, on the meta device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from multum.models import build

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())
SINGLES = sorted(row for row in GOLDEN if row.startswith("single/"))
CLASSES = {"c10": 10, "c100": 100, "imagenet": 1000}
BACKBONES = {"R18": "resnet18", "R50": "resnet50", "R50x4": "resnet50x4"}


def count(network: nn.Module, *shape: int) -> dict[str, int]:
    """Parameters; mult-adds of one input; and torchinfo's count of the latter, which adds biases and 2C per norm."""
    macs, extra = [], []

    def conv_or_linear(layer, _, output):
        positions = output[0].numel() // layer.weight.shape[0]
        macs.append(layer.weight.numel() * positions)
        extra.append(0 if layer.bias is None else layer.bias.numel() * positions)

    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.register_forward_hook(conv_or_linear)
        elif isinstance(layer, nn.BatchNorm2d):
            extra.append(2 * layer.num_features)
    network.eval()(torch.zeros(1, *shape, device="meta"))
    params = sum(p.numel() for p in network.parameters())
    return {"params": params, "macs": sum(macs), "torchinfo": sum(macs) + sum(extra)}


def meta(name: str, **keywords) -> nn.Module:
    with torch.device("meta"):
        return build(name, **keywords)


def single(row: str) -> tuple[nn.Module, int]:
    """The network and image side of a golden row such as single/WRN-28-10/meliketoy/c10."""
    _, backbone, *variant, dataset = row.split("/")
    keywords: dict = {"classes": CLASSES[dataset]}
    if variant:
        keywords["variant"] = variant[0]
    if dataset == "imagenet":
        return meta(BACKBONES[backbone], stem="imagenet", **keywords), 224
    return meta(BACKBONES.get(backbone, backbone.lower()), **keywords), 32


def test_the_golden_file_has_the_rows_we_think():
    assert len(SINGLES) == 12


@pytest.mark.parametrize("row", SINGLES)
def test_every_single_network_of_the_papers(row):
    network, side = single(row)
    assert count(network, 3, side, side) == {key: GOLDEN[row][key] for key in ("params", "macs", "torchinfo")}


@pytest.mark.parametrize(
    ("name", "params", "macs"),
    [
        ("wrn-10-1", 77_850, 12_501_632),
        ("wrn-16-1", 175_066, 26_657_408),
        ("wrn-16-2", 691_674, 101_106_944),
        ("wrn-28-1", 369_498, 54_968_960),
        ("small-cnn", 14_666, 2_212_160),
    ],
)
def test_small_networks(name, params, macs):
    counted = count(meta(name), 3, 32, 32)
    assert (counted["params"], counted["macs"]) == (params, macs)


@pytest.mark.parametrize("name", ["wrn-10-1", "wrn-16-4"])
def test_edward2_costs_what_zagoruyko_costs(name):
    assert count(meta(name, variant="edward2"), 3, 32, 32) == count(meta(name, variant="zagoruyko"), 3, 32, 32)


def test_bias_on_the_edges_adds_the_stem_and_the_three_shortcuts():
    plain = count(meta("wrn-10-10"), 3, 32, 32)["params"]
    assert count(meta("wrn-10-10", bias="edges"), 3, 32, 32)["params"] == plain + 16 + 160 + 320 + 640
    assert count(meta("wrn-10-10", variant="meliketoy", bias="none"), 3, 32, 32)["params"] == plain
    assert count(meta("wrn-28-10", bias="all"), 3, 32, 32)["params"] == 36_489_290


def test_resnext50():
    counted = count(meta("resnext50", classes=10), 3, 32, 32)
    assert counted["params"] == 22_992_714
    assert round(counted["macs"] / 1e9, 4) == 1.3440


def test_lenet_is_lenet5_at_32x32():
    assert count(meta("lenet", in_channels=1), 1, 32, 32) == {
        "params": 61_706,
        "macs": 416_520,
        "torchinfo": 416_520 + 28 * 28 * 6 + 10 * 10 * 16 + 120 + 84 + 10,
    }


def test_the_wide_resnet50_of_mimo():
    assert count(meta("resnet50", classes=1000, stem="imagenet", width=2), 3, 224, 224)["params"] == 98_004_072


@pytest.mark.parametrize(
    ("in_features", "hidden", "params"),
    [
        (13, 200, 3_202),
        (8, 200, 2_202),
        (16, 200, 3_802),
        (4, 200, 1_402),
        (9, 400, 4_802),
        (11, 200, 2_802),
        (6, 200, 1_802),
    ],
)
def test_the_uci_networks(in_features, hidden, params):
    assert count(meta("mlp", in_features=in_features, classes=2, hidden=hidden), in_features)["params"] == params


@pytest.mark.parametrize(
    ("name", "shape", "keywords", "params", "macs"),
    [
        ("cnn", (1, 8, 8), {"in_channels": 1}, 126298, 1023936),
        ("small-resnet", (1, 28, 28), {"in_channels": 1}, 308074, 2795904),
        ("tabular-mlp", (8,), {"in_features": 8, "classes": 2}, 167170, 166400),
    ],
)
def test_the_default_networks(name, shape, keywords, params, macs):
    network = meta(name, **keywords)
    assert count(network, *shape)["params"] == params and count(network, *shape)["macs"] == macs
