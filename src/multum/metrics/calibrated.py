"""The metrics of an ensemble after calibration, and of fewer of its members, on examples that stream by.

With a validation part the temperature is known before the test part streams, and nothing is kept of its outputs.
Without one, the test part itself is cross-validated, and its outputs are kept where they are at most `KEPT` numbers (64
MB in float32); of more, a seeded sample is kept to fit the temperatures, and the test part streams a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..outputs.prediction import Prediction, RegressionPrediction
from .classification import Classified
from .computations import Calibrated, Mean, Sums
from .registry import CLASSES, NUMBERS, Metric, computed, metric_of
from .temperatures import Temperatures, flat, fold_ids, nll_of_sizes, sampled, scaled

KEPT = 2**24  # outputs of a test part that are kept to cross-validate it
BINS = 15

Batch = tuple[slice, Tensor, Tensor]  # which examples, their logits [members, batch, classes, ...], their labels


class CalibratedStream:
    """Sums over the batches of a classification's test part; `held_out` has logits and labels, or is None."""

    def __init__(self, members: int, examples: int, held_out: tuple[Tensor, Tensor] | None, seed: int):
        self.sizes = range(1, members + 1)
        self.examples, self.seed = examples, seed
        self.temperatures: Temperatures | None = None
        if held_out is not None:
            self.temperatures = Temperatures.on_held_out(*flat(*held_out), CLASSES, self.sizes)
        self._metrics: list[tuple[Metric, Any]] = []
        for metric, how in computed(CLASSES, Calibrated):
            self._metrics.append((metric, metric_of(CLASSES, how.of).of))
        self._totals: dict[str, Tensor] = {}
        self._values: dict[str, list[Tensor]] = {}
        self._of_sizes = torch.zeros(members, dtype=torch.float64)
        self._count = 0
        self._waiting: list[Batch] = []
        self._at = torch.arange(0)

    def add(self, rows: slice, logits: Tensor, labels: Tensor) -> None:
        """Take a batch of the test part: count it, or keep what a temperature will be fitted on."""
        if self.temperatures is not None:
            self._sum(rows, *flat(logits, labels))
            return
        if not self._waiting:
            self._at = sampled(self.examples, logits[:, :1].numel(), KEPT)
        if len(self._at) == self.examples:
            self._waiting.append((rows, logits.cpu(), labels))
            return
        chosen = self._at[(self._at >= rows.start) & (self._at < rows.stop)] - rows.start
        self._waiting.append((rows, logits[:, chosen.to(logits.device)].cpu(), labels[chosen]))

    def finish(self, again: Callable[[], Iterator[Batch]]) -> None:
        """Where nothing was held out: fit on what was kept, and count the batches, kept or `again`."""
        if self.temperatures is not None:
            return
        logits, labels = (torch.cat(parts, axis) for parts, axis in zip(self._kept(), (1, 0), strict=True))
        positions = labels[:1].numel()
        folds = fold_ids(self.examples, self.seed, positions)
        at = (self._at.unsqueeze(1) * positions + torch.arange(positions)).flatten()
        self.temperatures = Temperatures.cross_validated(*flat(logits, labels), CLASSES, self.sizes, folds, at)
        for rows, *batch in self._waiting if len(self._at) == self.examples else again():
            self._sum(rows, *flat(*batch))
        self._waiting = []

    def numbers(self) -> dict[str, Any]:
        assert self.temperatures is not None
        table: dict[str, Any] = {}
        for metric, how in self._metrics:
            total = self._totals[metric.key]
            table[metric.key] = how.then(float(total) / self._count if isinstance(how, Mean) else total)
        return table | {"temperature": self.temperatures.temperature, "calibrated_by": self.temperatures.by}

    def example_values(self) -> dict[str, Tensor]:
        """What each example contributes to the metrics that are kept per example: ``[examples]`` each."""
        return {key: torch.cat(values) for key, values in self._values.items()}

    def by_members(self) -> dict[str, Any]:
        """The calibrated NLL of so many of the members, for `curves`."""
        return curve_of_sizes(self.sizes, self._of_sizes / self._count)

    def _kept(self) -> tuple[list[Tensor], list[Tensor]]:
        return [logits for _, logits, _ in self._waiting], [labels for _, _, labels in self._waiting]

    def _sum(self, rows: slice, logits: Tensor, labels: Tensor) -> None:
        """Count one batch, as `flat` gives it."""
        assert self.temperatures is not None
        positions = len(labels) // (rows.stop - rows.start)
        factors = self.temperatures.of(slice(rows.start * positions, rows.stop * positions)).to(logits.device)
        labels = labels.to(logits.device)
        examples = Classified(Prediction(logits.double() / factors[-1].unsqueeze(-1)).log_probs, labels.long())
        for metric, how in self._metrics:
            if isinstance(how, Mean):
                values = how.values(examples)
                total = values.double().sum().cpu()
                if metric.per_example:
                    self._values.setdefault(metric.key, []).append(values.float().cpu())
            else:
                assert isinstance(how, Sums)
                total = how.sums(examples.confidence, examples.correct, BINS).cpu()
            self._totals[metric.key] = self._totals.get(metric.key, 0) + total
        for k, factor in enumerate(factors):
            likelihoods = scaled(logits, labels, factor, CLASSES)
            self._of_sizes[k] += nll_of_sizes(likelihoods, [self.sizes[k]]).sum().cpu()
        self._count += len(labels)


def calibrated_regression(
    members: Tensor, targets: Tensor, held_out: tuple[Tensor, Tensor] | None, seed: int
) -> tuple[dict[str, Any], dict[str, Tensor], Tensor]:
    """The numbers of one target, the values of each example, and the NLL of so many of the members ``[members]``.

    **Shape**: members ``[members, examples, 2]``, means and variances in the target's units; targets ``[examples]``.
    """
    sizes = range(1, len(members) + 1)
    if held_out is None:
        folds = fold_ids(len(targets), seed)
        temperatures = Temperatures.cross_validated(members, targets, NUMBERS, sizes, folds)
    else:
        temperatures = Temperatures.on_held_out(*held_out, NUMBERS, sizes)
    factors = temperatures.of()
    spread = torch.stack([torch.ones_like(factors[-1]), factors[-1].square()], dim=-1)  # of means and of variances
    prediction = RegressionPrediction(members.double() * spread)
    numbers: dict[str, Any] = {}
    examples: dict[str, Tensor] = {}
    for metric, how in computed(NUMBERS, Calibrated):
        base = metric_of(NUMBERS, how.of).of
        assert isinstance(base, Mean)
        values = base.values(prediction, targets)
        numbers[metric.key] = base.then(float(values.double().mean()))
        if metric.per_example:
            examples[metric.key] = values
    rows = zip(sizes, factors, strict=True)
    nll = [nll_of_sizes(scaled(members, targets, factor, NUMBERS), [size]).mean() for size, factor in rows]
    return (
        numbers | {"temperature": temperatures.temperature, "calibrated_by": temperatures.by},
        examples,
        torch.stack(nll),
    )


def curve_of_sizes(sizes: Sequence[int], nll: Tensor) -> dict[str, Any]:
    """As `curves` hold it; empty for one member."""
    return {"by_members": {"members": list(sizes), "nll": nll.tolist()}} if len(sizes) > 1 else {}
