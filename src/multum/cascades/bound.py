"""An upper bound of a mean by betting (Waudby-Smith and Ramdas, JRSS B 2024), for losses that few examples make.

    K_f(m) = prod_i (1 + f (m - x_i) / (most - m)),    x_i <= most,  0 < f < 1
    bound  = the least m at which the weighted mean of K_f(m) over the bets f reaches 1 / (1 - level)

Were the true mean m or more, no K_f would grow in expectation, so that it reaches 1 / (1 - level) with probability
1 - level at most: for any n and any distribution below `most`. An interval of the normal distribution does not know of
what no example has shown yet: of a loss of 5 nats that one example in 1,000 makes, 1,000 examples often see none.
Large bets suit rare losses, and half of the weight is the largest's; small ones suit many examples.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

HALVINGS = torch.arange(10, dtype=torch.float64).unsqueeze(1)
BETS, WEIGHTS = 0.8 * 0.5**HALVINGS, 0.5 ** (HALVINGS + 1)  # weights of no more than 1 together
STEPS = 40  # of the bisection: to 1e-12 of the range


def is_below(mean: float, x: Tensor, most: float, level: float) -> bool:
    """Whether the mean of the distribution that these numbers are drawn from is surely below `mean`.

    Args:
        x: numbers of no more than `most`, ``[n]``.
        level: the probability that it is, where this says so.
    """
    if mean >= most:
        return True
    values = x[x != 0].double().cpu()  # all others are alike, and most
    growth, zero = ((BETS * (mean - each) / (most - mean)).log1p() for each in (values, torch.zeros(1)))
    capital = growth.sum(1, keepdim=True) + (len(x) - len(values)) * zero
    return float((capital + WEIGHTS.log()).logsumexp(0)) >= -math.log(1 - level)


def mean_bound(x: Tensor, most: float, level: float) -> float:
    """The least of which `is_below` is true.

    >>> zeros = torch.zeros(1000)
    >>> round(mean_bound(zeros, most=1.0, level=0.95), 4), round(mean_bound(zeros, most=5.0, level=0.95), 4)
    (0.0045, 0.0223)
    """
    low, high = float(x.double().mean()), most
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_below(middle, x, most, level) else (middle, high)
    return high
