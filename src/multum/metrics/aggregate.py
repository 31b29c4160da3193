"""All metrics of a prediction by name: of whole arrays at once, or batch by batch in memory that does not grow.

Both read `registry.METRICS`, and whole arrays are a stream of one batch. Sums suffice for accuracy, NLL, Brier, ECE and
diversity. What ranks all examples needs one number per example and score; :class:`Accumulator` holds on to these where
asked to, and never to the outputs themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..errors import MetricError
from ..outputs.prediction import Prediction, RegressionPrediction
from . import ood
from .calibration import ReliabilityCurve, curve_of_sums
from .classification import Classified
from .diversity import PairSums, pair_sums
from .inputs import check_labels, check_prediction, check_targets
from .registry import CLASSES, NUMBERS, Detection, Mean, Pairs, Sums, Whole, computed
from .regression import in_units

__all__ = [
    "Accumulator",
    "classification_metrics",
    "detection",
    "diversity_metrics",
    "per_member",
    "regression_metrics",
]

SLICE = 2**20  # numbers worked on at once: they stay in the cache, and memory does not grow with the examples
Table = dict[str, Tensor]  # by metric: of the ensemble and of each member, [1 + members], float64


def classification_metrics(prediction: Prediction, labels: Tensor, *, bins: int = 15) -> dict[str, float]:
    """Every metric of the ensemble, the mean of its members (``member_NAME``), and the gain (``gain_NAME``).

    gain = ensemble - mean member. It is never positive for nll and brier, which are convex in p.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> members = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]])
    >>> numbers = classification_metrics(Prediction.from_logits(members.log().unsqueeze(1)), torch.tensor([0]))
    >>> numbers["accuracy"], numbers["member_accuracy"], numbers["gain_accuracy"]
    (1.0, 0.75, 0.25)
    >>> round(numbers["nll"], 5), round(numbers["member_nll"], 5)
    (0.74444, 0.96581)
    """
    return _with_gains(_whole_table(prediction, labels, bins))


def per_member(prediction: Prediction, labels: Tensor, *, bins: int = 15) -> dict[str, Tensor]:
    """Every metric of every member alone, each ``[members]``, float64.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> logits = torch.tensor([[[0.7, 0.3]], [[0.4, 0.6]]]).log()
    >>> per_member(Prediction.from_logits(logits), torch.tensor([0]))["accuracy"]
    tensor([1., 0.], dtype=torch.float64)
    """
    table = _whole_table(prediction, labels, bins)
    return {key: values[1:] for key, values in table.items() if len(values) > 1}


def diversity_metrics(prediction: Prediction, labels: Tensor | None = None) -> dict[str, float]:
    """Every measure of diversity; those that need labels only where there are some.

    **Shape**: prediction of ``[members, batch, classes, ...]``; labels ``[batch, ...]``.

    >>> members = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]])
    >>> numbers = diversity_metrics(Prediction.from_logits(members.log().unsqueeze(1)))
    >>> {name: round(value, 5) for name, value in numbers.items()}
    {'disagreement': 0.5, 'kl': 0.40101, 'kl_both': 0.38463, 'mutual_information': 0.12699}
    """
    return _diversity(pair_sums(prediction, labels))


def regression_metrics(
    prediction: RegressionPrediction, targets: Tensor, *, mean: float = 0.0, std: float = 1.0
) -> dict[str, float]:
    """Every metric in the units of the targets; the network's own were standardised by ``mean`` and ``std``.

    ``member_NAME`` is the mean over members alone and ``gain_NAME`` the ensemble minus it; ``aleatoric`` and
    ``epistemic`` are mean variances; ``coverage_90`` and ``width_90`` those of the mixture's central 90 % interval.

    **Shape**: prediction of ``[members, batch, 2, ...]``; targets ``[batch, ...]``, in their original units.

    >>> standardised = RegressionPrediction(torch.tensor([[[1.0, 0.5]], [[3.0, 1.5]]]))
    >>> numbers = regression_metrics(standardised, torch.tensor([26.0]), mean=10.0, std=10.0)
    >>> round(numbers["rmse"], 6), round(numbers["aleatoric"], 6), round(numbers["epistemic"], 6)
    (4.0, 100.0, 100.0)
    """
    prediction = in_units(prediction, mean=mean, std=std)
    check_targets(targets, prediction.mean)
    alone = [RegressionPrediction(member.unsqueeze(0)) for member in prediction.members]
    table: Table = {}
    for metric, how in computed(NUMBERS, Mean, Whole):
        rows = [prediction, *(alone if metric.of_members else ())]
        if isinstance(how, Mean):
            values = [how.then(float(how.values(row, targets).double().mean())) for row in rows]
        else:
            values = [how.of(row, targets) for row in rows]
        table[metric.key] = torch.tensor(values, dtype=torch.float64)
    return _with_gains(table)


def detection(
    inside: Mapping[str, Tensor], outside: Mapping[str, Mapping[str, Tensor]]
) -> dict[str, dict[str, dict[str, float]]]:
    """AUROC, AUPR and FPR95 of every score on every OOD set: ``detection(...)[set][score]["auroc"]``.

    **Shape**: inside as :func:`multum.metrics.scores` gives it; outside the same for each set by name.

    >>> inside = {"msp": torch.tensor([0.1, 0.2])}
    >>> detection(inside, {"svhn": {"msp": torch.tensor([0.3])}, "noise": {"msp": torch.tensor([0.0])}})["svhn"]
    {'msp': {'auroc': 1.0, 'aupr': 1.0, 'fpr95': 0.0}}
    """
    if not outside:
        raise MetricError("detection needs at least one OOD set; got none")
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, scores in outside.items():
        if scores.keys() != inside.keys():
            raise MetricError(
                f"every set must have the same scores; got {sorted(scores)} for {name}, {sorted(inside)} for the "
                "test examples"
            )
        table[name] = {}
        for score, known in inside.items():
            hits = ood.hits(known, scores[score], f"{score} of {name}")
            table[name][score] = {metric.key: how.of(*hits) for metric, how in computed(CLASSES, Detection)}
    return table


class Accumulator:
    """Sums over batches: the same numbers as `classification_metrics` and `diversity_metrics` on all examples at once.

    ``keep`` holds on to each example's scores, confidences, hits and losses, for the metrics that rank all examples and
    for paired tests: 38 + 5 M bytes per example for M members in float32. Without labels (OOD data) only diversity and
    scores come out.

    >>> accumulator = Accumulator()
    >>> accumulator.add(torch.eye(3).expand(2, 3, 3), torch.arange(3))
    >>> accumulator.add(torch.zeros(2, 1, 3), torch.tensor([2]))
    >>> numbers = accumulator.compute()
    >>> accumulator.count, numbers["accuracy"], numbers["disagreement"]
    (4, 0.75, 0.0)
    """

    def __init__(self, *, bins: int = 15, keep: bool = False):
        self.bins = bins
        self.keep = keep
        self._pairs: PairSums | None = None
        self._sums: dict[str, Tensor] | None = None
        self._kept: list[dict[str, Tensor]] = []

    @property
    def count(self) -> int:
        """How many examples have been added."""
        return 0 if self._pairs is None else self._pairs.count

    def add(self, outputs: Tensor | Prediction, labels: Tensor | None = None) -> None:
        """Take one batch; where it is refused, nothing has changed.

        **Shape**: outputs ``[members, batch, classes, ...]``; labels ``[batch, ...]``, always or never.
        """
        prediction = outputs if isinstance(outputs, Prediction) else Prediction.from_logits(outputs)
        pairs = pair_sums(prediction, labels)
        pairs = pairs if self._pairs is None else self._pairs + pairs
        sums = self._sums
        kept: dict[str, Tensor] = {}
        if labels is not None:
            batch, kept = _batch(prediction, labels, self.bins)
            sums = batch if sums is None else {key: sums[key] + batch[key] for key in sums}
        if self.keep:
            kept |= {f"score {name}": score.flatten() for name, score in ood.scores(prediction).items()}
            self._kept.append({name: values.cpu() for name, values in kept.items()})
        self._pairs, self._sums = pairs, sums

    def compute(self) -> dict[str, float]:
        """Everything measured so far by name: `classification_metrics` (with labels), then `diversity_metrics`."""
        pairs = self._added()
        numbers: dict[str, float] = {}
        if self._sums is not None:
            kept = {name: self._all(name) for name in ("confidence", "correct")} if self.keep else None
            numbers = _with_gains(_table(self._sums, kept, self.count, self.bins))
        return numbers | _diversity(pairs)

    def scores(self) -> dict[str, Tensor]:
        """Every example's scores by name, as :func:`multum.metrics.scores` gives them, for `detection`."""
        self._check_kept("scores")
        return {name: self._all(f"score {name}") for name in ood.SCORES}

    def confidence_and_correct(self) -> tuple[Tensor, Tensor]:
        """Every example's confidence and whether it is right, for curves: ``[examples]`` each."""
        self._check_kept("confidences")
        self._labelled()
        return self._all("confidence")[0], self._all("correct")[0]

    def example_values(self) -> dict[str, Tensor]:
        """What each example contributes to the ensemble's accuracy, NLL, ..., for paired tests: ``[examples]`` each."""
        self._check_kept("values")
        self._labelled()
        return {m.key: self._all(f"value {m.key}") for m, _ in computed(CLASSES, Mean) if m.per_example}

    def reliability(self) -> ReliabilityCurve:
        """The ensemble's reliability diagram, from sums alone."""
        return curve_of_sums(self._labelled()["ece"][0])

    def disagreement_matrix(self) -> Tensor:
        """d_ij, the share of examples for which members i and j differ, ``[members, members]``."""
        pairs = self._added()
        return pairs.differ / pairs.count

    def _added(self) -> PairSums:
        if self._pairs is None:
            raise MetricError("an accumulator must be given a batch before it computes; got none. Call add first")
        return self._pairs

    def _labelled(self) -> dict[str, Tensor]:
        if self._sums is None:
            raise MetricError("labels must be added to tell which examples are right; got none")
        return self._sums

    def _all(self, name: str) -> Tensor:
        return torch.cat([kept[name] for kept in self._kept], dim=-1)

    def _check_kept(self, what: str) -> None:
        if not self.keep or not self._kept:
            raise MetricError(
                f"{what} of all examples need keep=True and at least one batch; got keep={self.keep}, "
                f"{self.count} examples. Use Accumulator(keep=True)"
            )


def _whole_table(prediction: Prediction, labels: Tensor, bins: int) -> Table:
    check_prediction(prediction)
    sums, kept = _batch(prediction, labels, bins)
    return _table(sums, kept, kept["correct"].shape[1], bins)


def _batch(prediction: Prediction, labels: Tensor, bins: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What adds up over batches, by metric ``[1 + members, ...]``, and what each example contributes."""
    labels = check_labels(labels, prediction.logits[0])
    sums: dict[str, list[Tensor]] = {}
    kept: dict[str, Tensor] = {}
    confidences: list[Tensor] = []
    corrects: list[Tensor] = []
    for log_probs in (prediction.log_probs, *(z.log_softmax(1) for z in prediction.logits)):
        confidence, correct, values = _example_values(log_probs, labels)
        for metric, how in computed(CLASSES, Mean, Sums):
            own = values[metric.key] if isinstance(how, Mean) else None
            total = own.double().sum() if own is not None else how.sums(confidence, correct, bins)
            sums.setdefault(metric.key, []).append(total.cpu())
            if own is not None and metric.per_example and not confidences:  # the ensemble itself
                kept[f"value {metric.key}"] = own
        confidences.append(confidence)
        corrects.append(correct)
    kept |= {"confidence": torch.stack(confidences), "correct": torch.stack(corrects)}
    return {key: torch.stack(rows) for key, rows in sums.items()}, kept


def _example_values(log_probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Confidence, whether it is right, and the value of every `Mean`, of each example; slice by slice."""
    step = max(1, SLICE // max(1, log_probs[:1].numel()))
    slices = (Classified(*rows) for rows in zip(log_probs.split(step), labels.split(step), strict=True))
    means = list(computed(CLASSES, Mean))
    parts = [(s.confidence, s.correct, *(how.values(s) for _, how in means)) for s in slices]
    confidence, correct, *values = (torch.cat(rows).flatten() for rows in zip(*parts, strict=True))
    return confidence, correct, {metric.key: own for (metric, _), own in zip(means, values, strict=True)}


def _table(sums: Mapping[str, Tensor], kept: Mapping[str, Tensor] | None, count: int, bins: int) -> Table:
    table: Table = {}
    for metric, how in computed(CLASSES, Mean, Sums, Whole):
        if isinstance(how, Mean):
            values = [how.then(mean) for mean in (sums[metric.key] / count).tolist()]
        elif isinstance(how, Sums):
            values = [how.then(row) for row in sums[metric.key]]
        elif kept is not None:
            values = [how.of(*row, bins) for row in zip(kept["confidence"], kept["correct"], strict=True)]
        else:
            continue
        table[metric.key] = torch.tensor(values[: None if metric.of_members else 1], dtype=torch.float64)
    return table


def _with_gains(table: Table) -> dict[str, float]:
    """The ensemble's metrics, the members' means and the differences; members follow the ensemble in each row."""
    ensemble = {key: float(values[0]) for key, values in table.items()}
    means = {key: float(values[1:].mean()) for key, values in table.items() if len(values) > 1}
    return {
        **ensemble,
        **{f"member_{key}": mean for key, mean in means.items()},
        **{f"gain_{key}": ensemble[key] - mean for key, mean in means.items()},
    }


def _diversity(sums: PairSums) -> dict[str, float]:
    labelled = sums.both_right is not None
    return {metric.key: how.of(sums) for metric, how in computed(CLASSES, Pairs) if labelled or not how.labels}
