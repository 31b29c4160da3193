"""An ensemble is one member's network, plus the names of the tensors that each member owns.

network   computes ONE member; every layer is written for one member and knows nothing of the others
own       the parameters and buffers with a leading member axis [members, ...]; all others are shared
executor  runs the members: `loop` one after another, `vmap` at once; the same numbers either way
"""

from __future__ import annotations

import logging
import operator
import re
import warnings
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from .errors import ConfigError, ExampleError, ExecutorError, NetworkError, did_you_mean, first_line
from .executors import EXECUTORS, default
from .executors.call import call
from .network.copies import arguments, full_copy, skeleton, tensors_of, trial_copy
from .network.dependence import Usage, trace_members
from .rewrite.dropout import DROPOUTS, Drawing, Randomness
from .rewrite.norm import NORMS
from .rewrite.walker import Edit, fold, install

__all__ = ["Ensemble", "fold_rows", "moving_buffers", "two_rows"]

log = logging.getLogger("multum")


class Ensemble(nn.Module):
    """Members of one network, run together.

    Parameters, buffers and submodules appear under the base network's own names: `state_dict()` has the keys of the
    base network, with a leading member axis where `own` says so.

    Shape: x [batch, ...] -> [members, batch, outputs]; with `per_member=True` x is [members, batch, ...]; with
    `member=i` one member runs alone, [batch, ...] -> [batch, outputs].
    """

    network: nn.Module  # computes one member; holds the stacked tensors
    folded: bool  # the network takes and gives all members at once, folded into the batch
    state: dict[str, Tensor]  # saved with the ensemble, never trained: what a method remembers
    members: int  # members born so far
    method: Any  # the config
    task: str  # "classification" or "regression"
    own: tuple[str, ...]  # names of the tensors with a member axis
    edits: tuple[Edit, ...]  # how the one-member network differs from the base network
    example: Any  # an example batch without values (meta device)
    randomness: Randomness  # one generator per member, one for what they share
    numbers: frozenset[str]  # the members' numbers that dropout layers own; not parameters, never saved
    has_trunk: bool  # whether some weighted layer is computed once for all members
    vmap_refused: str | None  # why vmap cannot run this network
    chosen: str | None  # the executor that was set, None for the default
    pooled: tuple[str, ...]  # norms whose shared statistics see every member; `loop` cannot pool them
    _stacked: tuple[str, ...]
    _moving: tuple[str, ...]
    _shared_draws: bool  # whether some dropout has one mask for all members
    _samples: tuple[str, ...]  # the dropout layers, where they alone tell the members apart
    _own_inputs_refused: bool  # whether vmap cannot run the shared trunk on inputs that differ between members
    _told: bool  # whether the user knows that `loop` cannot pool

    def __init__(
        self,
        network: nn.Module,
        own: Sequence[str],
        members: int,
        method: Any,
        *,
        example: Any,
        task: str = "classification",
        seeds: Sequence[int],
        edits: Sequence[Edit] = (),
        folded: bool = False,
        state: Mapping[str, Tensor] | None = None,
    ):
        super().__init__()
        # The ensemble *is* the network with a member axis: both look at the same dictionaries, so that names, hooks,
        # devices and copies need no translation. Plain __dict__ entries keep clear of a network's own attribute names.
        self.__dict__.update(
            network=network,
            _parameters=network._parameters,
            _buffers=network._buffers,
            _modules=network._modules,
            _non_persistent_buffers_set=network._non_persistent_buffers_set,
            training=network.training,
            members=members,
            method=method,
            task=task,
            edits=tuple(edits),
            folded=folded,
            state=dict(state or {}),
            randomness=Randomness(list(seeds)),
            example=tree_map_only(Tensor, lambda t: torch.empty_like(t[:2], device="meta"), example),
            vmap_refused=None,
            chosen=None,
            _told=False,
        )
        present = tensors_of(network)
        self.__dict__["own"] = tuple(name for name in present if name in set(own))
        one = self.single()
        fed = fold_rows(two_rows(example), members) if folded else two_rows(example)
        # Networks that share no weight depend on their member everywhere, and need not be followed.
        apart = bool(own) and {n for n, _ in network.named_parameters()} <= set(own)
        usage = None if apart else _usage(one, own, fed if folded else tree_map_only(Tensor, lambda t: t[:1], example))
        _install_natives(network, self.randomness, members, usage)
        numbers = [n for n, b in network.named_buffers() if n.rpartition(".")[2] == "member" and n not in present]
        drawing = {path: m for path, m in network.named_modules() if isinstance(m, Drawing)}
        self.__dict__.update(
            numbers=frozenset(numbers),
            _stacked=(*self.own, *numbers),
            _moving=tuple(n for n in moving_buffers(one, fed) if n not in set(own)),
            has_trunk=usage is not None and usage.has_trunk,
            _shared_draws=any(m.always or m.member is None for m in drawing.values()),
            _samples=() if own or not all(m.always for m in drawing.values()) else tuple(drawing),
            pooled=_pooled_norms(network, set(own), usage),
        )
        if any(m.always for m in drawing.values()):
            self.__dict__["has_trunk"] = True
        self.__dict__["vmap_refused"] = refused = self._probe(example)
        # A trunk that all members share runs outside of vmap, until each of them brings an input of its own.
        trunk = self.has_trunk or (usage is None and not apart)
        self.__dict__["_own_inputs_refused"] = bool(not refused and trunk and self._probe(example, per_member=True))
        if self.vmap_refused and members > 1:
            log.warning("multum runs this ensemble member after member (executor 'loop'): %s", self.vmap_refused)

    # -- running -------------------------------------------------------------------------------------------------------

    def forward(self, x: Any, per_member: bool = False, member: int | None = None) -> Tensor:
        """All members' outputs [members, batch, ...], or one member's [batch, ...]."""
        if per_member:
            self._check_per_member(x, member)
        if self.folded:
            return self._folded(x, per_member, member)
        stacked = self.tensors(self._stacked)
        if member is not None:
            i = self._index(member)
            return call(self.network, {name: t[i] for name, t in stacked.items()}, x)
        if not per_member and (not stacked or self._is_one_network()):
            out = call(self.network, {}, x)
            return out.unsqueeze(0).expand(self.members, *out.shape)
        moving = self.tensors(self._moving)
        executor = self.executor if stacked and not (per_member and self._own_inputs_refused) else "loop"
        if executor == "loop" and self.training and self.pooled and self.members > 1:
            self._warn_of_pooling()
        run = EXECUTORS[executor]
        randomness = self.randomness if self._shared_draws else None
        return run(self.network, stacked, moving, x, self.members, per_member, randomness)

    def _is_one_network(self) -> bool:
        """Whether the members are samples of one network, and it is being trained: one sample then stands for all."""
        return bool(self._samples) and all(self.network.get_submodule(path).training for path in self._samples)

    def _folded(self, x: Any, per_member: bool, member: int | None) -> Tensor:
        """One pass for all members. Shape: rows are member-major, [members * batch, ...]."""
        if not per_member:
            x = tree_map_only(Tensor, lambda t: t.expand(self.members, *t.shape), x)
        out = call(self.network, {}, tree_map_only(Tensor, lambda t: t.flatten(0, 1), x))
        out = out.unflatten(0, (self.members, -1))
        return out if member is None else out[self._index(member)]

    @property
    def executor(self) -> str:
        """The executor in use: the chosen one, else the default for this device and mode."""
        if self.chosen is not None:
            return self.chosen
        if self.vmap_refused:
            return "loop"
        return default(self.device.type, self.training, self.has_trunk)

    @executor.setter
    def executor(self, name: str | None) -> None:
        if name is not None and name not in EXECUTORS:
            raise ConfigError(
                f"executor is one of {', '.join(map(repr, EXECUTORS))}, or None for the default, however: {name!r}. "
                + did_you_mean(str(name), EXECUTORS)
            )
        if name == "vmap" and self.vmap_refused:
            raise ExecutorError(f"executor 'vmap' cannot run this network; use 'loop'. Reason: {self.vmap_refused}")
        self.__dict__["chosen"] = name

    def __setattr__(self, name: str, value: Any) -> None:
        # nn.Module would look for children of the network under these names.
        if name == "executor":
            type(self).executor.fset(self, value)  # type: ignore[attr-defined]
        elif name == "training":
            self.__dict__["training"] = self.network.training = value
        elif name in self.__dict__ and not isinstance(value, (nn.Module, nn.Parameter)):
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    @property
    def device(self) -> torch.device:
        first = next(chain(self.parameters(), self.buffers()), None)
        return first.device if first is not None else torch.device("cpu")

    def member(self, index: int) -> nn.Module:
        """Member `index` as a plain network: no multum layer in it, no tensor shared with the ensemble."""
        i = self._index(index)
        if self.folded:
            return self.method.unfold(full_copy(self.network), i)
        own = {id(t) for t in self.tensors(self._stacked).values()}
        one = skeleton(self.network, lambda t: (t[i] if id(t) in own else t).detach().clone())
        return self.method.finish(fold(one), self, i)

    def regrow(self, stacked: Mapping[str, Tensor]) -> None:
        """Take new members: every own tensor is replaced by [new members, ...]; what is shared stays the same object.

        Args:
            stacked: all own tensors by name, with the same leading size.
        """
        sizes = {t.shape[0] for t in stacked.values()}
        if set(stacked) != set(self.own) or len(sizes) != 1:
            raise ConfigError(
                f"regrow takes every own tensor with one number of members, however: {len(stacked)} of "
                f"{len(self.own)} tensors with sizes {sorted(sizes)}"
            )
        install(self.network, stacked)
        self.__dict__["members"] = sizes.pop()
        for name in self.numbers:
            path, _, _ = name.rpartition(".")
            self.network.get_submodule(path).member = torch.arange(self.members, device=self.device)

    def single(self) -> nn.Module:
        """The one-member network with the first member's tensors, as views: for looking, not for training."""
        own = {id(t) for t in self.tensors(self.__dict__.get("_stacked", self.own)).values()}
        return skeleton(self.network, lambda t: (t[0] if id(t) in own else t).detach())

    # -- looking -------------------------------------------------------------------------------------------------------

    @property
    def shared(self) -> tuple[str, ...]:
        """Names of the tensors that all members share."""
        return tuple(n for n in tensors_of(self.network) if n not in set(self._stacked))

    def extra_repr(self) -> str:
        return (
            f"{self.method}, members={self.members}, own={len(self.own)}, shared={len(self.shared)}, task={self.task}"
        )

    def tensors(self, names: Sequence[str]) -> dict[str, Tensor]:
        found = {}
        for name in names:
            path, _, attribute = name.rpartition(".")
            module = self.network.get_submodule(path)
            found[name] = (
                module._parameters[attribute] if attribute in module._parameters else module._buffers[attribute]
            )
        return found  # type: ignore[return-value]

    def _index(self, index: int) -> int:
        try:
            i = operator.index(index)
        except TypeError:
            i = self.members
        if not -self.members <= i < self.members:
            raise ConfigError(f"member is a whole number from 0 to {self.members - 1}, however: member={index!r}")
        return i % self.members

    def _check_per_member(self, x: Any, member: int | None) -> None:
        if member is not None:
            raise ConfigError(
                f"per_member=True runs all members and member=i one of them, however: both were given, "
                f"member={member!r}; for one member give its own input, without per_member"
            )
        for t in tree_flatten(x)[0]:
            if isinstance(t, Tensor) and (t.ndim < 2 or t.shape[0] != self.members):
                raise ExampleError(
                    f"with per_member=True the input is [members, batch, ...] with members={self.members}, "
                    f"however: x.shape={tuple(t.shape)}"
                )

    def _warn_of_pooling(self) -> None:
        if self._told or torch.compiler.is_compiling():
            return
        names = ", ".join(self.pooled[:3]) + (f" and {len(self.pooled) - 3} more" if len(self.pooled) > 3 else "")
        self.__dict__["_told"] = True
        log.warning(
            "executor 'loop' trains norms whose statistics the members share (%s): it normalises each member by its "
            "own batch and averages the running statistics, where 'vmap' pools all members%s",
            names,
            f"; vmap cannot run this network: {self.vmap_refused}" if self.vmap_refused else "",
        )

    def _probe(self, example: Any, per_member: bool = False) -> str | None:
        """Why vmap cannot run this network, or None; tried on a copy, since a failed run has already moved buffers."""
        if not self._stacked:
            return None
        trial = trial_copy(self.network)
        x = two_rows(example)
        if per_member:
            x = tree_map_only(Tensor, lambda t: t.expand(self.members, *t.shape), x)
        tensors = tensors_of(trial)
        stacked = {name: tensors[name] for name in self._stacked}
        moving = {name: tensors[name] for name in self._moving}
        for training in (False,) if self._samples and not per_member else (True, False):
            trial.train(training)
            try:
                with torch.no_grad(), torch.random.fork_rng(), warnings.catch_warnings():
                    warnings.filterwarnings("error", message="There is a performance drop")
                    EXECUTORS["vmap"](trial, stacked, moving, x, self.members, per_member, None)
            except NetworkError:
                raise
            except Exception as error:  # a user's network may raise anything; whatever it is, loop is the answer
                first = first_line(error)
                # torch asks to be told of what it cannot do; that is not the user's concern here.
                return f"{type(error).__name__}: {re.split('[,.]? please file', first, flags=re.IGNORECASE)[0]}"
        return None


def two_rows(example: Any) -> Any:
    """At most two rows of the example, and at least two: batch norm cannot train on one."""
    return tree_map_only(Tensor, lambda t: t[:2] if t.shape[0] > 1 else torch.cat([t, t]), example)


def fold_rows(x: Any, members: int) -> Any:
    """The same rows for every member, folded into the batch: [batch, ...] -> [members * batch, ...]."""
    return tree_map_only(Tensor, lambda t: t.repeat(members, *(1 for _ in t.shape[1:])), x)


def moving_buffers(network: nn.Module, example: Any) -> list[str]:
    """The buffers that a forward pass in training changes: running statistics, power iterations, counters.

    Args:
        example: at least two rows, as batch norm cannot train on one.
    """
    names = [n for n, _ in network.named_buffers()]
    norms = {
        f"{path}.{n}" if path else n
        for path, module in network.named_modules()
        if isinstance(module, nn.modules.batchnorm._NormBase)
        for n, _ in module.named_buffers(recurse=False)
    }
    if not set(names) - norms or any(t.is_meta for t in tensors_of(network).values()):
        return [n for n in names if n in norms]
    trial = trial_copy(network).train()
    before = {n: b.clone() for n, b in trial.named_buffers()}
    args, kwargs = arguments(example)
    with torch.no_grad(), torch.random.fork_rng():
        trial(*args, **kwargs)
    after = dict(trial.named_buffers())
    return [n for n in names if n in norms or n not in after or not torch.equal(before[n], after[n])]


# -- one-member layers -------------------------------------------------------------------------------------------------


def _install_natives(network: nn.Module, randomness: Randomness, members: int, usage: Usage | None) -> None:
    """multum's own norm and dropout take the place of the native ones; every other layer stays as it is."""
    device = next((t.device for t in tensors_of(network).values()), None)
    for path, module in network.named_modules():
        if type(module) in NORMS:
            module.__class__ = NORMS[type(module)]
        elif type(module) in DROPOUTS:
            module.__class__ = DROPOUTS[type(module)]
        if isinstance(module, Drawing):
            module.__dict__["randomness"] = randomness
            depends = usage is None or path in usage.inputs or module.always
            number = torch.arange(members, device=device) if depends else None
            module.register_buffer("member", number, persistent=False)  # type: ignore[attr-defined]


def _pooled_norms(network: nn.Module, own: set[str], usage: Usage | None) -> tuple[str, ...]:
    """The batch norms that all members share although their inputs differ."""
    found = []
    for path, module in network.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (usage is None or path in usage.inputs):
            prefix = f"{path}." if path else ""
            statistics = {prefix + name for name, _ in module.named_buffers(recurse=False)}
            weights = {prefix + name for name, _ in module.named_parameters(recurse=False)}
            if (statistics or weights) and not own & (statistics or weights):
                found.append(path)
    return tuple(found)


def _usage(network: nn.Module, own: Sequence[str], example: Any) -> Usage | None:
    try:
        return trace_members(network, set(own), example)
    except Exception as error:  # whatever a user's network raises on noted tensors, it can still run
        log.info("multum could not follow what depends on the member (%s); every dropout mask is per member", error)
        return None
