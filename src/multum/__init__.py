"""multum: any PyTorch network as an ensemble, at about the price of one network."""

from . import errors, metrics, models
from .checking import check
from .comparing.compare import compare
from .ensemble import Ensemble  # before `ensemble`, the function, takes the module's name

from .building import ensemble  # isort: skip
from .data import Data, load_data
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
    TreeNet,
)
from .metrics.cost import Cost, cost
from .metrics.evaluate import evaluate
from .outputs.loss import loss
from .outputs.prediction import Prediction, RegressionPrediction, predict
from .papers.reproduce import reproduce
from .saving import load, save
from .thinning.thin import thin
from .training.loop import fit
from .training.recipe import Recipe
from .version import __version__

__all__ = [
    "BatchEnsemble",
    "Cost",
    "Data",
    "Deep",
    "Ensemble",
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
    "TreeNet",
    "__version__",
    "check",
    "compare",
    "cost",
    "ensemble",
    "errors",
    "evaluate",
    "fit",
    "keep_memory",
    "load",
    "load_data",
    "loss",
    "metrics",
    "models",
    "predict",
    "reproduce",
    "save",
    "thin",
]
