"""Every metric, once: what it means, in which unit, which end is the good one, and how it is computed.

`multum.evaluate`, tables of whole arrays, sums over batches, the columns of a comparison and the documentation all read
`METRICS`. A new metric is one entry there. How a metric is computed: computations.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from torch import Tensor

from ..outputs.prediction import RegressionPrediction
from . import ood, regression
from .calibration import adaptive_ece, bin_sums, ece_of_sums
from .classification import example_brier, example_nll
from .computations import Calibrated, Computation, Counts, Detection, Mean, Pairs, Ranks, Shifted, Sums, Whole
from .per_class import balanced_accuracy, f1
from .selective import aurc


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
    main: bool = False  # whether its first table does, which has at most seven columns: quality, worth, OOD data, price
    uneven: bool = False  # shown there only for two classes, or for classes of very different sizes
    read: Callable[[Mapping[str, Any]], float | None] | None = None  # from a cell's result; None: its number `key`

    def described(self) -> dict[str, Any]:
        """What a person is told about it, as plain data."""
        return {name: getattr(self, name) for name in ("key", "title", "unit", "better", "group", "help", "main")}

    def value(self, result: Mapping[str, Any]) -> float | None:
        """Its value in the result of one cell; None where it was not measured."""
        if isinstance(self.of, Detection):  # the mean over OOD sets, of the score that everybody reports
            cells = [scores["msp"][self.key] for scores in result["numbers"].get("ood", {}).values()]
            return sum(cells) / len(cells) if cells else None
        if self.uneven and not result["numbers"].get("by_class", {}).get("uneven"):
            return None
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


def metric_of(task: str, key: str) -> Metric:
    """
    >>> metric_of("regression", "nll").title
    'NLL'
    """
    return next(metric for metric in METRICS if metric.task in (None, task) and metric.key == key)


def _part(name: str, key: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda result: result[name].get(key)


def _epistemic_share(result: Mapping[str, Any]) -> float | None:
    numbers = result["numbers"]
    total = numbers.get("epistemic", 0.0) + numbers.get("aleatoric", 0.0)
    return numbers["epistemic"] / total if total else None


def _quality(key: str, title: str, unit: str, better: str | None, help: str, *more: Any, **options: Any) -> Metric:
    return Metric(key, title, unit, better, "quality", help, *more, **options)


def _intervals(level: int) -> tuple[Metric, Metric]:
    """How often the mixture's central interval of this level, in %, holds the target, and how wide it is."""

    def inside(prediction: RegressionPrediction, targets: Tensor) -> Tensor:
        low, high = prediction.interval(level / 100)
        return (low <= targets) & (targets <= high)

    def width(prediction: RegressionPrediction, targets: Tensor) -> Tensor:
        low, high = prediction.interval(level / 100)
        return high - low

    shown: dict[str, Any] = {"of_members": False, "column": level == 95}
    held, wide = f"targets inside their {level} % interval", f"mean width of the {level} % intervals"
    return (
        _quality(f"coverage_{level}", "coverage", "%", None, held, NUMBERS, Mean(inside), **shown, main=level == 95),
        _quality(f"width_{level}", "width", "", "lower", wide, NUMBERS, Mean(width), **shown),
    )


CLASSES, NUMBERS = "classification", "regression"
_SURPRISE = "how surprised the model is by the truth (negative log-likelihood, in nats)"
_NLL = ("nll", "NLL", "", "lower", f"{_SURPRISE}, with its confidence as training left it")
_CALIBRATED_NLL = (
    *("calibrated_nll", "calibrated NLL", "", "lower"),
    f"{_SURPRISE}, once its confidence is put right by temperature scaling; the advice follows it",
)
_LOSS: dict[str, Any] = {"per_example": True, "main": True}
_HIDDEN: dict[str, Any] = {"column": False}  # measured, and in no table of a comparison
_MIXTURE: dict[str, Any] = {"task": NUMBERS, "of_members": False}  # of a regression's mixture alone

METRICS: tuple[Metric, ...] = (
    _quality(
        *("accuracy", "accuracy", "%", "higher", "share of test examples that are answered right", CLASSES),
        Mean(lambda examples: examples.correct),
        **_LOSS,
    ),
    _quality(
        *("rmse", "RMSE", "", "lower", "typical size of an error, in the target's own units", NUMBERS),
        Mean(lambda prediction, targets: (prediction.mean - targets).square(), math.sqrt),
        **_LOSS,
    ),
    _quality(*_NLL, CLASSES, Mean(lambda examples: example_nll(examples.log_probs, examples.labels)), **_LOSS),
    _quality(*_NLL, NUMBERS, Mean(regression.example_nll), **_LOSS),
    *(_quality(*_CALIBRATED_NLL, task, Calibrated("nll"), **_LOSS) for task in (CLASSES, NUMBERS)),
    _quality(
        *("equivalent", "worth", "", "higher"),
        "how many separately trained networks, averaged, are as good by calibrated NLL",
        main=True,
    ),
    _quality(
        *("ece", "ECE", "%", "lower", "how far confidence is from how often it is right", CLASSES),
        Sums(lambda confidence, correct, bins: bin_sums(confidence, correct, bins=bins), ece_of_sums),
    ),
    _quality(
        *("brier", "Brier", "", "lower", "squared error of the probabilities, 0 to 2", CLASSES),
        Mean(lambda examples: example_brier(examples.probs, examples.labels)),
        per_example=True,
    ),
    *(
        _quality(key, title, unit, "lower", f"{name} after temperature scaling", CLASSES, Calibrated(of))
        for key, title, unit, name, of in (
            ("calibrated_ece", "calibrated ECE", "%", "ECE", "ece"),
            ("calibrated_brier", "calibrated Brier", "", "Brier score", "brier"),
        )
    ),
    _quality("temperature", "temperature", "", None, "what logits are divided by, or deviations multiplied", **_HIDDEN),
    *(
        _quality(key, key.replace("_", " "), unit, None, "of a network that has learned nothing", **_HIDDEN)
        for key, unit in (("chance_nll", ""), ("chance_accuracy", "%"), ("chance_rmse", ""))
    ),
    _quality(
        *("adaptive_ece", "adaptive ECE", "%", "lower", "ECE over 15 bins of equally many examples", CLASSES),
        Whole(lambda confidence, correct, bins: adaptive_ece(confidence, correct, bins=bins)),
        **_HIDDEN,
    ),
    _quality(
        *("aurc", "AURC", "%", "lower", "risk of answering the surest examples, over all coverages", CLASSES),
        Whole(lambda confidence, correct, bins: aurc(confidence, correct)),
    ),
    *(
        _quality(key, title, "%", "higher", help, CLASSES, of, uneven=True)
        for key, title, of, help in (
            ("balanced_accuracy", "balanced acc.", Counts(balanced_accuracy), "mean over classes of the share right"),
            ("f1", "F1", Counts(f1), "F1 of the positive class of two, or the mean over classes"),
            ("class_auroc", "class AUROC", Ranks(ood.auroc_of_hits), "ranking of a class against the rest"),
            ("class_auprc", "class AUPRC", Ranks(ood.aupr_of_hits), "average precision of a class against the rest"),
        )
    ),
    _quality(
        *("nll_moments", "NLL of moments", "", "lower", "NLL of one Gaussian with the mixture's moments"),
        of=Mean(lambda prediction, targets: regression.example_nll(prediction, targets, of="moments")),
        **_MIXTURE | _HIDDEN,
    ),
    *_intervals(50),
    *_intervals(90),
    *_intervals(95),
    _quality(
        *("quantile_error", "quantile error", "%", "lower", "gap of predicted quantiles"),
        of=Whole(lambda prediction, targets: regression.quantile_curve(prediction, targets).error),
        **_MIXTURE,
    ),
    _quality("gain_nll", "gain", "", "lower", "NLL of the ensemble minus the mean NLL of its members"),
    # -- cost, measured by `multum.cost`, `compare_speed` and the training itself
    *(
        Metric(key, title, unit, "lower", "cost", help, read=_part(*place), main=key in ("macs", "latency"))
        for key, title, unit, place, help in (
            ("params", "parameters", "count", ("cost", "params"), "numbers that are stored: its size"),
            ("macs", "mult-adds", "count", ("cost", "macs"), "multiply-adds of one prediction by all members"),
            ("latency", "latency", "ms", ("numbers", "latency"), "time of one prediction by all members, batch of 1"),
            ("train_seconds", "training", "s", ("seconds", "training"), "seconds of training"),
        )
    ),
    # -- OOD data
    *(
        Metric(key, title, "%", better, "OOD data", help, CLASSES, Detection(of), main=key == "auroc")
        for key, title, better, of, help in (
            (
                *("auroc", "AUROC", "higher", ood.auroc_of_hits),
                "how well the model's doubt tells OOD data from test data: 100 % always, 50 % by chance",
            ),
            ("aupr", "AUPR", "higher", ood.aupr_of_hits, "average precision of finding OOD examples"),
            ("fpr95", "FPR95", "lower", ood.fpr_of_hits, "test examples refused to find 95 % of the OOD ones"),
        )
    ),
    # -- distribution shift
    Metric(
        *("cacc", "cAcc", "%", "higher", "shift", "accuracy on corrupted images, mean over kinds", CLASSES),
        of=Shifted("accuracy"),
    ),
    Metric("cnll", "cNLL", "", "lower", "shift", "NLL on corrupted images", CLASSES, Shifted("nll")),
    Metric("cece", "cECE", "%", "lower", "shift", "ECE on corrupted images", CLASSES, Shifted("ece")),
    # -- diversity: each is a property of `PairSums`
    *(
        Metric(key, title, unit, None, "diversity", help, CLASSES, Pairs(attrgetter(key), labels), column=column)
        for key, title, unit, labels, column, help in (
            ("disagreement", "disagree", "%", False, True, "examples on which two members differ"),
            ("kl", "KL", "", False, False, "KL divergence of members i < j, in nats"),
            ("kl_both", "KL, both ways", "", False, False, "KL divergence of two members, in nats"),
            ("mutual_information", "MI", "", False, True, "what members disagree about, in nats"),
            ("normalised_disagreement", "disagree / error", "", True, False, "disagreement per error of a member"),
            (
                *("normalised_disagreement_ensemble", "disagree / ensemble error", "", True, False),
                "disagreement per error of the ensemble",
            ),
            ("q_statistic", "Q", "", True, False, "Yule's Q of members being right: 1 if they fail together"),
        )
    ),
    Metric(
        *("aleatoric", "aleatoric", "", None, "diversity", "mean variance that members see in the data"),
        of=Mean(lambda prediction, targets: prediction.aleatoric),
        **_MIXTURE | _HIDDEN,
    ),
    Metric(
        *("epistemic", "epistemic variance", "", None, "diversity", "mean variance of the members' means"),
        of=Mean(lambda prediction, targets: prediction.epistemic),
        **_MIXTURE | _HIDDEN,
    ),
    *(
        Metric(f"{key}_of_{whose}", f"{key} of {whose.replace('_', ' ')}", "", None, "diversity", help, **_HIDDEN)
        for key in ("information", "disagreement", "variance")
        for whose, help in (("members", "on a sample"), ("one_member", "one member's own, on inputs with small noise"))
    ),
    Metric(
        *("epistemic_share", "epistemic", "%", None, "diversity", "variance that members disagree about", NUMBERS),
        read=_epistemic_share,
    ),
)
