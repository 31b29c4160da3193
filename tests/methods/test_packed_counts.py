"""Every packed parameter and mult-add count of the papers, from multum's own ensembles (METHODS 2.2, 2.3, 2.6).

All on the meta device: nothing is computed. One trace per network serves all of its ensembles, and none of them is
tried under vmap.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import multum
from meta_counts import shortcuts  # noqa: F401  (used by every test here)
from multum import Packed, Single
from multum.models import build

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())
ROWS = [row for row in GOLDEN if row.startswith(("single/", "packed("))]
CLASSES = {"c10": 10, "c100": 100, "imagenet": 1000}
BACKBONES = {"R18": "resnet18", "R50": "resnet50", "R50x4": "resnet50x4"}


@functools.cache
def meta(name: str, **keywords) -> nn.Module:
    with torch.device("meta"):
        return build(name, **keywords)


@functools.cache
def image(side: int) -> torch.Tensor:
    return torch.zeros(1, 3, side, side, device="meta")


def count(network: nn.Module, method, side: int = 32) -> multum.Cost:
    return multum.cost(multum.ensemble(network, method, example=image(side)), example=image(side))


def golden(row: str) -> tuple[nn.Module, multum.Single | Packed, int]:
    """The ensemble behind a row such as packed(2,4,2)/WRN-28-10/c10/nobias."""
    method, backbone, *variant = row.split("/")
    dataset = next(v for v in variant if v in CLASSES)
    keywords: dict = {"classes": CLASSES[dataset], **({"stem": "imagenet"} if dataset == "imagenet" else {})}
    packed = re.fullmatch(r"packed\((\d),(\d),(\d)\)", method)
    if packed and backbone.startswith("WRN"):
        keywords |= {"variant": "meliketoy", "bias": "none" if "nobias" in variant else "edges"}
    elif variant[0] not in CLASSES:
        keywords["variant"] = variant[0]
    alpha, members, gamma = map(int, packed.groups()) if packed else (1, 1, 1)
    config = Packed(alpha=alpha, members=members, gamma=gamma) if packed else Single()
    name = BACKBONES.get(backbone, backbone.lower())
    return meta(name, **keywords), config, 224 if dataset == "imagenet" else 32


def test_the_rows_are_all_there():
    assert (sum(r.startswith("single/") for r in ROWS), sum(r.startswith("packed(") for r in ROWS)) == (12, 13)


# ResNet-50 is counted in Table 5 below and, at both scales, by the items of tests/papers/test_items.py; of the wide
# network each kind of bias and each gamma are counted once.
SLOW = {row for row in ROWS if row.startswith("packed(") and "/R50" in row}
SLOW |= {row for row in ROWS if row.startswith("single/") and row != "single/R18/c10"}  # in tests/models, too
SLOW |= {"packed(2,4,2)/WRN-28-10/c10/nobias", "packed(2,4,1)/WRN-28-10/c100", "packed(2,4,2)/R18/c100"}


@pytest.mark.parametrize("row", [pytest.param(r, marks=pytest.mark.slow if r in SLOW else ()) for r in ROWS])
def test_golden(row):
    network, method, side = golden(row)
    found = count(network, method, side)
    keys = ("params", "trainable", "macs", "torchinfo")
    assert {key: getattr(found, key) for key in keys} == {key: GOLDEN[row][key] for key in keys}


RESNET50 = [  # tables 5 and 6
    (2, 4, 4, 11_709_968, 0.9466),
]
MORE_RESNET50 = [
    (2, 4, 1, 23_965_200, 1.3000),
    (2, 4, 2, 14_921_232, 1.0043),
    (8, 16, 1, 95_860_800, None),
    (1, 4, 1, 6_121_424, 0.3260),
    (3, 4, 1, 53_531_728, 2.9220),
    (4, 4, 1, 94_821_008, 5.1921),
    (1, 4, 2, 4_515_792, 0.2971),
    (3, 4, 2, 33_182_800, 2.2567),
    (4, 4, 2, 56_941_200, 3.5731),
    (1, 4, 4, 4_384_720, None),
    (3, 4, 4, 23_991_376, 1.9917),
    (4, 4, 4, 38_853_264, 2.9817),
    (3, 8, 1, 27_155_936, None),
    (4, 8, 2, 29_842_464, None),
    (6, 8, 4, 47_982_752, None),
]


@pytest.mark.parametrize(
    ("alpha", "members", "gamma", "params", "giga"),
    [*RESNET50, *(pytest.param(*row, marks=pytest.mark.slow) for row in MORE_RESNET50)],
)
def test_resnet50_on_cifar100(alpha, members, gamma, params, giga):
    found = count(meta("resnet50", classes=100), Packed(alpha=alpha, members=members, gamma=gamma))
    assert found.params == params
    assert giga is None or round(found.macs / 1e9, 4) == giga


@pytest.mark.parametrize(
    ("alpha", "members", "params"),
    [
        pytest.param(1, 2, 5_595_220, marks=pytest.mark.slow),
        pytest.param(2, 4, 11_190_440, marks=pytest.mark.slow),  # is golden
        pytest.param(2, 2, 22_347_924, marks=pytest.mark.slow),
        pytest.param(3, 4, 25_153_768, marks=pytest.mark.slow),
        pytest.param(4, 4, 44_695_848, marks=pytest.mark.slow),
        (2, 8, 5_611_728),
    ],
)
def test_resnet18_on_cifar10(alpha, members, params):
    assert count(meta("resnet18"), Packed(alpha=alpha, members=members)).params == params


@pytest.mark.parametrize(
    ("name", "single", "plain", "grouped"),
    [
        ("wrn-10-1", (77_850, 12_501_632), (79_432, 12_944_640), (41_288, 6_915_328)),
        pytest.param("wrn-16-1", (175_066, 26_657_408), (177_096,), (90_568,), marks=pytest.mark.slow),
        pytest.param("wrn-16-2", (691_674, 101_106_944), (695_240,), (351_176,), marks=pytest.mark.slow),
        pytest.param("wrn-28-1", (369_498, 54_968_960), (372_424,), (189_128,), marks=pytest.mark.slow),
    ],
)
def test_small_networks(name, single, plain, grouped):
    methods = (Single(), Packed(alpha=2, members=4), Packed(alpha=2, members=4, gamma=2, min_channels=1))
    for method, expected in zip(methods, (single, plain, grouped), strict=True):
        found = count(meta(name), method)
        assert (found.params, found.macs)[: len(expected)] == expected


@pytest.mark.parametrize(
    ("in_features", "hidden", "single", "packed"),
    [
        (13, 200, 3_202, 6_438),
        (8, 200, 2_202, 4_428),
        (16, 200, 3_802, 7_644),
        (4, 200, 1_402, 2_820),
        (9, 400, 4_802, 9_618),
        (11, 200, 2_802, 5_634),
        (6, 200, 1_802, 3_624),
    ],
    ids=["boston", "concrete", "naval", "power", "protein", "wine", "yacht"],
)
def test_the_uci_networks(in_features, hidden, single, packed):
    network = build("mlp", in_features=in_features, classes=2, hidden=hidden)
    x = torch.zeros(1, in_features)
    assert multum.cost(network, example=x).params == single
    ens = multum.ensemble(network, Packed(alpha=2, members=3), example=x, task="regression")
    assert multum.cost(ens, example=x).params == packed
    assert ens.network.hidden[0].out_features == {200: 134, 400: 267}[hidden]
