"""Small networks for images, which a CPU trains.

CNN           the default for images of 8 to 16 pixels: batch norm, and wide enough to be shared
SmallResNet   the default for 17 to 63 pixels
SmallCNN      of Fort et al. (2019) and MIMO section 3
LeNet         LeNet-5 (LeCun et al., 1998), as a fully convolutional trunk, so that it takes any image size
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ..checks import whole
from .network import Network, widths_of
from .resnet import BasicBlock

POOLED = 2  # layers of CNN that a 2x2 max-pool follows
SMALLEST = 32  # pixels of a side that LeNet needs


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


class MaxPool2x2(nn.MaxPool2d):
    """The numbers of nn.MaxPool2d(2), several times faster on a CPU where nothing is trained.

    torch's kernel visits the numbers of a tensor in rows one by one, as it also notes the place of each. Where no
    gradient asks for places, the four numbers of a window are four slices of the tensor, which are compared as wholes.
    What reads or compiles a network (a trace, an export, torch.compile) sees torch's own pooling.

    **Shape**: [..., height, width] -> [..., height // 2, width // 2].

    >>> MaxPool2x2()(torch.arange(16.0).reshape(1, 1, 4, 4)).flatten().tolist()
    [5.0, 7.0, 13.0, 15.0]
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, x: Tensor) -> Tensor:
        return _by_slices(x) if _is_plain(x) else F.max_pool2d(x, 2)


def _is_plain(x: Tensor) -> bool:
    """Whether x is a tensor of numbers on a CPU that needs no gradient, and nobody watches what is done to it."""
    return (
        type(x) is Tensor
        and not x.requires_grad
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and x.shape[-1] % 2 == x.shape[-2] % 2 == 0
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and torch._C._len_torch_function_stack() == 0
        and _get_current_dispatch_mode() is None
    )


def _by_slices(x: Tensor) -> Tensor:
    rows = torch.maximum(x[..., ::2, :], x[..., 1::2, :])
    return torch.maximum(rows[..., ::2], rows[..., 1::2])
