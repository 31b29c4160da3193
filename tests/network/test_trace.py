"""The tracer itself: what a run on noted tensors sees, and that it leaves no mark."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import networks
from multum.network.copies import tensors_of
from multum.network.dependence import trace_members
from multum.network.trace import _normalised
from multum.thinning.channels import trace_channels
from slices import Net, plan


def layers(**more: nn.Module) -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {"trunk": nn.Linear(3, 8), "own": nn.Linear(3, 4), "after": nn.Identity(), "head": nn.Linear(8, 2), **more}


def write_half(net: nn.Module, x: Tensor) -> Tensor:
    y = net.trunk(x)
    y[:, :4] = net.own(x)
    return net.head(net.after(y))


def add_in_place(net: nn.Module, x: Tensor) -> Tensor:
    y = net.trunk(x)
    y.view(-1, 2, 4)[:, 1].add_(net.own(x))
    return net.head(net.after(y))


def write_shared(net: nn.Module, x: Tensor) -> Tensor:
    y = net.trunk(x)
    y[:, :4] = net.trunk(x)[:, 4:]
    return net.head(net.after(y) + F.pad(net.own(x), (0, 4)))


@pytest.mark.parametrize(("forward", "depends"), [(write_half, True), (add_in_place, True), (write_shared, False)])
def test_what_is_written_in_place_depends_on_the_member_too(forward, depends):
    """A dropout at `after` has one mask for all members exactly where its input is the same for all."""
    usage = trace_members(Net(forward, **layers()), {"own.weight", "own.bias"}, torch.ones(2, 3))
    assert ("after" in usage.inputs) == depends


def test_a_network_that_writes_into_its_own_constants_cannot_be_followed_to_the_member():
    def forward(net: nn.Module, x: Tensor) -> Tensor:
        both = torch.zeros(x.shape[0], 8, device=x.device)
        both[:, :4] = net.own(x)
        return net.head(both)

    net = Net(forward, own=nn.Linear(3, 4), head=nn.Linear(8, 2))
    with pytest.raises(NotImplementedError, match="created itself"):
        trace_members(net, {"own.weight"}, torch.ones(2, 3))


def test_tracing_leaves_the_example_and_the_network_alone():
    def forward(net: nn.Module, x: Tensor) -> Tensor:
        x.mul_(2)
        net.calls += 1
        return net.head(net.stem(x)) * float(x.sum())  # reads a value: traced on the real device

    net = Net(forward, stem=nn.Linear(3, 8), head=nn.Linear(8, 2))
    net.register_buffer("calls", torch.zeros(2))
    x = torch.ones(2, 3)
    before = {n: t.clone() for n, t in tensors_of(net).items()}
    trace_channels(net, x)
    trace_members(net, {"stem.weight"}, x)
    assert torch.equal(x, torch.ones(2, 3))
    assert all(torch.equal(t, before[n]) for n, t in tensors_of(net).items())
    assert net.training and not any(m._forward_pre_hooks or m._forward_hooks for m in net.modules())


def test_settings_of_torch_are_as_before():
    before = torch.backends.mkldnn.enabled, torch.backends.mha.get_fastpath_enabled()
    plan(networks.TransformerNet(), torch.zeros(2, 7, 6))
    assert (torch.backends.mkldnn.enabled, torch.backends.mha.get_fastpath_enabled()) == before


def test_every_step_of_a_sequence_costs_although_two_show_the_channels():
    net = networks.LstmNet()
    macs = [sum(w.macs for w in trace_members(net, (), torch.zeros(1, n, 6)).work if w.path == "lstm") for n in (5, 50)]
    assert macs[1] == 10 * macs[0] == 50 * (48 * (6 + 12) + 48 * (12 + 12))
    few, many = (trace_channels(net, torch.zeros(2, n, 6)) for n in (2, 500))
    assert [(s.width, s.where) for s in few.segments] == [(s.width, s.where) for s in many.segments]


def test_segments_of_a_grouped_network():
    net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 12, 1, groups=2), nn.Flatten(), nn.Linear(48, 5))
    found = trace_channels(net, torch.zeros(2, 3, 2, 2))
    # 8 channels, 4 for each group; 12 channels, 6 of each group, each of them 4 features of the flattened image
    assert [(s.width, s.multiplicity, len(s.classes)) for s in found.segments] == [(8, 2, 4), (12, 2, 6)]


def test_the_output_never_changes_its_size():
    net = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 6))
    assert [s.where for s in trace_channels(net, torch.zeros(1, 3)).segments] == [
        (("0.weight", 0), ("0.bias", 0), ("1.weight", 1))
    ]


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (4, 3, 6, 6), (4, 3, 2, 2, 2)], ids=len)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_batch_norm_on_meta_is_what_torch_says(shape, dtype):
    x = torch.empty(shape, dtype=dtype, device="meta")
    if len(shape) == 4:
        x = x.to(memory_format=torch.channels_last)
    numbers = [torch.empty(3, dtype=dtype, device="meta") for _ in range(4)]
    quick = _normalised(x)[0]
    slow = torch.native_batch_norm(x, *numbers, False, 0.1, 1e-5)[0]
    assert (quick.shape, quick.dtype, quick.stride()) == (slow.shape, slow.dtype, slow.stride())
