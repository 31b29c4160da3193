"""Nested SGD (Algorithm 1 of the hypernetwork paper) in plain torch: the reference that a training loop is held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def nested_cycle(
    loss: Callable[[int], Tensor],
    shared: Sequence[Tensor],
    own: Sequence[Sequence[Tensor]],
    lr: float,
    *,
    averages: bool = False,
) -> None:
    """One turn of nested SGD over all members (Algorithm 1).

    Every member steps at once; the gradients of what they share are summed, each taken before its member's step.

    Args:
        loss: member -> its loss on its own minibatch.
        own: the tensors of every member.
        averages: the gradients of what they share are averaged: members as if alone.
    """
    total = [torch.zeros_like(t) for t in shared]
    for i, mine in enumerate(own):
        gradients = torch.autograd.grad(loss(i), [*mine, *shared])
        with torch.no_grad():
            for tensor, gradient in zip(mine, gradients[: len(mine)], strict=True):
                tensor -= lr * gradient
            for tensor, gradient in zip(total, gradients[len(mine) :], strict=True):
                tensor += gradient
    with torch.no_grad():
        for tensor, gradient in zip(shared, total, strict=True):
            tensor -= lr * (gradient / len(own) if averages else gradient)
