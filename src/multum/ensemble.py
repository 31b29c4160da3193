"""An ensemble is one member's network, plus the names of the tensors that each member owns.

network   computes ONE member; every layer is written for one member and knows nothing of the others
own       the parameters and buffers with a leading member axis [members, ...]; all others are shared
executor  runs the members: `loop` one after another, `vmap` at once; the same numbers either way
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from .errors import ConfigError, ExampleError, ExecutorError, did_you_mean
from .executors import EXECUTORS, default
from .executors.call import call
from .rewrite.dependence import Usage, trace_members
from .rewrite.dropout import DROPOUTS, Randomness
from .rewrite.norm import NORMS
from .rewrite.trace import arguments, skeleton, tensors_of
from .rewrite.walker import Edit

__all__ = ["Ensemble", "moving_buffers", "two_rows"]

log = logging.getLogger("multum")


class Ensemble(nn.Module):
    """Members of one network, run together.

    Parameters, buffers and submodules appear under the base network's own names: `state_dict()` has the keys of the
    base network, with a leading member axis where `own` says so.

    Shape: x [batch, ...] -> [members, batch, outputs]; with `per_member=True` x is [members, batch, ...]; with
    `member=i` one member runs alone, [batch, ...] -> [batch, outputs].
    """

    network: nn.Module  # computes one member; holds the stacked tensors
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
    _stacked: tuple[str, ...]
    _moving: tuple[str, ...]

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
    ):
        super().__init__()
        # The ensemble *is* the network with a member axis: both look at the same dictionaries, so that names, hooks,
        # devices and copies need no translation. Plain __dict__ entries keep clear of a network's own attribute names.
        self.__dict__.update(
            network=network,
            _parameters=network._parameters,
            _buffers=network._buffers,
            _modules=network._modules,
            training=network.training,
            members=members,
            method=method,
            task=task,
            edits=tuple(edits),
            randomness=Randomness(list(seeds)),
            example=tree_map_only(Tensor, lambda t: torch.empty_like(t[:2], device="meta"), example),
            vmap_refused=None,
            chosen=None,
        )
        present = tensors_of(network)
        self.__dict__["own"] = tuple(name for name in present if name in set(own))
        one = self.single()
        usage = _usage(one, own, example)
        _install_natives(network, self.randomness, members, usage)
        numbers = [n for n, b in network.named_buffers() if n.rpartition(".")[2] == "member" and n not in present]
        self.__dict__.update(
            numbers=frozenset(numbers),
            _stacked=(*self.own, *numbers),
            _moving=tuple(n for n in moving_buffers(one, example) if n not in set(own)),
            has_trunk=usage is not None and usage.has_trunk,
        )
        self.__dict__["vmap_refused"] = self._probe(example)
        if self.vmap_refused and members > 1:
            log.warning("multum runs this ensemble member after member (executor 'loop'): %s", self.vmap_refused)

    # -- running -------------------------------------------------------------------------------------------------------

    def forward(self, x: Any, per_member: bool = False, member: int | None = None) -> Tensor:
        """All members' outputs [members, batch, ...], or one member's [batch, ...]."""
        if per_member:
            self._check_per_member(x)
        stacked = self._named(self._stacked)
        if member is not None:
            i = self._index(member)
            return call(self.network, {name: t[i] for name, t in stacked.items()}, x)
        if not stacked and not per_member:
            out = call(self.network, {}, x)
            return out.unsqueeze(0).expand(self.members, *out.shape)
        moving = self._named(self._moving)
        run = EXECUTORS[self.executor]
        return run(self.network, stacked, moving, x, self.members, per_member, self.randomness)

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
        elif name in self.__dict__ and not isinstance(value, (nn.Module, nn.Parameter)):
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    @property
    def device(self) -> torch.device:
        first = next((t for t in tensors_of(self.network).values()), None)
        return first.device if first is not None else torch.device("cpu")

    def train(self, mode: bool = True) -> Ensemble:
        super().train(mode)
        self.network.training = mode
        return self

    def member(self, index: int) -> nn.Module:
        """Member `index` as a plain network: no multum layer in it, no tensor shared with the ensemble."""
        i = self._index(index)
        own = {id(t) for t in self._named(self._stacked).values()}
        one = skeleton(self.network, lambda t: (t[i] if id(t) in own else t).detach().clone())
        for module in one.modules():
            _remove_native(module)
        return one

    def single(self) -> nn.Module:
        """The one-member network with the first member's tensors, as views: for looking, not for training."""
        own = {id(t) for t in self._named(self.own).values()}
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

    def _named(self, names: Sequence[str]) -> dict[str, Tensor]:
        found = {}
        for name in names:
            path, _, attribute = name.rpartition(".")
            module = self.network.get_submodule(path)
            found[name] = (
                module._parameters[attribute] if attribute in module._parameters else module._buffers[attribute]
            )
        return found  # type: ignore[return-value]

    def _index(self, index: int) -> int:
        if not -self.members <= index < self.members:
            raise ConfigError(f"member is a number from 0 to {self.members - 1}, however: member={index}")
        return index % self.members

    def _check_per_member(self, x: Any) -> None:
        for t in tree_flatten(x)[0]:
            if isinstance(t, Tensor) and (t.ndim < 2 or t.shape[0] != self.members):
                raise ExampleError(
                    f"with per_member=True the input is [members, batch, ...] with members={self.members}, "
                    f"however: x.shape={tuple(t.shape)}"
                )

    def _probe(self, example: Any) -> str | None:
        """Why vmap cannot run this network, or None; tried on a copy, since a failed run has already moved buffers."""
        if not self._stacked:
            return None
        trial = skeleton(self.network, lambda t: t.detach() if isinstance(t, nn.Parameter) else t.detach().clone())
        x = two_rows(example)
        tensors = tensors_of(trial)
        stacked = {name: tensors[name] for name in self._stacked}
        for training in (True, False):
            trial.train(training)
            try:
                with torch.no_grad(), torch.random.fork_rng(), warnings.catch_warnings():
                    warnings.filterwarnings("error", message="There is a performance drop")
                    EXECUTORS["vmap"](trial, stacked, {}, x, self.members, False, Randomness(self.randomness.seeds))
            except Exception as error:  # a user's network may raise anything; whatever it is, loop is the answer
                return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
        return None


def two_rows(example: Any) -> Any:
    """At most two rows of the example, and at least two: batch norm cannot train on one."""
    return tree_map_only(Tensor, lambda t: t[:2] if t.shape[0] > 1 else torch.cat([t, t]), example)


def moving_buffers(network: nn.Module, example: Any) -> list[str]:
    """The buffers that a forward pass in training changes: running statistics, power iterations, counters."""
    names = [n for n, _ in network.named_buffers()]
    norms = {
        f"{path}.{n}" if path else n
        for path, module in network.named_modules()
        if isinstance(module, nn.modules.batchnorm._NormBase)
        for n, _ in module.named_buffers(recurse=False)
    }
    if not set(names) - norms or any(t.is_meta for t in tensors_of(network).values()):
        return [n for n in names if n in norms]
    trial = skeleton(network, lambda t: t.detach() if isinstance(t, nn.Parameter) else t.detach().clone()).train()
    before = {n: b.clone() for n, b in trial.named_buffers()}
    args, kwargs = arguments(two_rows(example))
    with torch.no_grad(), torch.random.fork_rng():
        trial(*args, **kwargs)
    after = dict(trial.named_buffers())
    return [n for n in names if n in norms or not torch.equal(before[n], after[n])]


# -- one-member layers -------------------------------------------------------------------------------------------------


def _install_natives(network: nn.Module, randomness: Randomness, members: int, usage: Usage | None) -> None:
    """multum's own norm and dropout take the place of the native ones; every other layer stays as it is."""
    for path, module in network.named_modules():
        if type(module) in NORMS:
            module.__class__ = NORMS[type(module)]
        elif type(module) in DROPOUTS:
            module.__class__ = DROPOUTS[type(module)]
            module.__dict__["randomness"] = randomness
            depends = usage is None or path in usage.inputs
            device = next((t.device for t in tensors_of(network).values()), None)
            number = torch.arange(members, device=device) if depends else None
            module.register_buffer("member", number, persistent=False)


def _remove_native(module: nn.Module) -> None:
    plain = getattr(type(module), "plain", None)
    if plain is not None:
        module.__class__ = plain
        if plain in DROPOUTS:
            del module._buffers["member"], module.__dict__["randomness"]
            module._non_persistent_buffers_set.discard("member")


def _usage(network: nn.Module, own: Sequence[str], example: Any) -> Usage | None:
    try:
        return trace_members(network, set(own), tree_map_only(Tensor, lambda t: t[:1], example))
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        log.info("multum could not follow what depends on the member (%s); every dropout mask is per member", error)
        return None
