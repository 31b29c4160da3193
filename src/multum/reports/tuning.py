"""How a comparison was tuned: what each method tried, for how long, and what was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..figures.formats import NOTHING

__all__ = ["EDGE", "Tried", "Tuned", "settings_words", "tuned", "tuning_words"]

EDGE = "the chosen learning rate is the lowest or the highest that was tried: one beyond it may be better"
APART = ("epochs", "nll", "reason", "fields")  # of an entry: what is not a setting


@dataclass(frozen=True)
class Tried:
    """One setting with its held-out NLL after each stage: a number, the reason of a failure, or a dash."""

    setting: str
    results: Sequence[str]
    chosen: bool
    reason: str  # of a failure


@dataclass(frozen=True)
class Tuned:
    """What one method tried."""

    label: str
    chosen: str
    edge: bool
    epochs: Sequence[int]  # of each stage
    tried: Sequence[Tried]


def tuned(document: Mapping[str, Any]) -> list[Tuned]:
    """Every method's settings in the order they were first tried; none where nothing was tuned."""
    methods = (document.get("tuning") or {}).get("methods") or {}
    return [_tuned(label, entry) for label, entry in methods.items()]


def tuning_words(document: Mapping[str, Any]) -> str:
    """One sentence on the effort, the same for every method.

    >>> stages = [{"epochs": 8, "runs": 4}, {"epochs": 20, "runs": 1}]
    >>> tuning_words({"tuning": {"candidates": 4, "stages": stages, "methods": {}}}).partition(".")[0]
    'Every method had the same effort: 4 runs of 8 epochs, then 1 run of 20 epochs'
    """
    tuning = document.get("tuning")
    if not tuning:
        return ""
    stages = [f"{_counted(stage['runs'], 'run')} of {_counted(stage['epochs'], 'epoch')}" for stage in tuning["stages"]]
    effort = ", then ".join(stages) or "no run"
    return (
        f"Every method had the same effort: {effort}. The setting with the lowest calibrated NLL on a held-out part of "
        "the training data was taken (in bold); no test example was used."
    )


def settings_words(settings: Mapping[str, Any] | None) -> str:
    """
    >>> settings_words({"lr": 0.006, "alpha": 3})
    'lr 0.006, alpha 3'
    """
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in _flat(settings).items()
    )


def _tuned(label: str, entry: Mapping[str, Any]) -> Tuned:
    epochs = sorted({each["epochs"] for each in entry["tried"]})
    by_setting: dict[str, dict[int, Mapping[str, Any]]] = {}
    for each in entry["tried"]:
        by_setting.setdefault(settings_words(each), {})[each["epochs"]] = each
    chosen = settings_words(entry.get("chosen"))
    tried = [
        Tried(
            setting,
            [_result(stages.get(epoch)) for epoch in epochs],
            setting == chosen,
            "; ".join(dict.fromkeys(each["reason"] for each in stages.values() if each.get("reason"))),
        )
        for setting, stages in by_setting.items()
    ]
    return Tuned(label, chosen, bool(entry.get("edge")), epochs, tried)


def _result(each: Mapping[str, Any] | None) -> str:
    if each is None:
        return NOTHING
    return "failed" if each.get("nll") is None else f"{each['nll']:.4f}"


def _flat(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The learning rate and a method's fields as equals."""
    settings = settings or {}
    return {name: v for name, v in settings.items() if name not in APART} | dict(settings.get("fields") or {})


def _counted(n: int, name: str) -> str:
    return f"{n} {name}{'' if n == 1 else 's'}"
