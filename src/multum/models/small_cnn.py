"""The SmallCNN of Fort et al. (2019) and MIMO section 3: enough for digits on a CPU."""

from __future__ import annotations

import torch
from torch import nn

from ..checks import whole
from .network import Network
from .pooling import MaxPool2x2

__all__ = ["SmallCNN"]


class SmallCNN(Network):
    """Three biased 3x3 convolutions of 16, 32 and 32 filters, ReLU, global mean, a linear head.

    A 2x2 max-pool follows each of the first two, so the smallest image is 4x4.

    **Shape**: [batch, in_channels, height, width] -> [batch, classes].

    >>> SmallCNN(in_channels=1)(torch.zeros(4, 1, 8, 8)).shape
    torch.Size([4, 10])
    """

    def __init__(self, *, classes: int = 10, in_channels: int = 3):
        super().__init__()
        self.conv1 = nn.Conv2d(whole("in_channels", in_channels), 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 32, 3, padding=1)
        self.fc = nn.Linear(32, whole("classes", classes))
        self.relu = nn.ReLU()
        self.maxpool = MaxPool2x2()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.conv1(x)))
        x = self.maxpool(self.relu(self.conv2(x)))
        x = self.avgpool(self.relu(self.conv3(x)))
        return self.fc(x.flatten(1))
