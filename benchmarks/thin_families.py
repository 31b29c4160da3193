"""How many timm families can be thinned: multum's numbered channels against torch-pruning's dependency graph.

    pip install timm torch-pruning      # torch-pruning is not needed by multum
    python benchmarks/thin_families.py

Each network is thinned to half its width at 64 or 224 pixels; it counts as thinned where the result runs, has the old
output size, and has fewer than 45 % of the parameters. Everything else is refused or wrong, and the reason is printed.
"""

from __future__ import annotations

import time
import warnings

import torch

import multum
from multum.models.timm_model import import_timm

timm = import_timm()

FAMILIES = [
    "resnet18",
    "densenet121",
    "efficientnet_b0",
    "mobilenetv3_small_100",
    "convnext_atto",
    "regnety_002",
    "vit_tiny_patch16_224",
    "seresnet18",
    "resnext50_32x4d",
    "vgg11_bn",
    "mobilenetv2_100",
    "ghostnet_100",
    "deit_tiny_patch16_224",
    "mixer_s16_224",
    "resmlp_12_224",
    "poolformer_s12",
    "res2net50_26w_4s",
    "dla34",
    "xception41",
    "dpn68",
    "cspresnet50",
    "hrnet_w18_small",
    "mobilevit_xxs",
    "repvgg_a0",
    "skresnet18",
    "mnasnet_100",
    "levit_128s",
    "edgenext_xx_small",
    "convnextv2_atto",
    "swin_tiny_patch4_window7_224",
    "xcit_nano_12_p16_224",
]
FIXED_SIZE = ("mixer", "resmlp", "swin", "levit", "xcit", "vit", "deit")


def by_multum(net: torch.nn.Module, x: torch.Tensor) -> torch.nn.Module:
    return multum.thin(net, 0.5, x)


def by_torch_pruning(net: torch.nn.Module, x: torch.Tensor) -> torch.nn.Module:
    import torch_pruning

    heads = [m for m in net.modules() if isinstance(m, torch.nn.Linear) and m.out_features == 10]
    pruner = torch_pruning.pruner.MagnitudePruner(
        net, x, importance=torch_pruning.importance.RandomImportance(), pruning_ratio=0.5, ignored_layers=heads
    )
    pruner.step()
    return net


def verdict(thinner, name: str) -> str:
    size = 224 if name.startswith(FIXED_SIZE) else 64
    net, x = timm.create_model(name, num_classes=10).eval(), torch.randn(1, 3, size, size)
    before, began = sum(p.numel() for p in net.parameters()), time.perf_counter()
    try:
        thin = thinner(net, x).eval()
        with torch.no_grad():
            shape = tuple(thin(torch.cat([x, x])).shape)
    except Exception as error:  # a benchmark of two libraries: any failure is a result
        return f"no: {type(error).__name__}: {' '.join(str(error).split())[:110]}"
    share = sum(p.numel() for p in thin.parameters()) / before
    if shape != (2, 10) or share > 0.45:
        return f"no: output {shape}, {share:.0%} of the parameters"
    return f"yes: {share:.0%} of the parameters, {time.perf_counter() - began:.1f} s"


def main() -> None:
    warnings.simplefilter("ignore")
    thinners = {"multum": by_multum}
    try:
        import torch_pruning  # noqa: F401

        thinners["torch-pruning"] = by_torch_pruning
    except ImportError:
        print("torch-pruning is not installed: multum alone")
    passed = dict.fromkeys(thinners, 0)
    for name in FAMILIES:
        for who, thinner in thinners.items():
            found = verdict(thinner, name)
            passed[who] += found.startswith("yes")
            print(f"{name:32s} {who:14s} {found}", flush=True)
    for who, count in passed.items():
        print(f"{who}: {count} of {len(FAMILIES)}")


if __name__ == "__main__":
    main()
