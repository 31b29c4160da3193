"""multum: any PyTorch network as an ensemble, at about the price of one network.

Every name is imported when it is first used, so that neither `import multum` nor `multum --help` waits for torch.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from . import errors, metrics, models
    from .cascades.cascade import Cascade
    from .checking import check
    from .comparing.compare import compare
    from .ensemble import Ensemble  # before `ensemble`, the function, takes the module's name

    from .building import ensemble  # isort: skip
    from .data import Data, load_data
    from .estimators import EnsembleClassifier, EnsembleRegressor
    from .exporting.export import export
    from .memory import keep_memory
    from .methods import (
        BatchEnsemble,
        Deep,
        FastGeometric,
        Hypernet,
        Masksembles,
        McDropout,
        Mimo,
        Mixture,
        Multihead,
        Packed,
        Single,
        Snapshot,
        Swag,
        TabM,
        TreeNet,
    )
    from .metrics.cost import Cost, cost
    from .metrics.evaluate import evaluate
    from .optimizing.optimize import optimize
    from .outputs.acquire import acquire
    from .outputs.loss import loss
    from .outputs.prediction import Prediction, RegressionPrediction, predict
    from .papers.reproduce import reproduce
    from .plans.plan import plan
    from .saving import load, save
    from .thinning.thin import thin
    from .training.course import Course
    from .training.find_lr import find_lr
    from .training.loop import fit
    from .training.recipe import Recipe

__all__ = [
    "BatchEnsemble",
    "Cascade",
    "Cost",
    "Course",
    "Data",
    "Deep",
    "Ensemble",
    "EnsembleClassifier",
    "EnsembleRegressor",
    "FastGeometric",
    "Hypernet",
    "Masksembles",
    "McDropout",
    "Mimo",
    "Mixture",
    "Multihead",
    "Packed",
    "Prediction",
    "Recipe",
    "RegressionPrediction",
    "Single",
    "Snapshot",
    "Swag",
    "TabM",
    "TreeNet",
    "__version__",
    "acquire",
    "check",
    "compare",
    "cost",
    "ensemble",
    "errors",
    "evaluate",
    "export",
    "find_lr",
    "fit",
    "keep_memory",
    "load",
    "load_data",
    "loss",
    "metrics",
    "models",
    "optimize",
    "plan",
    "predict",
    "reproduce",
    "save",
    "thin",
]

# Where names come from; a public name that is not here is a module, or a method.
_HOMES = {
    "Cascade": "cascades.cascade",
    "Cost": "metrics.cost",
    "Course": "training.course",
    "Data": "data",
    "Ensemble": "ensemble",
    "EnsembleClassifier": "estimators",
    "EnsembleRegressor": "estimators",
    "Prediction": "outputs.prediction",
    "Recipe": "training.recipe",
    "RegressionPrediction": "outputs.prediction",
    "acquire": "outputs.acquire",
    "check": "checking",
    "compare": "comparing.compare",
    "cost": "metrics.cost",
    "ensemble": "building",
    "evaluate": "metrics.evaluate",
    "export": "exporting.export",
    "find_lr": "training.find_lr",
    "fit": "training.loop",
    "keep_memory": "memory",
    "load": "saving",
    "load_data": "data",
    "loss": "outputs.loss",
    "optimize": "optimizing.optimize",
    "plan": "plans.plan",
    "predict": "outputs.prediction",
    "reproduce": "papers.reproduce",
    "save": "saving",
    "thin": "thinning.thin",
}


class _Package(ModuleType):
    """A package whose functions keep their names where a module has the same: `multum.ensemble` is the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, "methods" if name[0].isupper() else None)  # the registry knows the methods
    if home is not None and (home != "methods" or hasattr(importlib.import_module(".methods", __name__), name)):
        value = getattr(importlib.import_module(f".{home}", __name__), name)
        globals()[name] = value
        return value
    try:
        return importlib.import_module(f".{name}", __name__)
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
