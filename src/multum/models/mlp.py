"""The multilayer perceptron of the tabular experiments: one hidden layer of 200 in the UCI reference."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ..checks import number, one_of, whole
from .network import Network, widths_of

__all__ = ["MLP"]

ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}


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
