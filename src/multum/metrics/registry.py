"""Every metric, once: what it means, in which unit, which end is the good one, and how it is computed.

`multum.evaluate`, tables of whole arrays, sums over batches, the columns of a comparison and the documentation all read
`METRICS`. A new metric is one entry there.

How a metric is computed says what a stream must hold on to:

    Mean        the mean of a value per example               a sum
    Sums        a function of sums over examples              these sums
    Whole       of all examples at once (rankings, say)       a confidence and a hit per example
    Pairs       of sums over pairs of members                 `PairSums`
    Detection   of the ranking of test and OOD examples       one score per example
    Shifted     another metric on corrupted examples          nothing of its own
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

from ..outputs.prediction import RegressionPrediction
from . import ood, regression
from .calibration import adaptive_ece, bin_sums, ece_of_sums
from .classification import example_brier, example_nll
from .diversity import PairSums
from .selective import aurc

__all__ = ["METRICS", "Detection", "Mean", "Metric", "Pairs", "Shifted", "Sums", "Whole", "catalogue", "computed"]


@dataclass(frozen=True)
class Mean:
    """The mean over examples of `values`: of a `Classified`, or of a regression's prediction and targets."""

    values: Callable[..., Tensor]  # [batch, ...]
    then: Callable[[float], float] = float  # from the mean to the metric


@dataclass(frozen=True)
class Sums:
    """`then` of sums over examples: `sums` takes confidences, hits and the number of bins."""

    sums: Callable[[Tensor, Tensor, int], Tensor]
    then: Callable[[Tensor], float]


@dataclass(frozen=True)
class Whole:
    """Of all examples at once: confidences, hits and the number of bins; or a regression's prediction and targets."""

    of: Callable[..., float]


@dataclass(frozen=True)
class Pairs:
    """Of the sums over pairs of members."""

    of: Callable[[PairSums], float]
    labels: bool = False  # whether it needs labels


@dataclass(frozen=True)
class Detection:
    """How well a score ranks OOD examples above test examples, from `ood.hits`."""

    of: Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Shifted:
    """The mean of another metric over corruptions and severities."""

    of: str


Computation: TypeAlias = Mean | Sums | Whole | Pairs | Detection | Shifted


@dataclass(frozen=True)
class Metric:
    """One metric; `unit` is "%" for shares, "count", "ms", "s", or "" for plain numbers.

    >>> toy = Metric("margin", "margin", "", "higher", "quality", "mean probability of the label", CLASSES)
    >>> toy.described()["title"]
    'margin'
    """

    key: str
    title: str
    unit: str
    better: str | None  # "higher", "lower", or None where neither is
    group: str
    help: str
    task: str | None = None  # None: of both tasks
    of: Computation | None = None  # None: derived from others, or measured elsewhere
    per_example: bool = False  # kept for every test example, so that two methods can be compared example by example
    of_members: bool = True  # a Mean, Sums or Whole: also of each member alone, with the gain of the ensemble
    column: bool = True  # whether a comparison shows it
    read: Callable[[Mapping[str, Any]], float | None] | None = None  # from a cell's result; None: its number `key`

    def described(self) -> dict[str, Any]:
        """What a person is told about it, as plain data."""
        return {name: getattr(self, name) for name in ("key", "title", "unit", "better", "group", "help")}

    def value(self, result: Mapping[str, Any]) -> float | None:
        """Its value in the result of one cell; None where it was not measured."""
        return self.read(result) if self.read is not None else result["numbers"].get(self.key)


def catalogue() -> list[dict[str, Any]]:
    """All metrics as plain data, for documentation and tables: key, title, unit, better, group, help and task.

    >>> [row["key"] for row in catalogue()][:3]
    ['accuracy', 'rmse', 'nll']
    """
    return [{**metric.described(), "task": metric.task} for metric in METRICS]


def computed(task: str, *kinds: type) -> Iterator[tuple[Metric, Any]]:
    """The metrics of a task that are computed in one of these ways, with their computations.

    >>> [metric.key for metric, _ in computed("classification", Shifted)]
    ['cacc', 'cnll', 'cece']
    """
    return ((metric, metric.of) for metric in METRICS if metric.task in (None, task) and isinstance(metric.of, kinds))


def _over_ood_sets(key: str) -> Callable[[Mapping[str, Any]], float | None]:
    """The mean over OOD sets, of the score that everybody reports."""

    def read(result: Mapping[str, Any]) -> float | None:
        cells = [scores["msp"][key] for scores in result["numbers"].get("ood", {}).values()]
        return sum(cells) / len(cells) if cells else None

    return read


def _epistemic_share(result: Mapping[str, Any]) -> float | None:
    numbers = result["numbers"]
    total = numbers.get("epistemic", 0.0) + numbers.get("aleatoric", 0.0)
    return numbers["epistemic"] / total if total else None


def _coverage(level: float) -> Mean:
    def values(prediction: RegressionPrediction, targets: Tensor) -> Tensor:
        low, high = prediction.interval(level)
        return (low <= targets) & (targets <= high)

    return Mean(values)


def _width(level: float) -> Mean:
    def values(prediction: RegressionPrediction, targets: Tensor) -> Tensor:
        low, high = prediction.interval(level)
        return high - low

    return Mean(values)


CLASSES, NUMBERS = "classification", "regression"
_NLL = ("nll", "NLL", "", "lower", "quality", "negative log-likelihood per test example, in nats")
_NUMBERS: dict[str, Any] = {"task": NUMBERS, "of_members": False}  # of the mixture alone
_HIDDEN: dict[str, Any] = {"column": False}  # measured, and in no table of a comparison

METRICS: tuple[Metric, ...] = (
    # -- quality
    Metric(
        *("accuracy", "accuracy", "%", "higher", "quality", "share of test examples that are right", CLASSES),
        of=Mean(lambda examples: examples.correct),
        per_example=True,
    ),
    Metric(
        *("rmse", "RMSE", "", "lower", "quality", "root mean squared error, in the target's units", NUMBERS),
        of=Mean(lambda prediction, targets: (prediction.mean - targets).square(), math.sqrt),
        per_example=True,
    ),
    Metric(*_NLL, CLASSES, Mean(lambda examples: example_nll(examples.log_probs, examples.labels)), per_example=True),
    Metric(*_NLL, NUMBERS, Mean(regression.example_nll), per_example=True),
    Metric(
        *("ece", "ECE", "%", "lower", "quality", "gap between confidence and accuracy, 15 bins", CLASSES),
        of=Sums(lambda confidence, correct, bins: bin_sums(confidence, correct, bins=bins), ece_of_sums),
    ),
    Metric(
        *("brier", "Brier", "", "lower", "quality", "squared error of the probabilities, 0 to 2", CLASSES),
        of=Mean(lambda examples: example_brier(examples.probs, examples.labels)),
        per_example=True,
    ),
    Metric(
        *("adaptive_ece", "adaptive ECE", "%", "lower", "quality", "ECE over 15 bins of equally many examples"),
        task=CLASSES,
        of=Whole(lambda confidence, correct, bins: adaptive_ece(confidence, correct, bins=bins)),
        **_HIDDEN,
    ),
    Metric(
        *("aurc", "AURC", "%", "lower", "quality", "risk of answering the surest examples, over all coverages"),
        task=CLASSES,
        of=Whole(lambda confidence, correct, bins: aurc(confidence, correct)),
    ),
    Metric(
        *("nll_moments", "NLL of moments", "", "lower", "quality", "NLL of one Gaussian with the mixture's moments"),
        of=Mean(lambda prediction, targets: regression.example_nll(prediction, targets, of="moments")),
        **_NUMBERS | _HIDDEN,
    ),
    *(
        metric
        for level in (50, 90, 95)
        for metric in (
            Metric(
                *(f"coverage_{level}", "coverage", "%", None, "quality", f"targets inside their {level} % interval"),
                of=_coverage(level / 100),
                column=level == 95,
                **_NUMBERS,
            ),
            Metric(
                *(f"width_{level}", "width", "", "lower", "quality", f"mean width of the {level} % intervals"),
                of=_width(level / 100),
                column=level == 95,
                **_NUMBERS,
            ),
        )
    ),
    Metric(
        *("quantile_error", "quantile error", "%", "lower", "quality", "gap of predicted quantiles"),
        of=Whole(lambda prediction, targets: regression.quantile_curve(prediction, targets).error),
        **_NUMBERS,
    ),
    Metric("gain_nll", "gain", "", "lower", "quality", "NLL of the ensemble minus the mean NLL of its members"),
    # -- cost, measured by `multum.cost`, `compare_speed` and the training itself
    Metric(
        *("params", "parameters", "count", "lower", "cost", "numbers that are stored"),
        read=lambda result: result["cost"]["params"],
    ),
    Metric(
        *("macs", "mult-adds", "count", "lower", "cost", "multiply-adds of one prediction of all members"),
        read=lambda result: result["cost"]["macs"],
    ),
    Metric("latency", "latency", "ms", "lower", "cost", "time of one prediction of all members, batch of 1"),
    Metric(
        *("train_seconds", "training", "s", "lower", "cost", "seconds of training"),
        read=lambda result: result["seconds"]["training"],
    ),
    # -- OOD data
    Metric(
        *("auroc", "AUROC", "%", "higher", "OOD data", "how often an OOD example scores above a test example", CLASSES),
        of=Detection(ood.auroc_of_hits),
        read=_over_ood_sets("auroc"),
    ),
    Metric(
        *("aupr", "AUPR", "%", "higher", "OOD data", "average precision of finding OOD examples", CLASSES),
        of=Detection(ood.aupr_of_hits),
        read=_over_ood_sets("aupr"),
    ),
    Metric(
        *("fpr95", "FPR95", "%", "lower", "OOD data", "test examples refused to find 95 % of the OOD ones", CLASSES),
        of=Detection(ood.fpr_of_hits),
        read=_over_ood_sets("fpr95"),
    ),
    # -- distribution shift
    Metric(
        *("cacc", "cAcc", "%", "higher", "shift", "accuracy on corrupted images, mean over kinds", CLASSES),
        of=Shifted("accuracy"),
    ),
    Metric("cnll", "cNLL", "", "lower", "shift", "NLL on corrupted images", CLASSES, Shifted("nll")),
    Metric("cece", "cECE", "%", "lower", "shift", "ECE on corrupted images", CLASSES, Shifted("ece")),
    # -- diversity
    Metric(
        *("disagreement", "disagree", "%", None, "diversity", "examples on which two members differ", CLASSES),
        of=Pairs(lambda sums: sums.disagreement),
    ),
    Metric(
        *("kl", "KL", "", None, "diversity", "KL divergence of members i < j, in nats", CLASSES),
        of=Pairs(lambda sums: sums.kl),
        **_HIDDEN,
    ),
    Metric(
        *("kl_both", "KL, both ways", "", None, "diversity", "KL divergence of two members, in nats", CLASSES),
        of=Pairs(lambda sums: sums.kl_both),
        **_HIDDEN,
    ),
    Metric(
        *("mutual_information", "MI", "", None, "diversity", "what members disagree about, in nats", CLASSES),
        of=Pairs(lambda sums: sums.mutual_information),
    ),
    Metric(
        *("normalised_disagreement", "disagree / error", "", None, "diversity", "disagreement per error of a member"),
        task=CLASSES,
        of=Pairs(lambda sums: sums.normalised_disagreement, labels=True),
        **_HIDDEN,
    ),
    Metric(
        *("normalised_disagreement_ensemble", "disagree / ensemble error", "", None, "diversity"),
        help="disagreement per error of the ensemble",
        task=CLASSES,
        of=Pairs(lambda sums: sums.normalised_disagreement_ensemble, labels=True),
        **_HIDDEN,
    ),
    Metric(
        *("q_statistic", "Q", "", None, "diversity", "Yule's Q of members being right: 1 if they fail together"),
        task=CLASSES,
        of=Pairs(lambda sums: sums.q_statistic, labels=True),
        **_HIDDEN,
    ),
    Metric(
        *("aleatoric", "aleatoric", "", None, "diversity", "mean variance that members see in the data"),
        of=Mean(lambda prediction, targets: prediction.aleatoric),
        **_NUMBERS | _HIDDEN,
    ),
    Metric(
        *("epistemic", "epistemic variance", "", None, "diversity", "mean variance of the members' means"),
        of=Mean(lambda prediction, targets: prediction.epistemic),
        **_NUMBERS | _HIDDEN,
    ),
    Metric(
        *("epistemic_share", "epistemic", "%", None, "diversity", "variance that members disagree about", NUMBERS),
        read=_epistemic_share,
    ),
)
