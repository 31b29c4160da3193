"""LeNet-5 (LeCun et al., 1998), as a fully convolutional trunk, so that it takes any image size."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from ..checks import whole
from .network import Network
from .pooling import MaxPool2x2

__all__ = ["LeNet"]

SMALLEST = 32


class LeNet(Network):
    """Three 5x5 convolutions of 6, 16 and 120 filters, global mean, a hidden layer of 84, a linear head.

    ReLU and 2x2 max-pooling stand where the original has tanh and trained subsampling. LeNet-5's third layer is a
    convolution whose output is 1x1 at 32x32: there this is LeNet-5 itself (61 706 parameters for grey images and 10
    classes). Smaller images are zero-padded to 32x32, as the original does with 28x28 digits; larger ones are pooled.

    **Shape**: [batch, in_channels, height, width] -> [batch, classes].

    >>> LeNet(in_channels=1)(torch.zeros(4, 1, 28, 28)).shape
    torch.Size([4, 10])
    """

    def __init__(self, *, classes: int = 10, in_channels: int = 3):
        super().__init__()
        self.conv1 = nn.Conv2d(whole("in_channels", in_channels), 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.conv3 = nn.Conv2d(16, 120, 5)
        self.hidden = nn.Linear(120, 84)
        self.fc = nn.Linear(84, whole("classes", classes))
        self.relu = nn.ReLU()
        self.maxpool = MaxPool2x2()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.conv1(_at_least(SMALLEST, x))))
        x = self.maxpool(self.relu(self.conv2(x)))
        x = self.avgpool(self.relu(self.conv3(x))).flatten(1)
        return self.fc(self.relu(self.hidden(x)))


def _at_least(side: int, x: torch.Tensor) -> torch.Tensor:
    rows, columns = (max(side - length, 0) for length in x.shape[-2:])
    return F.pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
