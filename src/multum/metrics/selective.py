"""Answering only when sure: the risk at every coverage, and the threshold for a wanted risk or coverage.

    risk(k)  = wrong answers among the k most confident examples / k
    AURC     = 1/n sum_k risk(k)

Examples of equal confidence enter together: each counts with their common error, which is the expectation over their
orders. A threshold can only take all of them or none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import MetricError
from .calibration import last_of_ties, share_ties
from .inputs import check_correct, check_scores, check_share

CANDIDATES = 20  # thresholds tried for a risk that must hold on new examples


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The risk of answering the k most confident examples, for k = 1 ... n.

    **Shape**: coverage, risk and threshold ``[examples]``, float64; threshold is the confidence of the k-th example.
    """

    coverage: Tensor  # k / n
    risk: Tensor
    threshold: Tensor

    @property
    def aurc(self) -> float:
        """The area under the curve, 1/n sum_k risk(k): 0 is perfect, the error rate is chance."""
        return float(self.risk.mean())


def risk_coverage(confidence: Tensor, correct: Tensor) -> RiskCoverage:
    """The risk-coverage curve; any score that is high where the prediction can be trusted will do.

    **Shape**: confidence and correct ``[examples]``.

    >>> curve = risk_coverage(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1, 1, 0, 1]))
    >>> curve.risk
    tensor([0.0000, 0.0000, 0.3333, 0.2500], dtype=torch.float64)
    """
    correct = check_correct(correct, confidence)
    confidence, order = check_scores(confidence, "confidences").sort(descending=True)
    wrong = share_ties(confidence, 1 - correct[order])
    k = torch.arange(1, len(wrong) + 1, dtype=torch.float64, device=wrong.device)
    return RiskCoverage(k / len(wrong), wrong.cumsum(0) / k, confidence.double())


def aurc(confidence: Tensor, correct: Tensor) -> float:
    """The area under the risk-coverage curve, 1/n sum_k risk(k).

    **Shape**: confidence and correct ``[examples]``.

    >>> round(aurc(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1, 1, 0, 1])), 6)  # (0 + 0 + 1/3 + 1/4) / 4
    0.145833
    """
    return risk_coverage(confidence, correct).aurc


@dataclass(frozen=True)
class Abstention:
    """A rule that answers an example where its confidence is at least the threshold.

    >>> rule = Abstention(threshold=0.8, coverage=0.5, risk=0.0)
    >>> rule(torch.tensor([0.9, 0.7]))
    tensor([ True, False])
    """

    threshold: float  # inf: no threshold keeps the promise, nothing is answered
    coverage: float  # share answered, on the examples it was fitted to
    risk: float  # share wrong among these; 0 where nothing is answered

    def __call__(self, confidence: Tensor) -> Tensor:
        """True where the example is answered, ``[examples]``."""
        return confidence.double() >= self.threshold


def fit_abstention(
    confidence: Tensor,
    correct: Tensor,
    *,
    risk: float | None = None,
    coverage: float | None = None,
    delta: float | None = None,
) -> Abstention:
    """The threshold on held-out examples for a wanted risk (the largest coverage that keeps it) or a wanted coverage.

    The risk on new examples scatters around the fitted one. With ``delta`` the wanted risk holds for new examples with
    probability 1 - delta over the held-out ones: Clopper-Pearson bounds at 20 coverages, each at delta / 20.

    **Shape**: confidence and correct ``[examples]``.

    >>> confidence, correct = torch.tensor([0.875, 0.75, 0.625, 0.5]), torch.tensor([1, 1, 0, 1])
    >>> fit_abstention(confidence, correct, coverage=0.5)
    Abstention(threshold=0.75, coverage=0.5, risk=0.0)
    >>> fit_abstention(confidence, correct, risk=0.3)  # not .625, where one answer in three is wrong
    Abstention(threshold=0.5, coverage=1.0, risk=0.25)
    """
    if (risk is None) == (coverage is None):
        raise MetricError(f"either risk or coverage must be given; got risk={risk}, coverage={coverage}")
    correct = check_correct(correct, confidence)
    confidence, order = check_scores(confidence.double(), "confidences").sort(descending=True)
    answered = last_of_ties(confidence)
    wrong = (1 - correct[order]).cumsum(0)[answered - 1]
    if coverage is not None:
        if not 0 < coverage <= 1:
            raise MetricError(f"coverage must satisfy 0 < coverage <= 1; got coverage={coverage}")
        chosen = int((answered < coverage * len(confidence) - 1e-9).sum())
    elif risk is not None:
        if not 0 <= risk < 1:
            raise MetricError(f"risk must satisfy 0 <= risk < 1; got risk={risk}. For 5 % write 0.05")
        chosen = _certain(answered, wrong, risk, delta) if delta else _empirical(answered, wrong, risk)
    if chosen < 0:
        return Abstention(threshold=math.inf, coverage=0.0, risk=0.0)
    count = int(answered[chosen])
    return Abstention(float(confidence[count - 1]), count / len(confidence), float(wrong[chosen]) / count)


def _empirical(answered: Tensor, wrong: Tensor, risk: float) -> int:
    """The last choice whose share of wrong answers is at most the risk, or -1."""
    good = (wrong <= risk * answered * (1 + 1e-12)).nonzero()
    return int(good[-1]) if len(good) else -1


def _certain(answered: Tensor, wrong: Tensor, risk: float, delta: float) -> int:
    """The last of 20 choices whose risk is at most the wanted one with probability 1 - delta, or -1."""
    from scipy.special import betaincinv  # slow to import

    check_share(delta, "delta")
    # The candidates depend on confidences only, so that a union bound over them holds; more would cost each its level.
    wanted = torch.linspace(0, float(answered[-1]), CANDIDATES + 1, dtype=torch.float64)[1:].ceil().long()
    candidates = torch.searchsorted(answered.cpu(), wanted).unique().flip(0)
    for choice in candidates.tolist():
        k, n = float(wrong[choice]), float(answered[choice])
        bound = 1.0 if k == n else float(betaincinv(k + 1, n - k, 1 - delta / CANDIDATES))
        if bound <= risk:
            return choice
    return -1
