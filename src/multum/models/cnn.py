"""The default network for images of 8 to 16 pixels: convolutions with batch norm, wide enough to be shared."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ..checks import whole
from .network import Network, widths_of
from .pooling import MaxPool2x2

__all__ = ["CNN"]

POOLED = 2  # layers that a 2x2 max-pool follows


class CNN(Network):
    """3x3 convolutions with batch norm and ReLU, global mean, a linear head.

    ``widths`` are the filters of the convolutions. A 2x2 max-pool follows each of the first two, so the smallest image
    is 4x4.

    **Shape**: [batch, in_channels, height, width] -> [batch, classes].

    >>> CNN(in_channels=1)(torch.zeros(4, 1, 8, 8)).shape
    torch.Size([4, 10])
    """

    def __init__(self, *, classes: int = 10, in_channels: int = 3, widths: int | Sequence[int] = (48, 96, 96)):
        super().__init__()
        channels = whole("in_channels", in_channels)
        layers: list[nn.Module] = []
        for place, width in enumerate(widths_of("widths", widths)):
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            layers += [MaxPool2x2()] if place < POOLED else []
            channels = width
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, whole("classes", classes))
        self.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.avgpool(self.features(x)).flatten(1))
