"""multum: any PyTorch network as an ensemble, at about the price of one network."""

from . import errors, models
from .checking import check
from .ensemble import Ensemble  # before `ensemble`, the function, takes the module's name

from .building import ensemble  # isort: skip
from .evaluation.cost import Cost, cost
from .evaluation.loss import loss
from .evaluation.predict import Prediction, RegressionPrediction, predict
from .methods import Deep, FastGeometric, Packed, Single, Snapshot, Swag
from .rewrite.thin import thin
from .saving import load, save
from .version import __version__

__all__ = [
    "Cost",
    "Deep",
    "Ensemble",
    "FastGeometric",
    "Packed",
    "Prediction",
    "RegressionPrediction",
    "Single",
    "Snapshot",
    "Swag",
    "__version__",
    "check",
    "cost",
    "ensemble",
    "errors",
    "load",
    "loss",
    "models",
    "predict",
    "save",
    "thin",
]
