"""`multum.EnsembleClassifier`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor, nn

from ..methods import Method
from ..outputs.prediction import Prediction
from .base import EnsembleEstimator, Uncertainty

__all__ = ["EnsembleClassifier"]


class EnsembleClassifier(ClassifierMixin, EnsembleEstimator):
    """An ensemble of networks as a scikit-learn classifier, with uncertainty.

    Rows may have numbers, categories and missing cells, in numpy, pandas or polars; arrays [n, height, width] or
    [n, channels, height, width] are images. A part of them is held out to stop training early, to fit a temperature
    and, when asked, conformal sets.

    Args:
        method: a name as the command line writes it ("packed", "deep", "batchensemble", "packed:alpha=3"), or a config
            such as `multum.Packed(alpha=3)`, which brings its own number of members. The default is the cheapest that
            docs/results/compare.md shows to be better than one network on tables (adult, california_housing; on
            higgs_15k and covertype it cannot be told from one). "batchensemble", at four times the mult-adds, is
            better still on california_housing and covertype.
        network: a name ("mlp:hidden=64+64"), a network, a function that builds one (called with those of in_features,
            in_channels, classes, ... that it takes), or None: one that suits the data.
        members: of a method that is named.
        epochs, batch_size, lr, weight_decay: of training; None: what suits the data and its size.
        patience: epochs without a better held-out loss after which training stops; 0: never; None: as suits the data.
        validation_fraction: share of the examples that is held out; 0: none; None: as many as suits the data, and none
            of fewer than 100.
        calibrate: whether a temperature is fitted on what is held out.
        recipe: further fields of `multum.Recipe`, as {"clip": 1.0, "schedule": "constant"}.
        class_weight: None, "balanced", or {class: weight}: factors of the losses of a class's examples.
        random_state: an int gives the same result again.
        device: "auto", "cpu", "cuda", "cuda:1".
        verbose: whether progress is shown.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = EnsembleClassifier("deep", "mlp:hidden=16", members=2, epochs=20, lr=0.05, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:2]).shape, model.predict_set(X[:2], coverage=0.9).shape, bool(model.score(X, y) > 0.9)
    ((2, 3), (2, 3), True)
    """

    task: ClassVar[str] = "classification"

    def __init__(
        self,
        method: str | Method = "packed",
        network: str | nn.Module | Callable[..., nn.Module] | None = None,
        members: int = 4,
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        patience: int | None = None,
        validation_fraction: float | None = None,
        calibrate: bool = True,
        recipe: Mapping[str, Any] | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
    ):
        super().__init__(
            method,
            network,
            members,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            weight_decay=weight_decay,
            patience=patience,
            validation_fraction=validation_fraction,
            calibrate=calibrate,
            recipe=recipe,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each example."""
        chosen = self.predict_proba(X).argmax(1)
        return self.classes_[chosen]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The members' mean probabilities, classes in the order of `classes_`. Shape: [n, classes]."""
        return self._classes_of(X).probs.numpy()

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Their logarithms, also where a probability is too small for a number. Shape: [n, classes]."""
        return self._classes_of(X).log_probs.numpy()

    def predict_members(self, X: Any) -> np.ndarray:
        """Each member's probabilities. Shape: [members, n, classes]."""
        return self._classes_of(X).members.numpy()

    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Which classes are in a set that holds the true one with this probability. Shape: [n, classes], true/false."""
        prediction = self._classes_of(X)
        return self._calibration.sets(coverage)(prediction.probs).numpy()

    def uncertainty(self, X: Any) -> Uncertainty:
        """Entropies in nats: of the mean probabilities, the members' mean entropy, and their mutual information."""
        prediction = self._classes_of(X)
        total, epistemic = prediction.entropy.numpy(), prediction.mutual_information.numpy()
        return Uncertainty(total, total - epistemic, epistemic)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> EnsembleClassifier:
        """One pass over further examples.

        Args:
            classes: all that will ever come, in the first call; None: those of y.
        """
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' must see all examples; got partial_fit, which sees some. Give a dict"
            )
        return self._partial_fit(X, y, sample_weight, classes)

    def _coded(self, y: Any, *, reset: bool, classes: Any) -> Tensor:
        check_classification_targets(y)
        if reset:
            self.classes_ = np.unique(y if classes is None else np.asarray(classes))
            if len(self.classes_) < 2:
                raise ValueError(f"y must have two classes at least; got one class, {self.classes_[0]!r}")
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            known = ", ".join(map(str, self.classes_[:8]))
            raise ValueError(
                f"y must have the classes of the first call ({known}); got {unknown[0]!r}. Name all in `classes`"
            )
        return torch.from_numpy(np.searchsorted(self.classes_, y).astype(np.int64))

    def _class_names(self) -> tuple[str, ...]:
        return tuple(map(str, self.classes_))

    def _class_weighted(self, y: Any, weights: Tensor | None) -> Tensor | None:
        if self.class_weight is None:
            return weights
        of_classes = torch.from_numpy(compute_sample_weight(self.class_weight, y))
        return of_classes if weights is None else of_classes * weights

    def _classes_of(self, X: Any) -> Prediction:
        prediction = self._read(X)
        assert isinstance(prediction, Prediction)
        return prediction
