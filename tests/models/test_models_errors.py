"""Every mistake is a ConfigError that states the rule, the value and the fix; and what `timm:NAME` passes on."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from multum.errors import ConfigError
from multum.models import build, builder


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
        ("lenet", {"stem": "cifar"}, ["the keywords must be classes, in_channels", "stem='cifar'"]),
        ("wrn-10-1", {"depth": 16}, ["depth=16", "the keywords must be classes"]),
        ("resnet18", {"block": "basic"}, ["block='basic'"]),
        ("mlp", {"classes": 2}, ["got no in_features, which has no default", "Pass in_features="]),
        ("mlp", {"in_features": 3}, ["got no classes, which has no default", "Pass classes="]),
        ("mlp", {"in_features": 0, "classes": 2}, ["in_features must be a whole number >= 1", "in_features=0"]),
        ("mlp", {"in_features": 3, "classes": 2, "hidden": "wide"}, ["hidden must be", "'wide'", "hidden=(200, 200)"]),
        (
            "mlp",
            {"in_features": 3, "classes": 2, "hidden": [8, 0]},
            ["hidden must be a whole number >= 1", "hidden=0"],
        ),
        ("mlp", {"in_features": 3, "classes": 2, "hidden": 0}, ["hidden=0"]),
        ("mlp", {"in_features": 3, "classes": 2, "activation": "rellu"}, ["activation='rellu'", "Did you mean relu"]),
        ("mlp", {"in_features": 3, "classes": 2, "dropout": float("nan")}, ["0 <= dropout < 1", "dropout=nan"]),
        ("resnet18", {"stem": "foo"}, ["stem must be one of 'cifar', 'imagenet'", "stem='foo'"]),
        ("resnet18", {"stem": "imgnet"}, ["Did you mean imagenet?"]),
        ("resnet18", {"stem": None}, ["stem=None"]),
        ("resnet50", {"width": 0}, ["width must be positive", "width=0", "width=2"]),
        ("resnet50", {"width": 0.7}, ["64 * width a whole number", "width=0.7"]),
        ("resnet50", {"width": float("inf")}, ["width=inf"]),
        ("wrn-10-1", {"variant": "edward"}, ["variant='edward'", "Did you mean edward2?"]),
        ("wrn-10-1", {"bias": "edge"}, ["bias='edge'", "Did you mean edges?"]),
        ("wrn-10-1", {"dropout": 1}, ["dropout must be a number with 0 <= dropout < 1", "dropout=1", "dropout=0"]),
        ("wrn-10-1", {"dropout": True}, ["dropout=True"]),
        ("lenet", {"classes": nn.ReLU()}, ["so that the recipe can be saved", "classes=ReLU()", "multum.ensemble"]),
    ],
)
def test_mistakes_are_explained(name, keywords, said):
    with pytest.raises(ConfigError) as caught:
        build(name, **keywords)
    missing = [part for part in said if part not in str(caught.value)]
    assert not missing, str(caught.value)


@pytest.mark.parametrize("value", [0, 2.0, True, "10", None])
@pytest.mark.parametrize("keyword", ["classes", "in_channels"])
@pytest.mark.parametrize("name", ["lenet", "small-cnn", "resnet18", "wrn-10-1"])
def test_classes_and_channels_are_counts(name, keyword, value):
    rule = rf"models.build\('{name}'\): {keyword} must be a whole number >= 1; got {keyword}={value!r}. Use"
    with pytest.raises(ConfigError, match=rule):
        build(name, **{keyword: value})


@pytest.fixture
def fake_timm(monkeypatch):
    """timm's three functions that multum calls; create_model reports what it was given."""

    def create_model(model, *, in_chans, num_classes=1000, drop_rate=0.0, pretrained):
        assert pretrained is False
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
        ("timm:hf_hub:someone/model", {}, ["must be a model of timm; got 'hf_hub:someone/model'"]),
        ("timm:resnet18", {"depth": 3}, ["build 'resnet18'", "unexpected keyword argument 'depth'"]),
        ("timm:resnet18", {"num_classes": 3}, ["the keyword must be classes", "num_classes=3"]),
        ("timm:resnet18", {"classes": 0}, ["classes must be a whole number >= 1"]),
    ],
)
def test_timm_mistakes_are_explained(fake_timm, name, keywords, said):
    with pytest.raises(ConfigError) as caught:
        build(name, **keywords)
    assert all(part in str(caught.value) for part in said), str(caught.value)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("pretrained", True),
        ("checkpoint_path", "/tmp/model.pth"),
        ("pretrained_cfg", {"url": "https://example.org/model.pth"}),
        ("pretrained_cfg_overlay", {"file": "model.pth"}),
        ("cache_dir", "/tmp"),
        ("features_only", True),
        ("colour", 3),
        ("img_size", {"file": "model.pth"}),
    ],
)
def test_nothing_reaches_timm_that_could_read_or_fetch(fake_timm, keyword, value):
    rule = rf"must shape the architecture.*got {keyword}=.*build the network yourself"
    with pytest.raises(ConfigError, match=rule):
        build("timm:resnet18", **{keyword: value})


def test_without_timm_the_reason_is_stated(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(
        ConfigError, match=r"must find the package timm, which cannot be imported.*pip install multum\[timm\]"
    ):
        build("timm:resnet18")


def test_a_real_timm_network():
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    network = build("timm:test_resnet", classes=5, in_channels=1).eval()
    assert network(torch.zeros(2, 1, 64, 64)).shape == (2, 5)
    assert build(network.recipe["name"], **network.recipe["keywords"]).recipe == network.recipe


BY_NAME = {"small-cnn": (3, 8, 8), "mlp:hidden=8": (6,), "mlp": (1, 4, 4), "wrn-10-1:dropout=0.1": (3, 8, 8)}


@pytest.mark.parametrize("text", BY_NAME)
@pytest.mark.parametrize("size", ["", "thin=0.5", "wide=1.5"])
def test_one_text_names_a_network(text, size):
    text = f"{text}{',' if '=' in text else ':'}{size}" if size else text
    shape = BY_NAME[next(known for known in BY_NAME if text.startswith(known))] if text[:4] != "mlp:" else (6,)
    network = builder(text, shape, 5)().eval()
    assert network(torch.zeros(2, *shape)).shape == (2, 5)


def test_networks_of_timm_have_the_same_texts(fake_timm):
    network = builder("timm:resnet18:drop_rate=0.25", (2, 8, 8), 5)()
    assert (network.in_features, network.out_features, network.drop_rate) == (2, 5, 0.25)


def test_thin_networks_differ_between_draws_and_not_within_a_seed():
    make, weights = builder("small-cnn:thin=0.5", (1, 8, 8), 3), []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        weights.append(make().conv2.weight)
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_network_is_counted_on_the_meta_device():
    with torch.device("meta"):
        assert builder("resnet18:thin=0.5", (3, 32, 32), 10)().conv1.weight.shape == (32, 3, 3, 3)


@pytest.mark.parametrize("share", ["nan", "inf", "0", "1.5", "-1", "half", "true", "none", "0.5+0.5"])
def test_thin_is_a_share(share):
    with pytest.raises(ConfigError, match=r"thin must be a number with 0 < thin <= 1; got thin="):
        builder(f"small-cnn:thin={share}", (1, 8, 8), 10)


@pytest.mark.parametrize("factor", ["nan", "inf", "0", "0.5", "-1", "twice", "true", "none", "2+2"])
def test_wide_is_a_multiple(factor):
    with pytest.raises(ConfigError, match=r"wide must be a number with 1 <= wide < inf; got wide="):
        builder(f"small-cnn:wide={factor}", (1, 8, 8), 10)


def test_a_network_is_thinner_or_wider():
    with pytest.raises(ConfigError, match=r"must be thinner or wider; got thin=0.5 and wide=2. Use one"):
        builder("small-cnn:thin=0.5,wide=2", (1, 8, 8), 10)


@pytest.mark.parametrize("name", ["resnet18", "wrn-10-1", "timm:resnet18"])
def test_networks_for_images_refuse_tables(name):
    with pytest.raises(ConfigError, match=rf"{name} must have images .*; got examples \[13\]. Use mlp"):
        builder(name, (13,), 2)


@pytest.mark.slow  # a process of its own, which imports torch and timm; tests of timm's networks import it likewise
def test_timm_is_importable_where_torch_has_no_compiled_operators():
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    code = "from multum.models import build; print(build('timm:test_resnet', classes=5).get_classifier().out_features)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["5"], done.stderr[-1000:]
