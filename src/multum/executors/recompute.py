"""Activation checkpointing inside a member's network (torch.utils.checkpoint, reentrant or not), under every executor.

A checkpointed block runs again in backward. By then the executor is done: the network holds the tensors of all members,
vmap has ended, dropout has drawn other masks and running statistics have moved. So a block that is checkpointed while
an executor runs is handed to torch in a form that stands alone: with the tensors of its member or members, its buffers
and its generators as they were. Buffers then move once, as they do without checkpointing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C import _functorch as functorch
from torch.func import functional_call
from torch.utils import checkpoint as torch_checkpoint
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..network.copies import name_in
from ..rewrite.dropout import Drawing, Randomness

__all__ = ["recomputable", "refusing"]


class Pass(NamedTuple):
    """A run of a network: the tensors in place of its own, and the settings of torch that it runs under."""

    network: nn.Module
    tensors: dict[str, Tensor]
    around: Callable[[], AbstractContextManager]


_PASS: ContextVar[Pass | Exception | None] = ContextVar("the pass that is running", default=None)


@contextmanager
def recomputable(
    network: nn.Module, tensors: dict[str, Tensor], around: Callable[[], AbstractContextManager]
) -> Iterator[None]:
    """A context in which whatever the network checkpoints can be computed again once the executor is done."""
    token = _PASS.set(Pass(network, tensors, around))
    try:
        yield
    finally:
        _PASS.reset(token)


@contextmanager
def refusing(error: Exception) -> Iterator[None]:
    """A context in which a block that would run again in backward raises this instead."""
    token = _PASS.set(error)
    try:
        yield
    finally:
        _PASS.reset(token)


class _Within(nn.Module):
    """A function that runs parts of a network, as a module that has the network's tensors."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, function: Callable, args: Any, kwargs: Any) -> Any:
        return function(*args, **kwargs)


def _alone(now: Pass, function: Callable, args: tuple, kwargs: dict) -> tuple[Callable, tuple]:
    """The block as a function of plain tensors that may run at any later time, and these tensors."""
    inputs = _Flat((args, kwargs))
    weights = _Flat(now.tensors)
    before = _Flat({name: buffer.clone() for name, buffer in _buffers(now.network, function).items()})
    dims = (*inputs.dims, *weights.dims, *before.dims)
    randomness = _randomness(now.network, [t for t in (*inputs.leaves, *weights.leaves) if isinstance(t, Tensor)])
    state = {} if randomness is None else randomness.state()

    def one(*leaves: Any) -> Any:
        rest = iter(leaves)
        args, kwargs = inputs.filled(rest)
        tensors = {**weights.filled(rest), **before.filled(rest)}
        with recomputable(now.network, tensors, now.around):
            named = {f"network.{name}": tensor for name, tensor in tensors.items()}
            return functional_call(_Within(now.network), named, (function, args, kwargs))

    def again(*given: Any) -> Any:
        buffers = [buffer.clone() for buffer in before.leaves]  # a second backward finds them as the first one did
        mapped = one if all(d is None for d in dims) else torch.func.vmap(one, in_dims=dims, randomness="different")
        with now.around(), _rewound(randomness, state):
            return mapped(*given, *weights.leaves, *buffers)

    return again, tuple(inputs.leaves)


class _Flat:
    """A tree of arguments outside of vmap: its leaves as they are stored, and the dimension of the members in each."""

    def __init__(self, tree: Any):
        leaves, self.spec = tree_flatten(tree)
        mapped = [isinstance(leaf, Tensor) and functorch.is_batchedtensor(leaf) for leaf in leaves]
        self.leaves = [functorch.get_unwrapped(t) if m else t for t, m in zip(leaves, mapped, strict=True)]
        self.dims = [functorch.maybe_get_bdim(t) if m else None for t, m in zip(leaves, mapped, strict=True)]

    def filled(self, leaves: Iterator[Any]) -> Any:
        """The same tree with the next leaves in place of its own."""
        return tree_unflatten([next(leaves) for _ in self.leaves], self.spec)


def _buffers(network: nn.Module, function: Callable) -> dict[str, Tensor]:
    """The buffers that a block may write: those of the module that it is, or is a method of; else all."""
    owner = function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
    inside = set((owner if isinstance(owner, nn.Module) else network).modules())
    return {
        name_in(path, name): buffer
        for path, module in network.named_modules()
        if module in inside
        for name, buffer in module.named_buffers(recurse=False)
    }


def _randomness(network: nn.Module, tensors: list[Tensor]) -> Randomness | None:
    """The generators of the network's dropout layers, ready on the devices of these tensors."""
    layers = [m for m in network.modules() if isinstance(m, Drawing) and "randomness" in m.__dict__]
    if not layers:
        return None
    for device in {t.device for t in tensors}:
        layers[0].randomness.on(device)
    return layers[0].randomness


@contextmanager
def _rewound(randomness: Randomness | None, state: dict[str, Tensor]) -> Iterator[None]:
    """A context in which generators start from an earlier state, and after which they are as before."""
    if randomness is None:
        yield
        return
    now = randomness.state()
    randomness.load_state(state)
    try:
        yield
    finally:
        randomness.load_state(now)


_generator = torch_checkpoint._checkpoint_without_reentrant_generator
_signature = inspect.signature(_generator)


def _standing_alone(*args: Any, **kwargs: Any) -> Any:
    """In place of torch's own: the same, for a block that stands alone if an executor is running."""
    now = _PASS.get()
    if now is None or not torch.is_grad_enabled():
        return _generator(*args, **kwargs)
    if isinstance(now, Exception):
        raise now
    call = _signature.bind(*args, **kwargs)
    call.apply_defaults()
    name = next(iter(_signature.parameters))
    function, given = _alone(now, call.arguments[name], call.arguments["args"], call.arguments["kwargs"])
    call.arguments.update({name: function, "args": given, "kwargs": {}})
    return _generator(*call.args, **call.kwargs)


class _Reentrant(torch_checkpoint.CheckpointFunction):
    """In place of torch's own: the same, but not reentrant while an executor runs, as vmap cannot map it."""

    @classmethod
    def apply(cls, function: Callable, preserve: bool, *args: Any) -> Any:
        if not torch.is_grad_enabled():
            return function(*args)  # nothing will run again; torch would only warn that there are no gradients
        if _PASS.get() is None:
            return super().apply(function, preserve, *args)
        return torch_checkpoint.checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve)


# Networks hold `checkpoint` itself, under whatever name they imported it; what it calls can be exchanged.
torch_checkpoint._checkpoint_without_reentrant_generator = _standing_alone
torch_checkpoint.CheckpointFunction = _Reentrant  # type: ignore[misc]
