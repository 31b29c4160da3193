"""Operators that torchvision expects of torch, and that builds of torch without its compiled extension lack."""

from __future__ import annotations

import torch

__all__ = ["define_missing"]

_LIBRARIES: list[torch.library.Library] = []  # definitions live as long as their library does


def define_missing() -> None:
    """Call this before torchvision, or what imports it (timm), is imported: without the names its import fails."""
    if _LIBRARIES:
        return
    _LIBRARIES.append(torch.library.Library("torchvision", "FRAGMENT"))
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            _LIBRARIES[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
