"""Other people's networks, unmodified: timm at 64 x 64, thinned by half."""

from __future__ import annotations

import pytest
import torch

from multum.operators import define_missing
from slices import assert_equals_zeroed, plan, run

define_missing()
timm = pytest.importorskip("timm")

BATCH_NORM = {  # parameters at half the width, with 10 classes
    "resnet18": 2_801_450,
    "densenet121": 1_766_858,
    "efficientnet_b0": 1_066_856,
    "mobilenetv3_small_100": 403_354,
    "regnety_002": 706_776,
    "seresnet18": 2_824_490,
    "resnext50_32x4d": 5_774_634,
}
LAYER_NORM = {"convnext_atto": 872_870, "vit_tiny_patch16_224": 1_418_794}
ALWAYS = ("mobilenetv3_small_100", "vit_tiny_patch16_224")  # gates and depthwise, residuals, layer norm, attention


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in ALWAYS else pytest.mark.slow) for n in (*BATCH_NORM, *LAYER_NORM)],
)
def test_half_of_a_timm_network(name):
    torch.manual_seed(0)
    network = timm.create_model(name, num_classes=10, **({"img_size": 64} if name.startswith("vit") else {})).eval()
    x = torch.randn(2, 3, 64, 64)
    thinning = plan(network, x)
    thinner = thinning.build(network, init="fresh", seed=0)
    assert sum(p.numel() for p in thinner.parameters()) == {**BATCH_NORM, **LAYER_NORM}[name]
    assert bool(torch.isfinite(run(thinner, x)).all())
    assert not thinning.channels.wide
    if name in BATCH_NORM:
        # Zero stays zero: relu(0) = silu(0) = hardswish(0) = 0, and gates multiply. Layer norm would rescale.
        assert_equals_zeroed(network, x, thinning, seed=1, rows_only=True)
