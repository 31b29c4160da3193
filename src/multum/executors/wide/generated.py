"""Convolutions and linear layers whose weights are computed, of all members side by side."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from ...rewrite.templates import COEFFICIENTS, EMBEDDING, TEMPLATES, windows
from .products import WideProduct

__all__ = ["WideCarved", "WideEmbedded", "WideMixed"]


class _WideGenerated(WideProduct):
    """A weight that is combined from templates which all members share; members own what combines them."""

    combining: ClassVar[str] = COEFFICIENTS

    def own_weight(self) -> Tensor | None:
        return self.combined(getattr(self.module, self.combining)) if self.combining in self.own else None

    def combined(self, coefficients: Tensor) -> Tensor:
        raise NotImplementedError


class WideMixed(_WideGenerated):
    def combined(self, coefficients: Tensor) -> Tensor:
        templates = self.module.bank.templates
        numbers = self.module._buffers[TEMPLATES]
        if TEMPLATES not in self.own:
            numbers = numbers.expand(self.members, -1)
        every = coefficients.new_zeros(self.members, templates.shape[0]).scatter_add(1, numbers, coefficients)
        return torch.mm(every, templates.flatten(1)).view(self.members, *templates.shape[1:])


class WideEmbedded(_WideGenerated):
    combining = EMBEDDING

    def combined(self, coefficients: Tensor) -> Tensor:
        templates = self.module.bank.templates
        rows = coefficients.transpose(1, 2).flatten(0, 1)  # [members * chunks, templates]
        chunks = torch.mm(rows, templates.flatten(1)).view(self.members, -1, *templates.shape[1:]).unbind(1)
        return torch.cat(chunks, self.module.inputs + 1) if len(chunks) > 1 else chunks[0]


class WideCarved(_WideGenerated):
    def combined(self, coefficients: Tensor) -> Tensor:
        module = self.module
        cut = torch.cat(windows(module.bank.templates, module.start, module.count * math.prod(module.shape)))
        return torch.mm(coefficients, cut.view(module.count, -1)).view(self.members, *module.shape)
