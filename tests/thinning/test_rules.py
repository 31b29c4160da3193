"""Every rule of `channel_rules.py` and `layer_rules.py` on a network of two or three layers.

A network thinned by half has the widths that one would write by hand, its tensors are slices of the given ones, and
where nothing normalises over channels it computes what the given network computes with the dropped channels at zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multum import thin
from slices import Net, assert_equals_zeroed, origins, plan, run, shapes


@dataclass
class Case:
    network: nn.Module
    x: Any
    widths: dict[str, tuple[int, ...]]
    exact: bool = True
    attributes: dict[str, Any] = field(default_factory=dict)


def images(channels: int = 3, side: int = 6) -> Tensor:
    return torch.randn(2, channels, side, side, generator=torch.Generator().manual_seed(0))


def rows(features: int = 3) -> Tensor:
    return torch.randn(2, features, generator=torch.Generator().manual_seed(0))


def steps(features: int = 3, length: int = 5) -> Tensor:
    return torch.randn(2, length, features, generator=torch.Generator().manual_seed(0))


def pooled(net: nn.Module, x: Tensor) -> Tensor:
    return net.head(x.mean((2, 3)))


def body(middle, width: int = 8, out: int = 8, head: int | None = None, **layers) -> Net:
    """Conv stem, a middle to test, a linear head over the mean of all positions."""
    torch.manual_seed(0)
    layers = {name: make() for name, make in layers.items()}
    stem, last = nn.Conv2d(3, width, 3, padding=1), nn.Linear(head or out, 5)
    return Net(lambda net, x: pooled(net, middle(net, net.stem(x))), stem=stem, head=last, **layers)


def flat(middle, width: int = 8, out: int = 8, **layers) -> Net:
    """The same with linear layers, on [batch, features] or [batch, steps, features]."""
    torch.manual_seed(0)
    layers = {name: make() for name, make in layers.items()}
    return Net(
        lambda net, x: net.head(middle(net, net.stem(x))), stem=nn.Linear(3, width), head=nn.Linear(out, 5), **layers
    )


def conv(*args, **kwargs):
    return lambda: nn.Conv2d(*args, **kwargs)


def parameter(*shape: int):
    return lambda: nn.Parameter(torch.randn(*shape) / shape[-1] ** 0.5)


def split_heads(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def attention(kind: str):
    """Three ways to write softmax(q k^T / 2) v with two heads; the scale is fixed, so zero channels change nothing."""

    def middle(net: nn.Module, x: Tensor) -> Tensor:
        q, k, v = (split_heads(t, 2) for t in net.qkv(x).chunk(3, -1))
        if kind == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, scale=0.5)
        elif kind == "einsum":
            y = torch.einsum("bhqk,bhkd->bhqd", (torch.einsum("bhqd,bhkd->bhqk", q, k) * 0.5).softmax(-1), v)
        else:
            batch, heads, length, _ = q.shape
            q, k, v = (t.reshape(batch * heads, length, -1) for t in (q, k, v))
            y = torch.bmm((torch.bmm(q, k.transpose(1, 2)) * 0.5).softmax(-1), v).view(batch, heads, length, -1)
        return net.proj(merge_heads(y)).mean(1)

    return flat(middle, qkv=lambda: nn.Linear(8, 24), proj=lambda: nn.Linear(8, 8))


ATTENTION = {"stem.weight": (4, 3), "qkv.weight": (12, 4), "proj.weight": (4, 4), "head.weight": (5, 4)}


def chunk_product(net: nn.Module, x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=1)
    return a * b


def shuffle(net: nn.Module, x: Tensor) -> Tensor:
    batch, channels, height, width = x.shape
    x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, -1, height, width)
    return net.conv(x)


def recurrent(kind: type[nn.RNNBase], **options) -> Net:
    torch.manual_seed(0)
    out = 8 * (2 if options.get("bidirectional") else 1)
    out = options.get("proj_size", out)
    return Net(
        lambda net, x: net.head(net.rnn(x)[0][:, -1]),
        rnn=kind(3, 8, batch_first=True, **options),
        head=nn.Linear(out, 5),
    )


def cells(net: nn.Module, x: Tensor) -> Tensor:
    h = torch.zeros(x.shape[0], net.cell.hidden_size, dtype=x.dtype, device=x.device)
    for t in range(x.shape[1]):
        h = net.cell(x[:, t], h)
    return net.head(h)


def mixer(net: nn.Module, x: Tensor) -> Tensor:
    x = x + net.tokens_out(F.relu(net.tokens_in(x.transpose(1, 2)))).transpose(1, 2)
    return x.mean(1)


def gated_pool(net: nn.Module, x: Tensor) -> Tensor:
    weights = (x @ net.query).softmax(-1)  # [batch, steps]
    return (weights.unsqueeze(1) @ x).squeeze(1)


def heads_in_the_batch(net: nn.Module, x: Tensor) -> Tensor:
    batch, length, _ = x.shape
    x = net.mid(x).view(batch, length, 4, -1).permute(0, 2, 1, 3).reshape(batch * 4, length, -1)
    x = x.cumsum(1).view(batch, 4, length, -1).permute(0, 2, 1, 3).reshape(batch, length, -1)
    return x.mean(1)


def padded_shortcut(net: nn.Module, x: Tensor) -> Tensor:
    return net.conv(x) + F.pad(x, (0, 0, 0, 0, 2, 2))


def prompt(net: nn.Module, x: Tensor) -> Tensor:
    zeros = torch.zeros(x.shape[0], 1, x.shape[2], dtype=x.dtype, device=x.device)
    return torch.cat([zeros, x], dim=1).mean(1)


EIGHT = {"stem.weight": (4, 3, 3, 3), "head.weight": (5, 4)}

CASES: dict[str, Case] = {
    "grouped convolution": Case(
        body(lambda n, x: F.relu(n.conv(F.relu(x))), out=12, conv=conv(8, 12, 3, groups=2)),
        images(),
        {"stem.weight": (4, 3, 3, 3), "conv.weight": (6, 2, 3, 3), "conv.bias": (6,), "head.weight": (5, 6)},
        attributes={"conv.groups": 2, "conv.in_channels": 4, "conv.out_channels": 6},
    ),
    "depthwise convolution": Case(
        body(lambda n, x: n.conv(F.relu(x)), conv=conv(8, 8, 3, groups=8)),
        images(),
        {**EIGHT, "conv.weight": (4, 1, 3, 3), "conv.bias": (4,)},
        attributes={"conv.groups": 4, "conv.in_channels": 4, "conv.out_channels": 4},
    ),
    "depthwise convolution with multiplier 2": Case(
        body(lambda n, x: n.conv(x), out=16, conv=conv(8, 16, 3, groups=8)),
        images(),
        {"stem.weight": (4, 3, 3, 3), "conv.weight": (8, 1, 3, 3), "head.weight": (5, 8)},
        attributes={"conv.groups": 4, "conv.in_channels": 4, "conv.out_channels": 8},
    ),
    "transposed convolution": Case(
        body(lambda n, x: n.conv(x), out=12, conv=lambda: nn.ConvTranspose2d(8, 12, 2, stride=2)),
        images(),
        {"stem.weight": (4, 3, 3, 3), "conv.weight": (4, 6, 2, 2), "conv.bias": (6,), "head.weight": (5, 6)},
        attributes={"conv.in_channels": 4, "conv.out_channels": 6},
    ),
    "transposed grouped convolution": Case(
        body(lambda n, x: n.conv(x), out=12, conv=lambda: nn.ConvTranspose2d(8, 12, 2, groups=2)),
        images(),
        {"stem.weight": (4, 3, 3, 3), "conv.weight": (4, 3, 2, 2), "conv.bias": (6,), "head.weight": (5, 6)},
        attributes={"conv.groups": 2, "conv.in_channels": 4, "conv.out_channels": 6},
    ),
    "transposed depthwise convolution": Case(
        body(lambda n, x: n.conv(x), out=16, conv=lambda: nn.ConvTranspose2d(8, 16, 2, groups=8)),
        images(),
        {"stem.weight": (4, 3, 3, 3), "conv.weight": (4, 2, 2, 2), "conv.bias": (8,), "head.weight": (5, 8)},
        attributes={"conv.groups": 4, "conv.in_channels": 4, "conv.out_channels": 8},
    ),
    "convolution over steps": Case(
        Net(
            lambda n, x: n.head(n.conv(n.stem(x).transpose(1, 2)).mean(2)),
            stem=nn.Linear(3, 8),
            conv=nn.Conv1d(8, 6, 3),
            head=nn.Linear(6, 5),
        ),
        steps(),
        {"stem.weight": (4, 3), "conv.weight": (3, 4, 3), "head.weight": (5, 3)},
    ),
    "convolution with steps as channels": Case(
        flat(lambda n, x: n.conv(x).sum(1), conv=lambda: nn.Conv1d(5, 6, 1)),
        steps(),
        {"stem.weight": (4, 3), "conv.weight": (3, 5, 1), "head.weight": (5, 4)},
    ),
    "wide convolution with steps as channels": Case(
        flat(lambda n, x: n.conv(x).sum(1), conv=lambda: nn.Conv1d(5, 6, 3, padding=1)),
        steps(),
        {"stem.weight": (8, 3), "conv.weight": (3, 5, 3), "head.weight": (5, 8)},
    ),
    "batch norm": Case(
        body(lambda n, x: F.relu(n.norm(x)), norm=lambda: nn.BatchNorm2d(8)),
        images(),
        {**EIGHT, "norm.weight": (4,), "norm.running_var": (4,)},
        attributes={"norm.num_features": 4},
    ),
    "batch norm without affine": Case(
        body(lambda n, x: F.relu(n.norm(x)), norm=lambda: nn.BatchNorm2d(8, affine=False)),
        images(),
        {**EIGHT, "norm.running_mean": (4,)},
        attributes={"norm.num_features": 4},
    ),
    "group norm": Case(
        body(lambda n, x: n.norm(x), width=16, out=16, norm=lambda: nn.GroupNorm(4, 16)),
        images(),
        {"stem.weight": (8, 3, 3, 3), "norm.weight": (8,), "head.weight": (5, 8)},
        exact=False,
        attributes={"norm.num_groups": 4, "norm.num_channels": 8},
    ),
    "group norm rounds up to whole groups": Case(
        body(lambda n, x: n.norm(x), width=12, out=12, norm=lambda: nn.GroupNorm(4, 12)),
        images(),
        {"stem.weight": (8, 3, 3, 3), "norm.weight": (8,), "head.weight": (5, 8)},
        exact=False,
    ),
    "group norm over everything": Case(
        body(lambda n, x: n.norm(x), norm=lambda: nn.GroupNorm(1, 8)), images(), EIGHT, exact=False
    ),
    "group norm per channel": Case(
        body(lambda n, x: F.relu(n.norm(x)), norm=lambda: nn.GroupNorm(8, 8)),
        images(),
        {**EIGHT, "norm.weight": (4,)},
        attributes={"norm.num_groups": 4, "norm.num_channels": 4},
    ),
    "group norm per channel without affine": Case(
        body(lambda n, x: F.relu(n.norm(x)), norm=lambda: nn.GroupNorm(8, 8, affine=False)),
        images(),
        EIGHT,
        attributes={"norm.num_groups": 4, "norm.num_channels": 4},
    ),
    "instance norm": Case(
        body(lambda n, x: F.relu(n.norm(x)), norm=lambda: nn.InstanceNorm2d(8, affine=True)),
        images(),
        {**EIGHT, "norm.weight": (4,)},
        attributes={"norm.num_features": 4},
    ),
    "instance norm without affine": Case(
        body(lambda n, x: F.relu(n.norm(x)), norm=lambda: nn.InstanceNorm2d(8)),
        images(),
        EIGHT,
        attributes={"norm.num_features": 4},
    ),
    "layer norm": Case(
        flat(lambda n, x: n.norm(x), norm=lambda: nn.LayerNorm(8)),
        rows(),
        {"stem.weight": (4, 3), "norm.weight": (4,), "head.weight": (5, 4)},
        exact=False,
        attributes={"norm.normalized_shape": (4,)},
    ),
    "layer norm without affine": Case(
        flat(lambda n, x: n.norm(x), norm=lambda: nn.LayerNorm(8, elementwise_affine=False)),
        rows(),
        {"stem.weight": (4, 3), "head.weight": (5, 4)},
        exact=False,
        attributes={"norm.normalized_shape": (4,)},
    ),
    "rms norm": Case(
        flat(lambda n, x: n.norm(x), norm=lambda: nn.RMSNorm(8)),
        rows(),
        {"stem.weight": (4, 3), "norm.weight": (4,), "head.weight": (5, 4)},
        exact=False,
        attributes={"norm.normalized_shape": (4,)},
    ),
    "glu": Case(
        body(lambda n, x: F.glu(x, dim=1), width=16), images(), {"stem.weight": (8, 3, 3, 3), "head.weight": (5, 4)}
    ),
    "chunk product": Case(
        body(chunk_product, width=16), images(), {"stem.weight": (8, 3, 3, 3), "head.weight": (5, 4)}
    ),
    "chunks of odd width": Case(
        body(chunk_product, width=14, out=7), images(), {"stem.weight": (8, 3, 3, 3), "head.weight": (5, 4)}
    ),
    "channel shuffle by view": Case(
        body(shuffle, conv=conv(8, 8, 3, groups=2)),
        images(),
        {**EIGHT, "conv.weight": (4, 2, 3, 3)},
    ),
    "channel shuffle by module": Case(
        body(lambda n, x: n.conv(n.shuffle(x)), shuffle=lambda: nn.ChannelShuffle(2), conv=conv(8, 8, 3, groups=2)),
        images(),
        {**EIGHT, "conv.weight": (4, 2, 3, 3)},
    ),
    "pixel shuffle": Case(
        body(lambda n, x: n.conv(F.pixel_shuffle(x, 2)), width=32, conv=conv(8, 8, 3)),
        images(),
        {"stem.weight": (16, 3, 3, 3), "conv.weight": (4, 4, 3, 3), "head.weight": (5, 4)},
    ),
    "pixel unshuffle": Case(
        body(lambda n, x: F.pixel_unshuffle(x, 2), out=32),
        images(),
        {"stem.weight": (4, 3, 3, 3), "head.weight": (5, 16)},
    ),
    "stack and sum": Case(
        body(lambda n, x: torch.stack([x, n.conv(x)], dim=1).sum(1), conv=conv(8, 8, 1)),
        images(),
        {**EIGHT, "conv.weight": (4, 4, 1, 1)},
    ),
    "concatenation of rounded parts": Case(
        body(lambda n, x: torch.cat([x, n.conv(x)], dim=1), width=7, out=12, conv=conv(7, 5, 1)),
        images(),
        {"stem.weight": (4, 3, 3, 3), "conv.weight": (3, 4, 1, 1), "head.weight": (5, 7)},
    ),
    "concatenation with the input": Case(
        Net(lambda n, x: n.head(torch.cat([x, F.relu(n.stem(x))], dim=1)), stem=nn.Linear(3, 8), head=nn.Linear(11, 5)),
        rows(),
        {"stem.weight": (4, 3), "head.weight": (5, 7)},
    ),
    "concatenation of tokens": Case(
        flat(lambda n, x: torch.cat([n.token.expand(2, 1, -1), x], 1).mean(1), token=parameter(1, 1, 8)),
        steps(),
        {"stem.weight": (4, 3), "token": (1, 1, 4), "head.weight": (5, 4)},
    ),
    "concatenation with zeros": Case(flat(prompt), steps(), {"stem.weight": (4, 3), "head.weight": (5, 4)}),
    "concatenation with zeros_like": Case(
        body(lambda n, x: torch.cat([x, torch.zeros_like(x)], 1), out=16),
        images(),
        {"stem.weight": (4, 3, 3, 3), "head.weight": (5, 8)},
    ),
    "padding of positions": Case(body(lambda n, x: F.pad(x, (1, 1, 2, 0))), images(), EIGHT),
    "reflection padding": Case(body(lambda n, x: F.pad(x, (1, 1, 1, 1), mode="reflect")), images(), EIGHT),
    "padding of channels": Case(
        body(padded_shortcut, out=12, conv=conv(8, 12, 1)),
        images(),
        {"stem.weight": (4, 3, 3, 3), "conv.weight": (8, 4, 1, 1), "head.weight": (5, 8)},
    ),
    "max pooling": Case(body(lambda n, x: F.max_pool2d(F.relu(x), 2)), images(), EIGHT),
    "average pooling": Case(body(lambda n, x: F.avg_pool2d(x, 3, 1)), images(), EIGHT),
    "adaptive pooling": Case(body(lambda n, x: F.adaptive_avg_pool2d(x, 2)), images(), EIGHT),
    "adaptive max pooling": Case(body(lambda n, x: F.adaptive_max_pool2d(F.relu(x), 2)), images(), EIGHT),
    "pooling over steps": Case(
        flat(lambda n, x: F.avg_pool1d(F.max_pool1d(x.transpose(1, 2), 2), 2).flatten(1)),
        steps(),
        {"stem.weight": (4, 3), "head.weight": (5, 4)},
    ),
    "upsampling": Case(
        body(lambda n, x: F.interpolate(x, scale_factor=2.0, mode="bilinear") + F.interpolate(x, 12)), images(), EIGHT
    ),
    "flatten": Case(
        Net(lambda n, x: n.head(F.relu(n.stem(x)).flatten(1)), stem=nn.Conv2d(3, 8, 3), head=nn.Linear(8 * 16, 5)),
        images(),
        {"stem.weight": (4, 3, 3, 3), "head.weight": (5, 64)},
    ),
    "attention by sdpa": Case(attention("sdpa"), steps(), ATTENTION),
    "attention by bmm": Case(attention("bmm"), steps(), ATTENTION),
    "attention by einsum": Case(attention("einsum"), steps(), ATTENTION),
    "pooling by a query": Case(
        flat(gated_pool, query=parameter(8)), steps(), {"stem.weight": (4, 3), "query": (4,), "head.weight": (5, 4)}
    ),
    "heads in the batch": Case(
        flat(heads_in_the_batch, out=12, mid=lambda: nn.Linear(8, 12)),
        steps(),
        {"stem.weight": (4, 3), "mid.weight": (8, 4), "head.weight": (5, 8)},
    ),
    "token mixing": Case(
        flat(mixer, tokens_in=lambda: nn.Linear(5, 6), tokens_out=lambda: nn.Linear(6, 5)),
        steps(),
        {"stem.weight": (4, 3), "tokens_in.weight": (3, 5), "tokens_out.weight": (5, 3), "head.weight": (5, 4)},
    ),
    "x @ parameter": Case(
        flat(lambda n, x: x @ n.w + n.b, out=6, w=parameter(8, 6), b=parameter(6)),
        rows(),
        {"stem.weight": (4, 3), "w": (4, 3), "b": (3,), "head.weight": (5, 3)},
    ),
    "F.linear with a parameter": Case(
        flat(lambda n, x: F.linear(x, n.w, n.b), out=6, w=parameter(6, 8), b=parameter(6)),
        rows(),
        {"stem.weight": (4, 3), "w": (3, 4), "b": (3,), "head.weight": (5, 3)},
    ),
    "einsum with a parameter": Case(
        flat(lambda n, x: torch.einsum("bi,oi->bo", x, n.w), out=6, w=parameter(6, 8)),
        rows(),
        {"stem.weight": (4, 3), "w": (3, 4), "head.weight": (5, 3)},
    ),
    "scale per channel": Case(
        body(lambda n, x: x * n.scale, scale=parameter(8, 1, 1)), images(), {**EIGHT, "scale": (4, 1, 1)}
    ),
    "embedding": Case(
        Net(lambda n, x: n.head(n.embed(x).sum(1)), embed=nn.Embedding(9, 8), head=nn.Linear(8, 5)),
        torch.tensor([[1, 2, 3], [4, 5, 8]]),
        {"embed.weight": (9, 4), "head.weight": (5, 4)},
        attributes={"embed.embedding_dim": 4, "embed.num_embeddings": 9},
    ),
    "softmax over channels": Case(
        flat(lambda n, x: n.mid(x.softmax(-1)), out=6, mid=lambda: nn.Linear(8, 6)),
        rows(),
        {"stem.weight": (8, 3), "mid.weight": (3, 8), "head.weight": (5, 3)},
    ),
    "softmax over positions": Case(
        flat(lambda n, x: (x * n.score(x).softmax(1)).sum(1), score=lambda: nn.Linear(8, 1)),
        steps(),
        {"stem.weight": (4, 3), "score.weight": (1, 4), "head.weight": (5, 4)},
    ),
    "mean over channels": Case(
        body(lambda n, x: n.conv(x.mean(1, keepdim=True)), conv=conv(1, 8, 1)),
        images(),
        {"stem.weight": (4, 3, 3, 3), "conv.weight": (4, 1, 1, 1), "head.weight": (5, 4)},
        exact=False,
    ),
    "sum over channels": Case(
        body(lambda n, x: n.conv(x.sum(1, keepdim=True)), conv=conv(1, 8, 1)),
        images(),
        {"stem.weight": (4, 3, 3, 3), "conv.weight": (4, 1, 1, 1), "head.weight": (5, 4)},
    ),
    "one channel by position": Case(
        body(lambda n, x: n.conv(x) * x[:, :1] + x[:, 2].unsqueeze(1), conv=conv(8, 8, 1)),
        images(),
        {"stem.weight": (8, 3, 3, 3), "conv.weight": (4, 8, 1, 1), "head.weight": (5, 4)},
    ),
    "lstm": Case(
        recurrent(nn.LSTM),
        steps(),
        {"rnn.weight_ih_l0": (16, 3), "rnn.weight_hh_l0": (16, 4), "head.weight": (5, 4)},
        attributes={"rnn.hidden_size": 4, "rnn.input_size": 3},
    ),
    "deep bidirectional lstm": Case(
        recurrent(nn.LSTM, num_layers=2, bidirectional=True),
        steps(),
        {
            "rnn.weight_ih_l0": (16, 3),
            "rnn.weight_ih_l1": (16, 8),
            "rnn.weight_hh_l1_reverse": (16, 4),
            "head.weight": (5, 8),
        },
        attributes={"rnn.hidden_size": 4},
    ),
    "lstm with projection": Case(
        recurrent(nn.LSTM, proj_size=6),
        steps(),
        {"rnn.weight_ih_l0": (16, 3), "rnn.weight_hh_l0": (16, 3), "rnn.weight_hr_l0": (3, 4), "head.weight": (5, 3)},
        attributes={"rnn.hidden_size": 4, "rnn.proj_size": 3},
    ),
    "gru": Case(
        recurrent(nn.GRU),
        steps(),
        {"rnn.weight_ih_l0": (12, 3), "rnn.weight_hh_l0": (12, 4), "head.weight": (5, 4)},
        attributes={"rnn.hidden_size": 4},
    ),
    "recurrent": Case(
        recurrent(nn.RNN), steps(), {"rnn.weight_ih_l0": (4, 3), "rnn.weight_hh_l0": (4, 4), "head.weight": (5, 4)}
    ),
    "cells with a width in the program": Case(
        Net(cells, cell=nn.GRUCell(3, 8), head=nn.Linear(8, 5)),
        steps(),
        {"cell.weight_ih": (12, 3), "cell.weight_hh": (12, 4), "head.weight": (5, 4)},
        attributes={"cell.hidden_size": 4, "cell.input_size": 3},
    ),
    "prelu": Case(
        body(lambda n, x: n.act(x), act=lambda: nn.PReLU(8)),
        images(),
        {**EIGHT, "act.weight": (4,)},
        attributes={"act.num_parameters": 4},
    ),
    "prelu with one slope": Case(
        body(lambda n, x: n.act(x), act=lambda: nn.PReLU()), images(), {**EIGHT, "act.weight": (1,)}
    ),
    "in place": Case(
        body(lambda n, x: F.relu(n.conv(x), inplace=True).add_(x).mul_(2), conv=conv(8, 8, 1)),
        images(),
        {**EIGHT, "conv.weight": (4, 4, 1, 1)},
    ),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", CASES)
def test_widths(name):
    case = CASES[name]
    before = shapes(case.network)
    network = thin(case.network, 0.5, case.x)
    found = shapes(network)
    assert {n: found[n] for n in case.widths} == case.widths
    modules = dict(network.named_modules())
    attributes = {key: getattr(modules[key.rpartition(".")[0]], key.rpartition(".")[2]) for key in case.attributes}
    assert attributes == case.attributes
    assert run(network.eval(), case.x).shape == (2, 5)
    assert network.train()(case.x).shape == (2, 5)
    assert shapes(case.network) == before


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", CASES)
def test_slices(name):
    case = CASES[name]
    thinning = plan(case.network, case.x)
    for seed in (0, 1):
        if case.exact:
            assert_equals_zeroed(case.network, case.x, thinning, seed)
        else:
            found, chosen = origins(case.network, thinning, seed), thinning.choose(seed)
            assert {n: [i.tolist() for i in dims] for n, dims in found.items()} == {
                n: [i.tolist() for i in dims] for n, dims in chosen.items()
            }
