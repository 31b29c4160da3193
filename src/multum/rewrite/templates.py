"""Layers whose weight is a combination of the templates in a bank, as hypernetworks and MixtureEnsembles make it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from .generated import Generated, combine
from .walker import LAYERS, layer

EMBEDDING = "weight_embedding"
COEFFICIENTS = "weight_coefficients"
TEMPLATES = "weight_templates"  # the numbers of the templates that a layer combines


@layer
class Embedded(Generated):
    """W = theta e. Shape: bank [D, *chunk], embedding [D, S] -> chunks one behind the other along the inputs."""

    chunks: int  # S
    inputs: int  # the dimension of the input channels
    adds: tuple[str, ...] = (EMBEDDING, "chunks", "inputs")

    def prepare(self: Any, old: Tensor) -> None:
        self.register_parameter(EMBEDDING, nn.Parameter(old.new_zeros(self.bank.templates.shape[0], self.chunks)))

    def generate(self: Any) -> Tensor:
        chunks = [combine(e, self.bank.templates) for e in self.weight_embedding.unbind(1)]
        return torch.cat(chunks, self.inputs) if len(chunks) > 1 else chunks[0]


@layer
class Mixed(Generated):
    """theta = sum_l alpha_l T_l. Shape: bank [n, *weight], coefficients [K], template numbers [K]."""

    numbers: tuple[int, ...]
    adds: tuple[str, ...] = (COEFFICIENTS, TEMPLATES, "numbers")

    def prepare(self: Any, old: Tensor) -> None:
        if self.bank.templates.shape[0] > 1:
            self.register_parameter(COEFFICIENTS, nn.Parameter(old.new_zeros(len(self.numbers))))
            self.register_buffer(TEMPLATES, torch.tensor(self.numbers, device=old.device))

    def generate(self: Any) -> Tensor:
        templates = self.bank.templates
        if templates.shape[0] == 1:
            return templates[0]
        # Zeros for the templates of other layers cost less than a copy of this layer's, which autograd would keep.
        every = self.weight_coefficients.new_zeros(templates.shape[0])
        return combine(every.scatter_add(0, self.weight_templates, self.weight_coefficients), templates)


@layer
class Carved(Generated):
    """The same with templates cut out of one flat vector. Shape: bank [size], coefficients [K]."""

    start: int
    count: int  # K
    shape: tuple[int, ...]
    mixes: bool  # whether the vector has room for two templates of this shape
    adds: tuple[str, ...] = (COEFFICIENTS, "start", "count", "shape", "mixes")

    def prepare(self: Any, old: Tensor) -> None:
        if self.mixes:
            self.register_parameter(COEFFICIENTS, nn.Parameter(old.new_zeros(self.count)))

    def generate(self: Any) -> Tensor:
        cut = torch.cat(windows(self.bank.templates, self.start, self.count * math.prod(self.shape)))
        return combine(self.weight_coefficients, cut.view(-1, *self.shape)) if self.mixes else cut.view(self.shape)


def template_users(network: nn.Module) -> dict[str, Tensor]:
    """How many members combine each template of a trainable bank, by its name, where members have template numbers.

    Shape: [n, 1, ...] for a bank [n, ...]; a template that no member combines counts as one member's.
    """
    uses: dict[str, Tensor] = {}
    for module in network.modules():
        numbers = module._buffers.get(TEMPLATES)  # [members, K]
        if not isinstance(module, Mixed) or numbers is None or numbers.ndim != 2:
            continue
        templates = module.bank.templates
        if templates.requires_grad:
            used = uses.setdefault(f"{module.source}.templates", numbers.new_zeros(len(numbers), len(templates)))
            used.scatter_(1, numbers, 1)
    shapes = {name: (-1, *(1,) * (network.get_parameter(name).ndim - 1)) for name in uses}
    return {name: used.sum(0).clamp(min=1).view(shapes[name]) for name, used in uses.items()}


def windows(blob: Tensor, start: int, length: int) -> list[Tensor]:
    """`length` numbers from `start` on, going on at 0 behind the end."""
    over = start + length - len(blob)
    return [blob[start : start + length]] if over <= 0 else [blob[start:], blob[:over]]


# Files of earlier versions name the layers of attention apart.
LAYERS |= {f"{kind.__name__}Projection": kind for kind in (Embedded, Mixed, Carved)}
