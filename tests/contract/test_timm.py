"""Networks of timm, as they come: `multum.check` holds for Deep and Packed. Most take long; three are always run."""

from __future__ import annotations

import pytest
import torch

import multum
import timm_shim  # noqa: F401  (before timm)
from multum import Deep, Packed

timm = pytest.importorskip("timm")

FAST = {"mobilenetv3_small_100": {}, "convnext_atto": {}, "vit_tiny_patch16_224": {"img_size": 32, "depth": 4}}
SLOW = (
    "densenet121",
    "efficientnet_b0",
    "regnety_002",
    "resnet18",
    "resnext50_32x4d",
    "seresnet18",
)
NAMES = [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


@pytest.mark.parametrize("method", [Deep(members=2), Packed(members=2, alpha=1)], ids=["deep", "packed"])
@pytest.mark.parametrize("name", NAMES)
def test_sound_on(name, method):
    torch.manual_seed(0)
    network = timm.create_model(name, num_classes=5, **FAST.get(name, {}))
    x = torch.randn(2, 3, 32, 32)
    ens = multum.ensemble(network, method, example=x, seed=0)
    assert ens.vmap_refused is None
    multum.check(ens, x, verbose=False)
    assert list(ens.state_dict()) == list(network.state_dict())
    if isinstance(method, Packed):
        assert sum(p.numel() for p in ens.parameters()) < 0.75 * sum(p.numel() for p in network.parameters())


def test_a_timm_network_by_name_is_saved_with_its_recipe(tmp_path):
    network = multum.models.build("timm:mobilenetv3_small_050", classes=5)
    x = torch.randn(2, 3, 32, 32)
    ens = multum.ensemble(network, Packed(members=2), example=x, seed=0).eval()
    multum.save(ens, tmp_path / "model.safetensors")
    assert torch.equal(multum.load(tmp_path / "model.safetensors")(x), ens(x))
