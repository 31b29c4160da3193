"""What both estimators are: parameters, the fit, and how examples are read by the members."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted
from torch import Tensor, nn

from ..building import ensemble
from ..data.parts import Data
from ..ensemble import Ensemble
from ..errors import ConfigError, check_known
from ..methods import Method, parse
from ..metrics.streams import outputs_of
from ..models.own import builder_of
from ..outputs.prediction import Prediction, RegressionPrediction
from ..runs.networks import builder_for
from ..training.devices import Place
from ..training.loop import advance, fit
from ..training.recipe import Recipe
from ..training.run import Run
from .calibration import Calibration, calibrated
from .defaults import network_for, recipe_for, share_for
from .inputs import Examples, checked_rows, checked_targets, checked_weights, data_of, encoded, more_data, taken
from .storing import from_bytes, load_estimator, save_estimator, to_bytes

__all__ = ["EnsembleEstimator", "Uncertainty"]

AT_ONCE = 512  # examples that are read in one pass
FIELDS = ("epochs", "batch_size", "lr", "weight_decay", "patience")  # of a recipe that are parameters of their own
TURNS = threading.RLock()  # torch has one random state for all threads of a process: their fits take turns


class Uncertainty(NamedTuple):
    """How unsure an ensemble is of each example: total = aleatoric (noise of the data) + epistemic (disagreement)."""

    total: np.ndarray
    aleatoric: np.ndarray
    epistemic: np.ndarray


class EnsembleEstimator(BaseEstimator):
    """An ensemble behind scikit-learn's interface; see EnsembleClassifier and EnsembleRegressor."""

    task: ClassVar[str]

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
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
    ):
        self.method = method
        self.network = network
        self.members = members
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.calibrate = calibrate
        self.recipe = recipe
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: Any = None) -> Any:
        """Train on X and y.

        Args:
            sample_weight: factors of the examples' losses, of which the ratios count; one of weight 0 is left out.
            eval_set: (X, y) to stop early and to calibrate by; None: a part of X is held out for it.
        """
        examples = self._examples(X, y, sample_weight, reset=True).normalised()
        held_out = None if eval_set is None else self._held_out(eval_set)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        share = share_for(len(examples.y), self.validation_fraction)
        data = data_of(examples, held_out, self.task, self._class_names(), share, seed)
        method = self._method()
        recipe = recipe_for(data, method, self._overrides()).with_overrides({"seed": seed})
        with TURNS:
            ens, data = self._built(data, method, recipe)
            self.history_ = fit(ens, data, recipe, **self._where(), progress=self.verbose, warn=self.verbose)
        self.n_iter_ = len(self.history_)
        self._memory: dict[str, Tensor] = {}
        self._adopt(ens, data, seed)
        return self

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Any:
        """One pass over further examples: what the first call learns of columns and scales stays, as do momenta."""
        first = not hasattr(self, "ensemble_")
        examples = self._examples(X, y, sample_weight, reset=first, classes=classes)
        if first:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            data = data_of(examples, None, self.task, self._class_names(), 0.0, seed)
            self.history_, self.n_iter_, self._memory = [], 0, {}
        else:
            seed, data = self._seed, more_data(self.preparation_, examples)
        once = {"epochs": 1, "schedule": "constant", "keep": "last", "patience": 0, "validation": 0.0}
        method = self._method() if first else self.ensemble_.method
        overrides = {**self._overrides(), **once, "seed": (seed + self.n_iter_) % 2**31}
        recipe = recipe_for(data, method, overrides)
        with TURNS:
            ens = self._built(data, method, recipe)[0] if first else self.ensemble_
        run = Run(ens, data, recipe, Place(*self._where().values()), None, False, False, False, 60.0)
        with TURNS, run:
            run.optimizers.load_state(self._memory)
            advance(run)
            self._memory = run.optimizers.state()
            run.conclude(warn=False)
        self.n_iter_ += 1
        self.history_ = [*self.history_, *run.history]
        self._adopt(ens, data, seed)
        return self

    # -- what is asked for ---------------------------------------------------------------------------------------------

    def _method(self) -> Method:
        """The method; one that is named takes `members` from the parameter, unless the name says it."""
        if not isinstance(self.method, str):
            return self.method
        method = parse(self.method)
        return method if "members=" in self.method else dataclasses.replace(method, members=self.members)

    def _overrides(self) -> dict[str, Any]:
        """The fields of a recipe that were asked for."""
        known = {field.name for field in dataclasses.fields(Recipe)} - {*FIELDS, "seed", "class_weights", "validation"}
        for name in self.recipe or ():
            check_known(name, known, "`recipe` must hold fields of multum.Recipe that are no parameters of their own")
        asked = {name: getattr(self, name) for name in FIELDS if getattr(self, name) is not None}
        return {**(self.recipe or {}), **asked}

    def _where(self) -> dict[str, Any]:
        """Accelerator and devices, as `multum.fit` takes them: "cuda:1" is the second one."""
        accelerator, _, index = self.device.partition(":")
        return {"accelerator": accelerator, "devices": f"{index}," if index else 1}

    def _built(self, data: Data, method: Method, recipe: Recipe) -> tuple[Ensemble, Data]:
        data = data.for_loss(recipe.loss)
        kind: dict[str, Any] = {"task": self.task, "targets": data.targets_count}
        return ensemble(self._network(data), method, example=data.example(), seed=recipe.seed, **kind), data

    def _network(self, data: Any) -> Any:
        """A network, or what builds one for this data."""
        if self.network is None or isinstance(self.network, str):
            return builder_for(self.network or network_for(data), data)
        if isinstance(self.network, nn.Module):
            return self.network
        return builder_of(self.network, data.shape, data.outputs, {}, "network")

    # -- examples ------------------------------------------------------------------------------------------------------

    def _coded(self, y: Any, *, reset: bool, classes: Any) -> Tensor:
        """Targets as multum takes them."""
        raise NotImplementedError

    def _class_names(self) -> tuple[str, ...]:
        return ()

    def _class_weighted(self, y: Any, weights: Tensor | None) -> Tensor | None:
        return weights

    def _examples(
        self, X: Any, y: Any, sample_weight: Any = None, *, reset: bool = False, classes: Any = None
    ) -> Examples:
        """What X, y and weights hold; examples of weight 0 are as if they were not there."""
        rows, y = checked_rows(self, X, reset=reset), checked_targets(self, y, numbers=self.task == "regression")
        check_consistent_length(rows, y)
        weights = checked_weights(sample_weight, rows)
        if weights is not None and not bool(weights.all()):
            there = weights.nonzero().flatten()
            rows, y, weights = taken(rows, there), y[there.numpy()], weights[there]
        targets = self._coded(y, reset=reset, classes=classes)
        return Examples(rows, targets, self._class_weighted(y, weights))

    def _held_out(self, eval_set: Any) -> Examples:
        pair = eval_set[0] if isinstance(eval_set, list) and len(eval_set) == 1 else eval_set
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ConfigError("`eval_set` must be (X, y); got another shape. Give one pair")
        return self._examples(*pair)

    # -- members -------------------------------------------------------------------------------------------------------

    def _adopt(self, ens: Ensemble, data: Data, seed: int) -> None:
        """Make a trained ensemble this estimator's, and calibrate it on what was held out."""
        self.ensemble_, self.preparation_, self._seed = ens, data.preparation, seed
        self._make_reader()
        self._calibration = Calibration.none()
        if data.validation is not None:
            outputs = self._outputs(data.validation.x)
            self._calibration = calibrated(outputs, data.validation, self.task, self.calibrate)

    def _make_reader(self) -> None:
        """What reads examples: in float64 for rows, so that an answer never depends on the others of its batch."""
        wide = not self.preparation_.is_image and self.ensemble_.device.type != "mps"  # which has no float64
        self._reader = copy.deepcopy(self.ensemble_).double().eval() if wide else self.ensemble_

    @property
    def temperature_(self) -> Any:
        """What logits are divided by, or standard deviations multiplied with; fitted on held-out examples, else 1."""
        check_is_fitted(self, "ensemble_")
        return self._calibration.temperature

    def _outputs(self, x: Any) -> Tensor:
        """Raw examples to the members' outputs in the targets' units, on the CPU. Shape: [members, examples, ...]."""
        randomness = self._reader.randomness.state()  # where members are draws, the same ones in every call
        try:
            return torch.cat(list(outputs_of(self._reader, self.preparation_, x, AT_ONCE)), 1)
        finally:
            self._reader.randomness.load_state(randomness)

    def _read(self, X: Any) -> Prediction | RegressionPrediction:
        check_is_fitted(self, "ensemble_")
        x = encoded(checked_rows(self, X, reset=False), self.preparation_.table)
        return self._calibration.read(self._outputs(x), self.task)

    # -- files ---------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "ensemble_" in state:
            state["ensemble_"] = to_bytes(self.ensemble_)
            del state["_reader"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "ensemble_" in state:
            self.ensemble_ = from_bytes(state["ensemble_"], self._rebuilder(), self.device)
            self._make_reader()

    def _rebuilder(self) -> Any:
        """The network of a file that does not name it; None where multum builds it by name."""
        by_name = self.network is None or isinstance(self.network, str)
        return None if by_name else self._network(self.preparation_)

    def save(self, path: str | Path) -> None:
        """Write a fitted estimator to one file, without pickle."""
        check_is_fitted(self, "ensemble_")
        save_estimator(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, network: Any = None, device: str = "auto") -> Any:
        """Read what `save` wrote: the same predictions to the bit.

        Args:
            network: what `network` was, where it was no name.
        """
        return load_estimator(cls, Path(path), network, device)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.input_tags.three_d_array = True
        return tags
