"""Multilayer perceptrons.

MLP          of the tabular experiments: one hidden layer of 200 in the UCI reference
TabularMLP   the default for tables: an MLP behind a piecewise-linear encoding of the numbers
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import torch
from torch import nn

from ..checks import number, one_of, whole
from ..errors import ConfigError
from .network import Network, widths_of

ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}
FAR = 4.0  # where the outermost bins of an encoding end; of normal numbers one in 16,000 lies beyond


class MLP(Network):
    """Linear layers with an activation, and dropout where asked for, between them.

    h_0 = x flattened, h_i = dropout(activation(W_i h_{i-1} + b_i)), output = W h_n + b. A regression with a mean and a
    variance per target has ``classes=2``. ``hidden`` is one width or several; ``hidden=()`` is a linear model.

    **Shape**: [batch, ...] with ``in_features`` numbers per row -> [batch, classes].

    >>> MLP(in_features=13, classes=2)(torch.zeros(4, 13)).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        *,
        in_features: int,
        classes: int,
        hidden: int | Sequence[int] = (200,),
        dropout: float = 0.0,
        activation: str = "relu",
    ):
        super().__init__()
        p = number("dropout", dropout, least=0, below=1)
        nonlinearity = ACTIVATIONS[one_of("activation", activation, ACTIVATIONS)]
        width = whole("in_features", in_features)
        layers: list[nn.Module] = []
        for next_width in widths_of("hidden", hidden):
            layers += [nn.Linear(width, next_width), nonlinearity()]
            layers += [nn.Dropout(p)] if p else []
            width = next_width
        self.hidden = nn.Sequential(*layers)
        self.fc = nn.Linear(width, whole("classes", classes))
        self.reset_parameters()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.hidden(x.flatten(1)))


class PiecewiseLinear(nn.Module):
    """Numbers as positions in bins (Gorishniy et al., 2022, "On embeddings for numerical features"); the rest as it is.

    Bin b = 1..B of a number x has the value clamp((x - e_{b-1}) / (e_b - e_{b-1}), 0, 1). The edges e are quantiles of
    the normal distribution, and so those of the data, which is scaled to it (data/preparation.py): the network needs
    no data to be built. What a linear layer makes of it is any function of each number that is linear in the bins.

    **Shape**: [batch, columns] -> [batch, columns + B * numbers], the columns themselves first.

    >>> PiecewiseLinear((1,), bins=2)(torch.tensor([[7.0, -2.0]]))
    tensor([[ 7.0000, -2.0000,  0.5000,  0.0000]])
    """

    def __init__(self, numbers: Sequence[int], bins: int):
        super().__init__()
        inner = (NormalDist().inv_cdf(b / bins) for b in range(1, bins))
        self.numbers = tuple(numbers)
        self.edges = (-FAR, *inner, FAR)  # no buffer: a thinner network has as many bins

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        edges = torch.tensor(self.edges, dtype=x.dtype, device=x.device)
        numbers = x.index_select(1, torch.tensor(self.numbers, device=x.device)).unsqueeze(2)
        positions = (numbers - edges[:-1]) / edges.diff()
        return torch.cat([x, positions.clamp(0, 1).flatten(1)], 1)


class TabularMLP(MLP):
    """An MLP whose numbers are encoded by piecewise-linear functions.

    ``numbers`` are the positions of the columns that hold numbers and no zeros and ones; None: all. ``bins=0`` leaves
    the encoding out.

    **Shape**: [batch, in_features] -> [batch, classes].

    >>> TabularMLP(in_features=5, classes=2, numbers=(0, 3))(torch.zeros(4, 5)).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        *,
        in_features: int,
        classes: int,
        hidden: int | Sequence[int] = (256, 256, 256),
        dropout: float = 0.1,
        bins: int = 16,
        numbers: int | Sequence[int] | None = None,
        activation: str = "relu",
    ):
        columns = range(whole("in_features", in_features))
        encoded = _positions(numbers, columns) if whole("bins", bins, 0) else []
        super().__init__(
            in_features=in_features + bins * len(encoded),
            classes=classes,
            hidden=hidden,
            dropout=number("dropout", dropout, least=0, below=1),
            activation=activation,
        )
        self.encoding = PiecewiseLinear(encoded, bins) if encoded else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.encoding(x.flatten(1)))


def _positions(numbers: int | Sequence[int] | None, columns: range) -> list[int]:
    if numbers is None:
        return [*columns]
    positions = [numbers] if isinstance(numbers, int) else [*numbers]
    if any(type(n) is not int or n not in columns for n in positions) or len(set(positions)) < len(positions):
        raise ConfigError(
            f"numbers must be different positions of the {len(columns)} columns, from 0; got numbers={numbers!r}. Use "
            "None for all"
        )
    return positions
