"""Members one after another: the reference that every other executor is held to (Packed-Ensembles, Figure 3a)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from ..rewrite.dropout import Randomness
from .base import Executor
from .call import call, take

__all__ = ["Loop", "recomputing"]

_RECOMPUTING: ContextVar[bool] = ContextVar("members are computed again in backward", default=False)


@contextmanager
def recomputing() -> Iterator[None]:
    """A context in which a member keeps nothing for backward but its input: time for memory.

    In backward one member after another is computed again, so that the activations of one are there at a time.
    """
    token = _RECOMPUTING.set(True)
    try:
        yield
    finally:
        _RECOMPUTING.reset(token)


class Loop(Executor):
    """The reference. Every member starts from the same shared buffers, which become the mean of the members' results:
    exact in a shared trunk, where the members' results are equal."""

    name = "loop"

    def run(
        self,
        network: nn.Module,
        stacked: Mapping[str, Tensor],
        moving: Mapping[str, Tensor],
        x: Any,
        members: int,
        per_member: bool,
        randomness: Randomness | None,
    ) -> Tensor:
        slices = {name: tensor.unbind(0) for name, tensor in stacked.items()}
        updates: list[dict[str, Tensor]] = []
        outputs = []
        shared = randomness.shared_state() if randomness is not None else {}
        again = not torch.compiler.is_compiling() and _RECOMPUTING.get() and torch.is_grad_enabled()
        training = bool(moving) and any(module.training for module in network.modules())
        for i in range(members):
            if i > 0 and randomness is not None:
                randomness.restore_shared(shared)
            own = {name: parts[i] for name, parts in slices.items()}
            updates.append({name: buffer.clone() for name, buffer in moving.items()} if training else {})
            seen = take(x, i) if per_member else x
            outputs.append(call(network, {**own, **updates[-1]}, seen, again=again))
        for name, buffer in moving.items() if training else ():
            first = updates[0][name]
            rest = [u[name] for u in updates[1:]]
            if buffer.is_floating_point() and not all(torch.equal(first, u) for u in rest):
                first = torch.stack([first, *rest]).mean(0)
            buffer.copy_(first)
        return torch.stack(outputs)

    def suits(self, device: str, training: bool, trunk: bool) -> bool:
        """On a CPU, members one after another beat one grouped convolution in inference, unless that would compute a
        shared trunk once per member."""
        return device == "cpu" and not training and not trunk

    def refusal(self, *_: Any) -> None:
        return None
