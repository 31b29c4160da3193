"""The columns of a comparison: what is measured, in which unit, and which end is the good one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["COLUMNS", "Column", "columns_of", "value_of"]


@dataclass(frozen=True)
class Column:
    """One column; `unit` is "%" for shares, "count", "ms", "s", or "" for plain numbers."""

    key: str
    title: str
    unit: str
    better: str | None  # "higher", "lower", or None where neither is
    group: str
    help: str
    task: str | None = None  # None: of both tasks
    per_item: bool = False  # a mean over test items, so that two methods can be compared item by item

    def described(self) -> dict[str, Any]:
        """The column as the document has it."""
        return {k: v for k, v in asdict(self).items() if k not in ("task", "per_item")}


_CLASSES, _NUMBERS = "classification", "regression"

COLUMNS = (
    Column("accuracy", "accuracy", "%", "higher", "quality", "share of test items that are right", _CLASSES, True),
    Column("rmse", "RMSE", "", "lower", "quality", "root mean squared error, in the target's units", _NUMBERS, True),
    Column("nll", "NLL", "", "lower", "quality", "negative log-likelihood per test item, in nats", None, True),
    Column("ece", "ECE", "%", "lower", "quality", "gap between confidence and accuracy, 15 bins", _CLASSES),
    Column("brier", "Brier", "", "lower", "quality", "squared error of the probabilities, 0 to 2", _CLASSES, True),
    Column("aurc", "AURC", "%", "lower", "quality", "risk of answering the surest items, over all coverages", _CLASSES),
    Column("coverage_95", "coverage", "%", None, "quality", "targets inside their 95 % interval", _NUMBERS),
    Column("width_95", "width", "", "lower", "quality", "mean width of the 95 % intervals", _NUMBERS),
    Column("quantile_error", "quantile error", "%", "lower", "quality", "gap of predicted quantiles", _NUMBERS),
    Column("gain_nll", "gain", "", "lower", "quality", "NLL of the ensemble minus the mean NLL of its members"),
    Column("params", "parameters", "count", "lower", "cost", "numbers that are stored"),
    Column("macs", "mult-adds", "count", "lower", "cost", "multiply-adds of one prediction of all members"),
    Column("latency", "latency", "ms", "lower", "cost", "time of one prediction of all members, batch of 1"),
    Column("train_seconds", "training", "s", "lower", "cost", "seconds of training"),
    Column("auroc", "AUROC", "%", "higher", "foreign items", "how often a foreign item looks stranger", _CLASSES),
    Column("aupr", "AUPR", "%", "higher", "foreign items", "average precision of finding foreign items", _CLASSES),
    Column("fpr95", "FPR95", "%", "lower", "foreign items", "known items refused to find 95 % of foreign", _CLASSES),
    Column("cacc", "cAcc", "%", "higher", "shift", "accuracy on corrupted images, mean over kinds", _CLASSES),
    Column("cnll", "cNLL", "", "lower", "shift", "NLL on corrupted images", _CLASSES),
    Column("cece", "cECE", "%", "lower", "shift", "ECE on corrupted images", _CLASSES),
    Column("disagreement", "disagree", "%", None, "diversity", "items on which two members differ", _CLASSES),
    Column("mutual_information", "MI", "", None, "diversity", "what members disagree about, in nats", _CLASSES),
    Column("epistemic_share", "epistemic", "%", None, "diversity", "variance that members disagree about", _NUMBERS),
)


def columns_of(task: str, found: Callable[[str], bool]) -> list[Column]:
    """The columns of a task that some method has a value for."""
    return [c for c in COLUMNS if c.task in (None, task) and found(c.key)]


def value_of(result: Mapping[str, Any], key: str) -> float | None:
    """A column's value in the result of one cell; None where it was not measured."""
    numbers = result["numbers"]
    if key in ("auroc", "aupr", "fpr95"):
        cells = [scores["msp"][key] for scores in numbers.get("ood", {}).values()]
        return sum(cells) / len(cells) if cells else None
    if key == "epistemic_share" and "epistemic" in numbers:
        total = numbers["epistemic"] + numbers["aleatoric"]
        return numbers["epistemic"] / total if total else None
    if key == "train_seconds":
        return result["seconds"]["training"]
    return result["cost"][key] if key in ("params", "macs") else numbers.get(key)
