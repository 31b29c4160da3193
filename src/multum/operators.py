"""Operators that torchvision expects of torch, and that builds of torch without its compiled extension lack."""

from __future__ import annotations

import torch

_LIBRARIES: list[torch.library.Library] = []  # definitions live as long as their library does


def define_missing() -> None:
    """Make torchvision, and what imports it (timm), importable where its compiled operators cannot be loaded.

    The names are defined only after an import has failed for want of them: a torchvision that brings its own would
    otherwise find them taken.
    """
    if _LIBRARIES:
        return
    try:
        import torchvision  # noqa: F401
    except ImportError:  # timm says what it needs
        return
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        _LIBRARIES.append(torch.library.Library("torchvision", "FRAGMENT"))
        for name in ("nms", "qnms"):
            _LIBRARIES[0].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
