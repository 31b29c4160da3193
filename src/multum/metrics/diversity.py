"""How differently members predict: all from sums over examples, which add up over batches.

    disagreement   d_ij = share of examples with argmax p_i != argmax p_j        mean over pairs i < j
    normalised     1/(M (M-1)) sum_(i != j) d_ij / (1 - accuracy_i)              or mean d_ij / (1 - ensemble accuracy)
    kl             mean over i < j of KL(p_i, p_j)                               kl_both: over all ordered pairs
    q_statistic    (N11 N00 - N01 N10) / (N11 N00 + N01 N10)                     of right and wrong, mean over i < j
    mutual_information   mean of H(p) - 1/M sum_m H(p_m)                         on test examples, and on OOD data

One member disagrees with nobody: everything is 0, and the Q-statistic, which has no pair to speak of, is NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import reduce
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from ..errors import MetricError
from ..outputs.prediction import Prediction
from .inputs import check_labels, check_prediction

SLICE = 2**22  # numbers in one slice of logits: 32 MB in float64, whatever the number of examples


@dataclass(frozen=True, eq=False)
class PairSums:
    """Everything diversity needs, summed over examples; ``+`` joins the sums of two batches.

    **Shape**: matrices ``[members, members]``, float64; both_right and ensemble_right are None without labels.
    """

    count: int  # of examples
    differ: Tensor  # examples with another predicted class
    kl_sums: Tensor  # sum of KL(p_i, p_j)
    information: float  # sum of the mutual information
    both_right: Tensor | None = None  # on the diagonal: the examples that a member gets right
    ensemble_right: int | None = None

    def __add__(self, other: PairSums) -> PairSums:
        if self.differ.shape != other.differ.shape or (self.both_right is None) != (other.both_right is None):
            raise MetricError(
                f"batches must come from one ensemble, all with labels or all without; got {len(self.differ)} and "
                f"{len(other.differ)} members, labels {self.both_right is not None} and {other.both_right is not None}"
            )
        both = ((getattr(self, part.name), getattr(other, part.name)) for part in fields(self))
        sums: list[Any] = [None if mine is None else mine + its for mine, its in both]
        return PairSums(*sums)

    @property
    def disagreement(self) -> float:
        """The mean of d_ij over pairs i < j."""
        return _mean_of_pairs(self.differ / self.count)

    @property
    def kl(self) -> float:
        """The mean KL(p_i, p_j) over pairs i < j, in that direction."""
        return _mean_of_pairs(self.kl_sums / self.count)

    @property
    def kl_both(self) -> float:
        """The mean KL(p_i, p_j) over all ordered pairs."""
        return _mean_of_pairs((self.kl_sums + self.kl_sums.T) / (2 * self.count))

    @property
    def mutual_information(self) -> float:
        """The mean of H(p) - 1/M sum_m H(p_m)."""
        return self.information / self.count

    @property
    def normalised_disagreement(self) -> float:
        """The mean over ordered pairs of d_ij / (1 - accuracy_i), as MixtureEnsembles writes it; NaN without errors.

        Disagreement per error, which independent members of low accuracy do not win by being wrong.
        """
        assert self.both_right is not None
        errors = self.count - self.both_right.diagonal()
        if (errors == 0).any():
            return math.nan
        shares = self.differ / errors.unsqueeze(1)
        return _mean_of_pairs((shares + shares.T) / 2)

    @property
    def normalised_disagreement_ensemble(self) -> float:
        """The mean over pairs of d_ij / (1 - accuracy of the ensemble), as MixtureEnsembles' code has it."""
        assert self.ensemble_right is not None
        wrong = self.count - self.ensemble_right
        return _mean_of_pairs(self.differ / wrong) if wrong else math.nan

    @property
    def q_statistic(self) -> float:
        """Yule's Q of being right, mean over pairs: 1 for members that fail together, 0 independent, -1 opposite.

        Pairs whose Q is 0 / 0 (a member without errors, say) are left out; NaN where none remains.
        """
        assert self.both_right is not None
        both, own = self.both_right, self.both_right.diagonal()
        first, second = own.unsqueeze(1) - both, own - both  # only i right, only j right
        neither = self.count - both - first - second
        same, other = both * neither, first * second
        q = ((same - other) / (same + other))[torch.ones_like(both).triu(1) > 0]
        return float(q.nanmean())


def pair_sums(prediction: Prediction, labels: Tensor | None = None) -> PairSums:
    """The sums over a prediction's examples, in slices of constant size.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> logits = torch.tensor([[[0.7, 0.3]], [[0.4, 0.6]]]).log()
    >>> pair_sums(Prediction.from_logits(logits), torch.tensor([0])).both_right
    tensor([[1., 0.],
            [0., 0.]], dtype=torch.float64)
    """
    check_prediction(prediction)
    if labels is not None:
        labels = check_labels(labels, prediction.logits[0])
    members = prediction.member_log_probs
    step = max(1, SLICE // max(1, members[:, :1].numel()))
    targets = repeat(None) if labels is None else labels.split(step)
    slices = zip(members.split(step, dim=1), prediction.log_probs.split(step), targets, strict=labels is not None)
    return reduce(PairSums.__add__, (_slice_sums(*rows) for rows in slices))


def disagreement_matrix(prediction: Prediction) -> Tensor:
    """d_ij, the share of examples for which members i and j predict different classes, ``[members, members]``.

    **Shape**: prediction of ``[members, batch, classes, ...]``.

    >>> logits = torch.tensor([[[0.7, 0.3]], [[0.4, 0.6]]]).log()
    >>> disagreement_matrix(Prediction.from_logits(logits))
    tensor([[0., 1.],
            [1., 0.]], dtype=torch.float64)
    """
    sums = pair_sums(prediction)
    return sums.differ / sums.count


def disagreement(prediction: Prediction) -> float:
    """The mean of d_ij over pairs i < j.

    **Shape**: prediction of ``[members, batch, classes, ...]``.

    >>> members = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]])
    >>> disagreement(Prediction.from_logits(members.log().unsqueeze(1)))
    0.5
    """
    return _mean_of_pairs(disagreement_matrix(prediction))


def _slice_sums(log_probs: Tensor, mixture: Tensor, labels: Tensor | None) -> PairSums:
    votes = log_probs.argmax(2)
    cross, kl = _cross_and_kl(log_probs.flatten(1))
    entropy = torch.special.entr(mixture.exp()).sum(dtype=torch.float64)
    # The diagonal of `cross` is -H(p_m). One member knows nothing that it does not know: exactly 0, no rounding.
    information = max(0.0, float(entropy + cross.diagonal().mean())) if len(log_probs) > 1 else 0.0
    both_right = ensemble_right = None
    if labels is not None:
        right = (votes == labels).flatten(1).double()
        both_right = right @ right.T
        ensemble_right = int((mixture.argmax(1) == labels).sum())
    votes = votes.flatten(1)
    differ = torch.stack([(votes != own).sum(1) for own in votes]).double()
    return PairSums(votes.shape[1], differ, kl, information, both_right, ensemble_right)


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
