"""An ensemble is one member's network, plus the names of the tensors that each member owns.

network   computes ONE member; every layer is written for one member and knows nothing of the others
own       the parameters and buffers with a leading member axis [members, ...]; all others are shared
executor  runs the members, one after another or at once; the same numbers either way
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map_only

from .choice import Choosing
from .errors import ConfigError, ExampleError
from .executors import EXECUTORS
from .executors.call import call
from .executors.holders import tensors_named
from .layout import Layout, first_member
from .network.copies import full_copy, skeleton, tensors_of, trial_copy
from .rewrite.dropout import Drawing, Randomness
from .rewrite.walker import Edit, fold, install

log = logging.getLogger("multum")


class Ensemble(Choosing):
    """An ensemble: one member's network, and the tensors that each member owns.

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
    layout: Layout  # the part that every tensor plays, and the executors that cannot run the network
    edits: tuple[Edit, ...]  # how the one-member network differs from the base network
    example: Any  # an example batch without values (meta device)
    randomness: Randomness  # one generator per member, one for what they share

    def __init__(
        self,
        network: nn.Module,
        *,
        layout: Layout,
        members: int,
        method: Any,
        task: str,
        edits: tuple[Edit, ...],
        folded: bool,
        state: dict[str, Tensor],
        example: Any,
        randomness: Randomness,
    ):
        """The attributes above by name; `building.py:assembled` is what makes them."""
        super().__init__()
        fields = {"layout": layout, "members": members, "method": method, "task": task, "edits": edits}
        fields |= {"folded": folded, "state": state, "example": example, "randomness": randomness}
        # The ensemble *is* the network with a member axis: both look at the same dictionaries, so that names, hooks,
        # devices and copies need no translation. Plain __dict__ entries keep clear of a network's own attribute names.
        common = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training")
        self.__dict__.update({name: getattr(network, name) for name in common})
        self.__dict__.update(fields, network=network, chosen=None, settled={}, latest={}, _warned=False)

    # -- running -------------------------------------------------------------------------------------------------------

    def forward(self, x: Any, per_member: bool = False, member: int | None = None) -> Tensor:
        """All members' outputs [members, batch, ...], or one member's [batch, ...]."""
        if per_member:
            self._check_per_member(x, member)
        if self.folded:
            return self._folded(x, per_member, member)
        stacked = self.tensors(self.layout.stacked)
        if member is not None:
            i = self._index(member)
            return call(self.network, {name: t[i] for name, t in stacked.items()}, x)
        if not per_member and (not stacked or self._is_one_network()):
            out = call(self.network, {}, x)
            return out.unsqueeze(0).expand(self.members, *out.shape)
        executor = EXECUTORS[self._runs(x, per_member)]
        if self.training and self.pooled and self.members > 1 and not executor.pools:
            self._warn_of_pooling(executor.name)
        moving = self.tensors(self.layout.moving)
        randomness = self.randomness if self.layout.shared_draws else None
        return executor.run(self.network, stacked, moving, x, self.members, per_member, randomness)

    def _is_one_network(self) -> bool:
        """Whether the members are samples of one network, and it is being trained: one sample then stands for all."""
        samples = [self.network.get_submodule(path) for path in self.layout.samples]
        return bool(samples) and all(module.training for module in samples)

    def _folded(self, x: Any, per_member: bool, member: int | None) -> Tensor:
        """One pass for all members. Shape: rows are member-major, [members * batch, ...]."""
        if not per_member:
            x = tree_map_only(Tensor, lambda t: t.expand(self.members, *t.shape), x)
        out = call(self.network, {}, tree_map_only(Tensor, lambda t: t.flatten(0, 1), x))
        out = out.unflatten(0, (self.members, len(out) // self.members))
        return out if member is None else out[self._index(member)]

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

    def to(self, *args: Any, **kwargs: Any) -> Ensemble:
        """As any module's; a memory format is that of each member's tensors."""
        device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
        super().to(device=device, dtype=dtype, non_blocking=non_blocking)
        self.settled.clear()
        rank = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(memory_format, -1)
        own = set(self.own)
        for name, tensor in tensors_of(self.network).items():
            if name in own and tensor.ndim == rank + 1:
                every = tensor.data.flatten(0, 1).contiguous(memory_format=memory_format)
                tensor.data = every.unflatten(0, tensor.shape[:2])
            elif name not in own and tensor.ndim == rank:
                tensor.data = tensor.data.contiguous(memory_format=memory_format)
        return self

    def member(self, index: int) -> nn.Module:
        """Member `index` as a plain network: no multum layer in it, no tensor shared with the ensemble."""
        i = self._index(index)
        if self.folded:
            return self.method.unfold(full_copy(self.network), i)
        own = {id(t) for t in self.tensors(self.layout.stacked).values()}
        network = skeleton(self.network, lambda t: (t[i] if id(t) in own else t).detach().clone())
        return self.method.finish(fold(network), self, i)

    def regrow(self, stacked: Mapping[str, Tensor]) -> None:
        """Take new members: every own tensor is replaced by [new members, ...]; what is shared stays the same object.

        Args:
            stacked: all own tensors by name, with the same leading size.
        """
        sizes = {t.shape[0] for t in stacked.values()}
        if set(stacked) != set(self.own) or len(sizes) != 1:
            raise ConfigError(
                f"regrow must get every own tensor with one number of members; got {len(stacked)} of "
                f"{len(self.own)} tensors, with leading sizes {sorted(sizes)}"
            )
        install(self.network, stacked)
        self.__dict__["members"] = sizes.pop()
        self.settled.clear()
        self.latest.clear()
        for name in self.numbers:
            path, _, _ = name.rpartition(".")
            self.network.get_submodule(path).member = torch.arange(self.members, device=self.device)

    def _trial(self) -> Ensemble:
        network = trial_copy(self.network)
        drawing = (m.randomness for m in network.modules() if isinstance(m, Drawing))
        fields = {name: getattr(self, name) for name in ("layout", "members", "method", "task", "edits", "folded")}
        fields |= {"state": self.state, "example": self.example, "randomness": next(drawing, self.randomness)}
        trial = Ensemble(network, **fields)
        trial.__dict__["_warned"] = True
        return trial

    def single(self) -> nn.Module:
        """The one-member network with the first member's tensors, as views: for looking, not for training."""
        return first_member(self.network, self.layout.stacked)

    # -- looking -------------------------------------------------------------------------------------------------------

    @property
    def own(self) -> tuple[str, ...]:
        """Names of the tensors with a member axis."""
        return self.layout.own

    @property
    def numbers(self) -> frozenset[str]:
        """Names of the members' numbers that dropout layers own; not parameters, never saved."""
        return frozenset(self.layout.numbers)

    @property
    def shared(self) -> tuple[str, ...]:
        """Names of the tensors that all members share."""
        return tuple(n for n in tensors_of(self.network) if n not in set(self.layout.stacked))

    def twins(self) -> tuple[int, ...]:
        """The members that equal an earlier one in everything that members own; none where they own nothing."""
        own = list(self.tensors(self.own).values())

        def equal(i: int, j: int) -> bool:
            return bool(own) and all(torch.equal(t[i], t[j]) for t in own)

        return tuple(j for j in range(self.members) if any(equal(i, j) for i in range(j)))

    def warn_of_twins(self) -> None:
        """Say so where members are equal: together they are worth no more than one of them."""
        twins = self.twins()
        if twins:
            log.warning(
                "members %s equal an earlier one: from the same weights and on the same batches they stay the same, "
                "and are worth one member. Give each its own first weights (init='fresh'), or its own batches "
                "(order='own' in the recipe)",
                ", ".join(map(str, twins)),
            )

    def extra_repr(self) -> str:
        return (
            f"{self.method}, members={self.members}, own={len(self.own)}, shared={len(self.shared)}, task={self.task}"
        )

    def tensors(self, names: Sequence[str]) -> dict[str, Tensor]:
        """These parameters and buffers by name."""
        return tensors_named(self.network, tuple(names))

    def _index(self, index: int) -> int:
        try:
            i = operator.index(index)
        except TypeError:
            i = self.members
        if not -self.members <= i < self.members:
            raise ConfigError(f"member must be a whole number from 0 to {self.members - 1}; got member={index!r}")
        return i % self.members

    def _check_per_member(self, x: Any, member: int | None) -> None:
        if member is not None:
            raise ConfigError(
                f"per_member=True must stand alone; got member={member!r} as well. "
                "For one member give its own input, without per_member"
            )
        for t in tree_flatten(x)[0]:
            if isinstance(t, Tensor) and (t.ndim < 2 or t.shape[0] != self.members):
                raise ExampleError(
                    f"with per_member=True x must be [members, batch, ...] with members={self.members}; "
                    f"got x.shape={tuple(t.shape)}"
                )
