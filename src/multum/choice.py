"""Which executor runs an ensemble: the one that was set, else the fastest one by measurement, else the table's.

chosen    set by the user; it runs everything
settled   measured for one situation: sizes of the input, mode, gradients, precision, threads
latest    the last one settled in a mode, or a saved model's; it runs where nothing may be measured
usual     the fixed table's, where nothing is known
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from .errors import ExecutorError, check_known, first_line
from .executors import EXECUTORS, REFERENCE, default
from .executors.choosing import fastest, few_rows, measurable, measuring, situation, structure
from .layout import Layout
from .network.copies import unwritten

log = logging.getLogger("multum")

MODES = ("eval", "training")  # as `latest` and a saved model name them


class Choosing(nn.Module):
    """The part of an ensemble that knows its executors."""

    network: nn.Module
    members: int
    layout: Layout
    chosen: str | None  # the executor that was set, None for the fastest
    settled: dict[str, str]  # situation -> executor
    latest: dict[str, str]  # mode -> executor
    _warned: bool  # whether the user knows that the executor cannot pool

    @property
    def executor(self) -> str:
        """The executor in use: the one that was set, else the last one settled in this mode, else the table's."""
        return self._known(per_member=False) if self.chosen is None else self.chosen

    @executor.setter
    def executor(self, name: str | None) -> None:
        if name is not None:
            check_known(name, EXECUTORS, f"executor must be {', '.join(map(repr, EXECUTORS))} or None for the fastest")
        if name is not None and name in self.refusals:
            raise ExecutorError(
                f"executor must be able to run the network; got {name!r}, which raises {self.refusals[name]}. "
                f"Use {' or '.join(map(repr, self.executors))}"
            )
        self.__dict__["chosen"] = name

    @property
    def executors(self) -> tuple[str, ...]:
        """The executors that can run this network."""
        return tuple(name for name in EXECUTORS if name not in self.refusals)

    @property
    def refusals(self) -> Mapping[str, str]:
        """The executors that cannot run this network, and why."""
        return self.layout.refusals

    def settle(self, x: Any, per_member: bool = False, steps: float = math.inf) -> str:
        """The executor of an input like this one in the present mode; measured now, where it is not known.

        With gradients on, a step is forward and backward; with gradients off, forward alone. Nothing of the ensemble
        moves: no buffer, no generator, no gradient.

        Args:
            steps: how many are to come, where that is known; a few are not worth measuring.
        """
        return self._runs(x, per_member, measuring(always=True), steps)

    def _runs(self, x: Any, per_member: bool, measure: bool | None = None, steps: float = math.inf) -> str:
        """The executor of this call."""
        if not self.layout.stacked:
            return REFERENCE
        if self.chosen is not None:
            return REFERENCE if self.chosen in self._refused(per_member) else self.chosen
        if self.members == 1 or torch.compiler.is_compiling():
            return self._usual(per_member)
        if not (measuring() if measure is None else measure):
            return self._known(per_member)
        pools = self._pools_now()
        key = situation(x, self.device, training=self.training, per_member=per_member, pools=pools)
        if key not in self.settled:
            if not measurable(self.network, x):
                return self._known(per_member)
            able = self._able(per_member, pools)
            self.settled[key] = able[0]
            if len(able) > 1:
                self.settled[key] = self.latest[self._mode] = self._fastest(able, key, x, per_member, steps)
        return self.settled[key]

    def _known(self, per_member: bool) -> str:
        """What runs without measuring."""
        latest = self.latest.get(self._mode)
        known = latest is not None and latest in self._able(per_member, self._pools_now())
        return latest if known else self._usual(per_member)  # type: ignore[return-value]

    def _usual(self, per_member: bool) -> str:
        usual = default(self.device.type, self.training, self.has_trunk, self.refusals)
        return REFERENCE if usual in self._refused(per_member) else usual

    def _able(self, per_member: bool, pools: bool) -> tuple[str, ...]:
        """The executors to choose from, the table's first: where it matters who pools, those that do as it does."""
        usual = self._usual(per_member)
        able = [name for name in EXECUTORS if name not in self._refused(per_member) and name != usual]
        return (usual, *(n for n in able if not pools or EXECUTORS[n].pools == EXECUTORS[usual].pools))

    def _refused(self, per_member: bool) -> Collection[str]:
        return self.layout.refusals_per_member if per_member else self.layout.refusals

    def _pools_now(self) -> bool:
        """Whether some norm that members share goes by its batch, so that it matters whether an executor pools."""
        norms = map(self.network.get_submodule, self.pooled)
        return bool(self.pooled) and (self.training or any(n.training or n.running_mean is None for n in norms))

    @property
    def _mode(self) -> str:
        return MODES[self.training]

    def _fastest(self, able: tuple[str, ...], key: str, x: Any, per_member: bool, steps: float) -> str:
        asked = {"situation": key, "members": self.members, "network": structure(self.network, self.layout.stacked)}
        favourite = next((name for name in able if EXECUTORS[name].mostly_fastest), able[0])
        device = self.device
        try:
            with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
                return fastest(able, able[0], favourite, asked, device, self._step(x, per_member), steps)
        except Exception as error:  # a network that cannot be copied, say: the table needs no measurement
            log.info("executors were not measured (%s: %s): %r runs", type(error).__name__, first_line(error), able[0])
            return able[0]

    def _step(self, x: Any, per_member: bool) -> Callable[[str], None]:
        """What runs one executor once, on a copy."""
        trial, device = self._trial(), self.device
        x = x if torch.is_grad_enabled() else few_rows(x, per_member)
        x = tree_map_only(Tensor, lambda t: unwritten(t).requires_grad_(t.requires_grad), x)
        inputs = [t for t in tree_leaves(x) if isinstance(t, Tensor)]
        leaves = [t for t in (*trial.parameters(), *inputs) if t.requires_grad]

        def step(name: str) -> None:
            trial.__dict__["chosen"] = name
            out = trial(x, per_member=per_member)
            if out.requires_grad and leaves:
                torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)
            if device.type == "cuda":
                torch.cuda.synchronize(device)

        return step

    def _trial(self) -> Choosing:
        """A copy that shares the parameters' values, and nothing that a step moves."""
        raise NotImplementedError

    @property
    def has_trunk(self) -> bool:
        """Whether some weighted layer is computed once for all members."""
        return self.layout.has_trunk

    @property
    def pooled(self) -> tuple[str, ...]:
        """Norms whose shared statistics see every member, under an executor that pools."""
        return self.layout.pooled

    @property
    def device(self) -> torch.device:
        first = next(chain(self.parameters(), self.buffers()), None)
        return first.device if first is not None else torch.device("cpu")

    def _warn_of_pooling(self, executor: str) -> None:
        if self._warned or torch.compiler.is_compiling():
            return
        self.__dict__["_warned"] = True
        names = ", ".join(self.pooled[:3]) + (f" and {len(self.pooled) - 3} more" if len(self.pooled) > 3 else "")
        pooling = [name for name, other in EXECUTORS.items() if other.pools]
        refusals = [f"; {n} cannot run this network: {self.refusals[n]}" for n in pooling if n in self.refusals]
        log.warning(
            "executor %r trains norms whose statistics the members share (%s): it normalises each member by its own "
            "batch and averages the running statistics, where %s pools all members%s",
            executor,
            names,
            " or ".join(map(repr, pooling)),
            "".join(refusals),
        )
