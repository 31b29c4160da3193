"""Run a network once on tensors that carry notes, and show every operation on them to a tracer.

This is the one way multum looks inside a network: `channels.py` uses it to learn which channels belong together, and
`dependence.py` to learn what depends on the member. Weights are never copied: where the network allows it the run
happens on the meta device, where nothing is computed; a network that reads values in Python runs on its own device.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only

from .copies import arguments, skeleton, tensors_of, unwritten


class Tracer(Protocol):
    """What `Traced` tensors report to."""

    path: str  # of the module that is running
    shortens: bool  # whether two steps of a sequence say as much as all

    def enter(self, path: str, inputs: Any) -> None:
        """A module is about to run on these inputs."""

    def result(self, func: Any, args: tuple, kwargs: dict, outputs: list[Tensor | None]) -> list[Any]:
        """The note of each output of `func`; None leaves that output a plain tensor."""

    def write(self, target: Tensor, note: Any) -> None:
        """An in-place operation wrote into `target`, which may be a view of another tensor; `note` is its result's."""

    def factory(self, func: Any, output: Tensor) -> Any:
        """The note of a tensor that the network creates itself (zeros, ones, arange ...), or None."""


class Traced(Tensor):
    """A tensor with a note, which every operation on it hands to the tracer."""

    elem: Tensor
    note: Any
    tracer: Tracer

    @staticmethod
    def __new__(cls, elem: Tensor, note: Any, tracer: Tracer) -> Traced:
        self = torch.Tensor._make_wrapper_subclass(
            cls, elem.shape, strides=elem.stride(), dtype=elem.dtype, device=elem.device, layout=elem.layout
        )
        self.elem, self.note, self.tracer = elem, note, tracer
        return self

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Traced({tuple(self.shape)}, note={self.note})"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[override]
        with torch._C.DisableTorchFunctionSubclass():
            if func.__name__ in _RECURRENT and isinstance(args[0], Tensor) and args[0].is_meta:
                return _recurrent(func, *args)
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[override]
        kwargs = kwargs or {}
        traced = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Traced)]
        tracer = traced[0].tracer
        in_place = _writes_first(func)
        plain_args, plain_kwargs = tree_map_only(Traced, lambda t: t.elem, (args, kwargs))
        quick = func is torch.ops.aten.native_batch_norm.default and plain_args[0].is_meta and not plain_args[5]
        out = _normalised(plain_args[0]) if quick else func(*plain_args, **plain_kwargs)
        leaves, spec = tree_flatten(out)
        notes = tracer.result(func, args, kwargs, [leaf if isinstance(leaf, Tensor) else None for leaf in leaves])
        if torch.Tag.inplace_view in func.tags and isinstance(args[0], Traced):
            with no_dispatch():
                func(*args, **kwargs)  # the wrapper has a shape of its own
            args[0].note = notes[0]
            return args[0]
        if in_place:
            tracer.write(args[0], notes[0])
            return args[0]
        wrapped = [
            Traced(leaf, note, tracer) if isinstance(leaf, Tensor) and note is not None else leaf
            for leaf, note in zip(leaves, notes, strict=True)
        ]
        return spec.unflatten(wrapped)


def _normalised(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What batch norm gives in eval mode on meta, where torch takes milliseconds to find out."""
    return torch.empty_like(x), x.new_empty(0), x.new_empty(0)


_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _recurrent(func: Any, x: Tensor, *rest: Any) -> Any:
    """A recurrent layer, on two steps of its sequence if the tracer allows: the others only do the same again."""
    tracers = [t.tracer for t in tree_flatten((x, rest))[0] if isinstance(t, Traced)]
    dim = 1 if rest[-1] is True else 0  # batch_first comes last; packed sequences [rows, features] have none
    if x.ndim != 3 or x.shape[dim] <= 2 or not tracers[0].shortens:
        return func(x, *rest)
    out, *states = func(x.narrow(dim, 0, 2), *rest)
    shape = [x.shape[d] if d == dim else n for d, n in enumerate(out.shape)]
    return out.narrow(dim, 0, 1).expand(shape), *states


def _writes_first(func: Any) -> bool:
    """Whether an operation writes into its first argument (`add_`, `copy_` ...); other ways of writing are refused."""
    if not func._schema.is_mutable:
        return False
    written = [i for i, a in enumerate(func._schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    returned = any(r.alias_info is not None for r in func._schema.returns)
    if returned and written != [0]:
        raise NotImplementedError(f"{func} changes a tensor in a way that cannot be followed")
    # Batch norm writes its running statistics and returns none of them: nothing to follow there.
    return returned


class _Factories(TorchDispatchMode):
    """Shows the tracer the tensors that a network creates itself."""

    def __init__(self, tracer: Tracer):
        super().__init__()
        self.tracer = tracer

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        inputs = [t for t in tree_flatten((args, kwargs or {}))[0] if isinstance(t, Tensor)]
        if inputs or not isinstance(out, Tensor):
            return out
        note = self.tracer.factory(func, out)
        return out if note is None else Traced(out, note, self.tracer)


@contextmanager
def plain_attention():
    """Run nn.MultiheadAttention and nn.TransformerEncoderLayer as ordinary operations, not as one opaque kernel."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def _plain_recurrence():
    """Run recurrent layers as ordinary operations, which they are on meta anyway."""
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


def follow(network: nn.Module, tracer: Any) -> None:
    """Keep `tracer.path` at the module that is running; `tracer.enter`, if any, sees the inputs."""
    running = [""]

    def before(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple, kwargs: dict) -> None:
            running.append(path)
            tracer.path = path
            tracer.enter(path, (args, kwargs))

        return hook

    def after(*_: Any) -> None:
        running.pop()
        tracer.path = running[-1]

    for path, module in list(network.named_modules()):
        module.register_forward_pre_hook(before(path), with_kwargs=True)
        module.register_forward_hook(after)


def run_traced(
    network: nn.Module,
    x: Any,
    tracer: Tracer,
    note: Callable[[str, Tensor], Any],
    device: str | None = "meta",
) -> Any:
    """Run `network(x)` in eval mode with noted parameters and buffers; the output, with its note.

    Args:
        note: name and tensor of a parameter or buffer -> its note, or None to leave it plain.
        device: where to run; None means where the network is.
    """

    def place(t: Tensor) -> Tensor:
        if device is not None:
            return t.detach().to(device)
        return unwritten(t)

    network = skeleton(network, place).eval()
    follow(network, tracer)
    noted: dict[str, Tensor] = {}
    for name, tensor in tensors_of(network).items():
        what = note(name, tensor)
        if what is not None:
            noted[name] = Traced(tensor.detach(), what, tracer)
    args, kwargs = arguments(tree_map(lambda t: place(t) if type(t) is Tensor else t, x))
    with torch.no_grad(), plain_attention(), _plain_recurrence(), _Factories(tracer):
        return torch.func.functional_call(network, noted, args, kwargs)
