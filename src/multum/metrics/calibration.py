"""Temperature scaling: one number, fitted on held-out data, that makes an ensemble as sure as it is right.

    before pooling   p = 1/M sum_m softmax(z_m / T)           members stay members
    after pooling    p_c ~ (1/M sum_m softmax(z_m)_c)^(1/T)   the mixture itself is sharpened or flattened

T minimises the NLL in float64. After pooling that is convex in 1/T; before pooling it need not be, so a grid over log T
comes first and Brent's method inside the best cell second. T = 1 stays a candidate: the fit is never worse than none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy import optimize
from torch import Tensor

from ..errors import MetricError
from ..outputs.prediction import Prediction
from .classification import check_prediction
from .inputs import check_labels

__all__ = ["BOUNDS", "Temperature", "fit_temperature"]

BOUNDS = (0.01, 100.0)  # items that are all right would ask for T = 0, labels at random for T = inf
CELLS = 16


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature; called on logits it gives a calibrated :class:`Prediction`.

    After pooling, that prediction has one member, the scaled mixture: its mutual information is 0.

    >>> import torch
    >>> Temperature(temperature=2.0)(torch.tensor([[[2.0, 0.0]]])).logits
    tensor([[[1., 0.]]])
    """

    temperature: float  # T: above 1 the ensemble was too sure, below 1 not sure enough
    pooling: str = "before"
    nll: float = math.nan  # on the data it was fitted to
    nll_unscaled: float = math.nan  # there, with T = 1

    def __post_init__(self) -> None:
        _check_pooling(self.pooling)
        if not 0 < self.temperature < math.inf:
            raise MetricError(f"a temperature is positive and finite, however: temperature={self.temperature}")

    def __call__(self, logits: Tensor) -> Prediction:
        """**Shape**: logits ``[members, batch, classes, ...]``."""
        return _scaled(Prediction.from_logits(logits), self.temperature, self.pooling)


def fit_temperature(logits: Tensor, labels: Tensor, *, pooling: str = "before") -> Temperature:
    """The temperature of least NLL on held-out data, T* = argmin_T -1/n sum_i log p_i,y_i(T), between .01 and 100.

    **Shape**: logits ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> import torch
    >>> logits = torch.tensor([[[3.0, 0.0], [3.0, 0.0], [3.0, 0.0], [3.0, 0.0]]])
    >>> found = fit_temperature(logits, torch.tensor([0, 0, 0, 1]))  # three of four are right: sigmoid(3 / T) = 3/4
    >>> round(found.temperature, 4), round(3 / torch.tensor(3.0).log().item(), 4)
    (2.7307, 2.7307)
    """
    _check_pooling(pooling)
    prediction = Prediction.from_logits(logits.double())
    check_prediction(prediction)
    labels = check_labels(labels, prediction.logits[0]).unsqueeze(1)
    if pooling == "after":
        prediction = Prediction(prediction.log_probs.unsqueeze(0))  # pooled once, not at every step

    def loss(log_temperature: float) -> float:
        scaled = _scaled(prediction, math.exp(log_temperature), pooling)
        return -float(scaled.log_probs.gather(1, labels).mean())

    unscaled = loss(0.0)
    if math.isinf(unscaled):
        raise MetricError(
            "every label has a probability above 0, however: one has 0, whatever the temperature. "
            "Look for logits of -inf at the labels"
        )
    nll, log_temperature = min((unscaled, 0.0), _search(loss))
    return Temperature(math.exp(log_temperature), pooling, nll, unscaled)


def _scaled(prediction: Prediction, temperature: float, pooling: str) -> Prediction:
    logits = prediction.logits if pooling == "before" else prediction.log_probs.unsqueeze(0)
    return Prediction(logits / temperature)


def _check_pooling(pooling: str) -> None:
    if pooling not in ("before", "after"):
        raise MetricError(f"pooling is before or after, however: {pooling!r}")


def _search(loss: Callable[[float], float]) -> tuple[float, float]:
    """The least loss and where it is, on log T."""
    low, high = (math.log(bound) for bound in BOUNDS)
    cell = (high - low) / CELLS
    grid = [low + k * cell for k in range(CELLS + 1)]
    least, at = min((loss(x), x) for x in grid)
    around = (max(low, at - cell), min(high, at + cell))
    found = optimize.minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-9})
    return min((least, at), (float(found.fun), float(found.x)))
