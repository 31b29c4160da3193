"""Whether confidences are true (of the examples predicted with confidence .8, are 80 % right?), and what mends them.

    ECE = sum_b |B_b| / n * |acc(B_b) - conf(B_b)|

Bins are (lo, hi]; 0 belongs to the first and 1 to the last. torchmetrics >= 1.0 gives confidences of exactly 1 a bin of
their own, one more than asked for, and so another ECE wherever a network is saturated.

Temperature scaling is one number, fitted on held-out data, that makes an ensemble as sure as it is right:

    before pooling   p = 1/M sum_m softmax(z_m / T)           members stay members
    after pooling    p_c ~ (1/M sum_m softmax(z_m)_c)^(1/T)   the mixture itself is sharpened or flattened

T minimises the NLL in float64. After pooling that is convex in 1/T; before pooling it need not be, so a grid over log T
comes first and Brent's method inside the best cell second. T = 1 stays a candidate: the fit is never worse than none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import MetricError
from ..outputs.prediction import Prediction
from .inputs import check_choice, check_confidence, check_correct, check_labels, check_prediction
from .temperatures import BOUNDS

POOLING = ("before", "after")
CELLS = 16


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """A reliability diagram's numbers, all float64: what each bin promises, what it keeps, how many examples it holds.

    **Shape**: edges ``[bins + 1]``; confidence, accuracy and weight ``[bins]``, the first two NaN where a bin is empty.
    """

    edges: Tensor
    confidence: Tensor  # conf(B), the mean confidence in the bin
    accuracy: Tensor  # acc(B), the share of right predictions in it
    weight: Tensor  # |B| / n

    @property
    def ece(self) -> float:
        """sum_b weight * |accuracy - confidence|."""
        gaps = (self.accuracy - self.confidence).abs().nan_to_num(0.0)
        return float((self.weight * gaps).sum())


def ece(confidence: Tensor, correct: Tensor, *, bins: int = 15) -> float:
    """The expected calibration error, sum_b |B_b| / n * |acc(B_b) - conf(B_b)| over equally wide bins (lo, hi].

    **Shape**: confidence and correct ``[examples]`` (or any one shape).

    >>> confidence = torch.tensor([1.0, 1.0, 0.95, 0.94, 0.7, 0.68, 0.4, 0.1])
    >>> correct = torch.tensor([1, 0, 1, 1, 1, 0, 0, 0])
    >>> round(ece(confidence, correct), 5)  # torchmetrics: 0.24875
    0.22125
    """
    return ece_of_sums(bin_sums(confidence, correct, bins=bins))


def adaptive_ece(confidence: Tensor, correct: Tensor, *, bins: int = 15) -> float:
    """The calibration error over bins of equally many examples (their numbers differ by one at most).

    Examples are sorted by confidence and cut into bins. Equal confidences may fall on both sides of a cut; each of them
    counts with their common accuracy, so that the order of examples does not matter.

    **Shape**: confidence and correct ``[examples]``.

    >>> round(adaptive_ece(torch.tensor([0.2, 0.4, 0.6, 0.8]), torch.tensor([0, 0, 1, 1]), bins=2), 4)
    0.3
    """
    return reliability_curve(confidence, correct, bins=bins, adaptive=True).ece


def reliability_curve(
    confidence: Tensor, correct: Tensor, *, bins: int = 15, adaptive: bool = False
) -> ReliabilityCurve:
    """The numbers of a reliability diagram, with equally wide bins or, where ``adaptive``, equally full ones.

    **Shape**: confidence and correct ``[examples]``; the curve has ``[bins]`` points.

    >>> curve = reliability_curve(torch.tensor([0.6, 0.7, 0.9]), torch.tensor([1, 0, 1]), bins=2)
    >>> curve.accuracy, curve.weight
    (tensor([   nan, 0.6667], dtype=torch.float64), tensor([0., 1.], dtype=torch.float64))
    """
    if adaptive:
        return _equally_full(confidence, correct, bins)
    return curve_of_sums(bin_sums(confidence, correct, bins=bins))


def bin_sums(confidence: Tensor, correct: Tensor, *, bins: int = 15) -> Tensor:
    """Per bin (lo, hi] the number of examples, the sum of their confidences, and how many are right.

    These sums add up over batches, and the ECE needs nothing else.

    **Shape**: ``[examples]`` twice to ``[3, bins]``, float64.

    >>> bin_sums(torch.tensor([0.5, 0.75, 1.0]), torch.tensor([1, 1, 0]), bins=2)
    tensor([[1.0000, 2.0000],
            [0.5000, 1.7500],
            [1.0000, 1.0000]], dtype=torch.float64)
    """
    _check_bins(bins)
    correct, confidence = check_correct(correct, confidence), check_confidence(confidence)
    # Edges in the confidences' own precision: .2 in float32 is above .2 in float64, and would change its bin.
    edges = (torch.arange(1, bins, dtype=torch.float64, device=confidence.device) / bins).to(confidence.dtype)
    index = torch.bucketize(confidence, edges)
    ones = torch.ones_like(correct)
    return torch.stack([index.bincount(w, minlength=bins) for w in (ones, confidence.double(), correct)])


def curve_of_sums(sums: Tensor) -> ReliabilityCurve:
    """The reliability diagram of equally wide bins from :func:`bin_sums`.

    **Shape**: sums ``[3, bins]``.

    >>> curve_of_sums(torch.tensor([[1.0, 2.0], [0.5, 1.75], [1.0, 1.0]])).accuracy
    tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    counts, confidences, corrects = sums.double()
    bins = sums.shape[1]
    edges = torch.arange(bins + 1, dtype=torch.float64, device=sums.device) / bins
    return ReliabilityCurve(edges, confidences / counts, corrects / counts, counts / counts.sum())


def ece_of_sums(sums: Tensor) -> float:
    """The ECE from :func:`bin_sums`: |B| / n * |acc - conf| is |sum of correct - sum of confidences| / n.

    **Shape**: sums ``[3, bins]``.

    >>> ece_of_sums(torch.tensor([[1.0, 2.0], [0.5, 1.75], [1.0, 1.0]]))
    0.4166666666666667
    """
    counts, confidences, corrects = sums.double()
    return float((corrects - confidences).abs().sum() / counts.sum())


def share_ties(ordered: Tensor, values: Tensor) -> Tensor:
    """Values of examples with equal keys replaced by their mean: the expectation over all orders of the tied examples.

    **Shape**: ordered ``[examples]``, sorted either way, and values ``[examples]``.

    >>> share_ties(torch.tensor([3.0, 2.0, 2.0, 1.0]), torch.tensor([1.0, 1.0, 0.0, 0.0]))
    tensor([1.0000, 0.5000, 0.5000, 0.0000])
    """
    _, group, sizes = ordered.unique_consecutive(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(sizes), dtype=values.dtype, device=values.device).index_add_(0, group, values)
    return (sums / sizes)[group]


def last_of_ties(ordered: Tensor) -> Tensor:
    """How many examples come before the end of each group of equal keys: the places where a threshold can be.

    **Shape**: ordered ``[examples]``, sorted either way; returns ``[groups]``.

    >>> last_of_ties(torch.tensor([3.0, 2.0, 2.0, 1.0]))
    tensor([1, 3, 4])
    """
    return ordered.unique_consecutive(return_counts=True)[1].cumsum(0)


def _equally_full(confidence: Tensor, correct: Tensor, bins: int) -> ReliabilityCurve:
    _check_bins(bins)
    correct = check_correct(correct, confidence)
    confidence, order = check_confidence(confidence).sort()
    correct, confidence = share_ties(confidence, correct[order]), confidence.double()
    n = len(confidence)
    ends = (torch.arange(1, bins + 1, device=confidence.device) * n) // bins
    sizes = ends.diff(prepend=ends.new_zeros(1)).double()

    def means(values: Tensor) -> Tensor:
        sums = torch.cat([values.new_zeros(1), values.cumsum(0)])
        return sums[ends].diff(prepend=values.new_zeros(1)) / sizes

    between = (confidence[(ends[:-1] - 1).clamp_min(0)] + confidence[ends[:-1].clamp_max(n - 1)]) / 2
    edges = torch.cat([confidence[:1], between, confidence[-1:]])
    return ReliabilityCurve(edges, means(confidence), means(correct), sizes / n)


def _check_bins(bins: int) -> None:
    if bins < 1:
        raise MetricError(f"bins must be at least 1; got bins={bins}")


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature; called on logits it gives a calibrated :class:`Prediction`.

    After pooling, that prediction has one member, the scaled mixture: its mutual information is 0.

    >>> Temperature(temperature=2.0)(torch.tensor([[[2.0, 0.0]]])).logits
    tensor([[[1., 0.]]])
    """

    temperature: float  # T: above 1 the ensemble was too sure, below 1 not sure enough
    pooling: str = "before"
    nll: float = math.nan  # on the data it was fitted to
    nll_unscaled: float = math.nan  # there, with T = 1

    def __post_init__(self) -> None:
        check_choice(self.pooling, "pooling", POOLING)
        if not 0 < self.temperature < math.inf:
            raise MetricError(f"temperature must be positive and finite; got temperature={self.temperature}")

    def __call__(self, logits: Tensor) -> Prediction:
        """**Shape**: logits ``[members, batch, classes, ...]``."""
        return _scaled(Prediction.from_logits(logits), self.temperature, self.pooling)


def fit_temperature(logits: Tensor, labels: Tensor, *, pooling: str = "before") -> Temperature:
    """The temperature of least NLL on held-out data, T* = argmin_T -1/n sum_i log p_i,y_i(T), between .01 and 100.

    **Shape**: logits ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> logits = torch.tensor([[[3.0, 0.0], [3.0, 0.0], [3.0, 0.0], [3.0, 0.0]]])
    >>> fitted = fit_temperature(logits, torch.tensor([0, 0, 0, 1]))  # three of four are right: sigmoid(3 / T) = 3/4
    >>> round(fitted.temperature, 4), round(3 / torch.tensor(3.0).log().item(), 4)
    (2.7307, 2.7307)
    """
    check_choice(pooling, "pooling", POOLING)
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
            "every label must have a probability above 0; got 0 for one, which no temperature changes. "
            "Look for logits of -inf at the labels"
        )
    nll, log_temperature = min((unscaled, 0.0), _search(loss))
    return Temperature(math.exp(log_temperature), pooling, nll, unscaled)


def _scaled(prediction: Prediction, temperature: float, pooling: str) -> Prediction:
    logits = prediction.logits if pooling == "before" else prediction.log_probs.unsqueeze(0)
    return Prediction(logits / temperature)


def _search(loss: Callable[[float], float]) -> tuple[float, float]:
    """The least loss and where it is, on log T."""
    from scipy import optimize  # slow to import

    low, high = (math.log(bound) for bound in BOUNDS)
    cell = (high - low) / CELLS
    grid = [low + k * cell for k in range(CELLS + 1)]
    least, at = min((loss(x), x) for x in grid)
    around = (max(low, at - cell), min(high, at + cell))
    inner = optimize.minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-9})
    return min((least, at), (float(inner.fun), float(inner.x)))
