"""Wide residual networks (Zagoruyko & Komodakis, 2016), in the three variants that the papers use."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn

from ..checks import number, one_of, whole
from ..errors import ConfigError
from .network import Network

BIASES = ("none", "edges", "all")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Where one public implementation differs from the others.

    >>> VARIANTS["meliketoy"].dropout
    0.3
    """

    activated_shortcut: bool = False  # the 1x1 shortcut sees relu(bn(x)), not x
    late_stride: bool = False  # the second 3x3 carries the stride, not the first
    bias: str = "none"  # which convolutions have one: "none", "edges" (stem and 1x1 shortcuts), "all"
    dropout: float = 0.0  # after the first 3x3 of every block
    final_momentum: float = 0.1  # of the last batch norm


VARIANTS = {
    "zagoruyko": Variant(activated_shortcut=True),
    "edward2": Variant(),
    "meliketoy": Variant(late_stride=True, bias="all", dropout=0.3, final_momentum=0.9),
}


class PreActivationBlock(nn.Module):
    """Two 3x3 convolutions, each after batch norm and ReLU, and a shortcut.

    a = relu(bn1(x)); f = conv2(relu(bn2(dropout(conv1(a))))); output = f + shortcut, which is a 1x1 convolution of a
    (zagoruyko) or of x (the others) where the shape changes, and x itself elsewhere.

    **Shape**: [batch, in_channels, height, width] -> [batch, out_channels, height / stride, width / stride].

    >>> PreActivationBlock(16, 32, stride=2, variant=VARIANTS["edward2"])(torch.zeros(2, 16, 8, 8)).shape
    torch.Size([2, 32, 4, 4])
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, variant: Variant):
        super().__init__()
        early, late = (1, stride) if variant.late_stride else (stride, 1)
        inside, edges = variant.bias == "all", variant.bias != "none"
        self.activated_shortcut = variant.activated_shortcut
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, early, 1, bias=inside)
        self.dropout = nn.Dropout(variant.dropout) if variant.dropout else nn.Identity()
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, late, 1, bias=inside)
        changes = in_channels != out_channels or stride != 1
        self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride, bias=edges) if changes else None
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        activated = self.relu(self.bn1(x))
        y = self.dropout(self.conv1(activated))
        y = self.conv2(self.relu(self.bn2(y)))
        if self.shortcut is None:
            return y + x
        return y + self.shortcut(activated if self.activated_shortcut else x)


class WideResNet(Network):
    """WRN-depth-widen: a 3x3 stem of 16, three stages of (depth - 4) / 6 blocks, batch norm, global mean, a head.

    Stages are 16, 32 and 64 times ``widen`` wide, with stride 2 entering the second and the third. ``variant`` is
    "zagoruyko" (MixtureEnsembles, the hypernetworks), "edward2" (MIMO) or "meliketoy" (Packed-Ensembles' single
    network). ``bias`` is "none", "edges" (the stem and the 1x1 shortcuts) or "all" convolutions; ``bias`` and
    ``dropout`` left at None are the variant's own.

    **Shape**: [batch, in_channels, height, width] -> [batch, classes].

    >>> WideResNet(10, 1)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        depth: int,
        widen: int,
        *,
        classes: int = 10,
        in_channels: int = 3,
        variant: str = "zagoruyko",
        bias: str | None = None,
        dropout: float | None = None,
    ):
        super().__init__()
        blocks = _blocks_per_stage(depth)
        if type(widen) is not int or widen < 1:
            rule = "the width K of wrn-D-K must be an int of at least 1"
            raise ConfigError(f"{rule}; got K={widen!r}. The narrowest is wrn-{depth}-1.")
        classes, in_channels = whole("classes", classes), whole("in_channels", in_channels)
        rules = _settle(variant, bias, dropout)

        self.conv1 = nn.Conv2d(in_channels, 16, 3, 1, 1, bias=rules.bias != "none")
        self.layer1 = _stage(blocks, 16, 16 * widen, 1, rules)
        self.layer2 = _stage(blocks, 16 * widen, 32 * widen, 2, rules)
        self.layer3 = _stage(blocks, 32 * widen, 64 * widen, 2, rules)
        self.bn = nn.BatchNorm2d(64 * widen, momentum=rules.final_momentum)
        self.relu = nn.ReLU()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64 * widen, classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw every parameter anew from torch's global generator: He-normal weights, zero biases, plain norms.

        Weights of convolutions and of the head are N(0, 2 / fan_in), as in Zagoruyko's torch code and in Keras'
        he_normal of edward2 (there truncated).
        """
        super().reset_parameters()
        for layer in self.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        x = self.relu(self.bn(x))
        return self.fc(self.avgpool(x).flatten(1))


def _stage(blocks: int, in_channels: int, out_channels: int, stride: int, rules: Variant) -> nn.Sequential:
    first = PreActivationBlock(in_channels, out_channels, stride, rules)
    others = [PreActivationBlock(out_channels, out_channels, 1, rules) for _ in range(blocks - 1)]
    return nn.Sequential(first, *others)


def _settle(variant: str, bias: str | None, dropout: float | None) -> Variant:
    """The variant's rules, with the user's bias and dropout in place of its own where given."""
    rules = VARIANTS[one_of("variant", variant, VARIANTS)]
    return replace(
        rules,
        bias=rules.bias if bias is None else one_of("bias", bias, BIASES),
        dropout=rules.dropout if dropout is None else number("dropout", dropout, least=0, below=1),
    )


def _blocks_per_stage(depth: int) -> int:
    blocks, rest = divmod(depth - 4, 6)
    if blocks >= 1 and rest == 0:
        return blocks
    nearest = (10,) if depth < 10 else (depth - rest, depth - rest + 6)
    raise ConfigError(
        f"the depth of a wide ResNet must be 6n + 4 with n >= 1 (10, 16, 22, 28, ...); got depth {depth}. "
        f"The nearest valid depth{'s are' if len(nearest) > 1 else ' is'} {' and '.join(map(str, nearest))}."
    )
