"""What tests of `thin` share: numbers that show where a slice came from, and the given network with channels zeroed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from multum.network.copies import arguments, tensors_of
from multum.thinning.plan import Thinning
from multum.thinning.thin import plan_thinning


class Net(nn.Module):
    """A network in one line: layers by name, and `forward(net, x)`."""

    def __init__(self, forward: Callable[..., Tensor], seed: int = 0, **layers: Any):
        super().__init__()
        self.run = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *x: Tensor) -> Tensor:
        return self.run(self, *x)


def half(channels: int) -> int:
    return -(-channels // 2)


def plan(network: nn.Module, x: Any, width: Callable[[int], int] = half, **options: Any) -> Thinning:
    return plan_thinning(network, x, width, **options)


def shapes(network: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(t.shape) for name, t in tensors_of(network).items()}


def double(x: Any) -> Any:
    return tree_map_only(Tensor, lambda t: t.double() if t.is_floating_point() else t, x)


def run(network: nn.Module, x: Any) -> Tensor:
    args, kwargs = arguments(tree_map_only(Tensor, torch.clone, x))
    with torch.no_grad():
        return network(*args, **kwargs)


def scrambled(network: nn.Module, seed: int = 0) -> nn.Module:
    """A float64 copy in eval mode in which no tensor is trivial: norms have statistics, biases are not zero."""
    network = copy.deepcopy(network).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, t in tensors_of(network).items():
            if t.is_floating_point():
                noise = torch.randn(t.shape, generator=generator, dtype=torch.float64)
                positive = name.endswith("running_var")
                scale = t.std() if t.ndim > 1 and t.numel() > 1 else 1.0
                t.copy_(noise.abs() + 0.5 if positive else t + 0.3 * scale * noise)
    return network


def numbered(network: nn.Module) -> nn.Module:
    """A float64 copy in which every element of every tensor is its own position."""
    network = copy.deepcopy(network).double()
    with torch.no_grad():
        for t in tensors_of(network).values():
            if t.is_floating_point():
                t.copy_(torch.arange(t.numel(), dtype=torch.float64).view(t.shape))
    return network


def origin(shape: tuple[int, ...], slice_: Tensor) -> list[np.ndarray]:
    """The indices along every dimension that a slice of a numbered tensor was cut at; fails if it is no such slice."""
    where = np.unravel_index(slice_.round().long().numpy().reshape(-1), shape)
    found = [np.unique(w) for w in where]
    grid = np.stack([g.reshape(-1) for g in np.meshgrid(*found, indexing="ij")])
    assert np.array_equal(grid, np.stack(where)), "not a product of index sets in their order"
    assert tuple(len(f) for f in found) == tuple(slice_.shape)
    return found


def origins(network: nn.Module, thinning: Thinning, seed: int) -> dict[str, list[np.ndarray]]:
    """Where every floating tensor of the pretrained thin network was cut out of the given one."""
    source = numbered(network)
    thinner = thinning.build(source, init="pretrained", seed=seed)
    whole = shapes(source)
    return {
        name: origin(whole[name], t) for name, t in tensors_of(thinner).items() if t.is_floating_point() and t.ndim > 0
    }


def zeroed(network: nn.Module, kept: dict[str, list[np.ndarray]], rows_only: bool = False) -> nn.Module:
    """A copy in which every parameter is zero wherever a dropped channel is involved.

    Args:
        rows_only: zero only what produces dropped channels (the rows of weights, biases, affine norms), not the columns
            that consume them: the activation itself must then be zero wherever it is consumed.
    """
    network = copy.deepcopy(network)
    with torch.no_grad():
        for name, p in network.named_parameters():
            module = network.get_submodule(name.rpartition(".")[0])
            made = 1 if isinstance(module, nn.Embedding) else 0
            for d, indices in enumerate(kept.get(name, [])):
                if d != made and rows_only:
                    continue
                dropped = np.setdiff1d(np.arange(p.shape[d]), indices)
                p.index_fill_(d, torch.as_tensor(dropped), 0.0)
    return network


def assert_equals_zeroed(network: nn.Module, x: Any, thinning: Thinning, seed: int, rows_only: bool = False) -> None:
    """The thin network computes what the given one computes with the dropped channels at zero, to 1e-12."""
    network, x = scrambled(network, seed), double(x)
    kept = origins(network, thinning, seed)
    chosen = thinning.choose(seed)
    assert all(np.array_equal(a, b) for name in chosen for a, b in zip(kept[name], chosen[name], strict=True))
    thinner = thinning.build(network, init="pretrained", seed=seed)
    for name, t in tensors_of(thinner).items():
        if t.is_floating_point() and t.ndim > 0:
            source = tensors_of(network)[name]
            assert torch.equal(t, source[np.ix_(*kept[name])])
    expected, found = run(zeroed(network, kept, rows_only), x), run(thinner, x)
    assert expected.abs().max() > 1e-3, "an output of zero would prove nothing"
    assert not torch.allclose(expected, run(network, x), atol=1e-6), "nothing was dropped"
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
