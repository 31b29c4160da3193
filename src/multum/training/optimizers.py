"""Optimizers of an ensemble: one for what members share, and one per member, or one for all, for what they own.

Members that step apart (one specialist at a time, norms per member as in LAMB and clipping) get an optimizer each, on
slices of the own tensors: a member that does not step neither decays nor drifts. Members that always step together
under an elementwise rule share one optimizer on the stacked tensors, which gives the same numbers with fewer calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..ensemble import Ensemble
from ..errors import ConfigError
from .recipe import Recipe

__all__ = ["Optimizers"]


class Optimizers:
    """All optimizers of one training run.

    Args:
        apart: give every member an optimizer of its own.
    """

    def __init__(self, ensemble: Ensemble, recipe: Recipe, fabric: Any, *, apart: bool):
        self.ensemble, self.recipe, self.fabric, self.apart = ensemble, recipe, fabric, apart
        own = set(ensemble.own)
        self.shared = self._make({n: p for n, p in _trainable(ensemble) if n not in own})
        self.own: list[Optimizer] = []
        self.adopt_members()

    def adopt_members(self) -> None:
        """Optimizers with empty state for the own tensors as they are now; the shared one keeps its state."""
        own = {n: p for n, p in _trainable(self.ensemble) if n in set(self.ensemble.own)}
        if not self.apart:
            found = [self._make(own)]
        else:
            for p in own.values():
                p.grad = torch.zeros_like(p)
            found = [self._make({n: _slice(p, i) for n, p in own.items()}) for i in range(self.ensemble.members)]
        self.own = [o for o in found if o is not None]

    def set_rate(self, rate: float) -> None:
        for optimizer in self.all():
            for group in optimizer.param_groups:
                group["lr"] = rate

    def step(self, member: int | None, *, own: bool = True, shared: bool = True) -> None:
        """Move the tensors of one member (None: all members), the shared ones, or both."""
        movers = (self.own if member is None else [self.own[member]]) if own and self.own else []
        if shared and self.shared is not None:
            movers = [*movers, self.shared]
        for optimizer in movers:
            if self.recipe.clip:
                self.fabric.clip_gradients(
                    self.ensemble, optimizer, max_norm=self.recipe.clip, error_if_nonfinite=False
                )
            optimizer.step()

    def zero(self, *, own: bool = True, shared: bool = True) -> None:
        """Forget gradients. Slices keep looking at their tensor's gradient, so that one is zeroed in place."""
        names = set(self.ensemble.own)
        for name, p in _trainable(self.ensemble):
            if p.grad is None or not (own if name in names else shared):
                continue
            if self.apart and name in names:
                p.grad.zero_()
            else:
                p.grad = None

    def all(self) -> Iterator[Optimizer]:
        yield from self.own
        if self.shared is not None:
            yield self.shared

    def state(self) -> dict[str, Tensor]:
        """Everything the optimizers remember, as named tensors."""
        found = {}
        for k, optimizer in enumerate(self.all()):
            for index, entries in optimizer.state_dict()["state"].items():
                for key, value in entries.items():
                    if value is not None:
                        found[f"{k}.{index}.{key}"] = torch.as_tensor(value)
        return found

    def load_state(self, saved: dict[str, Tensor]) -> None:
        for k, optimizer in enumerate(self.all()):
            state: dict[int, dict[str, Tensor]] = {}
            for name, value in saved.items():
                which, index, key = name.split(".", 2)
                if int(which) == k:
                    state.setdefault(int(index), {})[key] = value.clone()
            optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})

    def _make(self, named: dict[str, nn.Parameter]) -> Optimizer | None:
        method, recipe = self.ensemble.method, self.recipe
        groups = [
            {"params": [p for n, p in named.items() if method.decays(n, p) is decays], "weight_decay": decay}
            for decays, decay in ((True, recipe.weight_decay), (False, 0.0))
        ]
        groups = [group for group in groups if group["params"]]
        if not groups:
            return None
        return self.fabric.setup_optimizers(_build(recipe, groups))


def _build(recipe: Recipe, groups: list[dict[str, Any]]) -> Optimizer:
    if recipe.optimizer == "sgd":
        nesterov = recipe.nesterov and recipe.momentum > 0
        return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=nesterov)
    if recipe.optimizer == "adam":
        return torch.optim.Adam(groups, lr=recipe.lr)
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.lr)
    try:
        from timm.optim import Lamb
    except Exception as error:
        raise ConfigError(f"optimizer='lamb' comes from timm, however: timm cannot be imported ({error})") from error
    return Lamb(groups, lr=recipe.lr)


def _trainable(ensemble: Ensemble) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in ensemble.named_parameters() if p.requires_grad]


def _slice(p: nn.Parameter, i: int) -> nn.Parameter:
    """Member i's part of a stacked parameter, sharing memory with it and with its gradient."""
    part = nn.Parameter(p.data[i])
    assert p.grad is not None
    part.grad = p.grad[i]
    return part
