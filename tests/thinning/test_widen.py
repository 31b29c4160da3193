"""A network several times as wide: exact widths, the square of the cost, fresh weights, and what is refused."""

from __future__ import annotations

import pytest
import torch
from tests import networks
from torch import nn

import multum
from multum.errors import ConfigError, RewriteError
from multum.metrics.cost import cost
from multum.models import build, builder
from multum.thinning.thin import widen

# The outputs of every weighted layer at 1.5 times the width; inputs of the first and outputs of the last stay.
WIDTHS = {
    "small-cnn": ((1, 8, 8), [24, 48, 48, 10]),
    "cnn": ((1, 8, 8), [72, 144, 144, 10]),
    "small-resnet": ((1, 28, 28), [48, 48, 48, 96, 96, 96, 192, 192, 192, 10]),
    "mlp:hidden=9+5": ((6,), [14, 8, 10]),
    "tabular-mlp:hidden=9+5,numbers=0+3": ((6,), [14, 8, 10]),
    "wrn-10-1": ((3, 32, 32), [24, 24, 24, 48, 48, 48, 96, 96, 96, 10]),
    "resnet18": ((3, 32, 32), [*[96] * 5, *[192] * 5, *[384] * 5, *[768] * 5, 10]),
}


def wider(text: str, factor: float) -> str:
    return f"{text}{',' if '=' in text else ':'}wide={factor:g}"


def layers(network: nn.Module) -> list[nn.Module]:
    return [m for m in network.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]


@pytest.mark.parametrize("text", WIDTHS)
def test_exact_widths(text: str) -> None:
    shape, widths = WIDTHS[text]
    with torch.device("meta"):
        base, network = builder(text, shape, 10)(), builder(wider(text, 1.5), shape, 10)()
    assert [layer.weight.shape[0] for layer in layers(network)] == widths
    assert layers(network)[0].weight.shape[1] == layers(base)[0].weight.shape[1]


@pytest.mark.parametrize("text", ["cnn", "wrn-10-1"])
def test_the_cost_grows_by_the_square(text: str) -> None:
    shape = WIDTHS[text][0]
    example = torch.zeros(2, *shape)
    single, double = (cost(builder(name, shape, 10)(), example=example) for name in (text, wider(text, 2)))
    assert 3.8 < double.macs / single.macs <= 4
    assert 3.8 < double.params / single.params <= 4


@pytest.mark.parametrize("name", ["convnext-like", "densenet-like", "small-vit", "transformer", "attention", "lstm"])
def test_any_network_becomes_wider_and_its_layers_are_initialised(name: str) -> None:
    make, example = networks.ZOO[name]
    base = make()
    network = widen(base, 2, example(), seed=3)
    out = networks_output(network, example())
    assert out.shape == networks_output(base, example()).shape and out.isfinite().all()
    assert sum(p.numel() for p in network.parameters()) > 1.9 * sum(p.numel() for p in base.parameters())
    for layer in layers(network):
        if layer.weight.shape[0] > 1 and layer.weight.requires_grad:
            rows = layer.weight.flatten(1)
            assert torch.unique(rows, dim=0).shape == rows.shape  # none is a copy of another


def networks_output(network: nn.Module, x: object) -> torch.Tensor:
    with torch.no_grad():
        return network.eval()(*x) if isinstance(x, tuple) else network.eval()(x)


def test_groups_and_heads_stay_whole() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 6, 1), nn.Conv2d(6, 6, 3, groups=3), nn.GroupNorm(2, 6), nn.Flatten(), nn.Linear(6, 2)
    )
    network = widen(net, 1.1, torch.zeros(2, 3, 3, 3))
    assert network[0].out_channels == network[1].in_channels and network[0].out_channels % 3 == 0
    assert network[1].groups == 3 and network[2].num_channels % 2 == 0
    assert network(torch.zeros(2, 3, 3, 3)).shape == (2, 2)


def test_draws_differ_and_a_seed_does_not() -> None:
    make, weights = builder("small-cnn:wide=2", (1, 8, 8), 3), []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        weights.append(make().conv2.weight)
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_wide_network_trains() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 6)
    y = (x[:, 0] > 0).long()
    ens = multum.ensemble(
        builder("mlp:hidden=4,wide=4", (6,), 2), multum.Packed(members=2, alpha=1), example=x[:2], seed=0
    )
    history = multum.fit(ens, (x, y), multum.Recipe(epochs=8, lr=0.03, batch_size=16), progress=False)
    assert history[-1]["loss"] < 0.6 * history[0]["loss"]


class Fixed(nn.Module):
    """Writes its width down as a number."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 8), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x)[:, :4])


def test_what_cannot_become_wider_is_refused() -> None:
    with pytest.raises(RewriteError, match="widening: refused at 1 place"):
        widen(Fixed(), 2, torch.zeros(2, 3))
    with pytest.raises(ConfigError, match="factor must be a number with 1 <= factor"):
        widen(build("small-cnn"), 0.5, torch.zeros(2, 3, 8, 8))
    assert widen(Fixed(), 1, torch.zeros(2, 3)).a.out_features == 8
