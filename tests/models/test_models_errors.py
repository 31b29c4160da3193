"""Every mistake is a ConfigError that states the rule, the value and the fix; and what `timm:NAME` passes on."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from multum.errors import ConfigError
from multum.models import build


@pytest.mark.parametrize(
    ("name", "keywords", "said"),
    [
        ("resnet81", {}, ["'resnet81'", "Did you mean resnet18"]),
        ("ResNet50", {}, ["'ResNet50'", "Did you mean resnet50"]),
        ("wrn-28", {}, ["wrn-D-K", "'wrn-28'", "Did you mean wrn-28-10"]),
        ("wrn-D-K", {}, ["D a depth, K a width"]),
        ("zzzzz", {}, ["Known: ", "small-cnn"]),
        (18, {}, ["must be a string", "got 18", "resnet18"]),
        ("wrn-27-10", {}, ["6n + 4", "got depth 27", "nearest valid depths are 22 and 28"]),
        ("wrn-29-10", {}, ["nearest valid depths are 28 and 34"]),
        ("wrn-4-1", {}, ["got depth 4", "nearest valid depth is 10"]),
        ("wrn-0-1", {}, ["got depth 0", "nearest valid depth is 10"]),
        ("wrn-28-0", {}, ["at least 1", "got K=0", "wrn-28-1"]),
        ("resnet18", {"num_classes": 10}, ["num_classes=10", "Did you mean classes"]),
        ("resnet18", {"in_chans": 1}, ["in_chans=1", "Did you mean in_channels"]),
        ("lenet", {"stem": "cifar"}, ["the keywords are classes, in_channels", "stem='cifar'"]),
        ("wrn-10-1", {"depth": 16}, ["depth=16", "the keywords are classes"]),
        ("resnet18", {"block": "basic"}, ["block='basic'"]),
        ("mlp", {"classes": 2}, ["in_features has no default", "Pass in_features="]),
        ("mlp", {"in_features": 3}, ["classes has no default", "Pass classes="]),
        ("mlp", {"in_features": 0, "classes": 2}, ["in_features must be an int of at least 1", "in_features=0"]),
        ("mlp", {"in_features": 3, "classes": 2, "hidden": "wide"}, ["hidden must be", "'wide'", "hidden=(200, 200)"]),
        (
            "mlp",
            {"in_features": 3, "classes": 2, "hidden": [8, 0]},
            ["hidden must be an int of at least 1", "hidden=0"],
        ),
        ("mlp", {"in_features": 3, "classes": 2, "hidden": 0}, ["hidden=0"]),
        ("mlp", {"in_features": 3, "classes": 2, "activation": "rellu"}, ["activation='rellu'", "Did you mean relu"]),
        ("mlp", {"in_features": 3, "classes": 2, "dropout": float("nan")}, ["0 <= p < 1", "dropout=nan"]),
        ("resnet18", {"stem": "foo"}, ["stem must be one of 'cifar', 'imagenet'", "stem='foo'"]),
        ("resnet18", {"stem": "imgnet"}, ["Did you mean imagenet?"]),
        ("resnet18", {"stem": None}, ["stem=None"]),
        ("resnet50", {"width": 0}, ["width must be positive", "width=0", "width=2"]),
        ("resnet50", {"width": 0.7}, ["64 * width a whole number", "width=0.7"]),
        ("resnet50", {"width": float("inf")}, ["width=inf"]),
        ("wrn-10-1", {"variant": "edward"}, ["variant='edward'", "Did you mean edward2?"]),
        ("wrn-10-1", {"bias": "edge"}, ["bias='edge'", "Did you mean edges?"]),
        ("wrn-10-1", {"dropout": 1}, ["dropout must be a number p with 0 <= p < 1", "dropout=1", "dropout=0.3"]),
        ("wrn-10-1", {"dropout": True}, ["dropout=True"]),
        ("lenet", {"classes": nn.ReLU()}, ["so that the recipe can be saved", "classes=ReLU()", "multum.ensemble"]),
    ],
)
def test_mistakes_are_explained(name, keywords, said):
    with pytest.raises(ConfigError) as caught:
        build(name, **keywords)
    missing = [part for part in said if part not in str(caught.value)]
    assert not missing, str(caught.value)


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "10", None])
@pytest.mark.parametrize("keyword", ["classes", "in_channels"])
@pytest.mark.parametrize("name", ["lenet", "small-cnn", "resnet18", "resnet50", "resnet50x4", "resnext50", "wrn-10-1"])
def test_classes_and_channels_are_counts(name, keyword, value):
    rule = rf"models.build\('{name}'\): {keyword} must be an int of at least 1; got {keyword}={value!r}. Pass"
    with pytest.raises(ConfigError, match=rule):
        build(name, **{keyword: value})


@pytest.fixture
def fake_timm(monkeypatch):
    """timm's three functions that multum calls; create_model reports what it was given."""

    def create_model(model, *, in_chans, num_classes=1000, drop_rate=0.0):
        network = nn.Linear(in_chans, num_classes)
        network.drop_rate = drop_rate
        return network

    known = ["convnext_atto", "resnet18"]
    fake = SimpleNamespace(create_model=create_model, is_model=known.__contains__, list_models=lambda: known)
    monkeypatch.setitem(sys.modules, "timm", fake)


def test_timm_gets_its_own_names_for_our_keywords(fake_timm):
    network = build("timm:convnext_atto", classes=5, in_channels=2, drop_rate=0.25)
    assert (network.in_features, network.out_features, network.drop_rate) == (2, 5, 0.25)
    assert network.recipe == {
        "name": "timm:convnext_atto",
        "keywords": {"classes": 5, "in_channels": 2, "drop_rate": 0.25},
    }
    assert build("timm:convnext_atto").out_features == 1000


@pytest.mark.parametrize(
    ("name", "keywords", "said"),
    [
        ("timm:convnext_ato", {}, ["'convnext_ato'", "Did you mean convnext_atto?"]),
        ("timm:", {}, ["must be a model of timm", "timm.list_models()"]),
        ("timm:resnet18", {"colour": 3}, ["timm cannot build 'resnet18'", "unexpected keyword argument 'colour'"]),
        ("timm:resnet18", {"num_classes": 3}, ["multum names this keyword classes", "num_classes=3"]),
        ("timm:resnet18", {"classes": 0}, ["classes must be an int of at least 1"]),
    ],
)
def test_timm_mistakes_are_explained(fake_timm, name, keywords, said):
    with pytest.raises(ConfigError) as caught:
        build(name, **keywords)
    assert all(part in str(caught.value) for part in said), str(caught.value)


def test_without_timm_the_reason_is_stated(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(
        ConfigError, match=r"timm must be importable; got ModuleNotFoundError.*pip install multum\[timm\]"
    ):
        build("timm:resnet18")


def test_a_real_timm_network():
    try:
        import timm  # noqa: F401
    except Exception as reason:
        pytest.skip(f"timm cannot be imported here: {reason}")
    network = build("timm:test_resnet", classes=5, in_channels=1).eval()
    assert network(torch.zeros(2, 1, 64, 64)).shape == (2, 5)
    assert build(network.recipe["name"], **network.recipe["keywords"]).recipe == network.recipe
