"""The loss that trains an ensemble: every member on its own outputs, summed or averaged over members.

sum    L = sum_m 1/B sum_b l(z_m,b, y_b)        exactly M independent trainings
mean   L = 1/M sum_m 1/B sum_b l(z_m,b, y_b)    each member sees 1/M of its gradient, and undiminished weight decay

Where members share weights these see the sum or mean of all gradients. `multum.fit` trains every member as if alone:
the sum, of which shared weights see the mean (`Method.average_shared` in a loop of one's own).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import ConfigError, check_known
from .regression import at_least_float32, mean_and_variance

# One member's outputs and targets -> a loss per example, or a scalar.
Criterion: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# torch skips labels equal to ignore_index, -100 by default; here no label is skipped unless the user's criterion does.
NEVER_A_LABEL = torch.iinfo(torch.int64).min


def loss(
    outputs: Tensor,
    targets: Tensor,
    *,
    criterion: Criterion | str | None = None,
    reduction: str = "mean",
    weights: Tensor | None = None,
) -> Tensor:
    """The members' losses as one scalar: L = sum_m 1/B sum_b l(z_m,b, y_b) for "sum", and L/M for "mean".

    Under "sum" each member's gradients are those of its own mean loss, as if it were trained alone.

    ``criterion`` is a name or a callable on one member's outputs and targets:

    - "cross_entropy" (the default): integer labels, or class probabilities in floating point (mixup).
    - "focal", or a :class:`ClassLoss`: cross entropy with a weight for each class, and less for easy examples.
    - "gaussian_nll": outputs (mu, raw) per target, v = softplus(raw) + 1e-6, 0.5 (log 2 pi v + (y - mu)^2 / v).
    - "mse": (y - z)^2, targets shaped like one member's outputs; of one output also without its axis.
    - a callable such as ``nn.CrossEntropyLoss(weight=w)``: called for each member; losses per example are averaged.

    ``weights`` scale the loss of each example: sum_b w_b l_b / B. The mean is over examples and not over weights, so
    that batches add up to the whole; weights that are 1 on average leave a learning rate what it was.

    **Shape**: outputs ``[members, batch, ...]`` with classes on axis 2; targets ``[batch, ...]``, the same for every
    member, or ``[members, batch, ...]``, to each its own; weights ``[batch]`` or ``[members, batch]``. A scalar.

    >>> logits = torch.tensor([[[0.7, 0.3]], [[0.5, 0.5]]]).log()  # two members, one example
    >>> loss(logits, torch.tensor([0]))  # -(log .7 + log .5) / 2
    tensor(0.5249)
    >>> loss(logits, torch.tensor([[0], [1]]), reduction="sum")  # -(log .7 + log .5)
    tensor(1.0498)
    """
    check_known(reduction, ("mean", "sum"), "reduction must be mean or sum")
    criterion = "cross_entropy" if criterion is None else criterion
    if isinstance(criterion, str):
        check_known(criterion, LOSSES, "criterion must be a known name or a callable")
    if isinstance(criterion, (str, ClassLoss)):
        _check_outputs(outputs, axes=2 if criterion == "mse" else 3)
        losses = LOSSES[criterion] if isinstance(criterion, str) else criterion
        each = losses(at_least_float32(outputs), targets)
        if weights is not None:
            each = _weighted(each.reshape(*outputs.shape[:2], -1), weights)
        member_losses = each.reshape(outputs.shape[0], -1).mean(1)
    else:
        _check_outputs(outputs, axes=2)
        member_losses = _call_per_member(criterion, outputs, targets, weights)
    return member_losses.sum() if reduction == "sum" else member_losses.mean()


@dataclass(frozen=True, eq=False)
class ClassLoss:
    """Cross entropy with a weight for each class, and with less weight on examples that are right already (focal loss).

        l = sum_c y_c w_c (1 - p_c)^gamma (-log p_c)

    y_c is 1 for the label's class; class probabilities (label smoothing, mixup) weigh every class by its share. Losses
    are averaged over examples and not over weights, as torch's ``reduction="none"`` followed by a mean: so that half
    batches, processes and accumulated steps add up to the whole.

    **Shape**: outputs ``[members, batch, classes, ...]``; targets as `loss` takes them; a loss per example.

    >>> half = torch.zeros(1, 1, 2)  # one member, one example, p = 1/2
    >>> ClassLoss(weights=torch.tensor([3.0, 1.0]), gamma=1.0)(half, torch.tensor([0]))  # 3 * 1/2 * log 2
    tensor([[1.0397]])
    """

    weights: Tensor | None = None  # w, [classes]; None: all 1
    gamma: float = 0.0  # 0: plain cross entropy

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        targets = _class_targets(outputs, targets)
        log_probs = outputs.log_softmax(2)
        weights = outputs.new_ones(outputs.shape[2]) if self.weights is None else self.weights.to(outputs)
        if len(weights) != outputs.shape[2]:
            raise ConfigError(
                f"weights must be one for each of {outputs.shape[2]} classes; got {len(weights)}. Give as many"
            )
        if not targets.is_floating_point():
            log_probs = log_probs.gather(2, targets.unsqueeze(2)).squeeze(2)
            return -weights[targets] * self._hardness(log_probs) * log_probs
        weights = weights.view(-1, *[1] * (outputs.ndim - 3))
        return -(targets * weights * self._hardness(log_probs) * log_probs).sum(2)

    def _hardness(self, log_probs: Tensor) -> Tensor | float:
        """(1 - p)^gamma, above 0: the root of 0 has no gradient."""
        if self.gamma == 0:
            return 1.0
        return (-log_probs.expm1()).clamp_min(torch.finfo(log_probs.dtype).tiny) ** self.gamma


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Folded, [(members batch), ...]: one kernel for all members."""
    targets = _class_targets(outputs, targets)
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(0, 1), reduction="none", ignore_index=NEVER_A_LABEL)


def _class_targets(outputs: Tensor, targets: Tensor) -> Tensor:
    """Labels, or class probabilities where they are floating point, of every member."""
    if targets.is_floating_point():
        fix = "Class labels are integers: targets.long()"
        return _for_every_member(targets, outputs, outputs.shape[2:], fix).to(outputs.dtype)
    fix = "Class probabilities are floating point: targets.float()"
    targets = _for_every_member(targets, outputs, outputs.shape[3:], fix).long()
    _check_labels(targets, classes=outputs.shape[2])
    return targets


def _gaussian_nll(outputs: Tensor, targets: Tensor) -> Tensor:
    mean, variance = mean_and_variance(outputs)
    targets = _for_every_member(targets, outputs, mean.shape[2:], "One number per target: targets.squeeze(-1)")
    return 0.5 * (math.log(2 * math.pi) + variance.log() + (targets.to(mean.dtype) - mean).square() / variance)


def _mse(outputs: Tensor, targets: Tensor) -> Tensor:
    if outputs.shape[2:] == (1,) and targets.shape in (outputs.shape[:2], outputs.shape[1:2]):
        outputs = outputs.squeeze(2)
    targets = _for_every_member(targets, outputs, outputs.shape[2:], "One number per output: targets.unsqueeze(-1)")
    return (targets.to(outputs.dtype) - outputs).square()


LOSSES: dict[str, Criterion] = {
    "cross_entropy": _cross_entropy,
    "focal": ClassLoss(gamma=2.0),
    "gaussian_nll": _gaussian_nll,
    "mse": _mse,
}


def _weighted(losses: Tensor, weights: Tensor) -> Tensor:
    """Losses [members, batch, ...], each example's scaled by its weight."""
    if weights.shape not in (losses.shape[:2], losses.shape[1:2]):
        raise ConfigError(
            f"weights must be one for each example, {[losses.shape[1]]} or {[*losses.shape[:2]]}; got "
            f"{[*weights.shape]}. Give as many"
        )
    return losses * weights.to(losses).expand(losses.shape[:2]).reshape(*losses.shape[:2], *[1] * (losses.ndim - 2))


def _call_per_member(criterion: Criterion, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """The criterion's value for each member, [members]."""
    if isinstance(criterion, type):
        raise ConfigError(f"criterion must be called on outputs and targets; got a class. Use {criterion.__name__}()")
    members, batch = outputs.shape[:2]
    like_outputs = outputs.shape[1:] if targets.is_floating_point() else outputs.shape[1:2] + outputs.shape[3:]
    common = targets.shape == like_outputs or targets.shape[:2] != (members, batch)
    if common and targets.shape[:1] != (batch,):
        raise ConfigError(
            f"targets must begin with the batch [{batch}, ...] or with members and batch [{members}, {batch}, ...]; "
            f"got shape {list(targets.shape)}"
        )
    own_targets = targets.expand(members, *targets.shape) if common else targets
    # One call per member, not one on all folded: a criterion need not be a plain mean over examples. Class weights and
    # ignore_index divide by what one member's targets weigh, and a user's own Python may do anything to a batch, which
    # is also why it is not vmapped.
    each = [criterion(z, y) for z, y in zip(outputs, own_targets, strict=True)]
    if weights is not None:
        if each[0].shape[:1] != (batch,):
            raise ConfigError(
                f"a criterion must give a loss per example where examples have weights; got shape "
                f"{list(each[0].shape)} for {batch} examples. Use reduction='none'"
            )
        each = list(_weighted(torch.stack(each), weights))
    return torch.stack([value.mean() for value in each])


def _for_every_member(targets: Tensor, outputs: Tensor, example: torch.Size, fix: str) -> Tensor:
    """Targets [batch, *example] or [members, batch, *example] as the latter, without a copy."""
    own = outputs.shape[:2] + example
    if targets.shape not in (own, own[1:]):
        # Said here because broadcasting would not: [batch, 1] against [batch] compares every example with every other.
        raise ConfigError(
            f"{targets.dtype} targets for outputs {list(outputs.shape)} must have shape {list(own[1:])}, or "
            f"{list(own)} to give each member its own; got shape {list(targets.shape)}. {fix}"
        )
    return targets.expand(own)


def _check_outputs(outputs: Tensor, axes: int) -> None:
    if outputs.ndim < axes or outputs.numel() == 0:
        law = "[members, batch, outputs, ...]" if axes == 3 else "[members, batch, ...]"
        raise ConfigError(
            f"an ensemble's outputs must be {law}, none of them empty; got shape {list(outputs.shape)}. "
            "For one network's outputs use outputs.unsqueeze(0)"
        )


def _check_labels(labels: Tensor, classes: int) -> None:
    # On a GPU reading the labels would wait for the device, and CUDA's own assertion speaks there.
    if labels.device.type != "cpu" or torch.compiler.is_compiling():
        return
    low, high = (int(end) for end in labels.aminmax())
    if low < 0 or high >= classes:
        raise ConfigError(
            f"labels of {classes} classes must be 0 to {classes - 1}; got {low if low < 0 else high}. "
            "To leave examples out use criterion=nn.CrossEntropyLoss(ignore_index=...)"
        )
