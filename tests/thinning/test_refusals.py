"""What `thin` refuses: everything at once, with path, reason and fix; and nothing that it lets through is wrong."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import networks
from multum import thin
from multum.errors import ExampleError, RewriteError
from slices import Net, assert_equals_zeroed, plan, shapes


def refusals(network: nn.Module, x, factor: float = 0.5) -> list[tuple[str, str]]:
    before = shapes(network)
    with pytest.raises(RewriteError) as raised:
        thin(network, factor, x)
    assert shapes(network) == before
    assert all(r.reason and r.fix for r in raised.value.refusals)
    for r in raised.value.refusals:
        assert (r.path or "(the network itself)") in str(raised.value) and r.fix in str(raised.value)
    return [(r.path, r.reason) for r in raised.value.refusals]


class Spectral(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(x).real


class Exponential(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x @ torch.linalg.matrix_exp(0.01 * x.T @ x)


def test_all_places_are_listed_at_once():
    net = Net(
        lambda n, x: n.head(n.b(F.relu(n.mid(n.a(n.stem(x)))))),
        stem=nn.Linear(3, 8),
        a=Spectral(),
        mid=nn.Linear(8, 8),
        b=Exponential(),
        head=nn.Linear(8, 2),
        forgotten=nn.Linear(4, 4),
        spare=nn.Parameter(torch.zeros(3)),
    )
    found = refusals(net, torch.randn(4, 3))
    assert [path for path, _ in found] == ["a", "b", "spare", "forgotten.weight", "forgotten.bias"]
    assert "fft" in found[0][1] and "no width rule" in found[0][1]
    assert "linalg" in found[1][1]
    assert all("not used" in reason for _, reason in found[2:])


def test_unknown_operations_away_from_channels_are_no_matter():
    net = Net(lambda n, x: n.head(F.relu(n.stem(torch.fft.fft(x).real))), stem=nn.Linear(3, 8), head=nn.Linear(8, 2))
    assert thin(net, 0.5, torch.randn(2, 3)).stem.out_features == 4


def test_an_unused_parameter_of_one_element_has_no_width():
    net = Net(
        lambda n, x: n.head(n.stem(x)), stem=nn.Linear(3, 8), head=nn.Linear(8, 2), spare=nn.Parameter(torch.ones(1))
    )
    assert thin(net, 0.5, torch.randn(2, 3)).spare == 1


def test_a_parameter_that_is_only_summed_is_used():
    net = Net(lambda n, x: n.head(n.stem(x) * n.w.sum()), stem=nn.Linear(3, 8), head=nn.Linear(8, 2))
    net.w = nn.Parameter(torch.ones(6))
    assert thin(net, 0.5, torch.randn(2, 3)).w.shape == (6,)


# -- widths in the code ------------------------------------------------------------------------------------------------


def hidden(forward, **layers) -> Net:
    torch.manual_seed(0)
    return Net(forward, stem=nn.Linear(3, 32), head=nn.Linear(32, 2), **layers)


HARD_CODED = {
    "view(-1, 32)": lambda n, x: n.head(n.stem(x).view(-1, 32)),
    "reshape to heads": lambda n, x: n.head(n.stem(x).view(-1, 4, 8).flatten(1)),
    "the first 8": lambda n, x: n.head(F.pad(n.stem(x)[:, :8], (0, 24))),
    "two slices": lambda n, x: n.head(torch.cat([n.stem(x)[:, :16], n.stem(x)[:, 16:]], 1)),
    "split sizes": lambda n, x: n.head(torch.cat(n.stem(x).split([8, 24], 1)[::-1], 1)),
    "an index": lambda n, x: n.head(n.stem(x)[:, list(range(31, -1, -1))]),
    "a mean of some": lambda n, x: n.head(n.stem(x)) * n.stem(x)[:, :8].mean(1, keepdim=True),
    "a norm of some": lambda n, x: n.head(n.stem(x)) * F.layer_norm(n.stem(x)[:, :8], (8,)).sum(1, keepdim=True),
    "a product of some": lambda n, x: n.head(n.stem(x)) * (n.stem(x)[:, None, :8] @ n.stem(x)[:, :8, None])[:, 0],
    "a loop over channels": lambda n, x: n.head(n.stem(x)) + sum(
        n.stem(x)[:, i : i + 8].sum(1, keepdim=True) for i in range(0, n.stem(x).shape[1], 8)
    ),
    "arange": lambda n, x: n.head(n.stem(x) + torch.arange(32, device=x.device)),
}  # fmt: skip


@pytest.mark.parametrize("name", HARD_CODED)
def test_a_width_in_the_code_is_refused_or_right(name):
    """One RewriteError; where the code adds a constant of that size, the width stays."""
    net, x = hidden(HARD_CODED[name]), torch.randn(4, 3)
    if name == "arange":
        assert thin(net, 0.5, x).stem.out_features == 32
        return
    assert len(refusals(net, x)) == 1


def test_places_are_named():
    class Folds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(-1, 32)

    net = Net(lambda n, x: n.head(n.deep(x)), deep=nn.Sequential(nn.Linear(3, 32), Folds()), head=nn.Linear(32, 2))
    [(path, reason)] = refusals(net, torch.randn(3, 3))
    assert path == "deep.1" and "does not run" in reason


def test_shares_of_the_width_are_fine():
    net = hidden(lambda n, x: n.head(torch.cat(n.stem(x).split(n.stem(x).shape[1] // 4, 1)[::-1], 1)))
    x = torch.randn(4, 3)
    for seed in (0, 1):
        assert_equals_zeroed(net, x, plan(net, x), seed)


def test_an_output_that_would_change_is_refused():
    net = Net(lambda n, x: F.interpolate(n.stem(x)[:, None], size=5)[:, 0], stem=nn.Linear(3, 8))
    assert shapes(thin(net, 0.5, torch.randn(2, 3))) == shapes(net)  # resizing fixes the width


def test_a_width_that_only_training_uses():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("centre", torch.zeros(32))

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.centre.lerp_(x.mean(0), 0.1)
            return x

    net = hidden(lambda n, x: n.head(n.centred(n.stem(x))), centred=Centred())
    [(path, reason)] = refusals(net, torch.randn(4, 3))
    assert path == "centred" and "does not run in training" in reason
    assert torch.equal(net.centred.centre, torch.zeros(32))


def test_a_network_that_cannot_train_on_the_example_may_still_be_thinned():
    net = hidden(lambda n, x: n.head(n.norm(n.stem(x))), norm=nn.BatchNorm1d(32))
    assert thin(net, 0.5, torch.randn(1, 3)).norm.num_features == 16


# -- writing in place --------------------------------------------------------------------------------------------------


def write_channel(n: nn.Module, x: Tensor) -> Tensor:
    x, y = n.stem(x), n.other(x)
    x[:, 0] = y[:, 0]
    return n.head(x)


def write_half(n: nn.Module, x: Tensor) -> Tensor:
    x, y = n.stem(x), n.small(x)
    x[:, : x.shape[1] // 2] = y
    return n.head(x)


def write_literal(n: nn.Module, x: Tensor) -> Tensor:
    x, y = n.stem(x), n.small(x)
    x[:, :4] = y
    return n.head(x)


def write_constant(n: nn.Module, x: Tensor) -> Tensor:
    x = n.stem(x)
    x[:, x.shape[1] // 2 :] = 0.0
    return n.head(x)


def write_view(n: nn.Module, x: Tensor) -> Tensor:
    x = n.stem(x)
    first, _ = x.chunk(2, 1)
    first.mul_(2).relu_()
    return n.head(x)


def fill_zeros(n: nn.Module, x: Tensor) -> Tensor:
    a, b = n.small(x), n.little(x)
    both = torch.zeros(x.shape[0], a.shape[1] + b.shape[1], dtype=x.dtype, device=x.device)
    both[:, : a.shape[1]] = a
    both[:, a.shape[1] :] = b
    return n.head(both)


def fill_whole(n: nn.Module, x: Tensor) -> Tensor:
    a = n.stem(x)
    whole = torch.zeros(a.shape, dtype=x.dtype, device=x.device)
    whole.copy_(a)
    like = torch.empty_like(a)
    like.copy_(whole)
    return n.head(like.add_(n.other(x)))


def write_input(n: nn.Module, x: Tensor) -> Tensor:
    x[:, :2] = n.two(x)
    return n.head(n.stem(x))


def write_index(n: nn.Module, x: Tensor) -> Tensor:
    x = n.stem(x)
    x[:, torch.tensor([0, 2], device=x.device)] = 0.0
    return n.head(x)


def write_out(n: nn.Module, x: Tensor) -> Tensor:
    a = n.stem(x)
    out = torch.empty_like(a)
    torch.add(a, n.other(x), out=out)
    return n.head(out)


def squeeze_in_place(n: nn.Module, x: Tensor) -> Tensor:
    return n.head(n.stem(x).unsqueeze_(1).transpose_(1, 2).squeeze_(2))


WRITES = {  # the width of stem at half the width, or None where it must be refused
    write_channel: 8,
    write_half: 4,
    write_literal: None,
    write_constant: 4,
    write_view: 4,
    fill_zeros: None,
    fill_whole: 4,
    write_input: 4,
    write_index: None,
    write_out: None,
    squeeze_in_place: 4,
}


@pytest.mark.parametrize("forward", WRITES, ids=lambda f: f.__name__)
def test_writing_in_place_is_right_or_refused(forward):
    torch.manual_seed(0)
    layers = {"stem": nn.Linear(3, 8), "other": nn.Linear(3, 8), "small": nn.Linear(3, 4), "little": nn.Linear(3, 4)}
    layers |= {"two": nn.Linear(3, 2), "head": nn.Linear(8, 2)}
    used = {name: layer for name, layer in layers.items() if name in forward.__code__.co_names}
    net, x = Net(forward, **used), torch.randn(4, 3)
    if WRITES[forward] is None:
        refusals(net, x)
        return
    thinning = plan(net, x)
    assert thinning.build(net, init="fresh", seed=0).stem.out_features == WRITES[forward]
    if WRITES[forward] == 8:
        return
    right = 0
    for seed in range(4):
        try:
            assert_equals_zeroed(net, x, thinning, seed)
            right += 1
        except RewriteError:
            assert thinning.channels.picks
    assert right > 0


# -- inputs and outputs ------------------------------------------------------------------------------------------------


def test_a_network_with_two_outputs_is_an_error_about_the_network():
    net = Net(lambda n, x: (n.stem(x), x), stem=nn.Linear(3, 8))
    with pytest.raises(ExampleError, match="one tensor; got tuple"):
        thin(net, 0.5, torch.zeros(2, 3))


def test_an_error_inside_the_network_is_its_own():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        thin(networks.TiedNet(), 0.5, torch.zeros(2, 5))


def test_indices_without_values_on_meta_are_refused():
    with torch.device("meta"):
        net = Net(lambda n, x: n.head(n.stem(x)[:, n.order]), stem=nn.Linear(3, 8), head=nn.Linear(8, 2))
        net.register_buffer("order", torch.arange(8))
    [(path, reason)] = refusals(net, torch.zeros(2, 3))
    assert path == "" and "indices have no values" in reason


def test_a_data_dependent_network_on_meta_is_its_own_error():
    with torch.device("meta"):
        net = Net(lambda n, x: n.head(n.stem(x)) if x.sum() > 0 else x, stem=nn.Linear(3, 8), head=nn.Linear(8, 2))
    with pytest.raises(RuntimeError, match="meta"):
        thin(net, 0.5, torch.zeros(2, 3))
