"""Metrics of outputs that arrive batch by batch, in memory that does not grow with the number of items.

Sums suffice for accuracy, NLL, Brier, ECE and every measure of diversity. What ranks all items (`NEEDS_ALL_ITEMS`)
needs one number per item and score; :class:`Accumulator` keeps these where asked to, and never the outputs themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import MetricError
from ..outputs.prediction import Prediction
from . import ood
from .classification import METRICS, check_prediction, measure_items, with_gains
from .diversity import PairSums, diversity_of_sums, pair_sums
from .inputs import check_labels
from .reliability import ReliabilityCurve, adaptive_ece, bin_sums, curve_of_sums, ece_of_sums
from .selective import aurc

__all__ = ["NEEDS_ALL_ITEMS", "Accumulator"]

NEEDS_ALL_ITEMS = ("adaptive_ece", "aupr", "aurc", "auroc", "fpr95")


class Accumulator:
    """Sums over batches that give the same numbers as `classification` and `diversity` on all items at once.

    ``keep`` holds on to each item's scores, confidences, hits and losses, for the metrics of `NEEDS_ALL_ITEMS` and for
    paired tests: 37 + 5 M bytes per item for M members in float32. Without labels (a foreign set) only diversity and
    scores come out.

    >>> accumulator = Accumulator()
    >>> accumulator.add(torch.eye(3).expand(2, 3, 3), torch.arange(3))
    >>> accumulator.add(torch.zeros(2, 1, 3), torch.tensor([2]))
    >>> found = accumulator.compute()
    >>> accumulator.items, found["accuracy"], found["disagreement"]
    (4, 0.75, 0.0)
    """

    def __init__(self, *, bins: int = 15, keep: bool = False):
        self.bins = bins
        self.keep = keep
        self._pairs: PairSums | None = None
        self._sums: _Sums | None = None
        self._kept: list[dict[str, Tensor]] = []

    @property
    def items(self) -> int:
        """How many items have been added."""
        return 0 if self._pairs is None else self._pairs.items

    def add(self, outputs: Tensor | Prediction, labels: Tensor | None = None) -> None:
        """Take one batch; where it is refused, nothing has changed.

        **Shape**: outputs ``[members, batch, classes, ...]``; labels ``[batch, ...]``, always or never.
        """
        prediction = outputs if isinstance(outputs, Prediction) else Prediction.from_logits(outputs)
        check_prediction(prediction)
        pairs = pair_sums(prediction, labels)
        pairs = pairs if self._pairs is None else self._pairs + pairs
        kept: dict[str, Tensor] = {}
        sums = self._sums
        if labels is not None:
            batch = _batch_sums(prediction, check_labels(labels, prediction.logits[0]), self.bins, kept)
            sums = batch if sums is None else sums + batch
        if self.keep:
            kept |= {f"score {name}": score.flatten() for name, score in ood.scores(prediction).items()}
            self._kept.append({name: values.cpu() for name, values in kept.items()})
        self._pairs, self._sums = pairs, sums

    def compute(self) -> dict[str, float]:
        """Everything measured so far by name: `classification`'s table (with labels), then `diversity`'s."""
        if self._pairs is None:
            raise MetricError("an accumulator computes what was added to it, however: nothing was. Call add first")
        found: dict[str, float] = {}
        if self._sums is not None:
            table = self._table(self._sums)
            ensemble = {name: float(values[0]) for name, values in table.items()}
            found = with_gains(ensemble, {name: values[1:] for name, values in table.items()})
        return found | diversity_of_sums(self._pairs)

    def scores(self) -> dict[str, Tensor]:
        """Every item's scores by name, as :func:`multum.metrics.ood.scores` gives them, for `detection`."""
        self._check_kept("scores")
        return {name: self._all(f"score {name}") for name in ood.SCORES}

    def confidence_and_correct(self) -> tuple[Tensor, Tensor]:
        """Every item's confidence and whether it is right, for curves: ``[items]`` each."""
        self._check_kept("confidences")
        if self._sums is None:
            raise MetricError("whether items are right needs labels, however: none were added")
        return self._all("confidence")[0], self._all("correct")[0]

    def item_values(self) -> dict[str, Tensor]:
        """What each item contributes to the ensemble's accuracy, nll and brier, for paired tests: ``[items]`` each."""
        correct = self.confidence_and_correct()[1]
        return {"accuracy": correct, "nll": self._all("nll"), "brier": self._all("brier")}

    def reliability(self) -> ReliabilityCurve:
        """The ensemble's reliability diagram, from sums alone."""
        if self._sums is None:
            raise MetricError("whether items are right needs labels, however: none were added")
        return curve_of_sums(self._sums.bins[0])

    def disagreement_matrix(self) -> Tensor:
        """d_ij, the share of items for which members i and j differ, ``[members, members]``."""
        if self._pairs is None:
            raise MetricError("an accumulator computes what was added to it, however: nothing was. Call add first")
        return self._pairs.differ / self._pairs.items

    def _table(self, sums: _Sums) -> dict[str, Tensor]:
        """Every metric of the ensemble and its members, ``[1 + members]``."""
        table = {
            "accuracy": sums.right / self.items,
            "nll": sums.nll / self.items,
            "brier": sums.brier / self.items,
            "ece": torch.tensor([ece_of_sums(row) for row in sums.bins], dtype=torch.float64),
        }
        if self.keep:
            rows = list(zip(self._all("confidence"), self._all("correct"), strict=True))
            table["adaptive_ece"] = torch.tensor(
                [adaptive_ece(*row, bins=self.bins) for row in rows], dtype=torch.float64
            )
            table["aurc"] = torch.tensor([aurc(*row) for row in rows], dtype=torch.float64)
        return {name: table[name] for name in METRICS if name in table}

    def _all(self, name: str) -> Tensor:
        return torch.cat([kept[name] for kept in self._kept], dim=-1)

    def _check_kept(self, what: str) -> None:
        if not self.keep or not self._kept:
            raise MetricError(
                f"{what} of all items are there where keep=True and something was added, however: keep={self.keep}, "
                f"{self.items} items. Use Accumulator(keep=True)"
            )


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over items of the ensemble and each member, ``[1 + members]``; bins ``[1 + members, 3, bins]``; float64."""

    right: Tensor
    nll: Tensor
    brier: Tensor
    bins: Tensor

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(self.right + other.right, self.nll + other.nll, self.brier + other.brier, self.bins + other.bins)


def _batch_sums(prediction: Prediction, labels: Tensor, bins: int, kept: dict[str, Tensor]) -> _Sums:
    rows: list[list[float]] = []
    confidences, corrects = [], []
    for log_probs in (prediction.log_probs, *(z.log_softmax(1) for z in prediction.logits)):
        items = measure_items(log_probs, labels)
        if not rows:  # the ensemble itself
            kept |= {"nll": items.nll.flatten(), "brier": items.brier.flatten()}
        rows.append([float(values.double().sum()) for values in (items.correct, items.nll, items.brier)])
        confidences.append(items.confidence.flatten())
        corrects.append(items.correct.flatten())
    kept |= {"confidence": torch.stack(confidences), "correct": torch.stack(corrects)}
    right, nll, brier = torch.tensor(rows, dtype=torch.float64).unbind(1)
    binned = [bin_sums(a, b, bins=bins).cpu() for a, b in zip(confidences, corrects, strict=True)]
    return _Sums(right, nll, brier, torch.stack(binned))
