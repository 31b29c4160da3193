"""Optimizers of an ensemble: one for all, or one per member for what it owns and one for what members share.

Members that step apart (one specialist at a time, norms per member as in LAMB) get an optimizer each, on slices of the
own tensors: a member that does not step neither decays nor drifts. Members that always step together under an
elementwise rule need only one, on the stacked and the shared tensors: the same numbers with fewer calls.

Members are trained as if alone unless the recipe names a reduction: the loss is the sum of the members' losses, so that
each has its own gradient of what it owns; a tensor that k members share sees the mean of their k gradients. One
learning rate then means the same for one network and for an ensemble.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..ensemble import Ensemble
from ..methods.base import decay_groups, divide_gradients
from ..models.timm_model import import_timm
from .recipe import Recipe

OWN, SHARED = "own", "shared"


class Optimizers:
    """All optimizers of one training run.

    Args:
        apart: give every member an optimizer of its own.
    """

    def __init__(self, ensemble: Ensemble, recipe: Recipe, fabric: Any, *, apart: bool):
        self.ensemble, self.recipe, self.fabric, self.apart = ensemble, recipe, fabric, apart
        self.undecayed = set(ensemble.method.undecayed(ensemble))
        own = set(ensemble.own) if apart else set()
        self.shared = self._make({n: p for n, p in _trainable(ensemble) if n not in own})  # and, if not apart, the rest
        self.adopt_members()

    def adopt_members(self) -> None:
        """Optimizers with empty state for the own tensors as they are now; the shared one keeps its state."""
        own = {n: p for n, p in _trainable(self.ensemble) if self.apart and n in set(self.ensemble.own)}
        self.parameters = dict(_trainable(self.ensemble))
        # How many members use what has no member axis, where their gradients are averaged.
        as_if_alone = self.recipe.reduction is None and self.ensemble.members > 1
        self.sharers = self.ensemble.method.sharers(self.ensemble) if as_if_alone else {}
        self.sliced, self.gradients = [*own.values()], [torch.zeros_like(p) for p in own.values()]
        self.hold()
        members = range(self.ensemble.members if own else 0)
        self.own = [self._make({n: _slice(p, i) for n, p in own.items()}) for i in members]

    def hold(self) -> None:
        """Let gradients of own tensors go where the slices look, also after somebody else's zero_grad."""
        for p, gradient in zip(self.sliced, self.gradients, strict=True):
            p.grad = gradient

    def set_rate(self, rate: float) -> None:
        for _, optimizer in self._named():
            for group in optimizer.param_groups:
                group["lr"] = rate

    def step(self, member: int | None, *, shared: bool = True, turns: int = 1) -> None:
        """Move what one member owns (None: all members), and what they share unless told otherwise; forget gradients.

        Args:
            turns: of single members, whose gradients of what is shared have come together.

        Slices keep looking at their tensor's gradient, so that one is set to zero and stays where it is.
        """
        movers = self.own if member is None or not self.own else [self.own[member]]
        if shared and self.shared is not None:
            movers = [*movers, self.shared]
            divide_gradients(self.parameters, self.sharers if member is None else dict.fromkeys(self.sharers, turns))
        for optimizer in movers:
            if self.recipe.clip:
                self._clip(optimizer)
            optimizer.step()
        if self.gradients:
            torch._foreach_zero_(self.gradients)
        if shared and self.shared is not None:
            self.shared.zero_grad()

    def magnitude(self, member: int | None) -> Tensor:
        """The sum of the absolute values of everything that decays; of what members share, for each that is trained.

        So the gradient of a shared tensor's penalty is whole once gradients are averaged.
        """
        counts = self.sharers if member is None else {}
        decaying = [p * counts[n] if n in counts else p for n, p in self.parameters.items() if n not in self.undecayed]
        return torch.stack(torch._foreach_norm(decaying, 1)).sum()

    def state(self) -> dict[str, Tensor]:
        """Everything the optimizers remember, as named tensors."""
        named: dict[str, Tensor] = {}
        for k, optimizer in self._named():
            saved = optimizer.state_dict()
            counts = {f"group{i}": {"step": g.get("step")} for i, g in enumerate(saved["param_groups"])}  # LAMB's
            for index, entries in {**saved["state"], **counts}.items():
                named |= {f"{k}.{index}.{key}": torch.as_tensor(v) for key, v in entries.items() if v is not None}
        return named

    def unfit(self, saved: dict[str, Tensor], needed: bool) -> str | None:
        """Why this cannot be what the optimizers of this run remember; None if it can.

        Args:
            needed: whether they must remember something by now.
        """
        if needed and not saved:
            return "no state of the optimizer"
        shapes: dict[str, list[tuple[int, ...]]] = {
            k: [tuple(p.shape) for group in optimizer.param_groups for p in group["params"]]
            for k, optimizer in self._named()
        }
        keys: dict[str, set[str]] = {}
        for name, value in saved.items():
            which, _, rest = name.partition(".")
            index, _, key = rest.partition(".")
            # Members may be born later than this run has begun: all own optimizers look alike.
            known = shapes.get(which) or (shapes.get(f"{OWN}0", []) if which.startswith(OWN) else [])
            if index.startswith("group"):
                continue
            if not index.isdecimal() or int(index) >= len(known):
                return f"state of an unknown tensor of the optimizer: {name}"
            if value.ndim and tuple(value.shape) != known[int(index)]:
                return f"{name} of the optimizer with shape {tuple(value.shape)} for {known[int(index)]}"
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                return f"NaN or infinity in {name} of the optimizer"
            keys.setdefault(f"{which}.{index}", set()).add(key)
        if len({frozenset(entries) for entries in keys.values()}) > 1:
            return "a part of the optimizer's state"
        return None

    def load_state(self, saved: dict[str, Tensor]) -> None:
        for k, optimizer in self._named():
            groups = optimizer.state_dict()["param_groups"]
            state: dict[int, dict[str, Tensor]] = {}
            for name, value in saved.items():
                which, index, key = name.split(".", 2)
                if which != k:
                    continue
                if index.startswith("group"):
                    groups[int(index.removeprefix("group"))][key] = value.clone()
                else:
                    state.setdefault(int(index), {})[key] = value.clone()
            optimizer.load_state_dict({"state": state, "param_groups": groups})

    def every(self) -> list[Any]:
        """All of them, those of members first."""
        return [optimizer for _, optimizer in self._named()]

    def _clip(self, optimizer: Any) -> None:
        """Limit the norm of each member's own gradients, and that of the shared ones."""
        if self.apart:
            self.fabric.clip_gradients(self.ensemble, optimizer, max_norm=self.recipe.clip, error_if_nonfinite=False)
            return
        self.fabric.strategy.precision.unscale_gradients(getattr(optimizer, "optimizer", optimizer))
        own, trained = set(self.ensemble.own), [(n, p) for n, p in _trainable(self.ensemble) if p.grad is not None]
        clip_members([p.grad for n, p in trained if n in own and p.grad is not None], self.recipe.clip)
        nn.utils.clip_grad_norm_([p for n, p in trained if n not in own], self.recipe.clip)

    def _named(self) -> Iterator[tuple[str, Optimizer]]:
        yield from ((f"{OWN}{i}", optimizer) for i, optimizer in enumerate(self.own))
        if self.shared is not None:
            yield SHARED, self.shared

    def _make(self, named: dict[str, nn.Parameter]) -> Any:
        groups = decay_groups(named.items(), self.undecayed, self.recipe.weight_decay)
        return self.fabric.setup_optimizers(_build(self.recipe, groups)) if groups else None


@torch.no_grad()
def clip_members(gradients: list[Tensor], largest: float) -> None:
    """Scale every member's gradients to a norm of at most `largest` over all its tensors: clip_grad_norm_ for each.

    Shape: [members, ...].

    >>> gradients = [torch.tensor([[3.0], [0.3]]), torch.tensor([4.0, 0.4])]
    >>> clip_members(gradients, 1.0)
    >>> gradients[1]
    tensor([0.8000, 0.4000])
    """
    if gradients:
        norms = torch.stack([torch.linalg.vector_norm(g.reshape(len(g), -1), dim=1) for g in gradients])
        scale = (largest / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, [scale.view(-1, *(1,) * (g.ndim - 1)) for g in gradients])


def _build(recipe: Recipe, groups: list[dict[str, Any]]) -> Optimizer:
    # foreach: one call for all parameters, with the numbers of one call each.
    if recipe.optimizer == "sgd":
        nesterov = recipe.nesterov and recipe.momentum > 0
        return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, nesterov=nesterov, foreach=True)
    if recipe.optimizer in ("adam", "adamw"):
        kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
        return kind(groups, lr=recipe.lr, foreach=True)
    import_timm()
    from timm.optim import Lamb

    return Lamb(groups, lr=recipe.lr)


def _trainable(ensemble: Ensemble) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in ensemble.named_parameters() if p.requires_grad]


def _slice(p: nn.Parameter, i: int) -> nn.Parameter:
    """Member i's part of a stacked parameter, sharing memory with it and with its gradient."""
    part = nn.Parameter(p.data[i])
    assert p.grad is not None
    part.grad = p.grad[i]
    return part
