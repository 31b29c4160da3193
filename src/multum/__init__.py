"""multum: any PyTorch network as an ensemble, at about the price of one network."""

from . import errors, models
from .checking import check
from .comparing.compare import compare
from .ensemble import Ensemble  # before `ensemble`, the function, takes the module's name

from .building import ensemble  # isort: skip
from .data import Data, load_data
from .evaluation.cost import Cost, cost
from .evaluation.evaluate import evaluate
from .evaluation.loss import loss
from .evaluation.predict import Prediction, RegressionPrediction, predict
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
from .recipes.reproduce import reproduce
from .rewrite.thin import thin
from .saving import load, save
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
    "models",
    "predict",
    "reproduce",
    "save",
    "thin",
]
