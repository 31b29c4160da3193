"""Ensembles as scikit-learn estimators."""

from .classifier import EnsembleClassifier
from .regressor import EnsembleRegressor

__all__ = ["EnsembleClassifier", "EnsembleRegressor"]
