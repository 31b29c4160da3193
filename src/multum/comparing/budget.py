"""What an ensemble may cost, and the largest size of a method that fits.

    2x            at most twice the parameters and twice the mult-adds of the one network
    params=5e5    at most so many parameters
    macs=2e6      at most so many mult-adds per prediction

A method with a size of its own (Packed's alpha, Mixture's budget of weights) is fitted by that. Whatever still costs
too much runs on a thinner base network (`thin`), whose width is then part of the model's name. A control that must cost
as much as an ensemble (`single@4x`) runs on a wider one (`wide`).
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from .. import models
from ..building import ensemble
from ..data.sources import Data
from ..errors import ConfigError, MultumError
from ..methods import Method
from ..metrics.cost import Cost, cost
from ..parsing import assignments
from ..runs.networks import builder_for

STEPS = 24  # widths and alphas are tried in 24ths: fine enough to fill a budget, coarse enough to read


@dataclasses.dataclass(frozen=True)
class Budget:
    """Limits on parameters and mult-adds; None where there is none."""

    text: str
    params: float | None = None
    macs: float | None = None

    @classmethod
    def parse(cls, text: str, single: Cost) -> Budget:
        """A budget as the command line writes it, given the cost of the one network.

        >>> single = Cost(params=100, trainable=100, macs=1000, torchinfo=0, attention=0, members=1, parts=())
        >>> Budget.parse("1.5x", single)
        Budget(text='1.5x', params=150.0, macs=1500.0)
        """
        try:
            if text.endswith("x"):
                times = _positive(float(text[:-1]))
                return cls(text, times * single.params, times * single.macs)
            limits = {name: _positive(float(value)) for name, value in assignments(text.split(",")).items()}
            if limits and set(limits) <= {"params", "macs"}:
                return cls(text, **limits)
        except (TypeError, ValueError, MultumError):
            pass
        raise ConfigError(
            f"`budget` must be a multiple of one network as 1x or 2.5x, or params=NUMBER, or macs=NUMBER; got {text!r}"
        )

    def allows(self, params: float, macs: float) -> bool:
        """Whether a cost is within the limits, to one in a hundred: a stem of three inputs is no second network."""
        limits = ((params, self.params), (macs, self.macs))
        return all(limit is None or value <= 1.01 * limit for value, limit in limits)

    def __str__(self) -> str:
        return self.text


def fit_to_budget(method: Method, model: str, data: Data, budget: Budget) -> tuple[Method, str]:
    """The method and the model, as large as the budget allows; as they are where they fit already.

    Raises ConfigError where even the thinnest network costs too much.
    """

    def fits(method: Method, width: float) -> bool:
        spent = cost_of(method, thinner(model, width), data)
        return budget.allows(spent.params, spent.macs)

    largest = largest_that_fits(method, _room(model, data, budget), fits)
    if largest is not None:
        return largest[0], thinner(model, largest[1])
    raise ConfigError(
        f"a method must fit its budget at some width; got {method.name} with {model}, which is over {budget} at "
        f"1/{STEPS} of its width. Use fewer members or a larger budget"
    )


def largest_that_fits(
    method: Method, room: float | None, fits: Callable[[Method, float], bool]
) -> tuple[Method, float] | None:
    """The method, and the share of the network's width, as large as they fit; None where none that can be built does.

    Args:
        room: the parameters that may be spent, in those of the one network; None where they have no limit.
        fits: whether a method at a share of the width does.
    """
    tries: list[Callable[[int], tuple[Method, float]]] = []
    if method.sized(1, room) is not None:
        tries.append(lambda step: (method.sized(step / STEPS, room) or method, 1.0))
    elif fits(method, 1.0):
        return method, 1.0
    tries.append(lambda step: (method, round(step / STEPS, 4)))
    return next(filter(None, (_largest(attempt, fits) for attempt in tries)), None)


def at_cost(method: Method, model: str, data: Data, budget: Budget) -> tuple[Method, str]:
    """The method and the model at the cost of a budget: as `fit_to_budget`, and widened where they cost less.

    A method with a size of its own grows by that. Any other gets a wider network (`wide`), in 24ths, whose mult-adds
    (or parameters, where the budget has no others) come as close to the limit as they can from below.
    """
    sized, fitted = fit_to_budget(method, model, data, budget)
    if fitted != model or method.sized(1, _room(model, data, budget)) is not None:
        return sized, fitted
    key, limit = ("macs", budget.macs) if budget.macs is not None else ("params", budget.params)
    assert limit is not None

    def spent(step: int) -> float:
        return getattr(cost_of(method, _wider(model, 1 + step / STEPS), data), key)

    guess = int(STEPS * (math.sqrt(max(1.0, limit / spent(0))) - 1))  # most costs grow with the square of the width
    return method, _wider(model, 1 + _last_within(lambda step: spent(step) <= limit, guess) / STEPS)


def _last_within(within: Callable[[int], bool], guess: int) -> int:
    """The last step from 0 on that is within, found outwards from a guess; costs grow with the step, and 0 is within.

    >>> [_last_within(lambda step: step <= 29, guess) for guess in (0, 28, 29, 30, 80)]
    [29, 29, 29, 29, 29]
    """
    low, beyond, stride = guess, guess + 1, 1
    while low > 0 and not within(low):
        low, beyond, stride = max(0, low - stride), low, 2 * stride
    while beyond == low + stride and within(beyond):
        low, beyond, stride = beyond, beyond + 2 * stride, 2 * stride
    return bisect.bisect_left(range(beyond), True, lo=low + 1, key=lambda step: not within(step)) - 1


def label_of_size(label: str, method: Method, model: str, sized: Method, thinned: str) -> str:
    """The label with what a budget changed: the fields of the method, or the width of the network.

    >>> from multum.methods import Packed
    >>> label_of_size("packed", Packed(), "mlp", Packed(alpha=1.5), "mlp")
    'packed (alpha=1.5)'
    >>> label_of_size("single", Packed(), "mlp", Packed(), "mlp:thin=0.5")
    'single (thin=0.5)'
    """
    changes = [f"{name}={value:g}" for name, value in changed_fields(method, sized).items()]
    changes += [thinned[len(model) + 1 :]] if thinned != model else []
    return f"{label} ({', '.join(changes)})" if changes else label


def changed_fields(method: Method, sized: Method) -> dict[str, Any]:
    """The fields of the second method that differ from the first's."""
    before, after = dataclasses.asdict(method), dataclasses.asdict(sized)
    return {name: value for name, value in after.items() if value != before[name]}


def thinner(model: str, share: float) -> str:
    """The model's name at a share of its width.

    >>> thinner("small-cnn", 0.5), thinner("wrn-10-1:bias=none", 1)
    ('small-cnn:thin=0.5', 'wrn-10-1:bias=none')
    """
    return _with_width(model, "thin", share)


def _wider(model: str, times: float) -> str:
    """The model's name at a multiple of its width.

    >>> _wider("small-cnn", 2), _wider("wrn-10-1:bias=none", 25 / 24)
    ('small-cnn:wide=2', 'wrn-10-1:bias=none,wide=1.0417')
    """
    return _with_width(model, "wide", round(times, 4))


def _with_width(model: str, field: str, times: float) -> str:
    if times == 1:
        return model
    own = models.own_name(model)
    has_fields = bool(own.fields) if own else "=" in model
    return f"{model}{',' if has_fields else ':'}{field}={times:.5g}"


def _largest(
    attempt: Callable[[int], tuple[Method, float]], fits: Callable[[Method, float], bool]
) -> tuple[Method, float] | None:
    """Costs grow with the step, so halving finds the last one that fits; None where there is none that can be built."""

    @functools.cache
    def over(step: int) -> bool | None:
        try:
            return not fits(*attempt(step))
        except MultumError:
            return None  # too small to be built

    step = bisect.bisect_left(range(1, STEPS + 1), True, key=lambda step: over(step) is True)
    return attempt(step) if step and over(step) is False else None


def cost_of(method: Method, model: str, data: Data) -> Cost:
    build = builder_for(model, data)
    with torch.random.fork_rng():
        targets = data.targets_count
        ens = ensemble(build(), method, example=data.example(), task=data.task, targets=targets, seed=0)
    return cost(ens, example=data.example())


def _room(model: str, data: Data, budget: Budget) -> float | None:
    """The parameters that may be spent, in those of the one network."""
    return None if budget.params is None else budget.params / cost_of_network(model, data).params


def cost_of_network(model: str, data: Data) -> Cost:
    with torch.random.fork_rng():
        return cost(builder_for(model, data)(), example=data.example())


def _positive(number: float) -> float:
    if not 0 < number < math.inf:
        raise ValueError(number)
    return number
