"""Small networks as a user would write them: one per kind of layer that the rest of the tests must not trip over.

Every constructor takes `seed`, gives random but fixed weights, and leaves torch's own generator alone. Every forward
takes a few milliseconds. `ZOO` maps a name to a builder and to a function that makes an example batch.

>>> build, example = ZOO["small-vit"]
>>> build()(example()).shape
torch.Size([3, 5])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 5


def seeded(init: Callable[..., None]) -> Callable[..., None]:
    """Run a constructor under its `seed`, and leave torch's own generator as it was."""

    def wrapped(self: nn.Module, *args: Any, seed: int = 0, **kwargs: Any) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            init(self, *args, **kwargs)

    return wrapped


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.num_heads = heads
        self.head_dim = dim // heads
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        weights = (q * self.scale @ k.transpose(-2, -1)).softmax(dim=-1)
        x = (weights @ v).transpose(1, 2).reshape(batch, tokens, self.num_heads * self.head_dim)
        return self.proj(x)


class ViTBlock(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class SmallViT(nn.Module):
    """Pre-norm vision transformer. Shape: [B, 3, 16, 16] -> [B, classes]."""

    @seeded
    def __init__(self, dim: int = 24, heads: int = 3, depth: int = 2, classes: int = CLASSES):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 4, stride=4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, 17, dim) * 0.02)
        self.blocks = nn.ModuleList(ViTBlock(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)
        self.norm = nn.LayerNorm(dim)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(torch.full((dim,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXtLike(nn.Module):
    """Depthwise convolution, channels-last layer norm, layer scale. Shape: [B, 3, 16, 16] -> [B, classes]."""

    @seeded
    def __init__(self, dim: int = 8, classes: int = CLASSES):
        super().__init__()
        self.stem = nn.Conv2d(3, dim, 2, stride=2)
        self.stage1 = ConvNeXtBlock(dim)
        self.down = nn.Conv2d(dim, 2 * dim, 2, stride=2)
        self.stage2 = ConvNeXtBlock(2 * dim)
        self.norm = nn.LayerNorm(2 * dim)
        self.head = nn.Linear(2 * dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stage2(self.down(self.stage1(self.stem(x))))
        return self.head(self.norm(x.mean((-2, -1))))


class DenseLayer(nn.Module):
    def __init__(self, channels: int, growth: int):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.conv = nn.Conv2d(channels, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], dim=1)


class DenseNetLike(nn.Module):
    """Concatenation, transition. Shape: [B, 3, 8, 8] -> [B, classes]."""

    @seeded
    def __init__(self, width: int = 8, growth: int = 6, classes: int = CLASSES):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.block1 = nn.Sequential(DenseLayer(width, growth), DenseLayer(width + growth, growth))
        self.norm = nn.BatchNorm2d(width + 2 * growth)
        self.transition = nn.Conv2d(width + 2 * growth, 10, 1, bias=False)
        self.block2 = nn.Sequential(DenseLayer(10, growth), DenseLayer(10 + growth, growth))
        self.norm_out = nn.BatchNorm2d(10 + 2 * growth)
        self.head = nn.Linear(10 + 2 * growth, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block1(self.stem(x))
        x = F.avg_pool2d(self.transition(F.relu(self.norm(x))), 2)
        x = F.relu(self.norm_out(self.block2(x)))
        return self.head(x.mean((2, 3)))


class LstmNet(nn.Module):
    """Two recurrent layers, the last step decides. Shape: [B, T, features] -> [B, classes]."""

    @seeded
    def __init__(self, features: int = 6, hidden: int = 12, classes: int = CLASSES):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        steps, _ = self.lstm(x)
        return self.head(steps[:, -1])


class AttentionNet(nn.Module):
    """nn.MultiheadAttention with a residual. Shape: [B, T, features] -> [B, classes]."""

    @seeded
    def __init__(self, features: int = 6, dim: int = 16, heads: int = 2, classes: int = CLASSES):
        super().__init__()
        self.embed = nn.Linear(features, dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        attended, _ = self.attention(x, x, x, need_weights=False)
        return self.head(self.norm(x + attended).mean(1))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, squeezed: int):
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.expand(F.relu(self.reduce(F.adaptive_avg_pool2d(x, 1))))
        return x * gate.sigmoid()


class SqueezeExciteNet(nn.Module):
    """Depthwise and grouped convolutions, squeeze-excite, group norm. Shape: [B, 3, 8, 8] -> [B, classes]."""

    @seeded
    def __init__(self, width: int = 16, classes: int = CLASSES):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norm1 = nn.GroupNorm(4, width)
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.excite = SqueezeExcite(width, 6)
        self.grouped = nn.Conv2d(width, 2 * width, 3, padding=1, groups=2)
        self.norm2 = nn.GroupNorm(4, 2 * width)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norm1(self.stem(x)))
        x = x + self.excite(self.depthwise(x))
        x = F.silu(self.norm2(self.grouped(x)))
        return self.head(x.mean((2, 3)))


class TransformerNet(nn.Module):
    """nn.TransformerEncoderLayer as it comes. Shape: [B, T, features] -> [B, classes]."""

    @seeded
    def __init__(self, features: int = 6, dim: int = 16, heads: int = 2, classes: int = CLASSES, dropout: float = 0.0):
        super().__init__()
        self.embed = nn.Linear(features, dim)
        self.encoder = nn.TransformerEncoderLayer(dim, heads, dim_feedforward=24, dropout=dropout, batch_first=True)
        self.head = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(x)).mean(1))


class TokenNet(nn.Module):
    """Integer tokens. Shape: [B, T] of int64 -> [B, classes]."""

    @seeded
    def __init__(self, tokens: int = 20, dim: int = 12, hidden: int = 18, classes: int = CLASSES):
        super().__init__()
        self.embed = nn.Embedding(tokens, dim)
        self.norm = nn.LayerNorm(dim)
        self.hidden = nn.Linear(dim, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(F.gelu(self.hidden(self.norm(self.embed(tokens)))).mean(1))


class TiedNet(nn.Module):
    """Two layers with one weight. Shape: [B, features] -> [B, classes]."""

    @seeded
    def __init__(self, features: int = 6, hidden: int = 12, classes: int = CLASSES):
        super().__init__()
        self.stem = nn.Linear(features, hidden)
        self.first = nn.Linear(hidden, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.second.weight = self.first.weight
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        x = F.relu(self.first(x))
        return self.head(F.relu(self.second(x)))


class TwoInputNet(nn.Module):
    """Numbers and categories of a table. Shape: [B, 4] and [B, 2] of int64 -> [B, classes]."""

    @seeded
    def __init__(self, numbers: int = 4, categories: int = 3, dim: int = 6, hidden: int = 16, classes: int = CLASSES):
        super().__init__()
        self.numeric = nn.Linear(numbers, 10)
        self.categorical = nn.Embedding(categories, dim)
        self.hidden = nn.Linear(10 + 2 * dim, hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x_num: Tensor, x_cat: Tensor) -> Tensor:
        embedded = self.categorical(x_cat).flatten(1)
        x = torch.cat([F.relu(self.numeric(x_num)), embedded], dim=1)
        return self.head(F.relu(self.hidden(x)))


class DropoutNet(nn.Module):
    """Whole channels dropped in the trunk, elements in the head. Shape: [B, 3, 8, 8] -> [B, classes]."""

    @seeded
    def __init__(self, width: int = 12, hidden: int = 16, classes: int = CLASSES, p: float = 0.5):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.drop2d = nn.Dropout2d(p)
        self.hidden = nn.Linear(width, hidden)
        self.drop = nn.Dropout(p)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop2d(F.relu(self.conv(x))).mean((2, 3))
        return self.head(self.drop(F.relu(self.hidden(x))))


def _random(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def _tokens() -> Tensor:
    return torch.randint(20, (3, 7), generator=torch.Generator().manual_seed(1))


def _table() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(3, 4, generator=generator), torch.randint(3, (3, 2), generator=generator)


ZOO: dict[str, tuple[Callable[..., nn.Module], Callable[[], Any]]] = {
    "small-vit": (SmallViT, _random(3, 3, 16, 16)),
    "convnext-like": (ConvNeXtLike, _random(3, 3, 16, 16)),
    "densenet-like": (DenseNetLike, _random(3, 3, 8, 8)),
    "lstm": (LstmNet, _random(3, 7, 6)),
    "attention": (AttentionNet, _random(3, 7, 6)),
    "squeeze-excite": (SqueezeExciteNet, _random(3, 3, 8, 8)),
    "transformer": (TransformerNet, _random(3, 7, 6)),
    "token": (TokenNet, _tokens),
    "tied": (TiedNet, _random(3, 6)),
    "two-input": (TwoInputNet, _table),
    "dropout": (DropoutNet, _random(3, 3, 8, 8)),
}
