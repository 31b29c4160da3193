"""ResNet-18, ResNet-50, its four times wider sister and ResNeXt-50, with the stem of CIFAR or of ImageNet.

Children bear torchvision's names, so its trained state dicts load into the ``stem="imagenet"`` networks. Unlike
torchvision's, fresh weights follow torch's default scheme, as Packed-Ensembles does.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ..checks import one_of, whole
from ..errors import ConfigError
from .network import Network

STEMS = ("cifar", "imagenet")


class BasicBlock(nn.Module):
    """Two 3x3 convolutions, the first with the stride, and a shortcut: relu(shortcut(x) + f(x)).

    **Shape**: [batch, in_channels, height, width] -> [batch, out_channels, height / stride, width / stride].

    >>> BasicBlock(64, 128, 128, stride=2)(torch.zeros(2, 64, 8, 8)).shape
    torch.Size([2, 128, 4, 4])
    """

    expansion = 1

    def __init__(self, in_channels: int, inner: int, out_channels: int, stride: int = 1, groups: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, inner, 3, stride, 1, groups=groups, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, out_channels, 3, 1, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.downsample = _shortcut(in_channels, out_channels, stride)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        return self.relu(x + shortcut)


class Bottleneck(nn.Module):
    """A 1x1, a 3x3 with the stride (v1.5) and the groups, a 1x1, and a shortcut: relu(shortcut(x) + f(x)).

    **Shape**: [batch, in_channels, height, width] -> [batch, out_channels, height / stride, width / stride].

    >>> Bottleneck(256, 128, 512, stride=2)(torch.zeros(2, 256, 8, 8)).shape
    torch.Size([2, 512, 4, 4])
    """

    expansion = 4

    def __init__(self, in_channels: int, inner: int, out_channels: int, stride: int = 1, groups: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample = _shortcut(in_channels, out_channels, stride)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        return self.relu(x + shortcut)


def _shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Module | None:
    if stride == 1 and in_channels == out_channels:
        return None
    return nn.Sequential(nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels))


class ResNet(Network):
    """A stem, four stages of blocks with stride 2 entering stages 2 to 4, global mean, a linear head.

    Stage s = 1..4 has ``depths[s-1]`` blocks; with w = 64 * width * 2^(s-1) each block is ``inner * w`` wide inside
    and ``block.expansion * w`` wide outside. Stem "cifar": 3x3, stride 1, no pooling; "imagenet": 7x7, stride 2, then
    max-pooling. ``width`` multiplies every width, the stem's included.

    **Shape**: [batch, in_channels, height, width] -> [batch, classes].

    >>> ResNet(BasicBlock, (1, 1, 1, 1), classes=10, in_channels=3, stem="cifar")(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        *,
        classes: int,
        in_channels: int,
        stem: str,
        width: float = 1,
        inner: int = 1,
        groups: int = 1,
    ):
        super().__init__()
        channels = _stem_width(width)
        classes, in_channels = whole("classes", classes), whole("in_channels", in_channels)
        if one_of("stem", stem, STEMS) == "cifar":
            self.conv1 = nn.Conv2d(in_channels, channels, 3, 1, 1, bias=False)
        else:
            self.conv1 = nn.Conv2d(in_channels, channels, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1) if stem == "imagenet" else nn.Identity()

        widths = [channels * 2**stage for stage in range(4)]
        stages = []
        for stage, (depth, w) in enumerate(zip(depths, widths, strict=True)):
            blocks = []
            for position in range(depth):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(block(channels, inner * w, block.expansion * w, stride, groups))
                channels = block.expansion * w
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages

        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)
        self.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def _stem_width(width: object) -> int:
    if isinstance(width, (int, float)) and not isinstance(width, bool) and width > 0 and (64 * width) % 1 == 0:
        return int(64 * width)
    raise ConfigError(
        f"width must be positive, and 64 * width a whole number; got width={width!r}. "
        "Pass for example width=2 (twice as wide) or width=0.5 (half)."
    )


def resnet18(*, classes: int = 10, in_channels: int = 3, stem: str = "cifar", width: float = 1) -> ResNet:
    """ResNet-18: basic blocks, 2 per stage (He et al., 2016).

    >>> sum(p.numel() for p in resnet18(classes=10).parameters())
    11173962
    """
    return ResNet(BasicBlock, (2, 2, 2, 2), classes=classes, in_channels=in_channels, stem=stem, width=width)


def resnet50(*, classes: int = 10, in_channels: int = 3, stem: str = "cifar", width: float = 1) -> ResNet:
    """ResNet-50 v1.5: bottlenecks, 3, 4, 6 and 3 per stage, the stride on the 3x3. MIMO's "wide" one has width=2.

    >>> with torch.device("meta"):
    ...     sum(p.numel() for p in resnet50(classes=1000, stem="imagenet").parameters())
    25557032
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), classes=classes, in_channels=in_channels, stem=stem, width=width)


def resnet50x4(*, classes: int = 10, in_channels: int = 3, stem: str = "cifar") -> ResNet:
    """ResNet-50 with every width times four, the stem's included.

    >>> with torch.device("meta"):
    ...     sum(p.numel() for p in resnet50x4(classes=1000, stem="imagenet").parameters())
    383571176
    """
    return resnet50(classes=classes, in_channels=in_channels, stem=stem, width=4)


def resnext50(*, classes: int = 10, in_channels: int = 3, stem: str = "cifar") -> ResNet:
    """ResNeXt-50 32x4d: ResNet-50 with twice the inner width, its 3x3 in 32 groups (Xie et al., 2017).

    >>> with torch.device("meta"):
    ...     sum(p.numel() for p in resnext50(classes=10).parameters())
    22992714
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), classes=classes, in_channels=in_channels, stem=stem, inner=2, groups=32)
