"""Import this before timm: its torchvision expects two operators that a torch without compiled extensions lacks."""

from __future__ import annotations

import torch

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}

# The definitions live as long as this object does.
LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
for _name, _schema in _SCHEMAS.items():
    if not hasattr(torch.ops.torchvision, _name):
        LIBRARY.define(_schema)
