"""`multum.optimize`: an ensemble for inference alone, that gives the same outputs for less.

1. Members become plain networks (`members`), and a graph of torch's operators for any batch (`program`).
2. Batch norms go into the weights (`norms`); what is off in eval mode goes.
3. The graph of one member becomes that of all (`spread`): what depends on no member runs once, the rest member after
   member or side by side; samples of one network are rows of one batch.
4. The few ways to run it (`layouts`) are held to the ensemble on the example, and the fastest stays; or a `backend`
   compiles it.

A network that torch.export cannot trace for any batch, or that has hooks, is run as plain members one after another.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from ..ensemble import Ensemble
from ..errors import ConfigError, ExampleError, ExecutorError, check_known, first_line
from ..executors import REFERENCE
from ..executors.choosing import fixed, measuring, race
from ..executors.grouped import Grouped
from ..network.copies import drawn, two_rows
from ..outputs.prediction import eval_mode
from .backends import BACKENDS, compiled
from .layouts import LAYOUTS, PLAIN, laid_out
from .members import folded, in_turn, is_sampled, one_pass, plain_networks, sampled_network
from .norms import fold_norms, fold_scales
from .program import Program, Unexportable, program_of
from .rules import RULES
from .spread import Draws, spread

__all__ = ["RUNS", "Optimized", "optimize"]

log = logging.getLogger("multum")

RUNS = {REFERENCE: {}, Grouped.name: RULES}  # how members run -> the operators that run for all of them at once


class Optimized(nn.Module):
    """An ensemble for inference: `optimized(x)` is `ens(x)` in eval mode, to rounding.

    It has what predictions ask of an ensemble (`members`, `task`, `state`), shares no tensor with it, and cannot be
    trained, cast or moved.

    Shape: x [batch, ...], any batch, the other sizes as in the example -> [members, batch, outputs, ...].
    """

    def __init__(self, ens: Ensemble, module: nn.Module, example: Any, how: str):
        super().__init__()
        self.like: Tensor
        self.members, self.task, self.method = ens.members, ens.task, ens.method
        self.state = {name: t.clone() for name, t in ens.state.items()}
        self.module, self.how = module, how
        self.shapes = [(tuple(t.shape[1:]), t.dtype) for t in tree_leaves(_sorted(example))]
        like = next((t for t in ens.state_dict().values() if t.is_floating_point()), torch.zeros(()))
        self.register_buffer("like", like.new_empty(0), persistent=False)  # of the device and dtype of the weights
        self.eval()

    def forward(self, x: Any, member: int | None = None) -> Tensor:
        """All members' outputs [members, batch, ...], or one member's [batch, ...]."""
        inputs = tree_leaves(_sorted(x))
        if [(tuple(t.shape[1:]), t.dtype) for t in inputs] != self.shapes:
            raise ExampleError(
                f"x must be like the example but for the batch, {_shapes(self.shapes)}; got "
                f"{_shapes([(tuple(t.shape[1:]), t.dtype) for t in inputs])}. Use multum.optimize(ens, example=x)"
            )
        with torch.no_grad():
            out = self.module(*inputs)
        return out if member is None else out[member]

    @property
    def device(self) -> torch.device:
        return self.like.device

    def train(self, mode: bool = True) -> Optimized:
        if mode:
            raise ConfigError("an optimized ensemble must stay in eval mode; got train(). Train the ensemble itself")
        return super().train(False)

    def _apply(self, *args: Any, **kwargs: Any) -> Optimized:
        raise ConfigError(
            "an optimized ensemble must stay where and as it is; got a cast or a move. Do that to the ensemble, and "
            "optimize it again"
        )

    def extra_repr(self) -> str:
        return f"{self.method}, members={self.members}, task={self.task}, {self.how}"


def _sorted(x: Any) -> Any:
    return {name: x[name] for name in sorted(x)} if isinstance(x, dict) else x


def _shapes(shapes: Iterable[tuple[tuple[int, ...], torch.dtype]]) -> str:
    """In words.

    >>> _shapes([((3, 8), torch.float32), ((), torch.int64)])
    '[batch, 3, 8] of float32 and [batch] of int64'
    """
    words = [(", ".join(["batch", *map(str, shape)]), str(dtype).removeprefix("torch.")) for shape, dtype in shapes]
    return " and ".join(f"[{sizes}] of {dtype}" for sizes, dtype in words)


class Candidate(NamedTuple):
    name: str
    module: nn.Module  # takes the tensors of an input


def optimize(ens: Ensemble, example: Any = None, *, backend: str | None = None, run: str | None = None) -> Optimized:
    """A copy of an ensemble that is optimized for inference; `ens` itself is not changed.

    Args:
        example: a batch of the size that matters, on which the ways to run are held to `ens` and timed; None: one of
            the example's shape with random values. Other batch sizes run too.
        backend: "inductor", "onnxruntime" or "openvino" compiles it; None: torch's operators as they are.
        run: members one after another ("loop") or side by side ("grouped"); None: the faster one, measured on the
            example. With MULTUM_AUTOTUNE=0 nothing is measured, and members run one after another.

    >>> import multum
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    >>> ens = multum.ensemble(net, multum.Mixture(members=2), example=torch.zeros(2, 4)).eval()
    >>> x = torch.randn(5, 4)
    >>> torch.testing.assert_close(multum.optimize(ens)(x), ens(x).detach())
    """
    _check(ens, backend, run)
    like = next((t for t in ens.state_dict().values() if t.is_floating_point()), torch.zeros(()))
    x = _sorted(drawn(ens.example, like) if example is None else example)
    twin = copy.deepcopy(ens) if is_sampled(ens) else ens  # a run of samples moves their generators
    trials = [x, tree_map_only(Tensor, lambda t: t[:1], x)]
    with torch.no_grad(), eval_mode(twin), fixed():
        expected = [twin(trial) for trial in trials]

    candidates = _agreeing(
        _candidates(ens, x, backend, run), trials, expected, must=backend is not None or run is not None
    )
    if not candidates:
        candidates = _agreeing([Candidate("as plain networks", _Untraced(ens, x))], trials, expected, must=True)
    best = _fastest(candidates, x)
    _rewind(best.module, ens)
    log.info("multum runs the optimized ensemble %s", best.name)
    return Optimized(ens, best.module, x, best.name)


def _check(ens: Any, backend: str | None, run: str | None) -> None:
    if not isinstance(ens, Ensemble):
        raise ConfigError(
            f"ens must be an ensemble; got {type(ens).__name__}. Make one of it with "
            "multum.ensemble(network, multum.Single(), example=x)"
        )
    for name, value, known in (("backend", backend, BACKENDS), ("run", run, RUNS)):
        if value is not None:
            check_known(value, known, f"{name} must be {', '.join(map(repr, known))} or None")
    if backend is not None and is_sampled(ens):
        raise ConfigError(
            f"backend must be None where members are samples, as their masks come from generators that no compiler "
            f"knows; got backend={backend!r} for {ens.method.name}. Leave it out"
        )


# -- the ways to run ---------------------------------------------------------------------------------------------------


def _candidates(ens: Ensemble, x: Any, backend: str | None, run: str | None) -> list[Candidate]:
    try:
        program = _program(ens, x)
    except Unexportable as error:
        if backend is not None or run is not None:
            raise ExecutorError(
                f"{'run' if backend is None else 'backend'} must have a network that torch.export can trace for any "
                f"batch; got {first_line(error)}. Leave it out: members then run as plain networks"
            ) from error
        log.info("multum runs the members as plain networks, since torch.export cannot trace them: %s", error)
        return []
    fold_norms(program)
    fold_scales(program)
    measured = measuring()
    graphs = {name: _spread(program, ens, name) for name in _runs(program, run, measured)}
    if backend is not None:
        return [
            Candidate(f"{name}, {backend}", compiled(backend, graph, tree_leaves(x))) for name, graph in graphs.items()
        ]
    layouts = LAYOUTS if measured else (PLAIN,)
    ways = [
        (f"{name}, {layout}", laid_out(graph, layout, tree_leaves(x)))
        for name, graph in graphs.items()
        for layout in layouts
    ]
    return [Candidate(name, module) for name, module in ways if module is not None]


def _program(ens: Ensemble, x: Any) -> Program:
    """The graph of one member, or of all where they are one network or differ in their widths."""
    if any(m._forward_hooks or m._forward_pre_hooks for m in ens.network.modules()):
        raise Unexportable("the network has hooks, which must see what they saw before")
    rows = two_rows(x)  # of which there must be more than one to be traced for any number
    if ens.folded:
        return program_of([one_pass(ens)], rows, whole=True)
    if is_sampled(ens):
        return program_of([sampled_network(ens)], rows)
    networks = plain_networks(ens)
    if len({tuple(t.shape for t in n.state_dict().values()) for n in networks}) > 1:
        return program_of([in_turn(networks, ens)], rows, whole=True)
    return program_of(networks, rows)


def _runs(program: Program, run: str | None, measured: bool) -> list[str]:
    """The ways to run that are tried: one suffices where nothing runs once for every member."""
    if run is not None:
        return [run]
    alone = all(len(values) == 1 for values in program.constants.values())
    return [REFERENCE] if alone or not measured else list(RUNS)


def _spread(program: Program, ens: Ensemble, run: str) -> torch.fx.GraphModule:
    randomness = copy.deepcopy(ens.randomness) if is_sampled(ens) else None
    return spread(program, ens.members, RUNS[run], randomness)


class _Untraced(nn.Module):
    """Plain networks one after another, called with the tensors of an input; samples are the ensemble's own."""

    def __init__(self, ens: Ensemble, x: Any):
        super().__init__()
        self.module = copy.deepcopy(ens).eval() if is_sampled(ens) else folded(ens)
        self.spec = tree_flatten(x)[1]

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.module(self.spec.unflatten(inputs))


# -- held to the ensemble, and timed -----------------------------------------------------------------------------------


def _agreeing(candidates: list[Candidate], trials: list[Any], expected: list[Tensor], must: bool) -> list[Candidate]:
    """The ways to run that give the ensemble's outputs.

    Args:
        must: whether it is an error that none does.
    """
    differences = {c.name: _difference(c.module, trials, expected) for c in candidates}
    reasons = [f"run {name}, {what}" for name, what in differences.items() if what]
    if must and candidates and len(reasons) == len(candidates):
        raise ExecutorError(
            f"the optimized ensemble must give the ensemble's outputs to half of their digits; {'; '.join(reasons)}. "
            "Use backend=None, or the ensemble as it is"
        )
    for reason in reasons:
        log.warning("multum does not use a way to run the optimized ensemble: %s", reason)
    return [c for c in candidates if not differences[c.name]]


def _difference(module: nn.Module, trials: list[Any], expected: list[Tensor]) -> str:
    """In which way a module does not give these outputs, to half of the digits of their precision; "" where it does."""
    for x, out in zip(trials, expected, strict=True):
        try:
            with torch.no_grad():
                got = module(*tree_leaves(x))
        except Exception as error:  # a layout that an operator of the network cannot take
            return f"it raises {type(error).__name__}: {first_line(error)}"
        if got.shape != out.shape:
            return f"it gives {tuple(got.shape)} in place of {tuple(out.shape)}"
        equal = (got == out) | (got.isnan() & out.isnan())
        bound = torch.finfo(out.dtype).eps ** 0.5 * float(out.masked_fill(~out.isfinite(), 0).abs().max())
        far = float((got - out).masked_fill(equal, 0).abs().max())
        if not far <= bound:
            return f"the largest difference is {far:.1e}, more than {bound:.1e}"
    return ""


def _fastest(candidates: list[Candidate], x: Any) -> Candidate:
    named, inputs = {c.name: c for c in candidates}, tree_leaves(x)
    if len(named) == 1:
        return candidates[0]
    with torch.no_grad():
        seconds = race(list(named), lambda name: named[name].module(*inputs))
    return named[min(seconds, key=seconds.__getitem__)]


def _rewind(module: nn.Module, ens: Ensemble) -> None:
    """Samples go on from where those of the ensemble are."""
    for part in module.modules():
        if isinstance(part, (Draws, Ensemble)):
            part.randomness.generators.clear()
            part.randomness.load_state(ens.randomness.state())
