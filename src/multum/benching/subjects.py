"""What the rows of a benchmark measure: one network, ensembles by their executors, and the same by other libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..ensemble import Ensemble
from ..errors import ConfigError, check_known
from ..executors import EXECUTORS, REFERENCE
from ..executors.loop import recomputing
from ..methods import Method
from ..optimizing.backends import BACKENDS
from ..optimizing.optimize import optimize
from ..outputs.loss import loss
from ..training.batches import Step
from ..training.scoring import forward
from .peers import PEERS
from .setting import Setting

INFERENCE, TRAINING = MODES = ("inference", "training")
NETWORK = "one network"
AUTO = "auto"  # the executor that an ensemble chooses for itself
OPTIMIZED = "optimized"  # by `multum.optimize`, without a compiler
RECOMPUTED = "recomputed"  # a training step that keeps one member's activations at a time, `Recipe(recompute=True)`
RATE = 1e-4  # of the optimizer: weights must move, and stay finite over many steps on noise
AGREE = 1e-3  # of the largest output: what two executors may differ by in single precision


@dataclass(frozen=True)
class Subject:
    """What one row measures, in plain values, so that another process measures the same."""

    name: str
    way: str = ""  # how it is run: an executor, or a backend of `multum.optimize`; "" where there is nothing to choose
    method: Method | None = None  # None for the network itself
    peer: str = ""  # the library that runs it; "" for multum


@dataclass(frozen=True)
class Call:
    """One pass over a batch, or one training step; `prepare` is not timed."""

    prepare: Callable[[], Any]
    run: Callable[[], Any]


def executors_named(text: str) -> list[str]:
    """
    >>> executors_named("loop, vmap")
    ['loop', 'vmap']
    """
    return _named("executors", text, [*EXECUTORS, AUTO], list(EXECUTORS))


def backends_named(text: str) -> list[str]:
    """
    >>> backends_named("none"), backends_named("optimized,openvino")
    ([], ['optimized', 'openvino'])
    """
    every = [OPTIMIZED, *BACKENDS]
    return _named("backends", text, every, every)


def _named(option: str, text: str, known: list[str], every: list[str]) -> list[str]:
    names = {"all": every, "none": []}.get(text, [name.strip() for name in text.split(",") if name.strip()])
    for name in names:
        check_known(name, known, f"--{option} must be all, none, or some of {', '.join(known)}")
    return names


class Workshop:
    """Builds what is measured: every ensemble once for all of its executors, batches and modes."""

    def __init__(self, setting: Setting, check: bool = True):
        """`check`: whether an executor must agree with the reference before it is measured."""
        self.setting, self.check = setting, check
        self.built: dict[Any, nn.Module] = {}

    def subjects(
        self, label: str, method: Method, executors: Sequence[str], backends: Sequence[str], mode: str
    ) -> list[Subject]:
        """A method by each of these executors, or by none in particular where they do not differ; then by backends."""
        ways = executors if self._runs_members(method, mode) else [""]
        return [Subject(label, way, method) for way in (*ways, *(backends if mode == INFERENCE else ()))]

    def _runs_members(self, method: Method, mode: str) -> bool:
        """Whether several members run, each with tensors of its own, so that there is something to execute."""
        ens = self._grown(method) if mode == INFERENCE else self._born(method)
        several = bool(ens.layout.stacked) and not ens.folded and ens.members > 1
        return several and (mode == INFERENCE or not (method.takes_turns or ens.layout.samples))

    def call(self, subject: Subject, mode: str, batch: int) -> Call:
        """What is timed; raises where the subject cannot run it."""
        x, y = self.setting.examples(batch), self.setting.answers(batch)
        if subject.method is None:
            return self._plain(self._once("network", self.setting.network), x, y, mode)
        if subject.peer:
            peer, method = PEERS[subject.peer], subject.method
            model = self._once((peer.name, method), lambda: peer.build(self.setting, method))
            fed = peer.batch(method, x, y) if mode == TRAINING else (x, y)
            return self._plain(model, *fed, mode)
        ens = self._grown(subject.method) if mode == INFERENCE else self._born(subject.method)
        if subject.way in (OPTIMIZED, *BACKENDS):
            backend = None if subject.way == OPTIMIZED else subject.way
            return Call(lambda: None, _passing(optimize(ens.eval(), x, backend=backend), x))
        if subject.way == RECOMPUTED:
            step = recomputing()(_training(ens, x, y, self.setting.criterion))
            return Call(lambda: _prepare(ens, TRAINING, REFERENCE), step)
        executor = None if subject.way in ("", AUTO) else subject.way
        if self.check and executor and mode == INFERENCE:
            self._check_agreement(ens, executor, x[:2])
        run = _passing(ens, x) if mode == INFERENCE else _training(ens, x, y, self.setting.criterion)
        return Call(lambda: _prepare(ens, mode, executor), run)

    def _plain(self, model: nn.Module, x: Tensor, y: Tensor, mode: str) -> Call:
        """A network of plain torch, whatever shape its outputs have."""
        criterion = self.setting.criterion
        if mode == INFERENCE:
            return Call(lambda: model.eval(), _passing(model, x))
        step = _stepping(model, lambda: loss(model(x).flatten(0, -2).unsqueeze(0), y, criterion=criterion))
        return Call(lambda: model.train(), step)

    def _once(self, key: Any, make: Callable[[], nn.Module]) -> Any:
        if key not in self.built:
            self.built[key] = make()
        return self.built[key]

    def _born(self, method: Method) -> Ensemble:
        """The ensemble as training begins with it."""
        return self._once(("born", method), lambda: self.setting.ensemble(method))

    def _grown(self, method: Method) -> Ensemble:
        """The ensemble with all of its members, where training makes them: different ones, since what is equal in all
        of them would be computed once."""
        if self._born(method).members == method.members:
            return self._born(method)

        def grow() -> Ensemble:
            ens = self.setting.ensemble(method)
            generator = torch.Generator().manual_seed(0)
            grown = {n: t.detach()[:1].repeat_interleave(method.members, 0) for n, t in ens.tensors(ens.own).items()}
            for t in (t for t in grown.values() if t.is_floating_point()):
                t.mul_(1 + 0.01 * torch.rand(t.shape, generator=generator))
            ens.regrow(grown)
            return ens

        return self._once(("grown", method), grow)

    def _check_agreement(self, ens: Ensemble, way: str, x: Tensor) -> None:
        """A wrong result has no speed."""
        if way == REFERENCE or not ens.method.deterministic:
            return
        outputs = []
        for name in (REFERENCE, way):
            _prepare(ens, INFERENCE, name)
            outputs.append(_passing(ens, x)())
        difference = float((outputs[0] - outputs[1]).abs().max() / outputs[0].abs().max())
        if not difference <= AGREE:
            raise ConfigError(f"executors must agree; got {way} off by {difference:.1e} of the largest output")


def _prepare(ens: Ensemble, mode: str, executor: str | None) -> None:
    ens.train(mode == TRAINING)
    ens.executor = executor


def _passing(model: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    def run() -> Tensor:
        with torch.no_grad():
            return model(x)

    return run


def _training(ens: Ensemble, x: Tensor, y: Tensor, criterion: str) -> Callable[[], None]:
    """A step of a plain torch loop, with whatever the method asks of it."""
    method, generator, steps = ens.method, torch.Generator().manual_seed(0), iter(range(2**62))

    def value() -> Tensor:
        batch = method.batch(x, y, generator)
        member = method.turn(ens, next(steps), generator) if ens.members > 1 else None
        outputs = forward(ens, Step(batch.x, batch.y, batch.per_member, y), member, ghost=0)
        return loss(outputs, batch.y, criterion=criterion, reduction="sum")

    return _stepping(ens, value, lambda: method.average_shared(ens))


def _stepping(
    model: nn.Module, value: Callable[[], Tensor], before_moving: Callable[[], None] = lambda: None
) -> Callable[[], None]:
    """Forward, backward, and a step of SGD; gradients are not kept, so that many models fit into memory at once."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)

    def run() -> None:
        value().backward()
        before_moving()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return run
