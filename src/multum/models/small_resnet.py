"""The default network for images of 17 to 63 pixels: a residual network that trains on a CPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ..checks import whole
from .network import Network, widths_of
from .pooling import MaxPool2x2
from .resnet import BasicBlock

__all__ = ["SmallResNet"]


class SmallResNet(Network):
    """A 3x3 convolution of stride 2, a 2x2 max-pool, a residual block for each of the ``widths``, global mean, a head.

    Blocks are those of ResNet-18, with stride 2 entering each but the first. Most of the work is done on a quarter of
    the pixels of each side: on 28 pixels that is as good as without the pool, at a third of the mult-adds.

    **Shape**: [batch, in_channels, height, width] -> [batch, classes].

    >>> SmallResNet(in_channels=1)(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self, *, classes: int = 10, in_channels: int = 3, widths: int | Sequence[int] = (32, 64, 128)):
        super().__init__()
        stages = widths_of("widths", widths)
        channels = stages[0]
        self.conv1 = nn.Conv2d(whole("in_channels", in_channels), channels, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.maxpool = MaxPool2x2()
        blocks = []
        for stage, width in enumerate(stages):
            blocks.append(BasicBlock(channels, width, width, stride=2 if stage else 1))
            channels = width
        self.blocks = nn.Sequential(*blocks)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, whole("classes", classes))
        self.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.maxpool(self.relu(self.bn1(self.conv1(x)))))
        return self.fc(self.avgpool(x).flatten(1))
