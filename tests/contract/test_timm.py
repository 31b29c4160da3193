"""Networks of timm, as they come: `multum.check` holds for Deep and Packed. Most take long; two are always run."""

from __future__ import annotations

import pytest
import torch

import multum
from multum import Deep, Packed
from multum.operators import define_missing

define_missing()
timm = pytest.importorskip("timm")

KEYWORDS = {"vit_tiny_patch16_224": {"img_size": 32, "depth": 4}}
NAMES = (
    "convnext_atto",
    "densenet121",
    "efficientnet_b0",
    "mobilenetv3_small_100",
    "regnety_002",
    "resnet18",
    "resnext50_32x4d",
    "seresnet18",
    "vit_tiny_patch16_224",
)
# Their last stage would see one pixel, and batch norm of two numbers turns rounding into noise.
SIDES = {"regnety_002": 64, "resnext50_32x4d": 64}
METHODS = {"deep": Deep(members=2), "packed": Packed(members=2, alpha=1)}
ALWAYS = {("resnet18", "packed")}  # of a transformer: tests/thinning/test_timm.py


@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(name, method, marks=() if (name, method) in ALWAYS else pytest.mark.slow)
        for name in NAMES
        for method in METHODS
    ],
)
def test_sound_on(name, method):
    torch.manual_seed(0)
    network = timm.create_model(name, num_classes=5, **KEYWORDS.get(name, {}))
    side = SIDES.get(name, 32)
    x = torch.randn(2, 3, side, side)
    ens = multum.ensemble(network, METHODS[method], example=x, seed=0)
    assert not ens.refusals
    multum.check(ens, x, verbose=False)
    assert list(ens.state_dict()) == list(network.state_dict())
    if method == "packed":
        assert sum(p.numel() for p in ens.parameters()) < 0.75 * sum(p.numel() for p in network.parameters())


def test_a_timm_network_by_name_is_saved_with_its_recipe(tmp_path):
    network = multum.models.build("timm:mobilenetv3_small_050", classes=5)
    x = torch.randn(2, 3, 32, 32)
    ens = multum.ensemble(network, Packed(members=2), example=x, seed=0).eval()
    multum.save(ens, tmp_path / "model.safetensors")
    assert torch.equal(multum.load(tmp_path / "model.safetensors")(x), ens(x))
