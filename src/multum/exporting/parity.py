"""Whether a file says what multum says, on inputs that are not those it was traced with."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ..errors import ExportError
from ..runs.held_out import Rules

__all__ = ["TOLERANCE", "differences"]

TOLERANCE = 1e-5


def differences(
    answers: Mapping[str, Tensor], expected: Mapping[str, Tensor], rules: Rules, what: str
) -> dict[str, float]:
    """The largest difference of each output; of a regression in units of its standard deviation or variance.

    A decision (label, set, abstention) may differ where it hangs on rounding; raises where anything else does.
    """
    if answers.keys() != expected.keys():
        raise ExportError(f"{what} must give {', '.join(expected)}; got {', '.join(answers)}")
    numbers = {name: truth for name, truth in expected.items() if truth.is_floating_point()}
    largest = {name: _difference(answers[name], truth, _unit(name, expected)) for name, truth in numbers.items()}
    for name, difference in largest.items():
        if not difference <= TOLERANCE:
            raise ExportError(
                f"{what} must say what multum says to {TOLERANCE:g}; got a difference of {difference:.3g} in {name}"
            )
    for name, truth in expected.items():
        if not truth.is_floating_point():
            other = answers[name] != truth
            doubtful = _hangs_on_rounding(name, expected, rules)
            if bool((other & ~doubtful).any()):
                raise ExportError(f"{what} must decide as multum does; got {int(other.sum())} other {name}")
    return largest


def _difference(answer: Tensor, truth: Tensor, unit: float) -> float:
    finite = truth.isfinite()
    if answer.shape != truth.shape or not torch.equal(answer.isfinite(), finite):
        return math.inf
    return float((answer.double() - truth.double())[finite].abs().max()) / unit if bool(finite.any()) else 0.0


def _unit(name: str, expected: Mapping[str, Tensor]) -> float:
    """1 for probabilities and nats; of a regression its largest variance, or the standard deviation of that."""
    if "variance" not in expected:
        return 1.0
    variance = float(expected["variance"].max())
    if name in ("variance", "aleatoric", "epistemic"):
        return variance
    size = float(expected[name].abs().max())
    # Numbers of float32 are no more precise than their own size allows.
    return max(math.sqrt(variance), size if name == "members" or expected[name].dtype == torch.float32 else 0.0)


def _hangs_on_rounding(name: str, expected: Mapping[str, Tensor], rules: Rules) -> Tensor:
    """Where a decision is nearer to its threshold than the files may differ."""
    near = 2 * TOLERANCE
    if name == "abstain" and rules.abstention is not None:
        certainty = expected["confidence"] if "confidence" in expected else -expected["variance"].sqrt()
        return (certainty - rules.abstention.threshold).abs() <= near * certainty.abs().clamp_min(1)
    probs = expected["probs"].double()
    if name == "set" and rules.conformal is not None:
        return (1 - probs - rules.conformal.threshold).abs() <= near
    first, second = probs.topk(2, dim=1).values.unbind(1)
    if rules.threshold is not None:
        return torch.minimum(*((probs[:, k] - rules.threshold.threshold).abs() for k in (0, 1))) <= near
    return first - second <= near
