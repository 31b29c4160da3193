"""How differently members predict: all from sums over items, which add up over batches.

    disagreement   d_ij = share of items with argmax p_i != argmax p_j           mean over pairs i < j
    normalised     1/(M (M-1)) sum_(i != j) d_ij / (1 - accuracy_i)              or mean d_ij / (1 - ensemble accuracy)
    kl             mean over i < j of KL(p_i, p_j)                               kl_both: over all ordered pairs
    q_statistic    (N11 N00 - N01 N10) / (N11 N00 + N01 N10)                     of right and wrong, mean over i < j
    mutual_information   mean of H(p) - 1/M sum_m H(p_m)                         on known items, and on foreign ones

One member disagrees with nobody: everything is 0, and the Q-statistic, which has no pair to speak of, is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import MetricError
from ..outputs.prediction import Prediction
from .classification import check_prediction
from .inputs import check_labels

__all__ = [
    "PairSums",
    "disagreement",
    "disagreement_matrix",
    "diversity",
    "diversity_of_sums",
    "kl_divergence",
    "kl_matrix",
    "normalised_disagreement",
    "pair_sums",
    "q_statistic",
]

SLICE = 2**22  # numbers in one slice of logits: 32 MB in float64, whatever the number of items


@dataclass(frozen=True, eq=False)
class PairSums:
    """Everything diversity needs, summed over items; ``+`` joins the sums of two batches.

    **Shape**: matrices ``[members, members]``, float64; both_right and ensemble_right are None without labels.
    """

    items: int
    differ: Tensor  # items with another predicted class
    kl: Tensor  # sum of KL(p_i, p_j)
    mutual_information: float
    both_right: Tensor | None = None  # on the diagonal: a member's right items
    ensemble_right: int | None = None

    def __add__(self, other: PairSums) -> PairSums:
        if self.differ.shape != other.differ.shape or (self.both_right is None) != (other.both_right is None):
            raise MetricError(
                f"sums of one ensemble add up, all with labels or all without, however: {len(self.differ)} and "
                f"{len(other.differ)} members, labels {self.both_right is not None} and {other.both_right is not None}"
            )
        labelled = None not in (self.both_right, other.both_right)
        return PairSums(
            self.items + other.items,
            self.differ + other.differ,
            self.kl + other.kl,
            self.mutual_information + other.mutual_information,
            self.both_right + other.both_right if labelled else None,  # type: ignore[operator]
            self.ensemble_right + other.ensemble_right if labelled else None,  # type: ignore[operator]
        )


def pair_sums(prediction: Prediction, labels: Tensor | None = None) -> PairSums:
    """The sums over a prediction's items, in slices of constant size.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> logits = torch.tensor([[[0.7, 0.3]], [[0.4, 0.6]]]).log()
    >>> pair_sums(Prediction.from_logits(logits), torch.tensor([0])).both_right
    tensor([[1., 0.],
            [0., 0.]], dtype=torch.float64)
    """
    check_prediction(prediction)
    if labels is not None:
        labels = check_labels(labels, prediction.logits[0])
    logits = prediction.logits
    step = max(1, SLICE // max(1, logits[:, :1].numel()))
    total: PairSums | None = None
    for start in range(0, logits.shape[1], step):
        rows = slice(start, start + step)
        part = _slice_sums(logits[:, rows], prediction.log_probs[rows], None if labels is None else labels[rows])
        total = part if total is None else total + part
    assert total is not None  # check_prediction refuses empty ones
    return total


def disagreement_matrix(prediction: Prediction) -> Tensor:
    """d_ij, the share of items for which members i and j predict different classes, ``[members, members]``.

    **Shape**: prediction of ``[members, batch, classes, ...]``.

    >>> logits = torch.tensor([[[0.7, 0.3]], [[0.4, 0.6]]]).log()
    >>> disagreement_matrix(Prediction.from_logits(logits))
    tensor([[0., 1.],
            [1., 0.]], dtype=torch.float64)
    """
    check_prediction(prediction)
    votes = prediction.logits.log_softmax(2).argmax(2).flatten(1)
    return _differ(votes) / votes.shape[1]


def disagreement(prediction: Prediction) -> float:
    """The mean of d_ij over pairs i < j.

    **Shape**: prediction of ``[members, batch, classes, ...]``.

    >>> members = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]])
    >>> disagreement(Prediction.from_logits(members.log().unsqueeze(1)))
    0.5
    """
    return _mean_of_pairs(disagreement_matrix(prediction))


def normalised_disagreement(prediction: Prediction, labels: Tensor, *, by: str = "member") -> float:
    """Disagreement per error, which independent members of low accuracy do not win by being wrong.

    by "member", as MixtureEnsembles writes it: the mean over ordered pairs of d_ij / (1 - accuracy_i).
    by "ensemble", as its code has it: the mean over pairs of d_ij / (1 - accuracy of the ensemble).
    NaN where that error is 0.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> logits = torch.tensor([[[0.9, 0.1], [0.1, 0.9]], [[0.6, 0.4], [0.6, 0.4]]]).log()
    >>> normalised_disagreement(Prediction.from_logits(logits), torch.tensor([0, 0]))  # .5 / .5 and .5 / 0
    nan
    >>> normalised_disagreement(Prediction.from_logits(logits), torch.tensor([1, 0]))  # .5 / 1 and .5 / .5
    0.75
    """
    if by not in ("member", "ensemble"):
        raise MetricError(f"by is member or ensemble, however: {by!r}")
    return _normalised(pair_sums(prediction, labels), by)


def kl_matrix(prediction: Prediction) -> Tensor:
    """KL(p_i, p_j) = mean over items of sum_c p_ic (log p_ic - log p_jc), in nats, ``[members, members]``.

    **Shape**: prediction of ``[members, batch, classes, ...]``.

    >>> logits = torch.tensor([[[0.5, 0.5]], [[0.25, 0.75]]]).log()
    >>> kl_matrix(Prediction.from_logits(logits))
    tensor([[0.0000, 0.1438],
            [0.1308, 0.0000]], dtype=torch.float64)
    """
    sums = pair_sums(prediction)
    return sums.kl / sums.items


def kl_divergence(prediction: Prediction, *, both: bool = False) -> float:
    """The mean KL(p_i, p_j) over pairs i < j in that direction, or in ``both``.

    **Shape**: prediction of ``[members, batch, classes, ...]``.

    >>> members = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]])
    >>> prediction = Prediction.from_logits(members.log().unsqueeze(1))
    >>> round(kl_divergence(prediction), 5), round(kl_divergence(prediction, both=True), 5)
    (0.40101, 0.38463)
    """
    matrix = kl_matrix(prediction)
    return _mean_of_pairs((matrix + matrix.T) / 2 if both else matrix)


def q_statistic(prediction: Prediction, labels: Tensor) -> float:
    """Yule's Q of being right, mean over pairs: 1 for members that fail together, 0 independent, -1 opposite.

    Pairs whose Q is 0 / 0 (a member without errors, say) are left out; NaN where none remains.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 2.0]], [[0.0, 2.0], [2.0, 0.0]]])
    >>> q_statistic(Prediction.from_logits(logits), torch.tensor([0, 0]))
    -1.0
    """
    return _q(pair_sums(prediction, labels))


def diversity(prediction: Prediction, labels: Tensor | None = None) -> dict[str, float]:
    """Every measure of diversity; those that need labels only where there are some.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> members = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]])
    >>> found = diversity(Prediction.from_logits(members.log().unsqueeze(1)))
    >>> {name: round(value, 5) for name, value in found.items()}
    {'disagreement': 0.5, 'kl': 0.40101, 'kl_both': 0.38463, 'mutual_information': 0.12699}
    """
    return diversity_of_sums(pair_sums(prediction, labels))


def diversity_of_sums(sums: PairSums) -> dict[str, float]:
    """What :func:`diversity` gives, from the sums of one batch or of many.

    >>> zeros = torch.zeros(2, 2, dtype=torch.float64)
    >>> diversity_of_sums(PairSums(1, zeros, zeros, 0.0))
    {'disagreement': 0.0, 'kl': 0.0, 'kl_both': 0.0, 'mutual_information': 0.0}
    """
    found = {
        "disagreement": _mean_of_pairs(sums.differ / sums.items),
        "kl": _mean_of_pairs(sums.kl / sums.items),
        "kl_both": _mean_of_pairs((sums.kl + sums.kl.T) / (2 * sums.items)),
        "mutual_information": sums.mutual_information / sums.items,
    }
    if sums.both_right is not None:
        found["normalised_disagreement"] = _normalised(sums, "member")
        found["normalised_disagreement_ensemble"] = _normalised(sums, "ensemble")
        found["q_statistic"] = _q(sums)
    return found


def _slice_sums(logits: Tensor, mixture: Tensor, labels: Tensor | None) -> PairSums:
    log_probs = logits.log_softmax(2)
    votes = log_probs.argmax(2)
    cross, kl = _cross_and_kl(log_probs.flatten(1))
    entropy = torch.special.entr(mixture.exp()).sum(dtype=torch.float64)
    # The diagonal of `cross` is -H(p_m). One member knows nothing that it does not know: exactly 0, no rounding.
    information = max(0.0, float(entropy + cross.diagonal().mean())) if len(logits) > 1 else 0.0
    both_right = ensemble_right = None
    if labels is not None:
        right = (votes == labels).flatten(1).double()
        both_right = right @ right.T
        ensemble_right = int((mixture.argmax(1) == labels).sum())
    return PairSums(
        items=votes[0].numel(),
        differ=_differ(votes.flatten(1)),
        kl=kl,
        mutual_information=information,
        both_right=both_right,
        ensemble_right=ensemble_right,
    )


def _differ(votes: Tensor) -> Tensor:
    """How many items differ between every two members, ``[members, items]`` to ``[members, members]``."""
    return torch.stack([(votes != own).sum(1) for own in votes]).double()


def _cross_and_kl(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """sum p_i log p_j and sum p_i (log p_i - log p_j), ``[members, numbers]`` to twice ``[members, members]``."""
    probs, absent = log_probs.exp(), log_probs.isneginf()
    log_probs = log_probs.masked_fill(absent, 0) if absent.any() else log_probs  # 0 log 0 = 0
    cross = probs.double() @ log_probs.double().T
    kl = (cross.diagonal().unsqueeze(1) - cross).clamp_min(0)
    if absent.any():
        kl[(probs > 0).double() @ absent.double().T > 0] = math.inf
    return cross, kl


def _mean_of_pairs(matrix: Tensor) -> float:
    """The mean above the diagonal; 0 for one member."""
    members = len(matrix)
    return float(matrix.triu(1).sum() / max(1, members * (members - 1) // 2))


def _normalised(sums: PairSums, by: str) -> float:
    assert sums.both_right is not None and sums.ensemble_right is not None
    if by == "ensemble":
        wrong = sums.items - sums.ensemble_right
        return _mean_of_pairs(sums.differ / wrong) if wrong else math.nan
    errors = sums.items - sums.both_right.diagonal()
    if (errors == 0).any():
        return math.nan
    shares = sums.differ / errors.unsqueeze(1)
    return _mean_of_pairs((shares + shares.T) / 2)


def _q(sums: PairSums) -> float:
    assert sums.both_right is not None
    both, own = sums.both_right, sums.both_right.diagonal()
    first, second = own.unsqueeze(1) - both, own - both  # only i right, only j right
    none = sums.items - both - first - second
    same, other = both * none, first * second
    q = ((same - other) / (same + other))[torch.ones_like(both).triu(1) > 0]
    return float(q.nanmean())
