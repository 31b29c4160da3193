"""`multum.EnsembleRegressor`."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import RegressorMixin
from torch import Tensor

from ..outputs.prediction import RegressionPrediction
from .base import EnsembleEstimator, Uncertainty
from .calibration import by_target

__all__ = ["EnsembleRegressor"]


class EnsembleRegressor(RegressorMixin, EnsembleEstimator):
    """An ensemble of networks as a scikit-learn regressor, with intervals.

    Each member predicts a mean and a variance; y may have several columns. Parameters are those of
    `multum.EnsembleClassifier`, but for `class_weight`; what is held out also scales the standard deviations, and fits
    conformal intervals when asked.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = EnsembleRegressor("deep", "mlp:hidden=16", members=2, epochs=5, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> low, high = model.predict_interval(X[:3], coverage=0.9)
    >>> bool((std > 0).all() and (low < mean).all() and (mean < high).all())
    True
    """

    task: ClassVar[str] = "regression"

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The mean of the members' mixture, and its standard deviation where asked. Shape: [n] or [n, targets]."""
        prediction = self._read(X)
        assert isinstance(prediction, RegressionPrediction)
        mean = prediction.mean.numpy()
        return (mean, prediction.variance.sqrt().numpy()) if return_std else mean

    def predict_members(self, X: Any, return_std: bool = False) -> Any:
        """Each member's mean, and standard deviation where asked. Shape: [members, n] or [members, n, targets]."""
        prediction = self._read(X)
        assert isinstance(prediction, RegressionPrediction)
        means, variances = prediction.members.unbind(2)
        return (means.numpy(), variances.sqrt().numpy()) if return_std else means.numpy()

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """(low, high) that hold the target with this probability (conformalised quantiles of the mixture)."""
        prediction = self._read(X)
        assert isinstance(prediction, RegressionPrediction)
        rules = self._calibration.intervals(coverage)
        ends = [rule(each) for rule, each in zip(rules, by_target(prediction), strict=True)]
        low, high = (torch.stack(side, 1) for side in zip(*ends, strict=True))
        several = prediction.members.ndim > 3
        return (low.numpy(), high.numpy()) if several else (low[:, 0].numpy(), high[:, 0].numpy())

    def uncertainty(self, X: Any) -> Uncertainty:
        """Variances: that of the mixture, the members' mean variance, and the variance of their means."""
        prediction = self._read(X)
        assert isinstance(prediction, RegressionPrediction)
        return Uncertainty(prediction.variance.numpy(), prediction.aleatoric.numpy(), prediction.epistemic.numpy())

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> EnsembleRegressor:
        """One pass over further examples."""
        return self._partial_fit(X, y, sample_weight)

    def _coded(self, y: Any, *, reset: bool, classes: Any) -> Tensor:
        if len(y) == 1 and reset:
            raise ValueError("X must have two rows at least; got n_samples=1")
        return torch.from_numpy(y.astype(np.float64))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
